// Groups of agent × round: what stands for states that are too many to tell apart. A group says how many states it has and,
// as a bar, how they came: its length is their number, its hues their decisions.
const SLOT = 36, LONG = 0.86; // px that a group needs, and how much of them the longest bar takes

class Groups {
  constructor(graph) { this.graph = graph; this.per = 1; }
  // Choose how long a round is, in units of x, for a window so long and wide.
  measure(span, width, most) { this.per = round125(span / Math.max(1, Math.min(Math.floor(width / SLOT), most))); }
  // A window of layers begins half a layer before its first.
  get offset() { return this.graph.time ? 0 : 0.5; }
  slice(u) { return Math.floor((u + this.offset) / this.per); }
  centre(u) { return (this.slice(u) + 0.5) * this.per - this.offset; }
  show(k) {
    const { graph, per } = this, { nodes } = graph.store, found = new Map(), end = graph.store.alive("nodes", k);
    for (let i = 0; i < end; i++) {
      if (!graph.inside(i) || (graph.matches && !graph.matches.has(i))) continue;
      const slice = this.slice(nodes.u[i]), key = slice * LANES - nodes.y[i];
      const group = found.get(key) ?? found.set(key, { x: slice * per - this.offset, y: nodes.y[i], n: 0, hows: new Map() }).get(key);
      const how = graph.howTo(i);
      group.n++; group.hows.set(how, (group.hows.get(how) ?? 0) + 1);
    }
    const groups = [...found.values()], most = Math.max(1, ...groups.map(group => group.n));
    const bars = { left: [], right: [], top: [], bottom: [], how: [] }, names = { x: [], y: [], text: [] };
    for (const { x, y, n, hows } of groups) {
      let left = x + per * (1 - LONG) / 2;
      names.x.push(left); names.y.push(y); names.text.push(n < 1000 ? `${n}` : `${(n / 1000).toFixed(1)}k`);
      for (const [how, many] of [...hows].sort((a, b) => a[0] - b[0])) {
        const right = left + many / most * per * LONG;
        bars.left.push(left); bars.right.push(right); bars.top.push(y - 0.12); bars.bottom.push(y - 0.34); bars.how.push(how);
        left = right;
      }
    }
    graph.set("bars", bars); graph.set("numbers", names);
    this.shown = groups.length;
  }
  clear() {
    this.graph.set("bars", { left: [], right: [], top: [], bottom: [], how: [] });
    this.graph.set("numbers", { x: [], y: [], text: [] });
  }
}
