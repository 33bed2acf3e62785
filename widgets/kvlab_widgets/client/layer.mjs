// Rows up to the cursor, in two renderers: the base holds what is old and is redrawn seldom, the twin on the overlay
// holds what was born since. Bokeh redraws only the overlay's canvas when only the twin changes, and looks through all rows of
// the source that changed: so each of the two has its own, with no more rows than it shows.
const REDRAW = 160, BEHIND = 32; // events that a twin holds at most, and how far behind the cursor a base is drawn, for steps back

class Layer {
  constructor(told, data) {
    Object.assign(this, told);
    this.data = data;
    this.names = Object.keys(this.base.data);
    this.drawn = -1; // the moment that the base shows
    this.now = -1; // the moment that both show
    this.columns = [-Infinity, Infinity];
    this.lanes = [-Infinity, Infinity];
  }
  rows(from, to) {
    const { born } = this.data, end = upper(born, to), x = this.x && this.data[this.x], y = this.data.y ?? this.data.y1, { off } = this.data, found = [];
    let start = from < 0 ? 0 : upper(born, from);
    if (this.cap && end - start > this.cap) start = end - this.cap;
    const [x0, x1] = this.columns, [y0, y1] = this.lanes;
    for (let i = start; i < end; i++)
      if (!off?.[i] && (!x || (x[i] >= x0 && x[i] <= x1 && (!y || (y[i] >= y0 && y[i] <= y1))))) found.push(i);
    return found;
  }
  // Forget what is drawn, because the rows' places changed.
  blank() { this.put(this.base, []); this.put(this.fresh, []); this.drawn = -1; this.moved = true; }
  put(source, rows) { fill(source, Object.fromEntries(this.names.map(name => [name, rows.map(i => this.data[name][i])]))); }
  // Whether the base shows too little, or too much, for `now`.
  stale(now) { return this.moved || this.drawn < 0 || now < this.drawn || now - this.drawn > REDRAW; }
  show(now, redraw) {
    const { born } = this.data, changed = redraw || upper(born, this.now) !== upper(born, now);
    this.now = now;
    if (redraw) {
      this.moved = false;
      this.drawn = Math.max(0, now - BEHIND);
      this.put(this.base, this.rows(-1, this.drawn));
    }
    if (changed) this.put(this.fresh, this.rows(this.drawn, now));
  }
}
