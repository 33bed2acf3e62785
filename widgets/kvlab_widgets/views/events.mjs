const GROUPS = { all: null, decisions: ["decision", "decision.actual", "decision.audit"], turns: ["turn.finished", "action.started", "action.finished", "action.failed", "action.skipped"],
  states: ["state.created", "state.phase"], memory: ["segment.created", "segment.placed", "segment.dropped", "segment.sent", "segment.received", "memory"],
  trouble: ["action.failed", "worker.lost", "note"] };

class EventsView extends Panel {
  get legend() {
    return `<select class="filter end" aria-label="Kinds of events" data-kv="filter">${Object.keys(GROUPS).map(name => `<option${name === "all" ? " selected" : ""}>${name}</option>`).join("")}</select>`;
  }
  mount() {
    super.mount();
    const choice = this.client.at(this.head)?.querySelector("select");
    if (choice) choice.onchange = () => { const names = GROUPS[choice.value]; this.only = names && new Set(names.map(name => this.client.kinds.get(name))); this.later(this.client.k, true); };
    this.at = undefined;
  }
  later(k, again) {
    const n = this.store.n, known = `${k},${n}`;
    if (known === this.at && !again) return;
    this.at = known;
    const { kind, t, text } = this.store.events, kinds = this.client.told.meta.kinds, room = Math.floor((this.rows.height - 22) / 21), before = [], after = [];
    const fits = i => !this.only || this.only.has(kind[i]);
    for (let i = k - 1; i >= 0 && before.length < room; i--) if (fits(i)) before.unshift(i);
    for (let i = k; i < n && after.length < room; i++) if (fits(i)) after.push(i);
    const ahead = Math.min(after.length, Math.max(room >> 1, room - before.length)), shown = [...before.slice(-(room - ahead)), ...after.slice(0, ahead)];
    const rows = shown.map(i => `<tr${i === k - 1 ? ' aria-current="true"' : ""}${i >= k ? ' class="off"' : ""}><td class="n"><button type="button" class="link" data-k="${i + 1}" aria-label="event ${i + 1}">${count(i + 1)}</button><td class="n">${
      seconds(t[i])}<td>${escaped(kinds[kind[i]])}<td class="last" title="${escaped(text[i])}">${escaped(text[i])}</tr>`);
    this.client.put(this.rows, rows.length ? `<table data-kv="events"><thead><tr><th scope="col" class="n">#<th scope="col" class="n">time<th scope="col">event<th scope="col">what</tr></thead><tbody>${rows.join("")}</tbody></table>`
      : `<div class="empty">${this.only ? "The run has no such event so far." : this.yet("Nothing happened", undefined, "This run has no events.")}</div>`);
    this.lead(this.rows);
  }
}
