// Browsers refuse a worker to a page opened from disk. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.body.appendChild(document.createElement("iframe"))
      frame.hidden = true
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise(resolve => {
        const script = this.inside.document.createElement("script")
        script.src = new URL(url, location)
        script.onload = resolve
        this.inside.document.body.append(script)
      })
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}

// The theme searches after a key was released. Text can be pasted or dictated too, which releases no key.
document.addEventListener("input", event => {
  if (event.target.matches(".md-search__input")) event.target.dispatchEvent(new KeyboardEvent("keyup"))
})
