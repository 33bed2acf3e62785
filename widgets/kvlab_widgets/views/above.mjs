// What is drawn over the graph: cursor, selection, what is related to it or looked for, and labels.
const CHAIN = 400; // kin drawn at most
const ASIDE = [-21, 21, -39, 39], LABEL = 18; // px: where a label may stand below its state, and its height

class Above {
  constructor(graph) { this.graph = graph; }
  show(row) {
    const { graph } = this, { nodes } = graph.store, { selected, hovered, k } = graph.client;
    const chosen = selected != null && graph.store.born("nodes", selected, k) ? selected : -1;
    const seen = list => list.filter(i => i >= 0 && graph.inside(i)), at = list => ({ x: list.map(i => graph.x(i)), y: list.map(i => nodes.y[i]) });
    graph.set("ring", at(seen([row])));
    graph.set("square", at(seen([chosen])));
    const { path, related, kin } = this.kin(chosen, k);
    graph.set("path", path); graph.set("related", related);
    graph.set("kin", { ...at(kin), mark: kin.map(i => nodes.mark[i]) });
    const near = hovered != null && graph.store.born("nodes", hovered, k) ? hovered : -1;
    this.label(seen([...new Set([near, chosen, row])]));
  }
  // The selection with its ancestors and children, and what a search found, as far as the window shows them.
  kin(chosen, k) {
    const { graph } = this, { store } = graph, { nodes } = store, kin = new Set(chosen < 0 ? [] : [chosen]);
    const path = { x0: [], y0: [], x1: [], y1: [], cx0: [], cx1: [] }, related = { ...structuredClone(path), how: [], width: [], dash: [] };
    const line = (into, from, to) => {
      const [x0, x1, cx0, cx1] = graph.places.curve(nodes.u[from], nodes.u[to]);
      if (x1 <= x0 || !graph.inside(from) || !graph.inside(to)) return false;
      into.x0.push(x0); into.x1.push(x1); into.y0.push(nodes.y[from]); into.y1.push(nodes.y[to]); into.cx0.push(cx0); into.cx1.push(cx1);
      return true;
    };
    const relate = (from, to) => {
      if (!line(related, from, to)) return;
      const how = graph.howTo(to);
      related.how.push(how); related.width.push(2.5); related.dash.push(store.dashes[how]);
    };
    if (graph.grouped) return { path, related, kin: [] };
    for (const node of kin) {
      if (kin.size > CHAIN) break;
      for (const parent of nodes.parents[node]) if (graph.inside(parent)) { line(path, parent, node); relate(parent, node); kin.add(parent); }
    }
    for (const child of store.children.get(chosen) ?? []) if (store.born("nodes", child, k)) { relate(chosen, child); kin.add(child); }
    for (const node of graph.matches ?? []) if (store.born("nodes", node, k) && graph.inside(node)) {
      for (const parent of nodes.parents[node]) if (graph.matches.has(parent)) relate(parent, node);
      kin.add(node);
    }
    return { path, related, kin: [...kin].filter(i => graph.inside(i)) };
  }
  // Labels of some states, the first of most weight. One that would cover another stands elsewhere, or not at all.
  label(named) {
    const { graph } = this, { nodes } = graph.store, { bbox, x_scale, y_scale } = graph.frame(), boxes = [], told = { x: [], y: [], text: [], dx: [], dy: [] };
    this.pen ??= Object.assign(document.createElement("canvas").getContext("2d"), { font: `11px ${getComputedStyle(graph.client.at(graph.head)).fontFamily}` });
    for (const node of named) {
      const text = graph.called(node), wide = this.pen.measureText(text).width + 6, px = x_scale.compute(graph.x(node)), py = y_scale.compute(nodes.y[node]);
      const left = Math.max(bbox.left, Math.min(px - wide / 2, bbox.right - wide));
      const dy = ASIDE.find(dy => py + dy - LABEL / 2 >= bbox.top && py + dy + LABEL / 2 <= bbox.bottom &&
        !boxes.some(box => left < box.right && left + wide > box.left && Math.abs(py + dy - box.y) < LABEL));
      if (dy == null) continue;
      boxes.push({ left, right: left + wide, y: py + dy });
      told.x.push(graph.x(node)); told.y.push(nodes.y[node]); told.text.push(text); told.dx.push(left + 3 - px); told.dy.push(dy);
    }
    graph.set("labels", told);
  }
  // How many states a folded mark has by now, below it.
  chains(k) {
    const { graph } = this, { nodes } = graph.store, marks = new Map();
    if (!graph.grouped) for (let i = 0, end = graph.store.alive("nodes", k); i < end; i++) {
      const unit = graph.inside(i) ? graph.places.unit(i) : null;
      if (unit) marks.set(unit, { x: unit.x, y: nodes.y[i], n: (marks.get(unit)?.n ?? 0) + 1 });
    }
    const many = [...marks.values()].filter(mark => mark.n > 1);
    graph.set("counts", { x: many.map(mark => mark.x), y: many.map(mark => mark.y), text: many.map(mark => `×${mark.n}`) });
  }
}
