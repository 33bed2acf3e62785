const SHAPES = ["● materialize", "▲ fork", "◆ resume", "▼ merge", "■ tool"], HOLLOW = 1; // as in kvlab_widgets/rows.py
const NEAR = 18; // px within which a pointer means a state

class GraphView extends Panel {
  constructor(client, parts) {
    super(client, parts);
    Object.assign(this, { layers: client.layersOf("graph"), tip: 0 });
    this.pages = new Pages(this);
    this.finding = new Finding(this);
    this.groups = new Groups(this);
    this.over = new Above(this);
    this.overview = new Overview(this, parts);
  }
  get places() { return this.store.places; }
  get time() { return this.places.by === "time"; }
  get cap() { return this.client.told.meta.cap; }
  get legend() { return `<span role="status" data-kv="shown"></span>`; }
  get tools() {
    const button = (name, text, title, more = "") => `<button type="button" class="tool" data-kv="${name}" title="${title}" aria-label="${title}"${more}>${text}</button>`;
    return button("expand", "", "Show the chain's states", " hidden") +
      `<span class="tools" role="group" aria-label="Window">${button("earlier", "‹", "Earlier states")}${button("later", "›", "Later states")}</span>` +
      `<span class="tools" role="group" aria-label="How much">${button("pages", "page", "A page: as many states as can be told apart")}${button("all", "all", "All states; those too many to tell apart are grouped")}</span>` +
      button("chains", "chains ×", "Chains × of states as one mark each") +
      `<span class="tools" role="group" aria-label="x is">${button("layer", "layer", "x: layer, the longest path to a state")}${
        button("time", "time", "x: time at which a state was begun: its edge was decided, or its work started")}</span>`;
  }
  ui(name) { return this.client.at(this.head).querySelector(`[data-kv=${name}]`); }
  get grouped() { return this.pages.grouped; }
  get matches() { return this.finding.matches; }
  inside(node) { return this.pages.inside(node); }
  find(text) { return this.finding.find(text); }
  forget() { this.pages.held = false; this.finding.forget(); }
  frame() { return this.client.frame(this.figure); }
  mount() {
    super.mount();
    const { pages } = this, acts = {
      layer: () => this.measureBy("layer"), time: () => this.measureBy("time"), pages: () => this.showAll(false), all: () => this.showAll(true),
      earlier: () => pages.goTo(pages.start - pages.span / 2), later: () => pages.goTo(pages.start + pages.span * 1.5),
      chains: () => this.fold(!this.places.folded), expand: () => this.expand(this.client.selected),
    };
    for (const [name, act] of Object.entries(acts)) this.ui(name).onclick = act;
    this.press();
    this.overview.mount();
    const canvas = this.client.view(this.figure).el;
    if (this.listening === canvas) return;
    this.listening = canvas;
    const at = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("click", event => this.click(...at(event)));
    canvas.addEventListener("pointermove", event => {
      const found = this.grouped ? null : this.nodeAt(...at(event));
      canvas.style.cursor = found == null && !this.grouped ? "" : "pointer"; this.hover(found);
    });
    canvas.addEventListener("pointerleave", () => this.hover(null));
  }
  // What the buttons say about themselves.
  press() {
    const { places, pages } = this, many = this.store.nodes.born.length > this.cap;
    const pressed = { layer: !this.time, time: this.time, pages: !pages.all, all: pages.all, chains: places.folded };
    for (const [name, is] of Object.entries(pressed)) this.ui(name).setAttribute("aria-pressed", is);
    this.ui("chains").hidden = this.time || !(many || places.folded);
    this.ui("pages").parentElement.hidden = this.ui("earlier").parentElement.hidden = pages.page >= pages.total;
    for (const name of ["earlier", "later"]) this.ui(name).disabled = pages.whole;
    const { selected } = this.client, unit = selected == null || this.grouped ? null : places.unit(selected);
    this.ui("expand").hidden = !unit;
    if (unit) this.ui("expand").textContent = this.ui("expand").ariaLabel = `expand ×${unit.cells.length}`;
  }
  measureBy(by) { if (by !== this.places.by) { this.places.by = by; this.again(); } }
  showAll(all) { if (all !== this.pages.all) { this.pages.all = all; this.again(); } }
  fold(folded) { Object.assign(this.places, { folded, opened: new Set() }); this.again(); }
  expand(node) {
    this.places.opened.add(this.places.unit(node).cells[0]);
    this.again();
    this.client.select(node);
  }
  // Everything stands elsewhere: place, measure and draw again, around the cursor.
  again() {
    this.places.again();
    Object.assign(this.pages, { held: false, start: 0 });
    this.figure.below[0].visible = this.time;
    this.named = null;
    this.reshape(true);
    this.client.moveTo(this.client.k, true);
    this.client.draw(true); // once an axis that comes or goes has taken its place
  }

  reshape(again = false) {
    const { places, pages, store: { nodes } } = this;
    this.nameLanes();
    // Decided once: what is watched from its start is not folded under the watcher's eyes.
    if (this.met == null && nodes.born.length) { this.met = true; if (nodes.born.length > this.cap) { places.folded = true; places.again(); } }
    const { blank } = pages.measure();
    if (again || this.overview.known == null) this.overlook(again); // else with the rows: it counts every state
    if (again || pages.changed) pages.turn(pages.start);
    if (blank && !again && this.client.root.dataset.kvReady) this.client.moveTo(this.client.k, true);
    this.press();
  }
  overlook(again) {
    const { pages } = this, pad = pages.pad(pages.total);
    this.overview.reshape(-pad, pages.total + pad, again);
  }
  nameLanes() {
    const { lanes } = this.store, n = lanes.length, axis = this.figure.left[0];
    if (this.named === n) return;
    this.named = n;
    axis.ticker.ticks = lanes.map((_, i) => -i);
    axis.major_label_overrides = new Map(lanes.map((lane, i) => [-i, lane.length > 13 ? `${lane.slice(0, 12)}…` : lane]));
    const bands = lanes.map((_, i) => i).filter(i => i % 2);
    fill(this.lanes, { y0: bands.map(i => -i - 0.5), y1: bands.map(i => -i + 0.5) });
    this.pages.showLanes(0);
  }

  // -- the cursor
  show(k, before, again) {
    const row = this.client.newest, { pages, store: { nodes } } = this;
    // A step lets go of the window; that more came in does not.
    if (before >= 0 && k !== before && !(before === this.tip && k === this.store.n)) pages.held = false;
    this.tip = this.store.n;
    if (row >= 0 && !pages.held) pages.turnLanes(nodes.y[row]);
    if (!pages.whole || pages.blank) pages.follow(row < 0 ? 0 : nodes.u[row]);
    this.over.show(row);
  }
  later(k, again) {
    const { pages, finding, client: { newest }, store: { nodes } } = this;
    const { store: s } = this, grown = [s.edges, s.data, s.nodes, s.plan, s.marks].map(table => table.born.length).join();
    if (grown !== this.grown) { this.grown = grown; this.legended = `<div class="legend key-row">${this.keys}</div>`; }
    this.client.put(this.key, this.legended);
    const first = Math.min(s.plan.born[0] ?? Infinity, s.nodes.born[0] ?? Infinity);
    this.instead(first <= k ? "" : this.yet("No state is planned or made", Number.isFinite(first) ? first : undefined, "This run made no state."), this.figure, this.strip);
    if (this.grouped) this.groups.show(k); else this.groups.clear();
    if (again) this.over.show(newest);
    this.overlook();
    this.overview.cursor(newest < 0 ? 0 : nodes.u[newest]);
    this.over.chains(k);
    const place = this.ui("shown"), text = [pages.told(k), finding.told(k)].filter(Boolean).join(" · ");
    if (place && place.textContent !== text) place.textContent = place.title = text;
  }
  // What is drawn of this run, from its beginning to its end: a legend that changed under the cursor would have to be read again.
  get keys() {
    const { edges, data, nodes, plan, planned_lines: lines, marks } = this.store, hows = new Set(edges.how), shapes = new Set([...nodes.shape, ...plan.shape]);
    const texts = data.born.length || lines.state.includes(0), known = this.client.told.meta.decisions.map((_, how) => how).filter(how => hows.has(how));
    const told = [...SHAPES.filter((_, shape) => shapes.has(shape)), ...(marks.fill.includes(HOLLOW) ? ["◇ evicted"] : [])].map(one => `<span>${one}</span>`);
    if (plan.born.length) told.push(`<span title="Planned: small until it is made"><i class="planned"></i>planned</span>`);
    return `${this.legendOf(known)}${texts ? `<span title="An agent read what another one said"><i class="key text"></i>text</span>` : ""}<span class="shapes">${told.join("")}</span>`;
  }
  selected() {
    const { selected, k, newest } = this.client, alpha = selected == null && !this.matches ? 1 : 0.22;
    if (this.alpha !== alpha) {
      this.alpha = alpha;
      for (const glyph of this.client.told.fades) {
        glyph.line_alpha = { value: alpha };
        if (glyph.fill_alpha) glyph.fill_alpha = { value: alpha };
      }
    }
    if (selected != null && this.store.born("nodes", selected, k) && !this.inside(selected)) this.pages.lookAt(selected);
    this.press();
    this.over.show(newest);
  }

  // Where a state is drawn.
  x(node) { const u = this.store.nodes.u[node]; return this.grouped ? this.groups.centre(u) : u; }
  called(node) {
    const { nodes } = this.store, how = this.howTo(node);
    return `${nodes.id[node]} · ${count(nodes.tokens[node])} tok${how < this.client.told.meta.decisions.length ? ` · ${this.client.how(how)}` : ""}`;
  }
  set(name, columns) { fill(this[name], columns); }
  // How a state's edge was decided, and done if that is known; the code of an open decision if it has none.
  howTo(node) {
    const edge = this.store.decisionOf(node, this.client.k);
    return this.store.born("decisions", edge, this.client.k) ? this.howAt(edge) : this.store.dashes.length - 2;
  }
  howAt(decision) {
    const actual = this.store.actualOf.get(decision);
    return this.store.born("actuals", actual, this.client.k) ? this.store.actuals.how[actual] : this.store.decisions.chosen[decision];
  }

  // -- the pointer
  hover(node) {
    if (node === this.client.hovered) return;
    this.client.hovered = node;
    this.over.show(this.client.newest);
  }
  click(px, py) {
    if (this.grouped) {
      const x = this.frame().x_scale.invert(px);
      this.pages.all = false;
      this.again();
      return this.pages.goTo(x);
    }
    const node = this.nodeAt(px, py);
    if (node != null && this.places.unit(node)) this.expand(node); else this.client.select(node);
  }
  nodeAt(px, py) {
    const frame = this.frame(), { nodes } = this.store, end = this.store.alive("nodes", this.client.k);
    let near = NEAR * NEAR, found = null;
    const perColumn = frame.x_scale.compute(1) - frame.x_scale.compute(0), x = frame.x_scale.invert(px), reach = NEAR / perColumn;
    for (let i = 0; i < end; i++) {
      if (Math.abs(nodes.u[i] - x) > reach) continue;
      const dx = frame.x_scale.compute(nodes.u[i]) - px, dy = frame.y_scale.compute(nodes.y[i]) - py, far = dx * dx + dy * dy;
      if (far <= near) { near = far; found = i; } // of a folded mark's states, the newest
    }
    return found;
  }
  rowsAt(k) {
    const { nodes, workers } = this.store, end = this.store.alive("nodes", k), first = Math.max(0, end - 300), rows = [];
    const phase = i => this.client.told.meta.phases[this.store.phases.phase[this.store.latest("phases", this.store.phaseOf.get(i), k)]] ?? "";
    for (let i = end - 1; i >= first; i--) {
      const edge = this.store.decisionOf(i, k), how = edge >= 0 ? this.client.how(this.howAt(edge)) : "";
      rows.push([nodes.id[i], nodes.name[i], nodes.operator[i], nodes.parents[i].map(p => nodes.id[p]).join(", "), count(nodes.tokens[i]), count(nodes.own[i]),
        bytes(nodes.bytes[i]), workers[nodes.worker[i]] ?? "", how, phase(i), nodes.exact[i] ? "exact" : "approximate"]);
    }
    return { head: ["state", "agent", "operator", "from", "tokens", "own", "bytes", "made on", "edge", "is", "exactness"], rows, numeric: [4, 5, 6],
      note: first ? `the newest 300 of ${count(end)} states` : counted(end, "state") };
  }
}
