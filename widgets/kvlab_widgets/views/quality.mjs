class QualityView extends Panel {
  get legend() { return "<span>line: as predicted</span><span>× done otherwise</span>"; }
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
    const n = this.store.alive("actuals", k), lost = k && this.store.run.lost?.length, none = this.yet("No edge has been carried out", this.store.actuals.born[0], "In this run no state was handed on, so there is nothing to compare.");
    // What was lost already when the graph was compiled is told in words.
    this.instead(n || lost ? "" : none);
    this.hide(!n, this.figure);
    const at = [n, this.store.alive("audits", k)].join();
    if (at === this.at && !again) return;
    this.at = at;
    const lines = n || lost ? Object.entries(qualityAt(this.store, k)) : [];
    this.client.put(this.told, `<div data-kv="quality">${lines.length ? `<dl>${lines.map(([name, line]) => `<dt>${escaped(name)}<dd title="${escaped(line)}">${unbroken(line)}`).join("")}</dl>` : ""}</div>`);
  }
  rowsAt(k) {
    const a = this.store.actuals, d = this.store.decisions, rows = [];
    for (let i = this.store.alive("actuals", k) - 1; i >= 0 && rows.length < 300; i--) {
      const audit = this.store.auditOf.get(a.decision[i]), regret = this.store.born("audits", audit, k) ? this.store.audits.regret[audit] : null;
      rows.push([d.edge[a.decision[i]], this.client.how(d.chosen[a.decision[i]]), this.client.how(a.how[i]), seconds(a.predicted[i]), seconds(a.seconds[i]),
        a.kept[i] ? percent(a.error[i]) : "–", share(regret), a.because[i]]);
    }
    return { head: ["edge", "planned", "did", "predicted", "actual", "off by", "regret", "because"], rows, numeric: [3, 4, 5, 6] };
  }
}

// The words of kvlab/display/decision_quality.py about what was known at k.
const MISSES = ["prefix differs", "evicted", "recompute cheaper", "policy", "load failed"];
const median = values => { const all = [...values].sort((x, y) => x - y), half = all.length >> 1; return all.length % 2 ? all[half] : (all[half - 1] + all[half]) / 2; };
const qualityAt = (store, k) => {
  const { actuals: a, audits, decisions: d } = store, lost = k ? store.run.lost ?? [] : [], found = {};
  const done = store.alive("actuals", k), errors = [], regrets = audits.regret.slice(0, store.alive("audits", k)).filter(regret => regret != null), misses = { "prefix differs": lost.length };
  let kept = 0, reused = 0, reachable = lost.reduce((sum, n) => sum + n, 0);
  for (let i = 0; i < done; i++) {
    if (a.kept[i]) { kept++; if (a.error[i] != null) errors.push(Math.abs(a.error[i])); }
    if (a.reused[i] != null) { reused += a.reused[i]; reachable += d.tokens[a.decision[i]]; }
    if (a.miss[i]) misses[a.miss[i]] = (misses[a.miss[i]] ?? 0) + 1;
  }
  found["as planned"] = `${count(kept)} of ${counted(done, "edge")}${errors.length ? `, predicted seconds off by ${share(median(errors))} (median)` : ""}`;
  if (regrets.length) found["decided best"] = `${count(regrets.filter(regret => regret === 0).length)} of ${counted(regrets.length, "audited edge")}, regret ${share(median(regrets))} (median), ${share(Math.max(...regrets))} (most)`;
  if (reachable) found.reused = `${count(reused)} of ${counted(reachable, "token of state", "tokens of state")} (${share(reused / reachable)})`;
  const told = MISSES.filter(name => misses[name]).map(name => `${name} ${count(misses[name])}`);
  if (told.length) found["not reused"] = told.join(", ");
  return found;
};
