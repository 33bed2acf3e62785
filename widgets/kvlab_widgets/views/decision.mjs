const ROWS = 6; // alternatives shown; all are in the table
const POINTS = 49;
const TERMS = ["queue", "link queue", "transfer", "prefill", "resume", "decode", "overhead", "overlap"]; // as in reports; others after them

// Seconds to prefill n tokens on a past of p: PrefillCurve.seconds with the threads it was measured with.
const prefillSeconds = ({ a, b, c }, n, past) => n <= 0 ? 0 : a + b * n + c * n * (past + n / 2);
const linkSeconds = ({ t0, bytes_per_second: rate }, nbytes) => t0 + nbytes / rate;

class DecisionView extends Panel {
  get alternatives() {
    const d = this.store.decisions, row = this.row;
    return d.alternatives[row].map(([how, worker, took, terms, nbytes, missing, excluded]) =>
      ({ how, worker, took, terms, nbytes, missing, excluded, chosen: how === d.chosen[row] && worker === d.worker[row] && !excluded }))
      .sort((a, b) => !!a.excluded - !!b.excluded || b.chosen - a.chosen || a.took - b.took);
  }
  mount() { super.mount(); this.row = this.at = undefined; }
  later(k, again) {
    const row = this.client.decision, actual = this.store.actualOf.get(row), audit = this.store.auditOf.get(row);
    const known = [row, this.store.born("actuals", actual, k), this.store.born("audits", audit, k)].join();
    if (known === this.at && !again) return;
    this.at = known;
    this.row = row;
    if (row < 0) { this.client.put(this.rows, `<div class="empty" data-kv="decision">no state was handed on yet</div>`); this.chart(null); return; }
    const d = this.store.decisions, made = this.store.born("actuals", actual, k) ? this.actual(actual) : "";
    const all = this.alternatives, slowest = Math.max(...all.map(a => a.took ?? 0)), lacks = all.find(a => a.chosen)?.missing;
    const w = i => escaped(this.store.workers[i]), audited = this.store.born("audits", audit, k) ? this.store.audits.roads[audit] : null;
    const rows = all.slice(0, ROWS).map(a => {
      const measured = audited?.find(([how, worker]) => how === a.how && worker === a.worker)?.[2];
      const because = a.excluded ? `not possible: ${a.excluded}` : [a.missing ? `${count(a.missing)} tok` : "", a.nbytes ? bytes(a.nbytes) : ""].filter(Boolean).join(" · ");
      return `<tr class="${a.chosen ? "on" : ""}${a.excluded ? "off" : ""}" title="${escaped(a.excluded ?? this.sum(a.terms))}"><th scope="row"><i class="key h${a.how}"></i>${
        escaped(this.client.how(a.how))}${a.chosen ? ' <b aria-label="chosen">✓</b>' : ""}<td>${w(a.worker)}<td class="n">${a.excluded ? "–" : seconds(a.took)}${
        audited ? `<td class="n">${seconds(measured)}` : ""}<td>${a.excluded ? "" : this.bar(a, slowest)}<td class="last">${escaped(because)}</tr>`;
    });
    const more = all.length > ROWS ? `<p class="muted">and ${all.length - ROWS} more, in the table</p>` : "";
    this.client.put(this.rows, `<div class="scroll" tabindex="0" role="region" aria-label="Alternatives" style="height:${this.rows.height}px" data-kv="decision" data-edge="${escaped(d.edge[row])}"><p class="clip"><b>${escaped(d.source[row])} → ${escaped(d.target[row])}</b>
      <b class="h${d.chosen[row]}">${escaped(this.client.how(d.chosen[row]))}</b> <span class="muted">${count(d.tokens[row])} tokens${
        lacks ? `, ${count(lacks)} missing on ${w(d.worker[row])}` : ""}${d.policy[row] && d.policy[row] !== "cheapest" ? `, ${escaped(d.policy[row])}` : ""}</span></p>
      <table><thead><tr><th scope="col">alternative<th scope="col">on<th scope="col" class="n">predicted${audited ? '<th scope="col" class="n">audited' : ""}<th scope="col"><th scope="col"></tr></thead><tbody>${rows.join("")}</tbody></table>${more}
      ${made}<p class="muted two" title="${escaped(d.reason[row])}">${escaped(d.reason[row])}</p>${this.formula(actual, k)}</div>`);
    this.chart(all);
  }
  // Terms as shades of the decision's hue; the overlap is negative and shortens.
  bar(a, slowest) {
    const most = this.client.told.meta.page ? 110 : 70, total = Object.values(a.terms).filter(t => t > 0).reduce((x, y) => x + y, 0) || 1;
    const width = Math.max(2, most * a.took / (slowest || 1)), shade = { queue: 0.25, "link queue": 0.25, overhead: 0.45, resume: 0.7 };
    return `<span class="terms h${a.how}" style="width:${width}px">${Object.entries(a.terms).filter(([, t]) => t > 0)
      .map(([name, t]) => `<i style="flex:${t / total};opacity:${shade[name] ?? 1}"></i>`).join("")}</span>`;
  }
  sum(terms) { return Object.entries(terms).filter(([, t]) => t).map(([name, t]) => `${name} ${seconds(t)}`).join(" + ") || "0 ms"; }
  actual(i) {
    const a = this.store.actuals, off = a.kept[i] && a.predicted[i] ? ` <span class="muted">(${percent(a.seconds[i] / a.predicted[i] - 1)})</span>` : "";
    const audit = this.store.auditOf.get(this.row), regret = this.store.born("audits", audit, this.client.k) ? this.store.audits.regret[audit] : null;
    const because = a.because[i] ? ` <span class="warn">${escaped(a.because[i])}</span>` : "";
    return `<p class="clip" data-kv="actual" title="${escaped(this.sum(a.terms[i]))}">did <b class="h${a.how[i]}">${escaped(this.client.how(a.how[i]))}</b> in <b>${seconds(a.seconds[i])}</b>, predicted ${
      seconds(a.predicted[i])}${off}${regret != null ? ` · regret ${share(regret)}` : ""}${because}</p>`;
  }
  formula(actual, k) {
    const s = this.store, audit = s.auditOf.get(this.row);
    const measured = s.born("audits", audit, k) ? s.audits.inequality[audit] : s.born("actuals", actual, k) ? s.actuals.inequality[actual] : "";
    const told = [s.decisions.inequality[this.row], measured].filter(Boolean).join("\n");
    return told ? `<pre data-kv="inequality" title="${escaped(told)}">${escaped(told)}</pre>` : "";
  }
  // Seconds against tokens that are missing, every other term as in this decision, drawn through its own predictions.
  // Where nothing is missing the roads to the worker that would have been next are shown.
  chart(all) {
    const { decisions: d, run: { cost } } = this.store, roads = (all ?? []).filter(a => !a.excluded && a.missing > 0);
    const moved = roads.filter(a => this.client.how(a.how) === "transfer")
      .sort((a, b) => (b.worker === d.worker[this.row]) - (a.worker === d.worker[this.row]) || a.took - b.took)[0];
    const beside = how => roads.find(a => this.client.how(a.how) === how && a.worker === moved?.worker), again = beside("recompute"), both = beside("hybrid");
    if (!cost || !moved || !again) {
      const why = !all ? "" : !cost ? "this run carries no calibration" : "no road moves bytes here";
      fill(this.curves, { x: [], transfer: [], recompute: [], hybrid: [] });
      fill(this.dots, { x: [], y: [] });
      between(this.figure.x_range, 0, 1); between(this.figure.y_range, 0, 1);
      fill(this.ends, { x: [0.02], y: [0.5], text: [why] });
      this.even.visible = false;
      return;
    }
    const { x, transfer, recompute, hybrid, even } = breakEven(cost, d.tokens[this.row], moved, again, both);
    const shown = d.predicted[this.row], last = x.at(-1), top = round125(Math.max(transfer.at(-1), recompute.at(-1), shown) * 1.02);
    fill(this.curves, { x, transfer, recompute, hybrid });
    fill(this.dots, { x: [all.find(a => a.chosen)?.missing ?? 0], y: [shown] });
    between(this.figure.x_range, 0, last * 1.26);
    between(this.figure.y_range, 0, top);
    // Names at the ends of the curves, pushed apart where curves meet.
    const line = 13 * top / Math.max(60, this.client.frame(this.figure)?.bbox.height ?? 100);
    const names = [["transfer", transfer], ["recompute", recompute], ...(both ? [["hybrid", hybrid]] : [])].map(([name, curve]) => [name, curve.at(-1)]).sort((a, b) => a[1] - b[1]);
    for (let i = 1; i < names.length; i++) names[i][1] = Math.max(names[i][1], names[i - 1][1] + line);
    for (let i = names.length - 1, limit = top - line / 2; i >= 0; i--, limit = names[i + 1]?.[1] - line) names[i][1] = Math.min(names[i][1], limit);
    fill(this.ends, { x: names.map(() => last), y: names.map(([, y]) => y), text: names.map(([name]) => name) });
    this.even.setv({ location: even ?? 0, visible: even != null });
  }
  rowsAt() {
    if (this.client.decision < 0) return { head: ["alternative"], rows: [], note: "no state was handed on yet" };
    this.row = this.client.decision;
    const actual = this.store.actualOf.get(this.row), done = this.store.born("actuals", actual, this.client.k), d = this.store.decisions, all = this.alternatives;
    const rank = name => TERMS.includes(name) ? TERMS.indexOf(name) : TERMS.length;
    const names = [...new Set([...all.map(a => a.terms), done ? this.store.actuals.terms[actual] : {}].flatMap(Object.keys))].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
    const rows = all.map(a => [this.client.how(a.how) + (a.chosen ? " ✓" : ""), this.store.workers[a.worker], a.excluded ? "–" : seconds(a.took),
      ...names.map(name => a.excluded ? "–" : seconds(a.terms[name])), a.excluded ? "–" : bytes(a.nbytes), count(a.missing), a.excluded ?? ""]);
    if (done) {
      const a = this.store.actuals;
      rows.push([`did ${this.client.how(a.how[actual])}`, this.store.workers[a.worker[actual]], seconds(a.seconds[actual]), ...names.map(name => seconds(a.terms[actual][name])), bytes(a.bytes[actual]), "", a.because[actual]]);
    }
    return { head: ["alternative", "on", "seconds", ...names, "bytes", "missing", ""], rows, numeric: [2, ...names.map((_, i) => 3 + i), 3 + names.length, 4 + names.length], note: `${d.source[this.row]} → ${d.target[this.row]}: ${d.reason[this.row]}` };
  }
}

// Curves of seconds over missing tokens. Each is scaled to pass through the prediction of its own alternative, so that
// what the cost model knows beyond one line (several segments, threads, queues) stays as it was decided.
const breakEven = (cost, tokens, moved, again, both, points = POINTS) => {
  const per = cost.bytes_per_token * (moved.nbytes / (moved.missing * cost.bytes_per_token) || 1), n0 = moved.missing, past = Math.max(0, tokens - n0);
  const rest = a => a.took - (a.terms.transfer ?? 0) - (a.terms.prefill ?? 0);
  const wire = n => linkSeconds(cost.frames, n * per), compute = n => prefillSeconds(cost.prefill, n, past);
  const wireBy = (moved.terms.transfer ?? 0) / wire(n0), computeBy = (again.terms.prefill ?? 0) / compute(n0);
  const share = both ? Math.max(0, Math.min(1, 1 - both.nbytes / (n0 * per))) : 0; // of the tokens, what the hybrid prefills
  const ends = n => Math.max(computeBy * compute(n * share), wireBy * wire(n * (1 - share)));
  const top = round125(Math.max(64, n0 * 1.15)), found = { x: [], transfer: [], recompute: [], hybrid: [], even: null };
  for (let i = 1; i < points; i++) {
    const n = top * i / (points - 1);
    found.x.push(n);
    found.transfer.push(rest(moved) + wireBy * wire(n));
    found.recompute.push(rest(again) + computeBy * compute(n));
    found.hybrid.push(both ? both.took + ends(n) - ends(n0) : NaN);
    const last = found.x.length - 1, gap = j => found.transfer[j] - found.recompute[j];
    if (found.even == null && last && gap(last - 1) * gap(last) < 0) {
      const part = gap(last - 1) / (gap(last - 1) - gap(last));
      found.even = found.x[last - 1] + part * (n - found.x[last - 1]);
    }
  }
  return found;
};
