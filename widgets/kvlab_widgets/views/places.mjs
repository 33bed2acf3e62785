// Where the layout's cells are drawn. A cell is a layer and a lane, given once and kept. Its x here is its layer, or the
// time at which its state was begun, so that no line to it runs back, or its layer among marks when chains are folded. Rows that come later move nothing;
// only another x, or a chain that somebody opens, does.
const LANES = 2 ** 20;
const cellOf = (x, y) => x * LANES - y, layerOf = cell => Math.floor(cell / LANES), laneOf = cell => cell % LANES;
const NONE = new Set();
const MARK_TABLES = ["plan", "nodes", "marks"], LINE_TABLES = ["planned_lines", "data", "edges"];

class Places {
  constructor(store) { Object.assign(this, { store, by: "layer", folded: false, opened: new Set(), gap: 0.1, reach: 0.75 }); this.again(); }
  // Place everything anew.
  again() {
    Object.assign(this, { begun: new Map(), into: new Map(), from: new Map(), units: new Map(), heads: new Map(), shapes: new Map(), ends: new Map(), met: {}, drawn: {}, last: -1 });
    this.extend();
  }
  redraw() { this.drawn = {}; this.draw(); }
  // Take in the rows that came since.
  extend() {
    const fresh = this.meet();
    if (this.folded && this.by === "layer") this.fold(fresh);
    for (const cell of fresh) this.last = Math.max(this.last, this.of(cell));
    this.draw();
  }
  // Cells that are new, and what the new rows say about time and kin. A state is begun when its edge is decided, else
  // with the work that makes it: where its bar in the timeline begins. Whoever it comes from was begun before.
  meet() {
    const { store, begun, into, from, shapes } = this, fresh = new Set();
    const each = (name, told) => { const d = store[name], end = d.born.length; for (let i = this.met[name] ?? 0; i < end; i++) told(d, i); this.met[name] = end; };
    const meet = (cell, born, name = null) => {
      if (!into.has(cell)) { into.set(cell, new Set()); from.set(cell, new Set()); fresh.add(cell); }
      if (!born) return;
      const after = Math.max(0, ...[...into.get(cell)].map(source => begun.get(source) ?? 0));
      const found = Math.max(after, (name != null ? store.began(name, born) : null) ?? store.time(born));
      begun.set(cell, Math.min(begun.get(cell) ?? Infinity, found));
    };
    each("plan", (d, i) => { const cell = cellOf(d.x[i], d.y[i]); meet(cell); shapes.set(cell, d.shape[i]); });
    for (const name of LINE_TABLES) each(name, (d, i) => {
      const source = cellOf(d.x0[i], d.y0[i]), target = cellOf(d.x1[i], d.y1[i]), born = name === "planned_lines" ? 0 : d.born[i];
      meet(source, born, name === "data" ? d.source[i] : store.decisions.source[d.decision?.[i]]); meet(target);
      into.get(target).add(source); from.get(source).add(target);
      meet(target, born);
    });
    each("nodes", (d, i) => {
      const cell = cellOf(d.x[i], d.y[i]);
      meet(cell); shapes.set(cell, d.shape[i]);
      for (const parent of d.parents[i]) { const source = cellOf(d.x[parent], d.y[parent]); into.get(cell).add(source); from.get(source).add(cell); }
      meet(cell, d.born[i], d.name[i]);
    });
    return fresh;
  }
  // A state that alone follows the one before it in its lane joins its mark. What is known now decides: a state that forks off
  // the inside of a mark later leaves that mark whole until the page is loaded again.
  fold(fresh) {
    for (const cell of [...fresh].sort((a, b) => a - b)) { // by layer, so sources first
      const sources = this.into.get(cell), [only] = sources, lane = laneOf(cell);
      const follows = sources.size === 1 && laneOf(only) === lane && this.from.get(only).size === 1;
      const head = follows ? this.heads.get(only) : cell;
      this.heads.set(cell, head);
      if (follows && !this.opened.has(head)) {
        const unit = this.units.get(only);
        unit.cells.push(cell); this.units.set(cell, unit);
        continue;
      }
      let x = this.ends.get(lane) ?? -1;
      for (const source of sources) x = Math.max(x, this.units.get(source)?.x ?? -1);
      this.ends.set(lane, x + 1);
      this.units.set(cell, { x: x + 1, cells: [cell] });
    }
  }
  of(cell) { return this.by === "time" ? this.begun.get(cell) ?? 0 : this.units.get(cell)?.x ?? layerOf(cell); }
  // The mark that a state is part of; undefined where it has its own.
  unit(node) { const { x, y } = this.store.nodes, unit = this.units.get(cellOf(x[node], y[node])); return unit?.cells.length > 1 ? unit : undefined; }
  // Columns that glyphs draw from: u for x, c for the ends' handles, off for rows that a folded mark stands for.
  draw() {
    const { store } = this, { nodes } = store;
    const each = (name, columns, told) => {
      const d = store[name], end = d.born.length;
      for (const column of columns) d[column] ??= [];
      for (let i = this.drawn[name] ?? 0; i < end; i++) told(d, i);
      this.drawn[name] = end;
    };
    for (const name of MARK_TABLES) each(name, ["u", "mark", "off"], (d, i) => {
      const cell = cellOf(d.x[i], d.y[i]), cells = this.units.get(cell)?.cells, many = cells?.length > 1;
      const first = many && cell === cells[0], birth = name !== "marks" || d.born[i] === nodes.born[d.node[i]];
      d.u[i] = this.of(cell);
      d.mark[i] = String(many ? this.shapes.get(cells[0]) : d.shape[i]);
      d.off[i] = many && !(cell === cells.at(-1) || (first && birth));
    });
    for (const name of LINE_TABLES) each(name, ["u0", "u1", "c0", "c1", "off"], (d, i) => {
      const source = cellOf(d.x0[i], d.y0[i]), target = cellOf(d.x1[i], d.y1[i]), unit = this.units.get(source);
      [d.u0[i], d.u1[i], d.c0[i], d.c1[i]] = this.curve(this.of(source), this.of(target));
      d.off[i] = unit != null && unit === this.units.get(target);
    });
  }
  // Ends of a line from x to x, and its handles.
  curve(from, to) {
    const gap = Math.min(this.gap, Math.max(0, to - from) / 3), ease = Math.min((to - from) / 2 - gap, this.reach);
    return [from + gap, to - gap, from + gap + ease, to - gap - ease];
  }
}
