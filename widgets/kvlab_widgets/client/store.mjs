// The run's rows in the browser. They only grow: a snapshot first, then a batch whenever something happened.
const inflate = async packed => {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const batch = JSON.parse(await new Response(stream).text());
  batch.tables = tablesOf(batch.tables);
  return batch;
};

// Columns that are not sent but follow from others (`derive_…` below).
const DERIVED = { events: ["born", "clock"], edges: ["width", "dash"], actuals: ["mark", "error"], spans: ["row"], decodes: ["row"],
  moves: ["row", "from", "to", "head"], drops: ["row"] };

class Store {
  constructor(columns, dashes) {
    this.dashes = dashes;
    this.columns = columns;
    this.reset();
  }
  reset() {
    this.n = 0;
    Object.assign(this, { lanes: [], workers: [], agents: [], segments: [], run: {} });
    for (const [name, names] of Object.entries(this.columns)) {
      this[name] = Object.fromEntries([...names, ...DERIVED[name] ?? []].map(column => [column, []]));
    }
    this.children = new Map(); this.nodeOf = new Map(); this.decisionTo = new Map(); this.actualOf = new Map();
    this.auditOf = new Map(); this.spanOf = new Map(); this.startOf = new Map(); this.phaseOf = new Map(); this.memoryOf = new Map(); this.placementOf = new Map();
    if (this.places) this.places.again(); else this.places = new Places(this);
  }
  // Take a batch in. Returns false if something before it is missing.
  append(batch) {
    if (batch.from !== this.n) return false;
    for (const list of ["lanes", "workers", "agents", "segments"]) if (batch[list]) this[list].push(...batch[list]);
    if (batch.run) this.run = batch.run;
    for (const [name, rows] of Object.entries(batch.tables)) {
      const data = this[name], start = data[this.columns[name][0]].length;
      for (const column of this.columns[name]) for (const value of rows[column]) data[column].push(value);
      this[`derive_${name}`]?.(data, start);
    }
    this.n = batch.to;
    this.places.extend();
    return true;
  }
  alive(name, k) { return upper(this[name].born, k); }
  // Seconds until the last that is known. Clocks of workers differ: what came last may have ended before.
  get duration() {
    const { spans, starts } = this;
    return Math.max(this.time(this.n), ...spans.t1.slice(-64), ...starts.t0.slice(-64).map(t => t * 1.02));
  }
  time(k) { return k > 0 ? this.events.clock[k - 1] : 0; }

  // What follows from the rows and is not sent: looks, and where to find what. Places come from `places`.
  // Clocks of workers differ a little; the cursor's clock only goes forward.
  derive_events(d, start) { for (let i = start; i < d.kind.length; i++) { d.born.push(i + 1); d.clock.push(Math.max(d.t[i], d.clock[i - 1] ?? 0)); } }
  derive_edges(d, start) {
    const cover = this.dashes.length - 1;
    for (let i = start; i < d.x0.length; i++) {
      const width = 1.3 + 1.2 * Math.min(1, Math.sqrt(d.bytes[i] / 2 ** 28));
      d.width.push(d.how[i] === cover ? 4 : width);
      d.dash.push(this.dashes[d.how[i]]);
    }
  }
  derive_nodes(d, start) {
    for (let i = start; i < d.x.length; i++) {
      this.nodeOf.set(d.name[i], i); this.nodeOf.set(d.id[i], i);
      for (const parent of d.parents[i]) (this.children.get(parent) ?? this.children.set(parent, []).get(parent)).push(i);
    }
  }
  derive_decisions(d, start) { this.group(this.decisionTo, d.target, start); }
  derive_actuals(d, start) {
    for (let i = start; i < d.born.length; i++) {
      this.actualOf.set(d.decision[i], i); d.mark.push(String(d.kept[i]));
      d.predicted[i] = d.predicted[i] ?? null;
      d.error.push(d.predicted[i] && d.seconds[i] != null ? d.seconds[i] / d.predicted[i] - 1 : null);
    }
  }
  derive_audits(d, start) { for (let i = start; i < d.born.length; i++) this.auditOf.set(d.decision[i], i); }
  derive_starts(d, start) {
    for (let i = start; i < d.born.length; i++) for (const agent of d.agent[i].split(", ")) (this.startOf.get(agent) ?? this.startOf.set(agent, []).get(agent)).push(i);
  }
  derive_spans(d, start) { for (let i = start; i < d.born.length; i++) { d.row.push(-d.worker[i]); if (!this.spanOf.has(d.start[i])) this.spanOf.set(d.start[i], i); } }
  derive_phases(d, start) { this.group(this.phaseOf, d.node, start); }
  derive_decodes(d, start) { for (let i = start; i < d.born.length; i++) d.row.push(-d.worker[i]); }
  // Below its receiver's bar; a line leads there from the sender's.
  derive_moves(d, start) {
    for (let i = start; i < d.born.length; i++) {
      d.row.push(-d.worker[i] - 0.37); d.from.push(-d.source[i]); d.to.push(-d.worker[i]);
      d.head.push(d.source[i] < d.worker[i] ? "down" : "up");
    }
  }
  derive_drops(d, start) { for (let i = start; i < d.born.length; i++) d.row.push(-d.worker[i] + 0.38); }
  derive_memory(d, start) { this.group(this.memoryOf, d.worker, start); }
  derive_placements(d, start) { this.group(this.placementOf, d.segment, start); }
  group(map, keys, start) { for (let i = start; i < keys.length; i++) (map.get(keys[i]) ?? map.set(keys[i], []).get(keys[i])).push(i); }

  // Last row of `rows` (row numbers of table `name`, in their order) that is born at k; -1 if none is.
  latest(name, rows, k) {
    const born = this[name].born; let low = 0, end = rows?.length ?? 0;
    while (low < end) { const mid = (low + end) >> 1; if (born[rows[mid]] <= k) low = mid + 1; else end = mid; }
    return low ? rows[low - 1] : -1;
  }
  // The last decision up to k about an edge to this state, -1 if there is none: a state can be decided about more than once.
  decisionOf(node, k = this.n) { return this.latest("decisions", this.decisionTo.get(this.nodes.name[node]) ?? this.decisionTo.get(this.nodes.id[node]), k); }
  // When the work of the agent `name` began that was its last at k; null if it did none.
  began(name, k) { const row = this.latest("starts", this.startOf.get(name), k); return row < 0 ? null : this.time(this.starts.born[row]); }
  born(name, row, k) { return row != null && row >= 0 && this[name].born[row] <= k; }
  // Workers that hold all segments of a state at k.
  holders(node, k) {
    const here = this.nodes.segments[node].map(segment => {
      const now = new Map();
      for (const row of this.placementOf.get(segment) ?? []) if (this.placements.born[row] <= k) now.set(this.placements.worker[row], this.placements.there[row]);
      return now;
    });
    return this.workers.filter((_, w) => here.length && here.every(now => now.get(w)));
  }
}
