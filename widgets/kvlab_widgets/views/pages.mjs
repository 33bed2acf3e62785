// Which part of the graph is shown: a window on x that turns by pages and follows the cursor, and a range of lanes.
const COLUMN = 26, LANE = 22, GAP = 9, REACH = 20; // px: least between layers, between lanes, from a state to its lines, of their curves
const AHEAD = 0.82; // share of the window behind the cursor when it turns

class Pages {
  constructor(graph) { Object.assign(this, { graph, start: 0, span: 3, top: 0, shownLanes: 0, all: false, window: [-Infinity, Infinity] }); }
  pad(span) { return this.graph.time ? span * 0.03 : 0.6; }
  // How much of x is shown at once: so much that states are COLUMN px apart, and no more of them than the cap.
  measure() {
    const { places, time, cap, client } = this.graph, { width } = this.graph.frame().bbox, lanes = Math.max(1, this.shownLanes);
    const room = Math.max(4, Math.min(Math.floor(width / COLUMN), Math.floor(cap / lanes))), fits = time ? places.into.size <= room * lanes : places.last < room;
    this.total = time ? Math.max(places.last, 1e-3) : Math.max(3, places.last);
    if (time && client.running) this.total = round125(this.total);
    // In time the density changes; a page is so short that most of them hold less than they may, and keeps its length while a run grows.
    const fair = this.total * room * lanes / places.into.size;
    this.page = fits ? this.total : !time ? room : Math.min(this.total, client.running ? round125(fair * 0.4) : fair * 0.85);
    this.whole = this.all || this.page >= this.total;
    this.span = this.whole ? this.total : this.page;
    this.graph.groups.measure(this.span, width, Math.floor(cap / lanes));
    const unit = (this.span + 2 * this.pad(this.span)) / Math.max(300, width), gap = GAP * unit;
    if (gap > places.gap * 1.5 || gap < places.gap / 1.5) {
      Object.assign(places, { gap, reach: time ? REACH * unit : 0.75 });
      places.redraw();
      this.blank = true;
    }
    return this;
  }
  // Whether what is shown is not what was measured.
  get changed() { return this.blank || this.span !== this.turnedSpan || this.crowded() !== this.grouped; }
  // Show the window that begins at `start`.
  turn(start) {
    this.start = this.turned = this.whole ? 0 : Math.max(0, start);
    this.turnedSpan = this.span;
    const pad = this.pad(this.span), low = this.start - pad, high = this.start + this.span + pad;
    between(this.graph.figure.x_range, low, high);
    this.window = this.whole ? [-Infinity, Infinity] : [low - 0.1 * pad, high];
    this.grouped = this.crowded();
    for (const layer of this.graph.layers) {
      const hidden = this.grouped || (this.graph.time && layer.table.startsWith("plan"));
      layer.columns = hidden ? [Infinity, -Infinity] : this.window; layer.moved = true;
      if (this.blank) layer.blank();
    }
    this.blank = false;
    this.graph.overview.window(low, high);
  }
  inside(node) { const { u, y } = this.graph.store.nodes; return u[node] >= this.window[0] && u[node] <= this.window[1] && -y[node] >= this.top && -y[node] < this.top + this.shownLanes; }
  // More states in the window than can be told apart.
  crowded() {
    if (!this.graph.time) return this.all && this.page < this.total;
    if (!this.all && this.whole) return false;
    const { u } = this.graph.store.nodes, [low, high] = this.window, inside = u.filter(x => x >= low && x <= high);
    return inside.length > this.graph.cap;
  }
  // Turn the page if the cursor left it, unless somebody looks elsewhere.
  follow(x) {
    const { start, span } = this, here = x >= start && x <= start + span - (this.graph.time ? 0 : 1);
    if (here) this.held = false;
    const wanted = here || this.held ? start : Math.max(0, this.graph.time ? x - span * AHEAD : Math.round(x - span * AHEAD));
    if (wanted !== this.turned || this.blank) this.turn(wanted);
  }
  // Look at x, and at a lane, until the cursor moves.
  goTo(x, y) {
    const start = Math.max(0, Math.min(this.total + 1 - this.span, x - this.span / 2));
    this.turn(this.graph.time ? start : Math.round(start));
    if (y != null) this.turnLanes(y);
    this.held = true;
    this.graph.client.moveTo(this.graph.client.k, true);
  }
  lookAt(node) { this.goTo(this.graph.store.nodes.u[node], this.graph.store.nodes.y[node]); }
  turnLanes(y) {
    const n = this.graph.store.lanes.length, shown = this.shownLanes;
    if (shown < n && (-y < this.top || -y >= this.top + shown)) this.showLanes(Math.max(0, Math.min(n - shown, -y - (shown >> 1))));
  }
  showLanes(top) {
    const shown = Math.min(this.graph.store.lanes.length, Math.max(4, Math.floor(this.graph.frame().bbox.height / LANE)));
    Object.assign(this, { top, shownLanes: shown });
    between(this.graph.figure.y_range, -this.top - shown + 0.3, -this.top + 0.7);
    for (const layer of this.graph.layers) { layer.lanes = [-this.top - shown + 0.5, -this.top + 0.5]; layer.moved = true; }
  }
  // How many of how many are shown.
  told(k) {
    const { store } = this.graph, end = store.alive("nodes", k), lanes = store.lanes.length, told = [];
    let shown = 0;
    for (let i = 0; i < end; i++) if (this.inside(i)) shown++;
    if (shown < end || this.grouped) told.push(`${count(shown)} of ${count(end)} shown${this.grouped ? ", grouped" : ""}`);
    if (this.shownLanes < lanes) told.push(`${this.shownLanes} of ${lanes} lanes`);
    return told.join(" · ");
  }
}
