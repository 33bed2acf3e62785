// A view's head with title, legend and the switch to its native table, and what all views share.
class Panel {
  constructor(client, parts) { Object.assign(this, parts); this.client = client; this.store = client.store; this.asTable = false; }
  get legend() { return ""; }
  get tools() { return ""; }
  mount() {
    const switched = this.rowsAt ? `<button type="button" class="as-table" aria-pressed="${this.asTable}" data-kv="table-${this.name}" title="Show as table"
      aria-label="${escaped(this.title)} as table">table</button>` : "";
    this.client.put(this.head, `<div class="head"><h3>${escaped(this.title)}</h3><span class="legend">${this.legend}</span>${this.tools}${switched}</div>`);
    const button = this.client.at(this.head).querySelector(".as-table");
    if (button) button.onclick = () => this.toggle(button);
  }
  toggle(button) {
    this.asTable = !this.asTable;
    button.setAttribute("aria-pressed", this.asTable);
    for (const model of this.body) model.visible = !this.asTable;
    this.table.visible = this.asTable;
    // A Div that changes is rendered anew, and loses what was put into it.
    requestAnimationFrame(() => { if (this.asTable) this.drawTable(this.client.k); else this.later(this.client.k, true); });
  }
  drawTable(k) {
    const { head, rows, numeric, note } = this.rowsAt(k);
    this.client.put(this.table, `<div class="scroll" tabindex="0" role="region" aria-label="${escaped(this.title)}, table" data-kv="rows-${this.name}"
      style="height:${this.table.height}px">${note ? `<p class="muted">${escaped(note)}</p>` : ""}${table(head, rows, numeric)}</div>`);
  }
  show() {}
  later() {}
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
