// Clocks inside an inspector's page, given its root element. A figure counts as shown when the frame after the one it was
// painted in begins: then the painted one has left this thread. Key presses begin at the browser's own time stamp, before
// any handler, so that waiting for a busy thread counts too.
root => {
  if (root.kvBench) return 0;
  const client = root.kvlab, figures = new Set(Object.values(client.told.views).flatMap(parts => Object.values(parts)).filter(one => one?.type === "Figure"));
  const plots = [...figures].map(model => client.view(model)).filter(view => view), graph = client.view(client.told.views.graph.figure);
  if (!plots.includes(graph) || !("_invalidate_all" in graph) || !graph._invalidated_painters) throw new Error("this Bokeh does not say what it still has to paint");
  const settled = plot => !plot._invalidate_all && !plot._invalidated_painters.size;
  const frame = () => new Promise(done => requestAnimationFrame(() => done(performance.now())));
  const shown = new Map(plots.map(plot => [plot, 0]));
  const bench = root.kvBench = { steps: [], floor: [], presented: [], frames: [], idle: Promise.resolve(), record: false };
  for (const plot of plots) plot.repainted.connect(() => requestAnimationFrame(() => shown.set(plot, performance.now())));
  const until = async (told, at) => {
    while (!told()) if (await frame() > at + 5000) throw new Error("a step was not shown within 5 s");
  };
  // A moment is shown once the graph has painted what is new in it, if anything is.
  new MutationObserver(async () => {
    const { k } = client;
    if (!bench.record) return;
    await frame();
    await until(() => settled(graph), performance.now());
    await frame();
    bench.frames.push([k, Date.now()]);
  }).observe(root, { attributes: true, attributeFilter: ["data-kv-k"] });
  const measure = async at => {
    // The bar has changed in the handler. The graph paints only where something of it is new; a paint says so when its frame is over.
    await frame();
    const bar = await frame();
    await until(() => settled(graph), at);
    await frame();
    const painted = shown.get(graph) > at, first = Math.max(bar, shown.get(graph)) - at;
    await until(() => root.dataset.kvDrawn === String(client.k), at);
    const elements = await frame();
    await until(() => plots.every(plot => !plot.is_displayed || settled(plot)), at);
    await frame();
    bench.steps.push([first, painted, Math.max(elements, ...plots.map(plot => shown.get(plot))) - at]);
  };
  // The least that any page could do: one text changes.
  const text = document.createElement("span");
  text.style.cssText = "position:fixed;right:0;bottom:0;font-size:1px";
  document.body.append(text);
  const least = async at => {
    text.textContent = bench.floor.length;
    await frame();
    bench.floor.push(await frame() - at);
  };
  window.addEventListener("keydown", event => { bench.idle = (event.key === "F9" ? least : measure)(event.timeStamp); }, true);
  // The browser's own account, to the frame after the handlers; it tells in steps of 8 ms, and nothing below 16.
  new PerformanceObserver(list => { for (const one of list.getEntries()) if (one.name === "keydown") bench.presented.push(one.duration); })
    .observe({ type: "event", durationThreshold: 16 });
  return plots.length;
}
