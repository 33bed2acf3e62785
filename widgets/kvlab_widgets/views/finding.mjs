// Which states a search means: those of a name, id, agent or operator, or one state's kin, itself included.
const KIN = /^(ancestors|descendants)\s*\(\s*([^(),]+?)\s*(?:,\s*(\d+)\s*)?\)$/i;

// Rows of the states that `text` means, by birth; empty if it means none.
const statesMeant = (store, text) => {
  const { nodes, lanes } = store, kin = KIN.exec(text), word = text.toLowerCase();
  if (kin) {
    const node = store.nodeOf.get(kin[2]);
    return node == null ? [] : kinOf(store, node, kin[1].toLowerCase(), kin[3] == null ? Infinity : +kin[3]);
  }
  const means = i => [nodes.id[i], nodes.name[i], nodes.operator[i], lanes[-nodes.y[i]]].some(one => one?.toLowerCase().includes(word));
  return nodes.id.map((_, i) => i).filter(means);
};
// The states from which `node` comes, or those that come from it, over at most `steps` edges.
const kinOf = (store, node, which, steps) => {
  const next = which === "ancestors" ? i => store.nodes.parents[i] : i => store.children.get(i) ?? [];
  const found = new Set([node]);
  for (let edge = [node], step = 0; edge.length && step < steps; step++) {
    edge = edge.flatMap(next).filter(i => !found.has(i) && found.add(i));
  }
  return [...found].sort((a, b) => a - b);
};

class Finding {
  constructor(graph) { Object.assign(this, { graph, matches: null, text: null }); }
  // Show the states that `text` means; asked again, the next of them. Returns whether there are any.
  find(text) {
    const { client, store, pages } = this.graph, { born } = store.nodes, found = statesMeant(store, text);
    const one = found.length === 1 ? found[0] : found.find(i => store.nodes.id[i] === text);
    if (one != null) { this.forget(); client.moveTo(Math.max(client.k, born[one])); client.select(one); return true; }
    if (this.matches && this.text === text) {
      const all = [...this.matches], next = all[(all.indexOf(client.selected) + 1) % all.length];
      client.moveTo(Math.max(client.k, born[next])); client.select(next);
      return true;
    }
    if (!found.length) return false;
    Object.assign(this, { matches: new Set(found), text });
    if (born[found[0]] > client.k) client.moveTo(born[found[0]]);
    client.select(null);
    if (!found.some(i => born[i] <= client.k && pages.inside(i))) pages.lookAt(found.findLast(i => born[i] <= client.k));
    return true;
  }
  forget() {
    if (!this.matches) return;
    Object.assign(this, { matches: null, text: null });
    this.graph.selected();
    this.graph.client.draw(true);
  }
  // What the head says about it.
  told(k) {
    if (!this.matches) return "";
    const { born } = this.graph.store.nodes, now = [...this.matches].filter(i => born[i] <= k).length, later = this.matches.size - now;
    return `${count(now)} ${now === 1 ? "matches" : "match"} ${this.text}${later ? `, ${count(later)} more later` : ""}`;
  }
}
