// The answer that a model writes now, as plain text; it is rendered when it is a message.

import { el, icon } from "./dom.js";
import { streamedText } from "./view.js";

export class StreamedAnswer {
  #key = null;
  #text;
  #thinking;
  #speech;
  #nodes = { text: document.createTextNode(""), thinking: document.createTextNode(""), speech: document.createTextNode("") };

  constructor() {
    this.#text = el("div", { className: "text plain", dir: "auto", hidden: true }, this.#nodes.text);
    this.#speech = el("div", { className: "text plain", dir: "auto", hidden: true }, this.#nodes.speech);
    const summary = el("summary", {}, icon("chevron"), el("span", {}, "Thinking"));
    this.#thinking = el("details", { hidden: true }, summary, el("div", { className: "text plain" }, this.#nodes.thinking));
    this.element = el(
      "article", { className: "item assistant streaming", "aria-label": "Assistant, writing", "aria-busy": "true", hidden: true },
      el("div", { className: "thought" }, this.#thinking), this.#text, el("div", { className: "speech" }, this.#speech),
    );
  }

  /** Show the streamed text: append what is new of the same answer, and replace what belongs to another one. Each piece
   * of a typed answer replaces the one before. `speech` is what a tool is to say. */
  show(streaming, speech) {
    const text = streamedText(streaming);
    const thinking = streaming?.thinking ?? "";
    this.element.hidden = !text && !thinking && !speech;
    const { turn, request, attempt, restarts } = streaming ?? {};
    const key = streaming && [turn, request, attempt, restarts, streaming.text !== ""].join(".");
    const begins = key !== this.#key;
    this.#key = key;
    this.#write(this.#nodes.text, text, begins || !streaming?.text);
    this.#write(this.#nodes.thinking, thinking, begins);
    this.#text.hidden = !text;
    this.#thinking.hidden = !thinking;
    this.#write(this.#nodes.speech, speech?.text ?? "", !speech?.text.startsWith(this.#nodes.speech.data));
    this.#speech.hidden = !speech;
  }

  #write(node, text, begins) {
    if (begins) node.data = text;
    else if (text.length > node.length) node.appendData(text.slice(node.length));
  }
}
