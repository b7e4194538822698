// Search runs in a web worker, which browsers refuse to start from file://. There, an invisible frame takes its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inner = this.frame.contentWindow
      inner.document.open()
      inner.document.write(
        "<!doctype html><script>" +
          "postMessage = data => parent.dispatchEvent(new MessageEvent('message', { data, source: window }));" +
          "importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {" +
          "const s = document.createElement('script'); s.src = url; s.onload = done; s.onerror = failed;" +
          "document.body.appendChild(s) })), Promise.resolve())" +
          "</script><body><script src='" + url + "'></script>"
      )
      inner.document.close()
      this.ready = new Promise(done => inner.addEventListener("load", done))
      window.addEventListener("message", event => {
        if (event.source !== inner) return
        const copy = new MessageEvent("message", { data: event.data })
        this.dispatchEvent(copy)
        if (this.onmessage) this.onmessage(copy)
      })
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
