class QualityView extends Panel {
  get legend() { return "<span>on the line: as predicted</span><span>× not done as planned</span>"; }
  reshape() {
    const a = this.store.actuals, n = a.born.length;
    if (this.seen === n) return;
    this.seen = n;
    let low = Infinity, high = 0;
    for (let i = 0; i < n; i++) for (const value of [a.predicted[i], a.seconds[i]]) if (value > 0) { low = Math.min(low, value); high = Math.max(high, value); }
    if (!high) { low = 0.01; high = 10; }
    const decade = (v, round) => 10 ** round(Math.log10(v));
    for (const range of [this.figure.x_range, this.figure.y_range]) between(range, decade(low * 0.9, Math.floor), decade(high * 1.1, Math.ceil));
  }
  mount() { super.mount(); this.at = undefined; }
  later(k, again) {
    const n = this.store.alive("actuals", k);
    if (n === this.at && !again) return;
    this.at = n;
    const a = this.store.actuals, errors = [];
    let kept = 0;
    for (let i = 0; i < n; i++) if (a.kept[i]) { kept++; if (a.predicted[i] && a.seconds[i] != null) errors.push(Math.abs(a.seconds[i] / a.predicted[i] - 1)); }
    errors.sort((x, y) => x - y);
    const half = errors.length >> 1, median = errors.length ? (errors.length % 2 ? errors[half] : (errors[half - 1] + errors[half]) / 2) : null;
    this.client.put(this.told, `<p class="muted" data-kv="quality">${n ? `${this.store.alive("decisions", k)} decisions, ${kept} of ${n} carried out as planned.${
      median == null ? "" : ` Median error of their predicted seconds: ${share(median)}.`}` : "No edge has been carried out yet."}</p>`);
  }
  rowsAt(k) {
    const a = this.store.actuals, d = this.store.decisions, rows = [];
    for (let i = this.store.alive("actuals", k) - 1; i >= 0 && rows.length < 300; i--) {
      const audit = this.store.auditOf.get(a.decision[i]), regret = this.store.born("audits", audit, k) ? this.store.audits.regret[audit] : null;
      rows.push([d.edge[a.decision[i]], this.client.how(d.chosen[a.decision[i]]), this.client.how(a.how[i]), seconds(a.predicted[i]), seconds(a.seconds[i]),
        a.kept[i] && a.predicted[i] && a.seconds[i] != null ? percent(a.seconds[i] / a.predicted[i] - 1) : "–", share(regret), a.because[i]]);
    }
    return { head: ["edge", "planned", "did", "predicted", "actual", "off by", "regret", "because"], rows, numeric: [3, 4, 5, 6] };
  }
}
