const NEAR = 18; // px within which a pointer means a state
const COLUMN = 26, LANE = 22, GAP = 9, REACH = 20; // px: least between layers, between lanes, from a state to its lines, of their curves

class GraphView extends Panel {
  constructor(client, parts) {
    super(client, parts);
    Object.assign(this, { start: 0, span: 3, top: 0, all: false, matches: null, layers: client.layersOf("graph"), tip: 0 });
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
        button("time", "time", "x: time at which a state was begun")}</span>`;
  }
  ui(name) { return this.client.at(this.head).querySelector(`[data-kv=${name}]`); }
  frame() { return this.client.frame(this.figure); }
  mount() {
    super.mount();
    const acts = {
      layer: () => this.measureBy("layer"), time: () => this.measureBy("time"), pages: () => this.showAll(false), all: () => this.showAll(true),
      earlier: () => this.goTo(this.start - this.span / 2), later: () => this.goTo(this.start + this.span * 1.5),
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
    const { places } = this, many = this.store.nodes.born.length > this.cap;
    const pressed = { layer: !this.time, time: this.time, pages: !this.all, all: this.all, chains: places.folded };
    for (const [name, is] of Object.entries(pressed)) this.ui(name).setAttribute("aria-pressed", is);
    this.ui("chains").hidden = this.time || !(many || places.folded);
    this.ui("pages").parentElement.hidden = this.ui("earlier").parentElement.hidden = this.page >= this.total;
    for (const name of ["earlier", "later"]) this.ui(name).disabled = this.whole;
    const { selected } = this.client, unit = selected == null || this.grouped ? null : places.unit(selected);
    this.ui("expand").hidden = !unit;
    if (unit) this.ui("expand").textContent = this.ui("expand").ariaLabel = `expand ×${unit.cells.length}`;
  }
  measureBy(by) { if (by !== this.places.by) { this.places.by = by; this.again(); } }
  showAll(all) { if (all !== this.all) { this.all = all; this.again(); } }
  fold(folded) { Object.assign(this.places, { folded, opened: new Set() }); this.again(); }
  expand(node) {
    this.places.opened.add(this.places.unit(node).cells[0]);
    this.again();
    this.client.select(node);
  }
  // Everything stands elsewhere: place, measure and draw again, around the cursor.
  again() {
    this.places.again();
    Object.assign(this, { held: false, start: 0 });
    this.figure.below[0].visible = this.time;
    this.reshape(true);
    this.client.moveTo(this.client.k, true);
  }

  // -- the window
  reshape(again = false) {
    const { store, places } = this, { lanes, nodes } = store, n = lanes.length, shown = this.shownLanes;
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
    // Decided once: what is watched from its start is not folded under the watcher's eyes.
    if (this.met == null && nodes.born.length) { this.met = true; if (nodes.born.length > this.cap) { places.folded = true; places.again(); } }
    this.measure();
    this.overview.reshape(-this.pad(this.total), this.total + this.pad(this.total), again);
    const { blank } = this;
    if (again || blank || this.span !== this.turnedSpan || this.crowded() !== this.grouped) this.turn(this.start);
    if (blank && !again && this.client.root.dataset.kvReady) this.client.moveTo(this.client.k, true);
    this.client.put(this.key, `<div class="legend key-row">${this.keys}</div>`);
    this.press();
  }
  get shownLanes() { return Math.min(this.store.lanes.length, Math.max(4, Math.floor(this.frame().bbox.height / LANE))); }
  pad(span) { return this.time ? span * 0.03 : 0.6; }
  // How much of x is shown at once: so much that states are COLUMN px apart, and no more of them than the cap.
  measure() {
    const { places } = this, { width } = this.frame().bbox, lanes = Math.max(1, this.shownLanes), n = places.into.size;
    const room = Math.max(4, Math.min(Math.floor(width / COLUMN), Math.floor(this.cap / lanes)));
    this.total = this.time ? Math.max(places.last, 1e-3) : Math.max(3, places.last);
    if (this.time && this.client.running) this.total = round125(this.total);
    this.page = !this.time ? (places.last < room ? this.total : room) : n <= room * lanes ? this.total : Math.min(this.total, round125(this.total * room * lanes / n * 0.4));
    this.whole = this.all || this.page >= this.total;
    this.span = this.whole ? this.total : this.page;
    this.groups.measure(this.span, width, Math.floor(this.cap / lanes));
    const unit = (this.span + 2 * this.pad(this.span)) / Math.max(300, width), gap = GAP * unit;
    if (gap > places.gap * 1.5 || gap < places.gap / 1.5) {
      Object.assign(places, { gap, reach: this.time ? REACH * unit : 0.75 });
      places.redraw();
      this.blank = true;
    }
  }
  // Show the window that begins at `start`.
  turn(start) {
    this.start = this.turned = this.whole ? 0 : Math.max(0, start);
    this.turnedSpan = this.span;
    const pad = this.pad(this.span), low = this.start - pad, high = this.start + this.span + pad;
    between(this.figure.x_range, low, high);
    this.window = this.whole ? [-Infinity, Infinity] : [low - 0.1 * pad, high];
    this.grouped = this.crowded();
    for (const layer of this.layers) {
      const hidden = this.grouped || (this.time && layer.table.startsWith("plan"));
      layer.columns = hidden ? [Infinity, -Infinity] : this.window; layer.moved = true;
      if (this.blank) layer.blank();
    }
    this.blank = false;
    this.overview.window(low, high);
  }
  inside(node) { const { u, y } = this.store.nodes; return u[node] >= this.window[0] && u[node] <= this.window[1] && -y[node] >= this.top && -y[node] < this.top + this.shownLanes; }
  // More states in the window than can be told apart.
  crowded() {
    if (!this.time) return this.all && this.page < this.total;
    if (!this.all && this.whole) return false;
    const { u } = this.store.nodes, [low, high] = this.window, inside = u.filter(x => x >= low && x <= high);
    return inside.length > this.cap;
  }
  // Turn the page if the cursor left it, unless somebody looks elsewhere.
  follow(x) {
    const { start, span } = this, here = x >= start && x <= start + span - (this.time ? 0 : 1);
    if (here) this.held = false;
    const wanted = here || this.held ? start : Math.max(0, this.time ? x - span * 0.82 : Math.round(x - span * 0.82));
    if (wanted !== this.turned || this.blank) this.turn(wanted);
  }
  // Look at x, and at a lane, until the cursor moves.
  goTo(x, y) {
    const start = Math.max(0, Math.min(this.total + 1 - this.span, x - this.span / 2));
    this.turn(this.time ? start : Math.round(start));
    if (y != null) this.turnLanes(y);
    this.held = true;
    this.client.moveTo(this.client.k, true);
  }
  lookAt(node) { this.goTo(this.store.nodes.u[node], this.store.nodes.y[node]); }
  turnLanes(y) {
    const n = this.store.lanes.length, shown = this.shownLanes;
    if (shown === n || (-y >= this.top && -y < this.top + shown)) return;
    this.top = Math.max(0, Math.min(n - shown, -y - (shown >> 1)));
    between(this.figure.y_range, -this.top - shown + 0.3, -this.top + 0.7);
    for (const layer of this.layers) { layer.lanes = [-this.top - shown + 0.5, -this.top + 0.5]; layer.moved = true; }
  }

  // -- the cursor
  show(k, before, again) {
    const row = this.client.newest, { nodes } = this.store;
    // A step lets go of the window; that more came in does not.
    if (before >= 0 && k !== before && !(before === this.tip && k === this.store.n)) this.held = false;
    this.tip = this.store.n;
    if (row >= 0 && !this.held) this.turnLanes(nodes.y[row]);
    if (!this.whole || this.blank) this.follow(row < 0 ? 0 : nodes.u[row]);
    this.over.show(row);
  }
  later(k, again) {
    const { newest } = this.client, { nodes } = this.store;
    if (again) this.client.put(this.key, `<div class="legend key-row">${this.keys}</div>`);
    if (this.grouped) this.groups.show(k); else this.groups.clear();
    this.overview.cursor(newest < 0 ? 0 : nodes.u[newest]);
    this.over.chains(k);
    this.note(k);
  }
  // How many of how many are shown, and how many match.
  note(k) {
    const end = this.store.alive("nodes", k), lanes = this.store.lanes.length, told = [];
    let shown = 0, match = 0;
    for (let i = 0; i < end; i++) { if (this.inside(i)) shown++; if (this.matches?.has(i)) match++; }
    told.push(shown < end || this.grouped ? `${count(shown)} of ${count(end)} shown${this.grouped ? ", grouped" : ""}` : "");
    if (this.shownLanes < lanes) told.push(`${this.shownLanes} of ${lanes} lanes`);
    if (this.matches) told.push(`${match} match ${this.sought}${match < this.matches.size ? `, ${count(this.matches.size - match)} later` : ""}`);
    const text = told.filter(Boolean).join(" · ");
    const place = this.ui("shown");
    if (place && place.textContent !== text) place.textContent = place.title = text;
  }
  get keys() {
    const used = new Set(this.store.edges.how), known = [0, 1, 2, 3, 4, 5].filter(how => used.has(how));
    return `${this.legendOf(known)}<span class="shapes">${["● materialize", "▲ fork", "◆ resume", "▼ merge", "◇ evicted"].map(one => `<span>${one}</span>`).join("")}</span>`;
  }
  chosen() {
    const { selected, k, newest } = this.client, alpha = selected == null && !this.matches ? 1 : 0.22;
    if (this.alpha !== alpha) {
      this.alpha = alpha;
      for (const glyph of this.client.told.fades) {
        glyph.line_alpha = { value: alpha };
        if (glyph.fill_alpha) glyph.fill_alpha = { value: alpha };
      }
    }
    if (selected != null && this.store.born("nodes", selected, k) && !this.inside(selected)) this.lookAt(selected);
    this.press();
    this.over.show(newest);
  }

  // -- what is looked for
  // Show the states that `text` means; asked again, the next of them. Returns whether there are any.
  find(text) {
    const { client, store } = this, { born } = store.nodes, found = statesMeant(store, text);
    const one = found.length === 1 ? found[0] : found.find(i => store.nodes.id[i] === text);
    if (one != null) { this.forget(); client.moveTo(Math.max(client.k, born[one])); client.select(one); return true; }
    if (this.matches && this.sought === text) {
      const all = [...this.matches], next = all[(all.indexOf(client.selected) + 1) % all.length];
      client.moveTo(Math.max(client.k, born[next])); client.select(next);
      return true;
    }
    if (!found.length) return false;
    Object.assign(this, { matches: new Set(found), sought: text });
    if (born[found[0]] > client.k) client.moveTo(born[found[0]]);
    client.select(null);
    if (!found.some(i => born[i] <= client.k && this.inside(i))) this.lookAt(found.findLast(i => born[i] <= client.k));
    return true;
  }
  forget() {
    this.held = false;
    if (!this.matches) return;
    Object.assign(this, { matches: null, sought: null });
    this.chosen();
    this.client.draw(true);
  }

  // Where a state is drawn.
  x(node) { const u = this.store.nodes.u[node]; return this.grouped ? this.groups.centre(u) : u; }
  called(node) {
    const { nodes } = this.store, how = this.howTo(node);
    return `${nodes.id[node]} · ${count(nodes.tokens[node])} tok${how < this.client.told.meta.decisions.length ? ` · ${this.client.how(how)}` : ""}`;
  }
  set(name, columns) {
    const source = this[name], empty = !Object.values(columns)[0].length;
    if (empty && !Object.values(source.data)[0].length) return;
    source.data = columns;
  }
  // How a state's edge was decided, and done if that is known; the code of an open decision if it has none.
  howTo(node) {
    const edge = this.store.decisionOf(node);
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
      this.all = false;
      this.again();
      return this.goTo(x);
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
    const gone = new Set();
    for (let i = 0, n = this.store.alive("marks", k); i < n; i++) { if (this.store.marks.fill[i] === 1) gone.add(this.store.marks.node[i]); else gone.delete(this.store.marks.node[i]); }
    for (let i = end - 1; i >= first; i--) {
      const edge = this.store.decisionOf(i), how = edge >= 0 ? this.client.how(this.howAt(edge)) : "";
      rows.push([nodes.id[i], nodes.name[i], nodes.operator[i], nodes.parents[i].map(p => nodes.id[p]).join(", "), count(nodes.tokens[i]), count(nodes.own[i]),
        bytes(nodes.bytes[i]), workers[nodes.worker[i]] ?? "", how, gone.has(i) ? "evicted" : "resident", nodes.exact[i] ? "exact" : "approximate"]);
    }
    return { head: ["state", "agent", "operator", "from", "tokens", "own", "bytes", "worker", "edge", "is", "exactness"], rows, numeric: [4, 5, 6],
      note: first ? `the newest 300 of ${count(end)} states` : `${count(end)} states` };
  }
}
