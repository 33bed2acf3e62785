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
