const KINDS_OF_COPY = ["computed", "received", "mapped"];
const PARTS = 300; // parts of the time axis: fewer than it has pixels, so that a long run costs no more to draw than a short one
const whole = parts => parts.reduce((sum, part) => sum + part, 0);

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
    this.totals ??= { held: new Map(), t: [], sums: [], most: 0, mostOf: 0 };
    const all = this.totals;
    if (all.t.length > m.born.length) { this.totals = undefined; this.drawnTo = ""; return this.reshape(); }
    for (let i = all.t.length; i < m.born.length; i++) {
      const was = all.held.get(m.worker[i]) ?? [0, 0, 0], is = KINDS_OF_COPY.map(kind => m[kind][i]), sums = (all.sums.at(-1) ?? [0, 0, 0]).map((sum, j) => sum + is[j] - was[j]);
      all.held.set(m.worker[i], is);
      all.t.push(m.t[i]); all.sums.push(sums);
      if (whole(is) || m.measured[i]) all.first ??= m.born[i];
      all.most = Math.max(all.most, whole(sums));
      all.mostOf = Math.max(all.mostOf, whole(is), m.measured[i]);
    }
    const upTo = (range, { ticker }, top, room, parts) => {
      if (range.end === top * room) return;
      range.setv({ start: 0, end: top * room });
      ticker.ticks = parts.map(part => part * top);
    };
    upTo(this.bars.x_range, this.bars.below[0], roundBytes(all.mostOf || 1), 1.04, [0, 0.25, 0.5, 0.75, 1]);
    upTo(this.total.y_range, this.total.left[0], roundBytes(all.most || 1), 1.02, [0, 0.5, 1]);
    const end = this.client.lasts;
    between(this.total.x_range, 0, end);
    const { duration } = this.store, drawn = `${m.born.length},${end},${duration}`;
    if (this.drawnTo !== drawn) { this.drawnTo = drawn; fill(this.over, this.occupancy(end, duration)); }
  }
  // Of each part of an axis until `end` its fullest moment and its last one: no peak is lost, and what stays is right.
  occupancy(end, last) {
    const { t, sums } = this.totals, shown = [];
    for (let i = 0; i < t.length;) {
      const bin = Math.floor(t[i] / end * PARTS);
      let fullest = i;
      for (; i < t.length && Math.floor(t[i] / end * PARTS) <= bin; i++) if (whole(sums[i]) > whole(sums[fullest])) fullest = i;
      shown.push(fullest);
      if (fullest < i - 1) shown.push(i - 1);
    }
    const at = shown.map(i => sums[i]);
    at.push(at.at(-1) ?? [0, 0, 0]);
    if (at.length === 1) at.push(at[0]);
    const rows = { t: shown.length ? [...shown.map(i => t[i]), Math.max(last, t.at(-1))] : [0, last] };
    KINDS_OF_COPY.forEach((kind, j) => {
      rows[`${kind}0`] = at.map(sums => whole(sums.slice(0, j)));
      rows[`${kind}1`] = at.map(sums => whole(sums.slice(0, j + 1)));
    });
    return rows;
  }
  show(k) { this.cursor.location = this.veil.left = Math.min(this.store.time(k), this.total.x_range.end); }
  later(k, again) {
    const { flow } = this.store.run, first = this.totals?.first;
    this.instead(first <= k ? "" : this.yet("No worker holds any K/V", first, flow === "text"
      ? "No worker kept any K/V: in textflow every agent prefills its whole text." : "No worker held any K/V in this run."), this.bars, this.total);
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
      ...KINDS_OF_COPY.map(kind => bytes(m[kind][row])), bytes(whole(KINDS_OF_COPY.map(kind => m[kind][row]))), bytes(m.measured[row]), bytes(m.process[row])]);
    return { head: ["worker", "computed", "received", "mapped", "placed in all", "measured", "whole process"], rows, numeric: [1, 2, 3, 4, 5, 6], note: "K/V on each worker; a map shares the memory of another copy" };
  }
}
