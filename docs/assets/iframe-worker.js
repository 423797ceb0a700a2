// The search runs in a worker, but browsers do not start workers from file:// pages. There, a hidden frame replaces the worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.tell(data);
      inside.importScripts = (...scripts) => scripts.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve());
      this.ready = this.load(new URL(address, document.baseURI).href);
    }

    load(address) {
      return new Promise((loaded) => {
        const script = this.frame.contentDocument.createElement("script");
        script.onload = loaded;
        script.src = address;
        this.frame.contentDocument.documentElement.append(script);
      });
    }

    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
