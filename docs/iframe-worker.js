/* SPDX-License-Identifier: BSD-2-Clause */

/* The search of the theme is a worker, and browsers start none for a page that was opened as a file. There
 * this class replaces Worker: it runs the script in a frame. The theme asks whether there is an IFrameWorker. */
if (location.protocol === "file:") {
  const load = (page, url) =>
    new Promise((resolve, reject) => {
      const script = page.createElement("script");
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${url} does not load`));
      script.src = url;
      page.body.append(script);
    });

  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open(); // no later load of about:blank replaces the page
      inside.document.write("<body></body>");
      inside.document.close();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...urls) => {
        for (const each of urls) await load(inside.document, each);
      };
      this.loaded = load(inside.document, url);
    }

    async postMessage(data) {
      await this.loaded;
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
