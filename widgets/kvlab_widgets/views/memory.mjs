const KINDS_OF_COPY = ["computed", "received", "mapped"];

class MemoryView extends Panel {
  get legend() {
    return KINDS_OF_COPY.map(kind => `<span><i class="box" style="background:var(--kv-${kind})"></i>${kind}</span>`).join("") + "<span>❘measured</span>";
  }
  // What each worker holds at k: rows of `memory`, -1 where it told nothing yet.
  latest(k) { return this.store.workers.map((_, worker) => this.store.latest("memory", this.store.memoryOf.get(worker), k)); }
  reshape() {
    const { workers, memory: m } = this.store;
    if (this.named !== workers.length) {
      this.named = workers.length;
      this.bars.left[0].ticker.ticks = workers.map((_, i) => -i);
      this.bars.left[0].major_label_overrides = new Map(workers.map((worker, i) => [-i, worker.length > 9 ? `${worker.slice(0, 8)}…` : worker]));
      between(this.bars.y_range, -Math.max(1, workers.length) + 0.4, 0.6);
    }
    this.totals ??= { upto: 0, held: new Map(), now: [0, 0, 0], rows: { t: [], ...Object.fromEntries(KINDS_OF_COPY.flatMap(k => [[`${k}0`, []], [`${k}1`, []]])) }, most: 0, mostOf: 0 };
    const all = this.totals;
    if (all.upto > m.born.length) { this.totals = undefined; this.drawnTo = -1; return this.reshape(); }
    for (; all.upto < m.born.length; all.upto++) {
      const i = all.upto, was = all.held.get(m.worker[i]) ?? [0, 0, 0], is = KINDS_OF_COPY.map(kind => m[kind][i]);
      all.held.set(m.worker[i], is);
      all.now = all.now.map((sum, j) => sum + is[j] - was[j]);
      all.rows.t.push(m.t[i]);
      let base = 0;
      KINDS_OF_COPY.forEach((kind, j) => { all.rows[`${kind}0`].push(base); base += all.now[j]; all.rows[`${kind}1`].push(base); });
      all.most = Math.max(all.most, base);
      all.mostOf = Math.max(all.mostOf, is[0] + is[1] + is[2], m.measured[i]);
    }
    const ticks = top => [0, 0.25, 0.5, 0.75, 1].map(part => part * top);
    const set = (range, axis, top) => { if (range.end !== top) { range.setv({ start: 0, end: top * 1.04 }); axis.ticker.ticks = ticks(top); } };
    set(this.bars.x_range, this.bars.below[0], roundBytes(all.mostOf || 1));
    const top = roundBytes(all.most || 1);
    between(this.total.y_range, 0, top * 1.02);
    this.total.left[0].ticker.ticks = [0, top / 2, top];
    const end = m.t.at(-1) ?? 0;
    between(this.total.x_range, 0, this.client.running ? round125(Math.max(1, end)) : end * 1.02 || 1);
    if (this.drawnTo !== m.born.length) {
      this.drawnTo = m.born.length;
      const rows = Object.fromEntries(Object.entries(all.rows).map(([name, column]) => [name, [...column, column.at(-1) ?? 0]]));
      if (m.born.length) rows.t[rows.t.length - 1] = this.total.x_range.end;
      fill(this.over, m.born.length ? rows : Object.fromEntries(Object.keys(rows).map(name => [name, [0, 0]])));
    }
  }
  show(k) { this.cursor.location = Math.min(this.store.time(k), this.total.x_range.end); }
  later(k, again) {
    const rows = this.latest(k), known = rows.join();
    if (known === this.at && !again) return;
    this.at = known;
    const { memory: m } = this.store, there = rows.map((row, worker) => [row, worker]).filter(([row]) => row >= 0);
    fill(this.held, { y: there.map(([, worker]) => -worker), ...Object.fromEntries(KINDS_OF_COPY.map(kind => [kind, there.map(([row]) => m[kind][row])])) });
    const asked = there.filter(([row]) => m.measured[row] > 0);
    fill(this.measured, { x: asked.map(([row]) => m.measured[row]), y0: asked.map(([, w]) => -w - 0.42), y1: asked.map(([, w]) => -w + 0.42) });
  }
  rowsAt(k) {
    const { memory: m, workers } = this.store;
    const rows = this.latest(k).map((row, worker) => [row, worker]).filter(([row]) => row >= 0).map(([row, worker]) => [workers[worker],
      ...KINDS_OF_COPY.map(kind => bytes(m[kind][row])), bytes(KINDS_OF_COPY.reduce((sum, kind) => sum + m[kind][row], 0)), bytes(m.measured[row]), bytes(m.process[row])]);
    return { head: ["worker", "computed", "received", "mapped", "placed in all", "measured", "whole process"], rows, numeric: [1, 2, 3, 4, 5, 6], note: "K/V on each worker; a map shares the memory of another copy" };
  }
}
