// The strip under the graph: all states over x as bars, the visible window and the cursor. A click moves the window.
const BINS = 180;

class Overview {
  constructor(graph, { strip, density, pane, now }) { Object.assign(this, { graph, strip, density, pane, now }); }
  mount() {
    const canvas = this.graph.client.view(this.strip).el;
    if (this.listening === canvas) return;
    this.listening = canvas;
    canvas.style.cursor = "pointer";
    canvas.addEventListener("click", event => {
      const { x_scale } = this.graph.client.frame(this.strip);
      this.graph.pages.goTo(x_scale.invert(event.clientX - canvas.getBoundingClientRect().left));
    });
  }
  // Count the states anew if there are more, or if they stand elsewhere.
  reshape(low, high, again) {
    const { u } = this.graph.store.nodes, known = `${u.length},${low},${high}`;
    if (known === this.known && !again) return;
    this.known = known;
    const bins = new Array(BINS).fill(0), per = (high - low) / BINS;
    for (const x of u) bins[Math.min(BINS - 1, Math.floor((x - low) / per))]++;
    const most = Math.max(1, ...bins), full = bins.map((_, i) => i).filter(i => bins[i]);
    between(this.strip.x_range, low, high);
    fill(this.density, { left: full.map(i => low + i * per), right: full.map(i => low + (i + 1) * per), top: full.map(i => bins[i] / most) });
  }
  window(left, right) { fill(this.pane, { left: [left], right: [right] }); }
  cursor(x) { if (this.now.location !== x) this.now.location = x; }
}
