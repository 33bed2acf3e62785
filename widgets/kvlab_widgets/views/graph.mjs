const NEAR = 18; // px within which a pointer means a state
const CHAIN = 400; // ancestors drawn at most

class GraphView extends Panel {
  constructor(client, parts) {
    super(client, parts);
    this.start = 0;
    this.layers = client.layersOf("graph");
  }
  get legend() {
    const used = new Set(this.store.edges.how), known = [0, 1, 2, 3, 4, 5].filter(how => used.has(how));
    return `${this.legendOf(known)}<span class="end">● materialize&ensp;▲ fork&ensp;◆ resume&ensp;▼ merge&ensp;◇ evicted${
      this.part ? `&ensp;<b>${escaped(this.part)}</b>` : ""}</span>`;
  }
  frame() { return this.client.frame(this.figure); }
  // Columns of a page: at least 24 px apart, and no more states than can be told apart.
  get columns() {
    const lanes = Math.max(1, Math.min(this.store.lanes.length, this.shownLanes)), cap = this.client.told.meta.cap;
    return Math.max(4, Math.min(Math.floor(this.frame().bbox.width / 26), Math.floor(cap / lanes)));
  }
  get shownLanes() { return Math.max(4, Math.floor(this.frame().bbox.height / 17)); }
  // How far a line ends from its state, in columns: 9 px on a page of so many.
  gap(columns) { const { width } = this.frame().bbox; return 9 * Math.min(columns, Math.max(4, width / 26)) / Math.max(300, width); }
  mount() {
    super.mount();
    const canvas = this.client.view(this.figure).el;
    if (this.listening === canvas) return;
    this.listening = canvas;
    const node = event => { const box = canvas.getBoundingClientRect(); return this.nodeAt(event.clientX - box.left, event.clientY - box.top); };
    canvas.addEventListener("click", event => this.client.select(node(event)));
    canvas.addEventListener("pointermove", event => { const found = node(event); canvas.style.cursor = found == null ? "" : "pointer"; this.hover(found); });
    canvas.addEventListener("pointerleave", () => this.hover(null));
  }
  reshape() {
    const { lanes, lastColumn } = this.store, n = lanes.length, shown = Math.min(n, this.shownLanes);
    this.part = n > shown ? `${shown} of ${n} lanes` : "";
    const axis = this.figure.left[0];
    if (this.named !== n) {
      this.named = n;
      axis.ticker.ticks = lanes.map((_, i) => -i);
      axis.major_label_overrides = new Map(lanes.map((lane, i) => [-i, lane.length > 13 ? `${lane.slice(0, 12)}…` : lane]));
      const bands = lanes.map((_, i) => i).filter(i => i % 2);
      fill(this.lanes, { y0: bands.map(i => -i - 0.5), y1: bands.map(i => -i + 0.5) });
      this.top = 0;
      between(this.figure.y_range, -shown + 0.3, 0.7);
    }
    this.whole = lastColumn < this.columns; // all of it fits
    if (this.whole) between(this.figure.x_range, -0.6, Math.max(3, lastColumn) + 0.6);
    if (this.knew !== `${this.store.edges.how.length},${this.part}`) { this.knew = `${this.store.edges.how.length},${this.part}`; super.mount(); }
  }
  show(k, before, again) {
    const row = this.client.newest;
    if (!this.whole) this.turnPage(row < 0 ? 0 : this.store.nodes.x[row], again);
    if (row >= 0) this.turnLanes(this.store.nodes.y[row]);
    this.above(row);
  }
  turnPage(x, again) {
    const { start, columns } = this, settled = this.shownStart === start;
    if (settled && !again && x <= start + columns - 1 && x >= start) return;
    if (!(settled && x <= start + columns - 1 && x >= start)) this.start = Math.max(0, Math.round(x - columns * 0.82));
    this.shownStart = this.start;
    between(this.figure.x_range, this.start - 0.6, this.start + columns + 0.6);
    for (const layer of this.layers) { layer.columns = [this.start - 0.7, this.start + columns + 0.5]; layer.moved = true; }
  }
  turnLanes(y) {
    const shown = Math.min(this.store.lanes.length, this.shownLanes);
    if (shown === this.store.lanes.length || (-y >= this.top && -y < this.top + shown)) return;
    this.top = Math.max(0, Math.min(this.store.lanes.length - shown, -y - (shown >> 1)));
    between(this.figure.y_range, -this.top - shown + 0.3, -this.top + 0.7);
    for (const layer of this.layers) { layer.lanes = [-this.top - shown + 0.5, -this.top + 0.5]; layer.moved = true; }
  }
  chosen() {
    const alpha = this.client.selected == null ? 1 : 0.22;
    if (this.alpha !== alpha) {
      this.alpha = alpha;
      for (const glyph of this.client.told.fades) {
        glyph.line_alpha = { value: alpha };
        if (glyph.fill_alpha) glyph.fill_alpha = { value: alpha };
      }
    }
    this.above(this.client.newest);
  }
  // Cursor, selection, ancestors, what is related, and labels.
  above(row) {
    const { nodes } = this.store, { selected: chosen } = this.client, here = chosen != null && this.store.born("nodes", chosen, this.client.k);
    const at = list => ({ x: list.map(i => nodes.x[i]), y: list.map(i => nodes.y[i]) });
    this.set("ring", at(row >= 0 ? [row] : []));
    this.set("square", at(here ? [chosen] : []));
    const path = { x0: [], y0: [], x1: [], y1: [], cx0: [], cx1: [] }, kin = new Set(here ? [chosen] : []);
    const line = (into, from, to) => {
      const x0 = nodes.x[from] + this.store.gap, x1 = nodes.x[to] - this.store.gap, ease = Math.min((x1 - x0) / 2, 0.75);
      into.x0.push(x0); into.x1.push(x1); into.y0.push(nodes.y[from]); into.y1.push(nodes.y[to]); into.cx0.push(x0 + ease); into.cx1.push(x1 - ease);
    };
    const left = this.figure.x_range.start;
    for (let node = here ? chosen : -1, i = 0; node >= 0 && i < CHAIN; i++) {
      const parent = nodes.parents[node][0] ?? -1;
      if (parent < 0 || nodes.x[parent] < left) break;
      line(path, parent, node); kin.add(parent); node = parent;
    }
    this.set("path", path);
    const related = { x0: [], y0: [], x1: [], y1: [], cx0: [], cx1: [], how: [], width: [], dash: [] };
    if (here) for (const child of this.store.children.get(chosen) ?? []) {
      if (!this.store.born("nodes", child, this.client.k)) continue;
      const edge = this.store.decisionOf(child, this.client.k), how = edge < 0 ? 6 : this.howAt(edge);
      line(related, chosen, child); kin.add(child);
      related.how.push(how); related.width.push(2); related.dash.push(this.store.dashes[how]);
    }
    this.set("related", related);
    this.set("kin", { ...at([...kin]), mark: [...kin].map(i => String(nodes.shape[i])) });
    const named = [...new Set([row, here ? chosen : -1, this.client.hovered ?? -1])].filter(i => i >= 0 && nodes.x[i] >= left);
    const end = this.figure.x_range.end, start = this.figure.x_range.start, edge = (end - start) * 0.1;
    const align = named.map(i => nodes.x[i] > end - edge ? "right" : nodes.x[i] < start + edge ? "left" : "center");
    this.set("labels", { ...at(named), text: named.map(i => this.label(i)), align, dx: align.map(a => ({ right: 8, left: -8, center: 0 })[a]) });
  }
  set(name, columns) {
    const source = this[name], empty = !Object.values(columns)[0].length;
    if (empty && !Object.values(source.data)[0].length) return;
    source.data = columns;
  }
  howAt(decision) {
    const actual = this.store.actualOf.get(decision);
    return this.store.born("actuals", actual, this.client.k) ? this.store.actuals.how[actual] : this.store.decisions.chosen[decision];
  }
  label(i) {
    const { nodes } = this.store, edge = this.store.decisionOf(i, this.client.k);
    const how = edge >= 0 ? ` · ${this.client.how(this.howAt(edge))}` : "";
    return `${nodes.id[i]} · ${count(nodes.tokens[i])} tok${how}`;
  }
  hover(node) {
    if (node === this.client.hovered) return;
    this.client.hovered = node;
    this.above(this.client.newest);
  }
  nodeAt(px, py) {
    const frame = this.frame(), { nodes } = this.store, end = this.store.alive("nodes", this.client.k);
    let near = NEAR * NEAR, found = null;
    const perColumn = frame.x_scale.compute(1) - frame.x_scale.compute(0), x = frame.x_scale.invert(px), reach = NEAR / perColumn;
    for (let i = 0; i < end; i++) {
      if (Math.abs(nodes.x[i] - x) > reach) continue;
      const dx = frame.x_scale.compute(nodes.x[i]) - px, dy = frame.y_scale.compute(nodes.y[i]) - py, far = dx * dx + dy * dy;
      if (far < near) { near = far; found = i; }
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
      note: first ? `the newest 300 of ${count(end)} states` : `${count(end)} states` };
  }
}
