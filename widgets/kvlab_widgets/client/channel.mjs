// The browser's end of what the inspector and Python say to each other: through the page's document, or a widget of the cell.
const FIND_MS = 100;

class DocumentChannel {
  constructor(told) { this.told = told; }
  async open(heard) { const { tail } = this.told; tail.properties.text.change.connect(() => heard(JSON.parse(tail.text))); }
  say(word) { this.told.mirror.data = Object.fromEntries(Object.entries(word).map(([name, value]) => [name, [value]])); }
}

class CellChannel {
  constructor(told, root) { Object.assign(this, told, { root }); }
  // After a reload the widget may come after the inspector.
  async open(heard) {
    while (!(this.line = window.kvlabLines?.get(this.mark))) {
      if (!this.root.isConnected) return;
      await new Promise(done => setTimeout(done, FIND_MS));
    }
    // An inspector that was rendered anew has left another one behind.
    this.line.on("msg:custom", text => { if (this.root.isConnected) heard(JSON.parse(text)); });
  }
  // A kernel that is gone is known by its silence.
  say(word) { try { this.line?.send(word); } catch { this.line = null; } }
  // Draw what is displayed before the inspector into the output that JupyterLab left without it.
  async draw(output) {
    const manager = this.line.widget_manager, view = await manager.create_view(await manager.get_model(this.box));
    output.replaceChildren(view.el);
    for (const type of ["before-attach", "after-attach"]) view.luminoWidget.processMessage({ type });
  }
}

const channelOf = (told, root) => told.tail ? new DocumentChannel(told) : new CellChannel(told, root);
