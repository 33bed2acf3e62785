const CARRY = ["in place", "map", "transfer", "restore"], POINTS = 41, OCTAVES = 5, FAR = 10, FAR_OFF = 0.5; // an error from which on the reader is told where it lies
const TERMS = ["queue", "link queue", "transfer", "prefill", "resume", "decode", "overhead", "overlap"]; // as in reports; others after them
const WORDY = { page: 52, cell: 68 }; // px: room for the sentences above the table, three lines of a page and four of a cell
const SHADE = { queue: 0.25, "link queue": 0.25, overhead: 0.45, resume: 0.7 };
// Sliders stand in the middle as recorded: rates are halved or doubled every 10 steps, seconds go to 0 or up by a square.
// Seconds that are 0 as recorded have nowhere to go but up: their slider stands at its left end.
const RATES = ["bandwidth", "prefill"], HALF = 50, MOST = { latency: 1, queue: 10 };
const rateAt = step => 2 ** (step / 10), secondsAt = (step, base, most) => step <= 0 ? base * (1 + step / HALF) : base + most * (step / HALF) ** 2;
const rateText = rate => Number.isFinite(rate) ? `${bytes(rate)}/s` : "no limit";

class DecisionView extends Panel {
  constructor(client, parts) { super(client, parts); this.axis = "tokens"; }
  get legend() { return `<span data-kv="edge"></span>`; }
  mount() { super.mount(); this.row = this.at = undefined; }
  get never() {
    const text = this.store.run.flow === "text" ? "In textflow no state is handed on: every agent is sent its text, and prefills it." : "This run handed no state on.";
    return this.yet("No state was handed on", this.store.decisions.born[0], text);
  }
  // As recorded; those that follow from what was seen are not told.
  get alternatives() {
    const d = this.store.decisions, row = this.row, told = d.alternatives[row].map(([how, worker, took, terms, nbytes, missing, excluded]) =>
      ({ how: this.client.how(how), worker: this.store.workers[worker], took, terms, nbytes, missing, excluded }));
    const all = told.length ? told : decide(worldOf(JSON.parse(d.seen[row]))), how = this.client.how(d.chosen[row]), worker = this.store.workers[d.worker[row]];
    return all.map(one => ({ ...one, chosen: one.how === how && one.worker === worker && !one.excluded }));
  }
  // What is told of row i of `name` if it is known at the cursor.
  known(name, i) { return this.store.born(name, i, this.client.k) ? i : -1; }
  later(k, again) {
    const row = this.client.decision, actual = this.known("actuals", this.store.actualOf.get(row)), audit = this.known("audits", this.store.auditOf.get(row));
    const at = [row, actual, audit].join();
    if (at === this.at && !again) return;
    if (row !== this.row) { this.row = row; this.read(); }
    this.at = at;
    Object.assign(this, { actual, audit });
    const d = this.store.decisions, name = this.client.at(this.head)?.querySelector("[data-kv=edge]");
    if (name) name.textContent = row < 0 ? "" : `${d.source[row]} → ${d.target[row]}, ${counted(d.tokens[row], "token")}`;
    this.drawKnobs();
    this.draw();
  }
  // The world that the row's decision saw, with nothing turned; and what its chart is about.
  read() {
    const d = this.store.decisions;
    this.turned = null;
    this.wordy = WORDY[this.client.told.meta.page ? "page" : "cell"];
    this.world = this.place = null;
    this.recorded = this.row < 0 ? [] : this.alternatives;
    this.chosen = this.recorded.find(a => a.chosen);
    if (this.row < 0 || !d.seen[this.row]) return;
    this.world = worldOf(JSON.parse(d.seen[this.row]));
    const found = decide(this.world), like = (a, b) => a.how === b.how && a.worker === b.worker;
    // What was sent ahead had come a part of its way: so much less is predicted for that road than for one that begins now.
    this.ahead = road => { const told = this.recorded.find(a => like(a, road)), now = found.find(a => like(a, road)); return told?.took != null && now ? told.took - now.took : 0; };
    for (const a of this.recorded) a.from = found.find(road => like(a, road))?.from;
    const moved = found.filter(road => ["map", "transfer"].includes(road.how));
    this.place = (this.chosen?.missing && moved.find(road => road.worker === this.chosen.worker)) || moved[0] || null;
  }
  get asked() { return this.turned ? changed(this.world, this.turned) : this.world; }
  // Alternatives as recorded, or as they would be.
  get shown() {
    if (!this.turned) return this.recorded;
    const all = decide(this.asked).map(road => ({ ...road, took: road.took + this.ahead(road) }));
    all.sort((a, b) => a.took - b.took)[0].chosen = true;
    return all;
  }
  draw() {
    this.instead(this.row < 0 ? this.never : "");
    if (this.row < 0) this.client.put(this.rows, ""); else this.drawRows(this.shown);
    this.drawChart();
  }

  // -- words
  phrase({ how, worker, nbytes, missing }) {
    return { "in place": `using it on ${worker}`, map: `mapping it on ${worker}`, transfer: `sending ${bytes(nbytes)} to ${worker}`,
      restore: `reading ${bytes(nbytes)} back from disk on ${worker}`,
      hybrid: `sending ${bytes(nbytes)} to ${worker} while the front is prefilled`,
      recompute: `prefilling ${missing ? counted(missing, "token") : "it"} again on ${worker}` }[how] ?? `${how} on ${worker}`;
  }
  // The road that the chosen one is measured by: the best of those that do the other thing.
  rival(all, chosen) {
    const open = all.filter(a => !a.excluded && a !== chosen), other = open.filter(a => [a.how, chosen.how].includes("hybrid") || (a.how === "recompute") === CARRY.includes(chosen.how));
    return (other.length ? other : open).sort((a, b) => a.took - b.took)[0];
  }
  why(all, chosen) {
    const did = { "in place": "Used where it lies", map: "Mapped, not copied", transfer: "Moved, not recomputed", restore: "Read back from disk, not recomputed", hybrid: "Part moved, part recomputed", recompute: "Recomputed, not moved" };
    const rival = this.rival(all, chosen), says = `${did[chosen.how] ?? chosen.how}: ${this.phrase(chosen)} takes ${seconds(chosen.took)}`;
    if (chosen.how === "recompute" && all.every(a => a.excluded || a.how === "recompute"))
      return `Recomputed, for no worker holds the whole state: ${this.phrase(chosen)} takes ${seconds(chosen.took)}.`;
    if (!rival) return `${says}; there was no other road.`;
    // Where a worker is busy, that is the reason, and not what its road takes.
    const busy = rival.terms.queue > rival.took / 3 ? `, ${seconds(rival.terms.queue)} of them waiting for ${rival.worker}` : "";
    return rival.took >= chosen.took ? `${says}, ${this.phrase(rival)} ${seconds(rival.took)}${busy}.` : `${says}, though ${this.phrase(rival)} would take only ${seconds(rival.took)}.`;
  }
  words(all) {
    const d = this.store.decisions, chosen = all.find(a => a.chosen), policy = d.policy[this.row];
    if (this.turned) {
      const same = this.chosen && chosen.how === this.chosen.how && chosen.worker === this.chosen.worker;
      const rival = this.rival(all, chosen), [chose, other] = [chosen, rival].map(one => one && `${one.how} on ${one.worker}`);
      return `<p class="why" data-kv="what-if"><b class="tag">what if</b> ${this.key(chosen.how)}<b>${unbroken(chose)}</b> would ${same ? "still " : ""}be chosen: it would take ${
        unbroken(seconds(chosen.took))}${rival ? unbroken(`, ${other} ${seconds(rival.took)}`) : ""}.</p>
        <p class="muted">${unbroken(`Recorded: ${this.client.how(d.chosen[this.row])} on ${this.store.workers[d.worker[this.row]]}, ${seconds(d.predicted[this.row])}.`)} <button type="button" class="link" data-kv="reset">reset</button></p>`;
    }
    const forced = policy && policy !== "cheapest" ? `${policy === "forced" ? "Forced by hand" : `By policy ${policy}`}. ` : "";
    return `<p class="why" data-kv="why" title="${escaped(d.reason[this.row])}">${unbroken(forced)}${unbroken(chosen ? this.why(all, chosen) : d.reason[this.row])}</p>${this.after()}`;
  }
  // What came of it: as planned or not, how well predicted, and whether another road was faster.
  after() {
    const { actuals: a, audits } = this.store, i = this.actual;
    if (i < 0) return `<p class="muted">Not carried out yet.</p>`;
    const off = a.error[i];
    const took = a.kept[i] ? `Took ${seconds(a.seconds[i])}${off == null ? "" : `, predicted ${seconds(a.predicted[i])} (${percent(off)})${this.culprit(i)}`}.`
      : `Planned ${this.chosen?.how ?? "otherwise"}, did ${this.client.how(a.how[i])} in ${seconds(a.seconds[i])}${a.because[i] ? `, because ${a.because[i].replace(/^planned [^:]*: /, "")}` : ""}.`;
    const regret = this.audit < 0 ? null : audits.regret[this.audit], best = this.best;
    const told = regret == null ? "" : ` Audited: ${regret > 0 && best ? `${best[0]} on ${best[1]} is faster, regret ${share(regret)}` : "no road is faster"}.`;
    return `<p class="${a.kept[i] && !(Math.abs(off) >= FAR_OFF) ? "muted" : "warn"}" data-kv="actual">${unbroken(took)}${unbroken(told)}</p>`;
  }
  // Where a prediction is far off: the term that took so much longer, or less, than predicted.
  culprit(i) {
    const { actuals: a } = this.store, did = a.terms[i] ?? {}, told = this.recorded?.find(one => one.chosen)?.terms;
    if (!told || Math.abs(a.error[i]) < FAR_OFF) return "";
    const [name, by] = [...new Set([...Object.keys(did), ...Object.keys(told)])].map(term => [term, (did[term] ?? 0) - (told[term] ?? 0)])
      .sort((x, y) => (y[1] - x[1]) * Math.sign(a.error[i]))[0] ?? [];
    return name ? `, ${name} ${seconds(did[name] ?? 0)}, not ${seconds(told[name] ?? 0)}` : "";
  }
  get roads() { return this.audit < 0 ? [] : this.store.audits.roads[this.audit].map(([how, worker, took]) => [this.client.how(how), this.store.workers[worker], took]); }
  get best() { return this.roads.filter(([, , took]) => took != null).sort((a, b) => a[2] - b[2])[0]; }
  key(how) { return `<i class="key h${this.client.told.meta.decisions.indexOf(how)}"></i>`; }

  // -- candidates
  ranked(all) {
    return [...all].sort((a, b) => !!a.excluded - !!b.excluded || !!b.chosen - !!a.chosen || a.took - b.took);
  }
  // As many as there is room for, of those that were excluded at least one.
  most(ranked, n) {
    const shut = ranked.filter(a => a.excluded), open = ranked.filter(a => !a.excluded).slice(0, n - Math.min(1, shut.length));
    return [...open, ...shut.slice(0, n - open.length)];
  }
  drawRows(all, most = this.client.told.meta.page ? 6 : 4) {
    const { meta } = this.client.told, i = this.actual, a = this.store.actuals, wide = meta.page, audited = !this.turned && this.audit >= 0, bars = wide || !audited; // a cell has no room for bars beside audited seconds
    const did = !this.turned && i >= 0, slowest = Math.max(...all.map(one => one.excluded ? 0 : one.took ?? 0), did ? a.seconds[i] ?? 0 : 0);
    const line = (one, name, took, extra = "") => `<tr ${extra} title="${escaped(one.excluded ?? this.sum(one.terms))}"><th scope="row">${this.key(one.how)}${name}<td>${escaped(one.worker)}${
      one.excluded ? `<td colspan="${audited ? 7 : 6}" class="because">excluded because ${unbroken(one.excluded)}` : `<td class="n">${one.missing == null ? "" : one.missing ? count(one.missing) : "none"}<td class="n">${one.nbytes ? bytes(one.nbytes) : ""}${
        wide ? `<td>${escaped((one.from ?? []).join(", "))}` : ""}<td class="n">${one.terms.queue ? seconds(one.terms.queue) : ""}<td class="n">${took}${
        audited ? `<td class="n">${one.did ? "" : seconds(this.roads.find(([how, worker]) => how === one.how && worker === one.worker)?.[2])}` : ""}${bars ? `<td>${this.bar(one, slowest)}` : ""}`}</tr>`;
    const ranked = this.ranked(all), rows = this.most(ranked, most).map(one => line(one, `${escaped(one.how)}${one.chosen ? ' <b aria-label="chosen">✓</b>' : ""}`, seconds(one.took), `class="${one.chosen ? "on" : ""}${one.excluded ? "off" : ""}"`));
    if (did) {
      const one = { how: this.client.how(a.how[i]), worker: this.store.workers[a.worker[i]], took: a.seconds[i], terms: a.terms[i], nbytes: a.bytes[i], did: true };
      rows.push(line(one, "<b>measured</b>", `<b>${seconds(one.took)}</b>`, `class="did"`));
    }
    const more = all.length > most ? `<span title="${all.length - most} more ${all.length - most === 1 ? "is" : "are"} in the table">+ ${all.length - most}</span>` : "", told = wide && !this.turned ? this.formula() : "";
    this.client.put(this.rows, `<div class="decided${this.turned ? " whatif" : ""}" style="height:${this.rows.height}px" data-kv="decision" data-edge="${escaped(this.store.decisions.edge[this.row])}"><div class="words" style="min-height:${this.wordy}px">${this.words(all)}</div>
      <table><thead><tr><th scope="col">${this.turned ? "would be" : "alternative"}<th scope="col">on<th scope="col" class="n">lacks<th scope="col" class="n">moves${wide ? '<th scope="col">from' : ""}<th scope="col" class="n">queue<th scope="col" class="n">${
        this.turned ? "would take" : "predicted"}${audited ? '<th scope="col" class="n">audited' : ""}${bars ? `<th scope="col">${more}` : ""}</tr></thead><tbody>${rows.join("")}</tbody></table>${told}</div>`);
    const reset = this.client.at(this.rows)?.querySelector("[data-kv=reset]");
    if (reset) reset.onclick = () => this.reset();
    this.unfitted = [all, most];
  }
  // Where the sentences take more lines, rows give way: they are in the table, too. Heights are asked for once all views have
  // been drawn, for the browser lays out everything to tell them.
  fit() {
    if (!this.unfitted) return;
    const [all, most] = this.unfitted, box = this.client.at(this.rows)?.querySelector("[data-kv=decision]");
    this.unfitted = null;
    if (!box) return;
    // What-if says it in fewer words: the table below stays where it is.
    if (!this.turned) this.wordy = Math.max(this.wordy, box.querySelector(".words").offsetHeight);
    const over = box.scrollHeight - box.clientHeight - 1;
    if (most <= 2 || over <= 0) return;
    const tallest = Math.max(...[...box.querySelectorAll("tbody tr")].map(row => row.offsetHeight));
    this.drawRows(all, Math.max(2, most - Math.ceil(over / tallest)));
    this.fit();
  }
  // Terms as shades of the decision's hue; the overlap is negative and shortens.
  bar(one, slowest) {
    const terms = Object.entries(one.terms).filter(([, t]) => t > 0), total = terms.reduce((sum, [, t]) => sum + t, 0) || 1;
    const most = this.client.told.meta.page ? 130 : 26;
    return `<span class="terms h${this.client.told.meta.decisions.indexOf(one.how)}" style="width:${Math.max(2, most * one.took / (slowest || 1))}px">${
      terms.map(([name, t]) => `<i style="flex:${t / total};opacity:${SHADE[name] ?? 1}"></i>`).join("")}</span>`;
  }
  sum(terms) { return Object.entries(terms).filter(([, t]) => t).map(([name, t]) => `${name} ${seconds(t)}`).join(" + ") || "0 ms"; }
  formula() {
    const s = this.store, measured = this.audit >= 0 ? s.audits.inequality[this.audit] : this.actual >= 0 ? s.actuals.inequality[this.actual] : "";
    const told = [s.decisions.inequality[this.row], measured].filter(Boolean).join("\n");
    return told ? `<pre data-kv="inequality" title="${escaped(told)}">${unbroken(told)}</pre>` : "";
  }

  // -- what if
  // The four numbers that can be turned, as recorded: name, words, where its slider's step leads, how that is told, and for
  // seconds how many they are.
  get knobs() {
    const { world, place } = this, link = place?.from[0] && world.links[`${place.from[0]}→${place.worker}`], on = this.chosen?.worker;
    const queue = world.workers.find(worker => worker.name === on)?.queue ?? 0, n = place?.missing || this.store.decisions.tokens[this.row];
    const perSecond = n / prefillSeconds(world.cost.prefill, n, 0, world.workers.find(worker => worker.name === on)?.threads);
    return [
      link && ["bandwidth", "bandwidth", step => ({ bandwidth: rateAt(step) }), step => rateText(link.rate * rateAt(step))],
      link && ["latency", "latency", step => ({ latency: secondsAt(step, link.t0, MOST.latency) - link.t0 }), step => seconds(secondsAt(step, link.t0, MOST.latency)), link.t0],
      on && ["queue", `queue, ${on}`, step => ({ queue: secondsAt(step, queue, MOST.queue), on }), step => seconds(secondsAt(step, queue, MOST.queue)), queue],
      Number.isFinite(perSecond) && ["prefill", "prefill", step => ({ prefill: rateAt(step) }), step => `${count(perSecond * rateAt(step))} tok/s`],
    ].filter(Boolean);
  }
  drawKnobs() {
    const knobs = this.world ? this.knobs : [];
    const axes = ["tokens", "bandwidth"].map(axis => `<button type="button" data-kv="axis-${axis}">${axis}</button>`).join("");
    this.client.put(this.sliders, this.row < 0 ? "" : `<div class="knobs" role="group" aria-label="What if" data-of="${this.row}">${knobs.map(([name, label, , says, least = 1]) =>
      `<label title="${escaped(label)}"${RATES.includes(name) ? ' class="wide"' : ""}><span>${escaped(label)}</span><input type="range" min="${least > 0 ? -HALF : 0}" max="${HALF}" step="1" value="0" data-kv="if-${name}" data-kv-keys="own" aria-valuetext="${escaped(says(0))}, as recorded"><output data-kv="is-${name}">${escaped(says(0))}</output></label>`).join("")}</div>
      <div class="axes"><span class="muted" data-kv="against">seconds against</span><span role="group" aria-label="Axis of the chart">${axes}</span><span class="even" data-kv="break-even"></span></div>`);
    const at = this.client.at(this.sliders);
    for (const [name] of knobs) { const input = at?.querySelector(`[data-kv=if-${name}]`); if (input) input.oninput = () => this.turn(); }
    for (const axis of ["tokens", "bandwidth"]) {
      const button = at?.querySelector(`[data-kv=axis-${axis}]`);
      if (!button) continue;
      button.setAttribute("aria-pressed", axis === this.axis);
      button.onclick = () => { this.axis = axis; this.drawKnobs(); this.drawChart(); };
    }
    // Elements that were made anew stand in the middle.
    if (this.turned && knobs.every(([name]) => at?.querySelector(`[data-kv=if-${name}]`)?.value === "0")) this.turned = null;
    this.told();
  }
  told() {
    const at = this.client.at(this.sliders);
    for (const [name, , , says] of this.world ? this.knobs : []) {
      const input = at?.querySelector(`[data-kv=if-${name}]`), step = +(input?.value ?? 0);
      input?.setAttribute("aria-valuetext", `${says(step)}, ${step ? "what if" : "as recorded"}`);
      const output = at?.querySelector(`[data-kv=is-${name}]`);
      if (output) { output.textContent = says(step); output.className = step ? "turned" : ""; }
    }
  }
  turn() {
    const at = this.client.at(this.sliders), turned = this.knobs.map(([name, , leads]) => [+at.querySelector(`[data-kv=if-${name}]`).value, leads]).filter(([step]) => step);
    this.turned = turned.length ? Object.assign({}, ...turned.map(([step, leads]) => leads(step))) : null;
    this.told();
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); this.fit(); });
  }
  reset() {
    const inputs = [...this.client.at(this.sliders).querySelectorAll("input")];
    for (const input of inputs) input.value = 0;
    this.turn();
    inputs[0]?.focus();
  }

  // -- the chart
  // Why there is nothing to draw; empty if there is.
  get nothing() {
    if (this.row < 0) return " ";
    if (!this.world) return "no curve: this log does not tell what the decision saw";
    const { chosen, place } = this;
    if (chosen && !chosen.missing) {
      const n = this.store.decisions.tokens[this.row];
      return `nothing to move: ${n === 1 ? "its 1 token is" : `all ${count(n)} tokens are`} on ${chosen.worker} already`;
    }
    if (!place || place.worker !== chosen?.worker) return `nothing to move: no worker holds the whole state, so it can only be recomputed`;
    return "";
  }
  // Why bandwidth changes nothing; empty if it does.
  get flat() {
    if (this.axis !== "bandwidth") return "";
    const [source] = this.place.from;
    return !source ? "mapped: no bytes cross a link" : Number.isFinite(this.world.links[`${source}→${this.place.worker}`].rate) ? "" : "the link has no limit";
  }
  drawChart() {
    const nothing = this.nothing, why = nothing || this.flat, told = this.client.at(this.sliders)?.querySelector("[data-kv=break-even]"), { below: [low] } = this.figure;
    // Axes without lines would mislead.
    this.hide(why, this.figure);
    if (told) told.parentElement.classList.toggle("none", !!nothing);
    const against = this.client.at(this.sliders)?.querySelector("[data-kv=against]");
    if (against) { against.textContent = this.turned ? "what if" : "seconds against"; against.className = this.turned ? "tag" : "muted"; }
    if (why) {
      fill(this.curves, { x: [], ...Object.fromEntries(this.names.map(name => [name, []])) });
      fill(this.dots, { x: [], y: [] }); fill(this.ends, { x: [], y: [], text: [], how: [] });
      this.even.visible = false;
      if (told) told.innerHTML = unbroken(why.trim());
      return;
    }
    const about = JSON.stringify([this.row, this.axis, this.turned]);
    if (about !== this.about) { this.about = about; this.found = breakEven(this.asked, this.place.worker, this.axis, this.ahead); }
    const { x, lines, here, even, moved, wins } = this.found;
    const inTokens = this.axis === "tokens", last = x.at(-1), first = x[0], dot = lines.find(({ how, worker }) => how === this.chosen.how && worker === this.chosen.worker);
    const ends = lines.map(line => line.y.at(-1)), y = dot ? dot.here : null, top = round125(Math.max(...ends.filter(Number.isFinite), y ?? 0, even?.y ?? 0) * (inTokens ? 1.02 : 1.3));
    const data = Object.fromEntries(this.names.map(name => [name, x.map(() => NaN)]));
    for (const line of lines) data[line.how] = line.y;
    fill(this.curves, { x, ...data });
    fill(this.dots, y == null ? { x: [], y: [] } : { x: [here], y: [y] });
    const texts = lines.map(line => line.worker === this.place.worker ? line.how : `${line.how}, ${line.worker}`), frame = this.client.frame(this.figure)?.bbox;
    const room = Math.min(0.5, (Math.max(...texts.map(text => text.length)) * CHARACTER + 12) / Math.max(120, frame?.width ?? 300));
    between(this.figure.x_range, inTokens ? 0 : first, first + (last - first) / (1 - room));
    between(this.figure.y_range, 0, top);
    if (low.formatter !== this.formatters[this.axis]) low.formatter = this.formatters[this.axis];
    const gap = 13 * top / Math.max(60, frame?.height ?? 100), spread = apart(ends.map((end, i) => [Number.isFinite(end) ? end : y ?? 0, i]), gap, top);
    fill(this.ends, { x: spread.map(() => last), y: spread.map(([value]) => value), text: spread.map(([, i]) => texts[i]),
      how: spread.map(([, i]) => this.client.told.meta.decisions.indexOf(lines[i].how)) });
    this.even.setv({ location: even?.x ?? 0, visible: even != null });
    if (told) told.title = `where ${moved} and recompute on ${this.place.worker} take equally long`;
    if (told) told.textContent = even ? `${this.client.told.meta.page ? `${moved} = recompute at` : "break-even"} ${inTokens ? counted(even.x, "token") : rateText(10 ** even.x)}` : `${wins ? moved : "recompute"} is always faster`;
  }
  rowsAt() {
    if (this.client.decision < 0) return { head: ["alternative"], rows: [], note: "No state was handed on yet." };
    if (this.row !== this.client.decision) { this.row = this.client.decision; this.read(); }
    const d = this.store.decisions, actual = this.store.actualOf.get(this.row), done = this.store.born("actuals", actual, this.client.k), all = this.ranked(this.recorded);
    const rank = name => TERMS.includes(name) ? TERMS.indexOf(name) : TERMS.length;
    const names = [...new Set([...all.map(a => a.terms), done ? this.store.actuals.terms[actual] : {}].flatMap(Object.keys))].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
    const rows = all.map(a => [a.how + (a.chosen ? " ✓" : ""), a.worker, a.excluded ? "–" : seconds(a.took),
      ...names.map(name => a.excluded ? "–" : seconds(a.terms[name])), a.excluded ? "–" : bytes(a.nbytes), (a.from ?? []).join(", "), count(a.missing), a.excluded ?? ""]);
    if (done) {
      const a = this.store.actuals;
      rows.push([`did ${this.client.how(a.how[actual])}`, this.store.workers[a.worker[actual]], seconds(a.seconds[actual]), ...names.map(name => seconds(a.terms[actual][name])), bytes(a.bytes[actual]), "", "", a.because[actual]]);
    }
    const columns = names.length + 3;
    return { head: ["alternative", "on", "seconds", ...names, "bytes", "from", "missing", ""], rows, numeric: [2, ...names.map((_, i) => 3 + i), columns, columns + 2], note: `${d.source[this.row]} → ${d.target[this.row]}: ${d.reason[this.row]}` };
  }
}

// Seconds of every road to `worker`, and of the best place that lacks nothing, over the tokens that the worker lacks or
// over the bandwidth of the links (the decimal logarithm of that of its first link): what decide() says of each such world.
const breakEven = (world, worker, axis, ahead = () => 0, points = POINTS) => {
  const now = roadsTo(world, worker), pure = now.find(road => ["map", "transfer"].includes(road.how)), n0 = pure.missing, source = pure.from[0];
  const rate = source ? world.links[`${source}→${worker}`].rate : 1, tokens = axis === "tokens";
  const place = decide(world).find(road => road.how === "in place" && road.worker !== worker);
  // z: the logarithm, base 2, of tokens or of the factor on the links.
  const other = z => tokens ? resized(world, worker, Math.max(1, Math.round(2 ** z))) : changed(world, { bandwidth: 2 ** z });
  const roads = z => { const there = other(z); return [...roadsTo(there, worker), ...(place ? roadsTo(there, place.worker).filter(road => road.how === "in place") : [])]; };
  const gap = z => { const [one, again] = roadsTo(other(z), worker, true); return one.took + ahead(one) - again.took - ahead(again); };
  const z0 = tokens ? Math.log2(n0) : 0, low = tokens ? 0 : -FAR, steps = tokens ? 16 : 2 * FAR;
  const found = crossings(gap, Array.from({ length: steps + 1 }, (_, i) => low + i)).sort((a, b) => Math.abs(a - z0) - Math.abs(b - z0));
  const z = found[0], x = value => tokens ? Math.round(2 ** value) : Math.log10(rate) + value * Math.log10(2);
  const near = z != null && z - z0 < 3; // farther away it is named, and would only flatten the chart
  const end = tokens ? round125(Math.max(64, 1.5 * n0, near ? 1.25 * 2 ** z : 0)) : Math.max(OCTAVES, (z ?? 0) + 1), start = tokens ? 1 : Math.min(-OCTAVES, (z ?? 0) - 1);
  const grid = Array.from({ length: points }, (_, i) => { const value = start + (end - start) * i / (points - 1); return tokens ? Math.log2(Math.round(value)) : value; });
  const on = ({ how, worker: where }, all) => { const road = all.find(one => one.how === how && one.worker === where); return road ? road.took + ahead(road) : NaN; };
  const seen = grid.map(roads), here = roads(z0), at = z == null ? null : roads(z); // the last of a grid has every road: nothing is too short there
  return { x: grid.map(x), lines: seen.at(-1).map(({ how, worker: where }) => ({ how, worker: where, y: seen.map(all => on({ how, worker: where }, all)), here: on({ how, worker: where }, here) })),
    here: x(z0), even: at && { x: x(z), y: on(pure, at) }, moved: pure.how, wins: gap(z0) < 0 };
};
// [value, name]s moved apart until they are `gap` from each other and below `top`, in the order of their values.
const apart = (texts, gap, top) => {
  const found = texts.map(([value, text]) => [Math.min(value, top), text]).sort((a, b) => a[0] - b[0]);
  for (let i = 0; i < found.length; i++) found[i][0] = Math.max(found[i][0], i ? found[i - 1][0] + gap : gap / 2);
  for (let i = found.length - 1, limit = top - gap / 2; i >= 0; i--, limit = found[i + 1][0] - gap) found[i][0] = Math.min(found[i][0], limit);
  return found;
};
