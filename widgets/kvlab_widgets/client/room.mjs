// Heights of the charts. A notice takes its room from them, so that nothing is pushed off the lower edge; and on a page of
// its own they give what the window lacks, so that the lower row begins in it.
class Room {
  // Columns of [figure, how many px it can give].
  constructor(client, columns) {
    Object.assign(this, { client, columns, own: client.told.meta.page && client.told.meta.own, notice: 0, lacks: 0, given: 0 });
    this.full = new Map(columns.flat().map(([figure]) => [figure, figure.height]));
  }
  mount() {
    if (!this.own) return;
    let waiting = null;
    const look = () => { waiting = null; if (this.client.root.isConnected) this.look(); };
    this.whole = this.client.root.getBoundingClientRect().height;
    window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(look, 150); });
    this.look();
  }
  look() { this.lacks = Math.max(0, Math.ceil(this.whole - window.innerHeight)); this.share(); }
  // Room for a notice so high, 0 for none.
  take(px) { this.notice = px; this.share(); }
  share() {
    const wanted = this.lacks + this.notice;
    if (wanted === this.given) return;
    this.given = wanted;
    for (const charts of this.columns) {
      const able = charts.reduce((sum, [, most]) => sum + most, 0), part = Math.min(1, wanted / able);
      for (const [figure, most] of charts) figure.height = this.full.get(figure) - Math.round(most * part);
    }
    // Lanes that a lower graph has no room for are turned.
    if (this.client.root.dataset.kvReady) setTimeout(() => { const [graph] = this.client.views; graph.named = null; graph.reshape(); this.client.moveTo(this.client.k, true); });
  }
}
