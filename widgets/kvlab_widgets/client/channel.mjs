// The browser's end of what the inspector and Python say to each other: through the page's document, or a widget of the cell.
const FIND_MS = 100;

class DocumentChannel {
  constructor(told) { this.told = told; }
  async open(heard) { const { tail } = this.told; tail.properties.text.change.connect(() => heard(JSON.parse(tail.text))); }
  say(word) { this.told.mirror.data = Object.fromEntries(Object.entries(word).map(([name, value]) => [name, [value]])); }
}

class CellChannel {
  constructor(told, around) { this.mark = told.mark; this.around = around; }
  // JupyterLab may render the widget after the inspector.
  async open(heard) {
    while (!this.line) {
      const place = this.around();
      if (!place) return;
      this.line = place.querySelector(`.kvlab-line-${this.mark}`)?.kvlabLine;
      if (!this.line) await new Promise(done => setTimeout(done, FIND_MS));
    }
    // An inspector that was rendered anew has left another one behind.
    this.line.on("msg:custom", text => { if (this.around()) heard(JSON.parse(text)); });
  }
  // A kernel that is gone is known by its silence.
  say(word) { try { this.line?.send(word); } catch { this.line = null; } }
}

const channelOf = (told, around) => told.tail ? new DocumentChannel(told) : new CellChannel(told, around);
