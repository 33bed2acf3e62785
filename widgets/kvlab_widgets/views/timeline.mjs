const CHARACTER = 6.3; // px, mean advance of the 11 px type: decides whether a name fits into its span
const PAGE_SPANS = 400;

class TimelineView extends Panel {
  constructor(client, parts) { super(client, parts); this.layers = client.layersOf("timeline"); this.from = 0; }
  get legend() { return `<span>hue: how the work's state came to its worker</span><span><i class="box" style="background:var(--kv-node)"></i>no state edge</span><span>pale: decode</span><span>╌▸ hand-off</span><span>× let go</span>`; }
  reshape() {
    const { workers, spans } = this.store, axis = this.figure.left[0];
    if (this.named !== workers.length) {
      this.named = workers.length;
      axis.ticker.ticks = workers.map((_, i) => -i);
      axis.major_label_overrides = new Map(workers.map((worker, i) => [-i, worker.length > 13 ? `${worker.slice(0, 12)}…` : worker]));
      between(this.figure.y_range, -Math.max(1, workers.length) + 0.4, 0.6);
    }
    const end = this.store.duration, shown = this.all = this.client.lasts;
    this.span = spans.t1.length > PAGE_SPANS ? round125(end * PAGE_SPANS / spans.t1.length) : shown;
  }
  show(k, again) {
    const t = Math.min(this.store.time(k), this.all), { from, span } = this;
    if (again || t < from || t > from + span * 0.98) {
      this.from = span >= this.all ? 0 : Math.max(0, Math.min(t - span * 0.8, this.all - span));
      between(this.figure.x_range, this.from, this.from + span);
      if (span < this.all) for (const layer of this.layers) { layer.columns = [this.from, this.from + span * 1.05]; layer.moved = true; }
    }
    this.cursor.location = t;
  }
  later(k) {
    const { starts, spans, spanOf } = this.store, row = [], t0 = [], t1 = [], now = Math.min(this.store.time(k), this.all);
    for (let i = this.store.alive("starts", k) - 1, seen = 0; i >= 0 && seen < 256; i--, seen++) {
      const end = spanOf.get(i);
      if (end == null || spans.born[end] > k) { row.push(-starts.worker[i]); t0.push(starts.t0[i]); t1.push(Math.max(now, starts.t0[i])); }
    }
    this.instead(k && starts.born[0] <= k ? "" : this.yet("No work was begun", starts.born[0], "This run did no work."), this.figure);
    fill(this.running, { row, t0, t1 });
    this.names_(k);
  }
  names_(k) {
    const frame = this.client.frame(this.figure), x = [], y = [], text = [];
    if (!frame) return;
    const perSecond = frame.bbox.width / (this.figure.x_range.end - this.figure.x_range.start), { spans } = this.store;
    for (let i = this.store.alive("spans", k) - 1, end = Math.max(0, i - 300); i >= end; i--) {
      const room = (spans.t1[i] - Math.max(spans.t0[i], this.from)) * perSecond - 10, agent = spans.agent[i], many = agent.split(", ").length;
      const name = [agent, many > 1 ? `${many} agents` : agent].find(one => one.length * CHARACTER <= room);
      if (name && spans.t0[i] >= this.from) { x.push(spans.t0[i]); y.push(spans.row[i]); text.push(name); }
    }
    fill(this.names, { x, y, text });
  }
  rowsAt(k) {
    // Of two rows about the same work the later one knows more.
    const { spans, workers } = this.store, last = new Map(), rows = [];
    for (let i = 0, end = this.store.alive("spans", k); i < end; i++) last.set(spans.start[i], i);
    for (const i of [...last.values()].slice(-300).reverse())
      rows.push([workers[spans.worker[i]], spans.op[i], spans.agent[i], seconds(spans.t0[i]), seconds(spans.t1[i]), seconds(spans.seconds[i]), spans.how[i] < 6 ? this.client.how(spans.how[i]) : ""]);
    return { head: ["worker", "operation", "agent", "from", "until", "took", "state edge"], rows, numeric: [3, 4, 5], note: `${counted(last.size, "operation")} done, the newest first; ${counted(this.store.alive("moves", k), "arrival of a segment", "arrivals of segments")}, ${count(this.store.alive("drops", k))} let go` };
  }
}
