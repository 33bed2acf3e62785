const DEPTH = 9;

class LineageView extends Panel {
  get legend() { return `<span><i class="box" style="background:var(--kv-mapped)"></i>shared with its parents</span><span><i class="box" style="background:var(--kv-node)"></i>its own</span>`; }
  mount() { super.mount(); this.at = undefined; }
  later(k, again) {
    const node = this.client.focus, { nodes, workers } = this.store;
    this.instead(node < 0 ? this.yet("No state was made", nodes.born[0], "This run made no state.") : "", this.figure);
    if (node < 0) { this.at = undefined; this.client.put(this.card, ""); return; }
    const holders = this.store.holders(node, k), children = (this.store.children.get(node) ?? []).filter(child => nodes.born[child] <= k);
    const known = [node, k >= nodes.born[node], holders.join(), children.length].join("|");
    if (known === this.at && !again) return;
    this.at = known;
    const chain = [node];
    while (chain.length < DEPTH && nodes.parents[chain[0]][0] != null) chain.unshift(nodes.parents[chain[0]][0]);
    const y = [], left = [], right = [], of = [];
    chain.forEach((one, i) => { y.push(-i); left.push(nodes.tokens[one] - nodes.own[one]); right.push(nodes.tokens[one]); of.push(one === node ? 1 : 0); });
    fill(this.bars, { y, left, right, of });
    fill(this.names, { x: right, y, text: chain.map(one => `${nodes.id[one]} ${nodes.name[one] === nodes.id[one] ? "" : nodes.name[one]}`) });
    const from = left[0] > right.at(-1) * 0.5 ? left[0] : 0;
    between(this.figure.x_range, from, from + (right.at(-1) - from) * 1.32 + 1);
    between(this.figure.y_range, -Math.max(4, chain.length) + 0.4, 0.6);
    const of_ = list => list.map(one => nodes.id[one]).join(", ") || "–";
    const name = nodes.id[node], facts = [
      ["state", `${name} of ${nodes.name[node]}, ${nodes.operator[node]} on ${workers[nodes.worker[node]] ?? "?"}`],
      ["tokens", `${count(nodes.tokens[node])}, ${count(nodes.own[node])} of them its own (${bytes(nodes.bytes[node])})`],
      ["copies", holders.join(", ") || "no worker has all of it"], ["from", of_(nodes.parents[node])], ["to", of_(children)],
      ["is", nodes.exact[node] ? "exact" : "≈ approximate"], ["text", `…${nodes.preview[node].replace(/\s+/g, " ").trim()}`]];
    this.client.put(this.card, `<dl data-kv="state" data-state="${escaped(name)}">${facts.map(([what, is]) => `<dt>${what}</dt><dd title="${escaped(is)}">${escaped(is)}</dd>`).join("")}</dl>
      <button type="button" class="link" data-kv="copy">copy as Python</button>`);
    this.client.at(this.card).querySelector("[data-kv=copy]").onclick = event => {
      navigator.clipboard?.writeText(`run["${nodes.name[node]}"].state  # ${name}`).then(() => { event.target.textContent = "copied"; });
    };
  }
  rowsAt() {
    const { nodes } = this.store, rows = [];
    for (let node = this.client.focus; node >= 0 && rows.length < 300; node = nodes.parents[node][0] ?? -1)
      rows.unshift([nodes.id[node], nodes.name[node], nodes.operator[node], count(nodes.tokens[node] - nodes.own[node]), count(nodes.own[node]), bytes(nodes.bytes[node])]);
    return { head: ["state", "agent", "operator", "shared tokens", "own tokens", "own bytes"], rows, numeric: [3, 4, 5], note: "from the root to the state that is looked at" };
  }
}
