// Exact counting in the background: the newest request wins, an outdated one is dropped.

const PATIENCE = 150; // milliseconds after which a thread busy with an old request is replaced

class Counting {
  constructor(onPart, onBusy) {
    this.onPart = onPart;
    this.onBusy = onBusy;
    this.serial = 0;
    this.waiting = null;
    this.left = 0;
    this.worker = null;
    this.alone = false;
  }
  thread() {
    if (this.worker) return this.worker;
    const listen = "onmessage = (event) => runJobs(event.data, (message) => postMessage(message));";
    const source = ['"use strict";', $("exact").textContent, listen].join("\n");
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    this.worker = new Worker(url);
    URL.revokeObjectURL(url);
    this.worker.onmessage = (event) => this.heard(event.data);
    this.worker.onerror = () => { this.alone = true; this.inPage(this.sent); }; // threads are forbidden here
    return this.worker;
  }
  request(state) {
    this.serial += 1;
    const { layers, window: view, layer } = state;
    this.waiting = { serial: this.serial, layers, window: view, layer, fromInput: isFromInput(state) };
    this.onBusy(true);
    if (this.left === 0) this.send();
    else if (Date.now() - this.since > PATIENCE) this.restart();
  }
  restart() {
    this.worker?.terminate();
    this.worker = null;
    this.left = 0;
    this.send();
  }
  send() {
    if (!this.waiting) return;
    const request = this.waiting;
    this.waiting = null;
    this.left = 3;
    this.since = Date.now();
    clearTimeout(this.timer);
    // a request that came meanwhile is not kept waiting by one that takes long
    this.timer = setTimeout(() => { if (this.waiting && this.left) this.restart(); }, PATIENCE);
    this.sent = request;
    if (this.alone) { this.inPage(request); return; }
    try {
      this.thread().postMessage(request);
    } catch {
      this.alone = true;
      this.inPage(request);
    }
  }
  // Without threads the page itself counts, and stands still while it does.
  inPage(request) {
    this.left = 3;
    setTimeout(() => runJobs(request, (message) => this.heard(message)), 0);
  }
  heard(message) {
    this.left -= 1;
    // While a key is dragged answers are a little late; they are shown, but only the newest counts as current.
    this.onPart(message, message.serial === this.serial);
    if (this.left === 0 && this.waiting) this.send();
    else if (this.waiting && Date.now() - this.since > PATIENCE) this.restart();
    else if (this.left === 0) this.onBusy(false);
  }
}
