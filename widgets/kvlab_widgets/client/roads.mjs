// kvlab/cost/roads.py and decide.py once more, for worlds that nobody was in: what-if, and curves. A test compares both
// on a grid. A world is what kvlab/cost/seen.py tells; pieces are called by their place in the path.
const MOVES_LEAST = ["in place", "map", "transfer", "restore", "hybrid", "recompute"], SHORTEST_PART = 16;

const worldOf = seen => ({
  ...seen,
  cost: { ...seen.cost, copy_bytes_per_second: seen.cost.copy_bytes_per_second ?? Infinity },
  pieces: seen.pieces.map(([n, nbytes]) => ({ n, nbytes })),
  workers: seen.workers.map(([name, host, has, queue, threads]) => ({ name, host, has: new Set(has), queue, threads })),
  disk: new Set(seen.disk),
  links: Object.fromEntries(Object.entries(seen.links).map(([name, [t0, rate, waits]]) => [name, { t0, rate: rate ?? Infinity, waits }])),
});
// The same world with other numbers: a factor on the rate of all links between workers and on that of prefill, seconds added
// to those links' constant, and the seconds until the worker `on` is free.
const changed = (world, { bandwidth = 1, latency = 0, prefill = 1, queue = null, on = null }) => {
  const { a, b, c, threads } = world.cost.prefill;
  return {
    ...world,
    cost: { ...world.cost, prefill: { a: a / prefill, b: b / prefill, c: c / prefill, threads } },
    links: Object.fromEntries(Object.entries(world.links).map(([name, link]) =>
      [name, name.startsWith("disk→") ? link : { ...link, t0: Math.max(0, link.t0 + latency), rate: link.rate * bandwidth }])),
    workers: world.workers.map(worker => worker.name === on && queue != null ? { ...worker, queue } : worker),
  };
};
// The same world with n tokens of state, in all, where `worker` lacks some: every piece that it lacks is cut alike.
const resized = (world, worker, n) => {
  const { has } = world.workers.find(one => one.name === worker), lacks = world.pieces.reduce((sum, piece, i) => sum + (has.has(i) ? 0 : piece.n), 0);
  let before = 0, done = 0; // rounded so that the pieces' sum is n
  return { ...world, pieces: world.pieces.map((piece, i) => {
    if (has.has(i)) return piece;
    before += piece.n;
    const end = Math.round(n * before / lacks), size = end - done;
    done = end;
    return { n: size, nbytes: Math.round(piece.nbytes * size / piece.n) };
  }) };
};
const prefillSeconds = ({ a, b, c, threads: measured }, n, past, threads) => n <= 0 ? 0 : a + (threads ? measured / threads : 1) * (b * n + c * n * (past + n / 2));

class Roads {
  constructor(world, worker) {
    Object.assign(this, { world, worker, cost: world.cost });
    this.tokens = world.pieces.reduce((sum, piece) => sum + piece.n, 0);
    this.resume = prefillSeconds(this.cost.prefill, world.new_tokens, this.tokens, worker.threads);
    this.base = { queue: worker.queue, overhead: this.cost.task_seconds };
  }
  holders(i) { return this.world.workers.filter(worker => worker.has.has(i)); }
  // `pure`: of transfer and recompute alone.
  all(pure = false) {
    const { world, worker } = this, path = world.pieces.map((_, i) => i), missing = path.filter(i => !worker.has.has(i));
    if (!path.length) return [this.road("recompute", { ...this.base, prefill: this.resume })];
    if (!missing.length) return [this.road("in place", { ...this.base, resume: this.resume }), this.recompute(path, 0)];
    const lacks = missing.reduce((sum, i) => sum + world.pieces[i].n, 0), again = this.recompute(missing, lacks);
    if (!missing.every(i => this.holders(i).length)) return [this.restore(missing, lacks), again].filter(Boolean);
    if (world.mappable && missing.every(i => this.holders(i).some(holder => holder.host === worker.host)))
      return [this.road("map", { ...this.base, transfer: this.cost.map_seconds, resume: this.resume }, 0, lacks), again];
    return [this.transfer(missing, lacks), pure ? null : this.restore(missing, lacks), pure ? null : this.hybrid(missing, lacks), again].filter(Boolean);
  }
  road(how, terms, nbytes = 0, missing = 0, from = []) {
    const told = Object.fromEntries(Object.entries(terms).filter(([name, value]) => value || !["link queue", "overlap"].includes(name)));
    return { how, worker: this.worker.name, terms: told, nbytes, missing, from, took: Object.values(told).reduce((sum, term) => sum + term, 0) };
  }
  transfer(missing, lacks) {
    const wire = this.wire(missing.map(i => [i, this.world.pieces[i].nbytes])), { queue } = this.worker;
    return this.road("transfer", { queue, "link queue": wire.waiting, transfer: wire.moving, resume: this.resume, overhead: this.cost.task_seconds,
      overlap: -Math.min(queue, wire.waiting + wire.moving) }, wire.nbytes, lacks, wire.from);
  }
  restore(missing, lacks) {
    const { world, worker } = this, held = i => this.holders(i).length;
    const mapped = missing.filter(i => world.mappable && this.holders(i).some(holder => holder.host === worker.host));
    const read = missing.filter(i => world.disk.has(i) && !mapped.includes(i)), rest = missing.filter(i => !read.includes(i) && !mapped.includes(i));
    if (!read.length) return null;
    const again = rest.filter(i => !held(i)), sized = i => [i, world.pieces[i].nbytes];
    const wire = this.wire([...read, ...rest.filter(held)].map(sized), read), moving = wire.moving + (mapped.length ? this.cost.map_seconds : 0);
    return this.road("restore", { queue: worker.queue, "link queue": wire.waiting, transfer: moving, prefill: this.prefill(again), resume: this.resume,
      overhead: this.cost.task_seconds * (1 + read.length + again.length), overlap: -Math.min(worker.queue, wire.waiting + moving) }, wire.nbytes, lacks, wire.from);
  }
  recompute(again, lacks) {
    return this.road("recompute", { queue: this.worker.queue, overhead: this.cost.task_seconds * (1 + again.length), prefill: this.prefill(again), resume: this.resume }, 0, lacks);
  }
  hybrid(missing, lacks) {
    let low = SHORTEST_PART, high = lacks - SHORTEST_PART;
    if (low > high) return null;
    while (low < high) {
      const middle = (low + high) >> 1, ends = this.ends(missing, middle, lacks);
      if (ends.computed >= ends.arrived) high = middle; else low = middle + 1;
    }
    const [one, other] = [Math.max(SHORTEST_PART, low - 1), low].map(front => this.ends(missing, front, lacks).road);
    return other.took < one.took ? other : one;
  }
  ends(missing, front, lacks) {
    const { cost, world, worker } = this, again = [], moved = [];
    let left = front, split = null;
    for (const i of missing) {
      const piece = world.pieces[i];
      if (left >= piece.n) { again.push(i); left -= piece.n; }
      else if (left > 0) { split = { i, front: left }; moved.push([i, Math.floor(piece.nbytes * (piece.n - left) / piece.n)]); left = 0; }
      else moved.push([i, piece.nbytes]);
    }
    const wire = this.wire(moved), prefill = this.prefill(again, split) + wire.nbytes * cost.receive_seconds_per_byte;
    const cutting = split ? moved.find(([i]) => i === split.i)[1] / cost.copy_bytes_per_second : 0;
    const computed = worker.queue + prefill, arrived = cutting + wire.waiting + wire.moving;
    const road = this.road("hybrid", { queue: worker.queue, "link queue": wire.waiting, transfer: wire.moving, prefill, resume: this.resume,
      overhead: cost.task_seconds * (1 + again.length + (split ? 4 : 0)) + cutting + (split ? world.pieces[split.i].nbytes : 0) / cost.copy_bytes_per_second,
      overlap: -Math.min(computed, arrived) }, wire.nbytes, lacks, wire.from);
    return { computed, arrived, road };
  }
  prefill(again, split = null) {
    let total = 0, start = 0;
    this.world.pieces.forEach((piece, i) => {
      const n = again.includes(i) ? piece.n : split?.i === i ? split.front : null;
      if (n != null) total += prefillSeconds(this.cost.prefill, n, start, this.worker.threads);
      start += piece.n;
    });
    return total;
  }
  // Each piece comes from the holder that can send it soonest, those in `read` from disk; different sources send at the same time.
  wire(moved, read = []) {
    const link = source => this.world.links[`${source}→${this.worker.name}`], nbytes = new Map();
    const end = (source, size) => link(source).waits + (link(source).t0 + size / link(source).rate);
    for (const [i, size] of moved) {
      const source = (read.includes(i) ? [{ name: "disk" }] : this.holders(i)).map(({ name }) => [end(name, size), name]).sort(([a, x], [b, y]) => a - b || (x < y ? -1 : 1))[0][1];
      nbytes.set(source, (nbytes.get(source) ?? 0) + size);
    }
    let latest = null;
    for (const [source, size] of nbytes) {
      const waiting = link(source).waits, moving = link(source).t0 + size / link(source).rate;
      if (!latest || waiting + moving > latest.waiting + latest.moving) latest = { waiting, moving };
    }
    return { ...latest, nbytes: [...nbytes.values()].reduce((sum, size) => sum + size, 0), from: [...nbytes.keys()] };
  }
}
const roadsTo = (world, worker, pure) => new Roads(world, world.workers.find(one => one.name === worker)).all(pure);
// All roads, the cheapest first; a tie moves least. The first is what would be chosen by time.
const decide = world => world.candidates.flatMap(worker => roadsTo(world, worker))
  .sort((a, b) => a.took - b.took || MOVES_LEAST.indexOf(a.how) - MOVES_LEAST.indexOf(b.how) || (a.worker < b.worker ? -1 : 1));
// Points of a grid's steps where `gap` changes its sign: two roads take equally long there.
const crossings = (gap, grid) => {
  const values = grid.map(gap), found = [];
  for (let i = 1; i < grid.length; i++) {
    let [low, high] = [grid[i - 1], grid[i]];
    if (!(values[i - 1] * values[i] < 0)) continue;
    for (let turn = 0; turn < 30; turn++) { const middle = (low + high) / 2; if (values[i - 1] * gap(middle) > 0) low = middle; else high = middle; }
    found.push(high);
  }
  return found;
};
