// The answer that a model writes now, as plain text; it is rendered when it is a message.

import { el, icon } from "./dom.js";

export class StreamedAnswer {
  #key = null;
  #text;
  #thinking;
  #nodes = { text: document.createTextNode(""), thinking: document.createTextNode("") };

  constructor() {
    this.#text = el("div", { className: "text plain", dir: "auto", hidden: true }, this.#nodes.text);
    const summary = el("summary", {}, icon("chevron"), el("span", {}, "Thinking"));
    this.#thinking = el("details", { hidden: true }, summary, el("div", { className: "text plain" }, this.#nodes.thinking));
    this.element = el(
      "article", { className: "item assistant streaming", "aria-label": "Assistant, writing", "aria-busy": "true", hidden: true },
      el("div", { className: "thought" }, this.#thinking), this.#text,
    );
  }

  /** Show the streamed text: append what is new of the same answer, and replace what belongs to another one. */
  show(streaming) {
    this.element.hidden = !streaming?.text && !streaming?.thinking;
    const key = streaming && [streaming.turn, streaming.request, streaming.attempt, streaming.restarts].join(".");
    const begins = key !== this.#key;
    this.#key = key;
    for (const kind of ["text", "thinking"]) this.#write(this.#nodes[kind], streaming?.[kind] ?? "", begins);
    this.#text.hidden = !streaming?.text;
    this.#thinking.hidden = !streaming?.thinking;
  }

  #write(node, text, begins) {
    if (begins) node.data = text;
    else if (text.length > node.length) node.appendData(text.slice(node.length));
  }
}
