// A view's head with title, legend and the switch to its native table, and what all views share.
class Panel {
  constructor(client, parts) { Object.assign(this, parts); this.client = client; this.store = client.store; this.asTable = false; }
  get legend() { return ""; }
  get tools() { return ""; }
  mount() {
    const switched = this.rowsAt ? `<button type="button" class="as-table" aria-pressed="${this.asTable}" data-kv="table-${this.name}" title="Show as table"
      aria-label="${escaped(this.title)} as table">table</button>` : "";
    this.client.put(this.head, `<div class="head"><h3>${escaped(this.title)}</h3><span class="legend">${this.legend}</span>${this.tools}${switched}<p class="instead" data-kv="instead-${this.name}" hidden></p></div>`);
    this.said = undefined;
    const button = this.client.at(this.head).querySelector(".as-table");
    if (button) button.onclick = () => this.toggle(button);
  }
  toggle(button) {
    this.asTable = !this.asTable;
    button.setAttribute("aria-pressed", this.asTable);
    for (const model of this.body) model.visible = !this.asTable;
    this.table.visible = this.asTable;
    this.instead("");
    // A Div that changes is rendered anew, and loses what was put into it.
    requestAnimationFrame(() => {
      if (this.asTable) return this.drawTable(this.client.k);
      this.later(this.client.k, true);
      this.fit();
    });
  }
  drawTable(k) {
    const { head, rows, numeric, note } = this.rowsAt(k);
    this.client.put(this.table, `<div class="scroll" tabindex="0" role="region" aria-label="${escaped(this.title)}, table" data-kv="rows-${this.name}"
      style="height:${this.table.height}px">${note ? `<p class="muted">${escaped(note)}</p>` : ""}${table(head, rows, numeric)}</div>`);
  }
  // By style: for `visible` Bokeh would lay out all anew.
  hide(hidden, ...figures) {
    for (const figure of figures) { const element = this.client.view(figure)?.el; if (element) element.style.visibility = hidden ? "hidden" : ""; }
  }
  // Where there is nothing to draw, a sentence stands instead of the figures: axes of nothing would have invented numbers.
  instead(told, ...figures) {
    this.hide(told, ...figures);
    if (told === this.said) return;
    this.said = told;
    const place = this.client.at(this.head)?.querySelector(".instead");
    if (!place) return;
    place.hidden = !told || this.asTable;
    place.innerHTML = `<span>${told}</span>`;
    place.style.height = `${this.body.reduce((sum, model) => sum + (model.height ?? 0), 0)}px`;
    this.lead(this.head);
  }
  // What is not there yet, and the way to the first of it; or what to say of a run that never has it.
  yet(what, first, never) {
    if (first > this.client.k) return `${what} yet. The first time is at <button type="button" class="link" data-k="${first}">event ${count(first)}</button>.`;
    return this.client.running ? `${what} yet. It will be shown here as soon as there is something.` : never;
  }
  // Buttons with a number lead to that event.
  lead(div) { for (const button of this.client.at(div)?.querySelectorAll("button[data-k]") ?? []) button.onclick = () => this.client.moveTo(+button.dataset.k); }
  show() {}
  later() {}
  fit() {}
  legendOf(hues) {
    return hues.map(how => `<span><i class="key h${how}"></i>${escaped(this.client.how(how))}</span>`).join("");
  }
}
// What is told again as it is costs nothing.
const fill = (source, columns) => {
  const { data } = source;
  if (!Object.entries(columns).every(([name, values]) => data[name]?.length === values.length && values.every((value, i) => value === data[name][i]))) source.data = columns;
};
const between = (range, start, end) => { if (range.start !== start || range.end !== end) range.setv({ start, end }); };
