// The browser half of an inspector. It alone knows the cursor: a moment k is all rows with born <= k, so moving it asks
// nobody. The files of this folder and of views/ are joined into one module, this one last.
const VIEWS = { graph: GraphView, timeline: TimelineView, decision: DecisionView, lineage: LineageView, memory: MemoryView, quality: QualityView, events: EventsView };
const LATER_MS = 40, RARE_MS = 80, CALM_MS = 400, MIRROR_MS = 150, SILENT_MS = 5000;

class Client {
  constructor(told, context) {
    Object.assign(this, { told, context, k: 0, selected: null, hovered: null, asks: 0, playing: false, speed: 8, unit: "event", lost: false });
    this.store = new Store(told.meta.columns, told.meta.dashes);
    this.layers = told.layers.map(layer => new Layer(layer, this.store[layer.table]));
    this.views = Object.entries(told.views).map(([name, parts]) => new VIEWS[name](this, parts));
    this.found = new Map();
    this.bar = new Transport(this, told.bar);
    this.notice = new Notice(this, told.notice);
    this.room = new Room(this, told.room);
    this.kinds = new Map(told.meta.kinds.map((kind, i) => [kind, i]));
    const kinds = (...names) => new Set(names.map(name => this.kinds.get(name)));
    this.units = { operation: kinds("action.started", "action.finished", "action.failed", "action.skipped"), turn: kinds("turn.finished"), decision: kinds("decision") };
  }
  // Bokeh looks through all of its views, so what was found is kept until it is rendered anew.
  view(model) {
    const known = this.found.get(model);
    if (known?.el?.isConnected) return known;
    const view = this.context.index.find_one(model);
    this.found.set(model, view);
    return view;
  }
  at(div) { const root = this.view(div)?.shadow_el; return root?.querySelector(".bk-clearfix") ?? root; }
  how(code) { return this.told.meta.decisions[code] ?? "open"; }
  layersOf(view) { return this.layers.filter(layer => layer.view === view); }
  // Put native elements into a Bokeh Div, once for equal text.
  put(div, html) {
    const place = this.at(div);
    if (!place) return;
    let box = place.querySelector(":scope > .kv");
    if (!box) { box = document.createElement("div"); box.className = "kv"; place.append(box); }
    if (box.told !== html) { box.innerHTML = html; box.told = html; }
  }
  get running() { return this.told.meta.live && !this.ended && ["running", "empty"].includes(this.store.run.status ?? "empty"); }

  // Where axes of time end. They show the whole run, what is drawn on them only what was until the cursor.
  get lasts() { const end = this.store.duration; return this.running ? round125(Math.max(end, 1)) : end * 1.02 || 1; }

  async mount() {
    for (let i = 0; i < 400 && !(this.at(this.told.bar) && this.view(this.told.root) && this.frame(this.told.views.graph.figure)?.bbox.width > 1); i++)
      await new Promise(done => setTimeout(done, 20));
    this.root = this.view(this.told.root).el;
    if (this.root.kvlab) return; // asked twice by one rendering
    this.root.kvlab = this;
    this.wearTheme();
    this.bar.mount();
    for (const view of this.views) view.mount();
    this.room.mount();
    this.tabs();
    this.keys();
    this.fields();
    const first = this.told.packed ? await inflate(this.told.packed) : null;
    if (first) this.store.append(first);
    this.reshape();
    this.moveTo(this.told.meta.start ?? this.store.n, true);
    this.recall();
    this.dress();
    if (this.told.meta.live) this.follow();
    this.root.dataset.kvReady = "1";
  }
  frame(figure) { return this.view(figure)?.frame; }
  // A view behind another one is left as it is: Bokeh would lay it out again and again.
  get uncovered() { return this.views.filter(view => !this.covered?.has(view.name)); }
  reshape() { for (const view of this.uncovered) view.reshape?.(); }

  // -- the cursor
  // At the end, or where it stood before what has arrived and is not drawn yet.
  get atEnd() { return this.k >= this.store.n || this.k === this.stood; }
  moveTo(k, again = false) {
    k = Math.max(0, Math.min(this.store.n, Math.trunc(k)));
    if (k === this.k && !again) return;
    this.goTo(k, again);
    this.charting = true; this.chartAgain ||= again;
    this.draw();
    this.tell();
  }
  // The graph and the bar stand at k.
  goTo(k, again) {
    const [graph] = this.views, before = again ? -1 : this.k;
    this.k = k;
    this.root.dataset.kvK = k;
    graph.show(k, before, again);
    this.showLayers(graph, again);
    this.bar.show();
  }
  showCharts(again) {
    again ||= this.chartAgain; // somebody else may show them before it is their turn
    this.charting = this.chartAgain = false;
    const [graph, ...charts] = this.uncovered;
    for (const view of charts) { view.show(this.k, again); this.showLayers(view, again); }
  }
  // The layers of one figure redraw their bases together: what is in a base lies under all that is in a twin.
  showLayers(view, again) {
    const layers = this.layersOf(view.name), redraw = again || layers.some(layer => layer.stale(this.k));
    for (const layer of layers) layer.show(this.k, redraw);
  }
  // The charts and what hangs on one row come after the graph and the bar. For a key alone all at once, when the graph has
  // been painted: the second frame begins then, and what it shows must not wait. In a burst of keys the charts follow each
  // frame, and the rows come after the last key.
  draw(again = false) {
    this.again ||= again;
    clearTimeout(this.timer);
    const now = performance.now(), turn = this.turn = (this.turn ?? 0) + 1, alone = now - (this.drawAsked ?? 0) > RARE_MS;
    this.drawAsked = now;
    const draw = () => { if (turn === this.turn) this.drawRows(); };
    if (alone) return requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(draw)));
    this.timer = setTimeout(draw, LATER_MS);
    requestAnimationFrame(() => setTimeout(() => this.catchUp()));
  }
  catchUp() { if (this.charting) this.showCharts(); }
  drawRows() {
    const all = this.again;
    this.again = false;
    this.catchUp();
    for (const view of this.uncovered) { if (view.asTable) view.drawTable(this.k); else view.later(this.k, all); }
    for (const view of this.uncovered) if (!view.asTable) view.fit();
    this.root.dataset.kvDrawn = this.k;
  }
  step(direction, unit = this.unit) {
    this.playing = false;
    this.moveTo(this.next(direction, unit));
    this.bar.show();
  }
  next(direction, unit) {
    const wanted = this.units[unit], { kind } = this.store.events;
    let k = this.k + direction;
    if (wanted) while (k > 0 && k < this.store.n && !wanted.has(kind[k - 1])) k += direction;
    return k;
  }
  play() {
    this.playing = !this.playing;
    if (this.playing && this.k >= this.store.n && !this.running) this.moveTo(0);
    this.bar.show();
    let due = performance.now();
    const turn = now => {
      if (!this.playing || !this.root.isConnected) return;
      if (now >= due) {
        due = Math.max(due + 1000 / this.speed, now - 100);
        this.moveTo(this.next(1, this.unit));
        if (this.k >= this.store.n && !this.running) { this.playing = false; return this.bar.show(); }
      }
      requestAnimationFrame(turn);
    };
    if (this.playing) requestAnimationFrame(turn);
  }
  // Row of the newest state at the cursor, -1 before the first.
  get newest() { return this.store.alive("nodes", this.k) - 1; }
  // The state that the views speak of.
  get focus() { return this.selected != null && this.store.born("nodes", this.selected, this.k) ? this.selected : this.newest; }
  get decision() {
    if (this.selected != null) { const row = this.store.decisionOf(this.selected, this.k); if (row >= 0) return row; }
    return this.store.alive("decisions", this.k) - 1;
  }
  select(node) {
    this.selected = node;
    this.root.dataset.kvSelected = node == null ? "" : this.store.nodes.id[node];
    for (const view of this.views) view.selected?.();
    this.draw(true);
    this.tell();
  }

  // -- keys and tabs
  keys() {
    const heard = event => {
      const from = event.composedPath()[0], typing = from?.tagName === "SELECT" || (from?.tagName === "INPUT" && (from.type !== "range" || from.dataset.kvKeys === "own"));
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (typing) { if (event.key === "Escape") { from.value = ""; this.forget(); this.focusRoot(event); } return; }
      if (from?.getAttribute?.("role") === "tab" && event.key.startsWith("Arrow")) return;
      const act = {
        ArrowRight: () => this.step(1, event.shiftKey ? "turn" : this.unit), ArrowLeft: () => this.step(-1, event.shiftKey ? "turn" : this.unit),
        Home: () => this.moveTo(0), End: () => this.moveTo(this.store.n), " ": () => this.play(),
        "]": () => this.step(1, "decision"), "[": () => this.step(-1, "decision"), "/": () => this.bar.ui("search").focus(),
        n: () => this.act("step"), r: () => this.act("run"), p: () => this.act("pause"), "?": () => this.bar.help(), Escape: () => { this.bar.ui("keys").hidden = true; this.forget(); this.select(null); },
      }[event.key];
      if (!act || (event.key === " " && from?.tagName === "BUTTON")) return;
      event.preventDefault(); event.stopPropagation();
      act();
    };
    this.root.addEventListener("keydown", heard, true);
    // On a page of its own nobody else wants them.
    if (this.told.meta.own) document.addEventListener("keydown", event => { if (event.target === document.body) heard(event); });
  }
  forget() { for (const view of this.views) view.forget?.(); }
  // What is typed into a field reaches the field, and nothing around the inspector.
  fields() { this.root.addEventListener("keydown", event => event.stopPropagation()); }
  focusRoot(event) { event.preventDefault(); event.stopPropagation(); this.root.focus(); }
  tabs() {
    const { tabs, tabbar } = this.told;
    if (!tabs.length) return;
    this.put(tabbar, `<div class="tabs" role="tablist" aria-label="Views">${tabs.map(([name]) =>
      `<button type="button" role="tab" data-kv="tab-${escaped(name.toLowerCase())}">${escaped(name)}</button>`).join("")}</div>`);
    const buttons = [...this.at(tabbar).querySelectorAll("button")];
    const show = chosen => {
      buttons.forEach((button, i) => { button.setAttribute("aria-selected", i === chosen); button.tabIndex = i === chosen ? 0 : -1; });
      tabs.forEach(([, model], i) => { model.visible = i === chosen; });
      this.covered = new Set(tabs.map(([name]) => name.toLowerCase()).filter((_, i) => i !== chosen));
      // Elements of a Div that was never shown exist only now.
      requestAnimationFrame(() => { for (const view of this.views) view.mount(); this.reshape(); this.showCharts(true); this.draw(true); });
    };
    buttons.forEach((button, i) => {
      button.onclick = () => show(i);
      button.onkeydown = event => {
        const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!way) return;
        event.preventDefault(); event.stopPropagation();
        const to = (i + way + buttons.length) % buttons.length;
        show(to); buttons[to].focus();
      };
    });
    show(0);
  }

  // -- after a reload
  // A tab remembers where it was: a reload comes back there, whatever became of the kernel.
  get memory() { return `kvlab:${this.told.meta.mark}`; }
  remember() {
    const at = { k: this.k, live: this.atEnd, selected: this.selected == null ? null : this.store.nodes.id[this.selected] };
    try { sessionStorage.setItem(this.memory, JSON.stringify(at)); } catch { /* not allowed here: then a reload begins anew */ }
  }
  recall() {
    try { this.was = JSON.parse(sessionStorage.getItem(this.memory)); } catch { this.was = null; }
    this.comeBack();
  }
  // As soon as the rows are there that it was at.
  comeBack() {
    const { was, store } = this;
    if (!was) return;
    const node = was.selected == null ? null : store.nodeOf.get(was.selected);
    if ((!was.live && was.k > store.n) || (was.selected != null && node == null)) return;
    this.was = null;
    if (!was.live) this.moveTo(was.k);
    if (node != null) this.select(node);
  }

  // -- buttons of a live run, in the cell around
  // They are the kernel's own widgets and work while it is busy; here they only get a name and keep their keys.
  get buttons() { return this.cell?.querySelector(".kvlab-run"); }
  // The output of the cell that it is shown in, with all that the cell displays.
  get cell() { return this.around(".jp-OutputArea"); }
  around(selector) {
    let at = this.root;
    while (at && !at.closest(selector)) at = at.getRootNode().host;
    return at?.closest(selector);
  }
  // JupyterLab waits two seconds for the model of a widget; on one that comes as they end, as after a reload, it gives up
  // for good, and there would be no buttons.
  mend() {
    if (this.mending || this.lost || !this.channel.line) return;
    const child = this.around(".jp-OutputArea-child"), before = output => output.compareDocumentPosition(child) & Node.DOCUMENT_POSITION_FOLLOWING;
    const output = child && [...this.cell.querySelectorAll(".jp-OutputArea-output")].filter(before).at(-1);
    if (!output?.matches(".jupyter-widgets") || output.childElementCount) return;
    this.mending = this.channel.draw(output).then(() => this.dress(), () => {}).finally(() => { this.mending = null; });
  }
  dress() {
    const bar = this.buttons;
    if (!bar || bar.dataset.lmSuppressShortcuts) return;
    bar.dataset.lmSuppressShortcuts = "true";
    this.keepFocus(bar);
    bar.setAttribute("role", "toolbar");
    bar.setAttribute("aria-label", "The run");
    for (const [name, label] of [["speed", "Speed"], ["until", "Run to"], ["roads", "Alternative for the pending action"]])
      bar.querySelector(`.kvlab-run-${name} select`)?.setAttribute("aria-label", label);
  }
  // A button that is pressed is disabled while its action runs, and the focus falls to the notebook, whose keys delete
  // cells: it goes to the inspector instead, where n, r and p do what the buttons do.
  keepFocus(bar) {
    let last = null;
    const take = () => this.root.focus({ preventScroll: true });
    bar.addEventListener("focusin", event => { last = event.target; });
    bar.addEventListener("click", event => { if (event.detail && event.target.closest("button")) take(); });
    new MutationObserver(() => { if (last?.disabled && [last, document.body].includes(document.activeElement)) take(); })
      .observe(bar, { subtree: true, attributes: true, attributeFilter: ["disabled"] });
  }
  act(name) { this.dress(); this.buttons?.querySelector(`.kvlab-run-${name}:enabled`)?.click(); }

  // -- a live run
  follow() {
    this.heardAt = performance.now();
    this.channel = channelOf(this.told.channel, this.root);
    this.channel.open(batch => this.heard(batch)).then(() => this.ask());
    this.watch = setInterval(() => {
      if (!this.root.isConnected) return clearInterval(this.watch);
      const lost = this.running && performance.now() - this.heardAt > SILENT_MS;
      if (lost !== this.lost) { this.lost = lost; this.bar.show(); }
      this.mend();
    }, 500);
  }
  heard(batch) {
    this.heardAt = performance.now();
    if (this.lost) { this.lost = false; this.bar.show(); }
    if (batch.over) { this.ended = true; this.bar.show(); }
    if (batch.tables == null) { if (batch.to > this.store.n) this.ask(); return; }
    const live = this.atEnd;
    if (batch.from === 0 && this.store.n) { if (batch.to <= this.store.n) return; this.store.reset(); for (const layer of this.layers) layer.drawn = -1; }
    if (!this.store.append(batch)) { if (batch.to > this.store.n) this.ask(); return; }
    // Several batches may come before the frame that shows them: who stood at the end before the first of them still does.
    this.stood ??= live ? this.k : -1;
    this.arriving ??= requestAnimationFrame(() => {
      this.arriving = null;
      const move = this.stood === this.k && !(this.was && !this.was.live);
      this.stood = undefined;
      const [graph] = this.views;
      graph.reshape();
      this.comeBack();
      if (move && !this.playing) { this.goTo(this.store.n); this.tell(); } else this.bar.show();
      // What sums up the whole run follows in its own time: nobody reads it ten times a second.
      this.resting ??= setTimeout(() => {
        this.resting = null;
        for (const view of this.uncovered) if (view !== graph) view.reshape?.();
        this.showCharts();
        this.drawRows();
      }, CALM_MS);
    });
  }
  // Each question has its number: what is told again as it was, Bokeh does not send.
  ask() { this.asking = true; this.tell(); }
  // Tell Python what is looked at, and how much is known here. Whoever follows says so once: each word costs the kernel.
  tell() {
    clearTimeout(this.telling);
    this.telling = setTimeout(() => {
      const node = this.selected, selected = node == null ? "" : this.store.nodes.id[node], live = this.atEnd;
      const word = JSON.stringify([live || this.k, selected]);
      if (word === this.word && !this.asking) return;
      this.word = word;
      this.said = { k: this.k, known: this.store.n, selected, live, ask: this.asking ? ++this.asks : 0 };
      this.channel?.say(this.said);
      this.asking = false;
      if (!this.was) this.remember();
    }, MIRROR_MS);
  }

  // -- theme
  get dark() {
    const { theme } = this.told.meta;
    if (theme !== "auto") return theme === "dark";
    // A static copy lies in a frame of its own; the notebook around it says what it wears.
    const lab = document.body.dataset.jpThemeLight ?? (window.frameElement ? window.parent.document.body.dataset.jpThemeLight : null);
    return lab != null ? lab === "false" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  wearTheme() {
    const wear = () => {
      const { dark } = this;
      if (this.worn === dark) return;
      this.worn = dark;
      const tokens = this.told.tokens[dark ? "dark" : "light"];
      for (const [model, property, token] of this.told.binds) model[property] = Array.isArray(token) ? token.map(one => tokens[one]) : tokens[token];
      for (const [token, colour] of Object.entries(tokens)) this.root.style.setProperty(`--kv-${token}`, colour);
      this.root.style.colorScheme = dark ? "dark" : "light";
      this.root.dataset.kvTheme = dark ? "dark" : "light";
      if (this.told.meta.own) Object.assign(document.body.style, { background: tokens.background, margin: "0" });
    };
    wear();
    const around = window.frameElement ? window.parent.document.body : document.body;
    new MutationObserver(wear).observe(around, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", wear);
  }
}

export default async (told, _origin, _data, context) => {
  const client = new Client(told, context);
  try { await client.mount(); } catch (error) { Notice.broken(client, error); throw error; }
};
