// What is said where there is less than a whole run to see: nothing yet, nothing more, a failure. Each names what to do.
class Notice {
  constructor(client, place) { this.client = client; this.place = place; this.shown = ""; }
  // [tone, what is so, what to do, event to go to]; null while all is well.
  get told() {
    const { client: c } = this, { n, run } = c.store, again = c.told.meta.page ? "Reload the page" : "Run the cell again";
    if (c.lost) return ["warn", `Disconnected at event ${count(n)}.`, `All up to there can be stepped through. ${again} to follow the run on.`];
    if (!n) return c.running ? ["", "Waiting for the first event.", "The picture begins by itself. A paused run waits for run.play() or run.step()."]
      : ["", "This run has no events.", "It ended before it began. Run it again, or choose another: kvlab runs ls."];
    if (run.status === "failed") return ["warn", `The run failed: ${run.error ?? "it gave no reason"}.`, "Everything up to there is kept.", this.failure];
    if (run.status === "cancelled") return ["", "The run was cancelled.", "What was made until then is kept; running the workflow again makes a new run."];
    if (run.status === "running" && !c.running) return ["warn", `The run had not ended at event ${count(n)}.`,
      "If it still runs, kvlab inspect RUN --serve follows it; if its process died, this is all of it."];
    return null;
  }
  // Nothing else can be relied on then, so this stands where the bar would.
  static broken(client, error) {
    client.put(client.told.bar, `<div class="notice warn" role="alert" data-kv="broken"><b>This picture could not be drawn:</b>
      <span>${escaped(error.message ?? error)}. Reload it; as text the run is shown by kvlab inspect RUN.</span></div>`);
  }
  // The event of the first failure, to go to.
  get failure() { const i = this.client.store.events.kind.indexOf(this.client.kinds.get("action.failed")); return i < 0 ? null : i + 1; }
  show() {
    const told = this.told, key = JSON.stringify(told);
    if (key === this.shown) return;
    this.shown = key;
    this.place.visible = told != null;
    this.client.room.take(told ? this.place.height : 0);
    this.client.root.dataset.kvNotice = told ? told[1] : "";
    // A Div that was hidden has its elements only after it is laid out.
    if (told) requestAnimationFrame(() => this.put(told));
  }
  put([tone, what, todo, event]) {
    this.client.put(this.place, `<div class="notice ${tone}" role="status" data-kv="notice"><b>${escaped(what)}</b> <span>${escaped(todo)}</span>${
      event ? ' <button type="button" class="link" data-kv="failure">Go to the failure</button>' : ""}</div>`);
    const button = this.client.at(this.place)?.querySelector("button");
    if (button) button.onclick = () => this.client.moveTo(event);
  }
}
