// The bar: native buttons, a range and one sentence that says what changed.
const icon = path => `<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="currentColor">${path}</svg>`;
const ICONS = {
  first: icon('<path d="M3 3h2v10H3zM13 3v10L6 8z"/>'), back: icon('<path d="M11 3v10L4 8z"/>'),
  play: icon('<path d="M4 2.5v11L13 8z"/>'), pause: icon('<path d="M4 3h3v10H4zM9 3h3v10H9z"/>'),
  forward: icon('<path d="M5 3v10l7-5z"/>'), last: icon('<path d="M11 3h2v10h-2zM3 3v10l7-5z"/>'),
};
const KEYS = [["← →", "one step back, one forward"], ["Shift ← →", "an agent's turn"], ["[ ]", "a decision"], ["Home End", "first, last event"],
  ["space", "play, pause"], ["/", "search: event number, state, agent, operator or words"],
  ["", "ancestors(s12, 3), descendants(s12, 2)"], ["Enter", "the next state that matches"], ["Esc", "forget selection and search"], ["n r p", "a live run: do the next action, run on, pause"], ["?", "these keys"]];

class Transport {
  constructor(client, bar) { this.client = client; this.bar = bar; }
  mount() {
    const c = this.client, button = (name, title, key) =>
      `<button type="button" data-kv="${name}" aria-label="${title}" title="${title} (${key})">${ICONS[name]}</button>`;
    c.put(this.bar, `<div class="bar" role="toolbar" aria-label="Moment of the run">` +
      button("first", "First event", "Home") + button("back", "Step back", "←") + button("play", "Play", "space") +
      button("forward", "Step forward", "→") + button("last", "Last event", "End") +
      `<input type="range" min="0" max="1" step="1" aria-label="Event" data-kv="slider"><span class="pos" data-kv="position"></span>
      <span class="now" role="status" data-kv="now"></span><span class="st" data-kv="status"></span>
      <input type="search" placeholder="jump to" aria-label="Find an event number, states, ancestors(s12, 3) or words" title="An event number, a state, an agent, an operator, ancestors(s12, 3), or words (/)" data-kv="search">
      <select aria-label="Step by" title="Step by" data-kv="unit"><option value="event">event</option><option value="operation">operation</option>
      <option value="turn">agent turn</option><option value="decision">decision</option></select>
      <select aria-label="Speed" title="Steps a second" data-kv="speed"><option value="2">2/s</option><option value="8" selected>8/s</option>
      <option value="30">30/s</option><option value="60">60/s</option></select>
      <button type="button" data-kv="help" aria-label="Keys" title="Keys (?)" aria-expanded="false">?</button>
      <div class="help" role="dialog" aria-label="Keys" data-kv="keys" hidden>${KEYS.map(([k, what]) => `<kbd>${k}</kbd><span>${what}</span>`).join("")}</div></div>`);
    this.ui = name => c.at(this.bar).querySelector(`[data-kv=${name}]`);
    // Where there is little room the sentence keeps some, and what can be done by keys gives way.
    const row = c.at(this.bar).querySelector(".bar");
    new ResizeObserver(([{ contentRect: { width } }]) => { row.classList.toggle("narrow", width < 900); row.classList.toggle("tiny", width < 700); }).observe(row);
    this.ui("first").onclick = () => c.moveTo(0);
    this.ui("last").onclick = () => c.moveTo(c.store.n);
    this.ui("back").onclick = () => c.step(-1);
    this.ui("forward").onclick = () => c.step(1);
    this.ui("play").onclick = () => c.play();
    this.ui("help").onclick = () => this.help();
    this.ui("slider").oninput = event => { this.wanted = +event.target.value; this.frame ??= requestAnimationFrame(() => { this.frame = null; c.moveTo(this.wanted); }); };
    // Who asked for less motion is shown a step at a time.
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) c.speed = +(this.ui("speed").value = "2");
    this.ui("speed").onchange = event => { c.speed = +event.target.value; };
    this.ui("unit").onchange = event => { c.unit = event.target.value; };
    this.ui("search").onkeydown = event => {
      if (event.key === "Enter") { event.preventDefault(); event.stopPropagation(); this.search(event.target.value.trim()); }
    };
  }
  help() { const box = this.ui("keys"); box.hidden = !box.hidden; this.ui("help").setAttribute("aria-expanded", !box.hidden); }
  search(text) {
    const c = this.client, s = c.store, field = this.ui("search");
    field.setAttribute("aria-invalid", "false");
    if (!text) return;
    if (/^\d+$/.test(text)) return c.moveTo(+text);
    if (c.views[0].find(text)) return;
    const word = text.toLowerCase();
    for (let i = 0; i < s.n; i++) {
      const k = (c.k + i) % s.n; // from the event after the cursor, once around
      if (s.events.text[k].toLowerCase().includes(word)) return c.moveTo(k + 1);
    }
    field.setAttribute("aria-invalid", "true");
  }
  show() {
    this.client.notice.show();
    const { client: c } = this, s = c.store, ahead = c.atEnd ? 0 : s.n - c.k;
    this.ui("now").textContent = s.n && (c.k ? s.events.text[c.k - 1] : "before the first event") || "";
    this.ui("position").textContent = `${count(c.k)} / ${count(s.n)}`;
    const slider = this.ui("slider");
    slider.max = s.n; slider.value = c.k;
    slider.setAttribute("aria-valuetext", `event ${c.k} of ${s.n}`);
    const [text, kind] = this.status(ahead);
    this.ui("status").textContent = text; this.ui("status").className = `st ${kind}`;
    this.ui("status").title = c.running ? c.told.meta.elsewhere : "";
    const play = this.ui("play");
    if (play.dataset.on !== String(c.playing)) {
      play.dataset.on = c.playing; play.innerHTML = c.playing ? ICONS.pause : ICONS.play; play.setAttribute("aria-label", c.playing ? "Pause" : "Play");
    }
  }
  status(ahead) {
    const { client: c } = this, run = c.store.run.status ?? "empty";
    if (c.lost) return [`disconnected, at event ${count(c.store.n)}`, "warn"];
    if (c.playing) return ["playing", ""];
    if (ahead) return c.running ? [`paused, ${count(ahead)} new`, "warn"] : [`${count(ahead)} ahead`, ""];
    if (c.running) return [c.told.meta.elsewhere ? "live, read only" : "live", "live"];
    return run === "running" ? ["ended without a word", "warn"] : [run === "empty" ? "" : `run ${run}${c.store.run.stepped ? ", stepped" : ""}`, run === "failed" ? "warn" : ""];
  }
}
