// Where a message is written. What was typed is kept for each conversation until it is sent, over reloads too.

import { Draft } from "./drafts.js";
import { el, icon } from "./dom.js";

const NEW = "new";

class TurnwiseComposer extends HTMLElement {
  /** A function that sends a text. If that fails it gives the text back by `putBack`. */
  send = async () => {};
  /** A function that stops the turn under way. */
  stop = async () => {};

  #conversationId = null;
  #text;
  #send;
  #stop;
  #hint;

  connectedCallback() {
    if (this.#text) return;
    this.#text = el("textarea", {
      id: "message", name: "message", rows: 1, placeholder: "Write a message", autocomplete: "off",
      oninput: () => this.#noteDraft(), onkeydown: (event) => this.#onKey(event),
    });
    this.#send = el("button", { type: "submit", className: "button primary", disabled: true }, icon("send"), "Send");
    this.#stop = el("button", { type: "button", className: "button", hidden: true, onclick: () => this.stop() }, icon("stop"), "Stop");
    this.#hint = el("p", { className: "hint" }, "Enter sends, Shift+Enter begins a new line.");
    const form = el(
      "form", { className: "composer measure", onsubmit: (event) => this.#submit(event) },
      el("label", { className: "visually-hidden", htmlFor: "message" }, "Message"), this.#text,
      el("div", { className: "composer-bar" }, this.#hint, this.#stop, this.#send),
    );
    this.append(form);
    this.#restore();
  }

  set conversationId(id) {
    this.#conversationId = id;
    if (this.#text) this.#restore();
  }

  /** Say what a message would meet: whether a turn is under way, and whether messages are taken at all. */
  setState({ isBusy, isClosed }) {
    this.#stop.hidden = !isBusy;
    this.#text.disabled = isClosed;
    this.#text.placeholder = isClosed ? "This conversation is closed" : isBusy ? "Write a message for the next turn" : "Write a message";
    this.#noteText();
  }

  focus() {
    this.#text.focus();
  }

  /** Put a text back, before what was typed since, into the draft of a conversation. */
  putBack(conversationId, text) {
    const draft = draftOf(conversationId);
    draft.write([text, draft.read()].filter(Boolean).join("\n"));
    if (conversationId === this.#conversationId) this.#restore();
  }

  /** Return what was typed for the conversation and not sent, and forget it. */
  takeDraft() {
    const draft = draftOf(this.#conversationId);
    const text = draft.read() ?? "";
    draft.discard();
    return text;
  }

  #restore() {
    this.#text.value = draftOf(this.#conversationId).read() ?? "";
    this.#noteText();
  }

  #noteDraft() {
    const draft = draftOf(this.#conversationId);
    if (this.#text.value) draft.write(this.#text.value);
    else draft.discard();
    this.#noteText();
  }

  #noteText() {
    this.#send.disabled = this.#text.disabled || !this.#text.value.trim();
  }

  #onKey(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.#submit(event);
  }

  /** The draft is cleared before the request, so that it cannot be sent twice; who sends it puts it back if need be. */
  #submit(event) {
    event.preventDefault();
    const text = this.#text.value;
    if (!text.trim() || this.#text.disabled) return;
    this.#text.value = "";
    this.#noteDraft();
    this.send(text);
  }
}

function draftOf(conversationId) {
  return new Draft(`message:${conversationId ?? NEW}`);
}

customElements.define("turnwise-composer", TurnwiseComposer);
