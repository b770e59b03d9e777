// Where a message is written, or one that was said is edited. What was typed is kept for each conversation until it is
// sent, over reloads too; so are the files that go with it. A message that was begun waits while another one is edited.

import { Attachments } from "./attachments.js";
import { Draft } from "./drafts.js";
import { newId } from "./client.js";
import { el, icon, iconButton } from "./dom.js";

const HINT = "Enter sends, Shift+Enter begins a new line.";

class TurnwiseComposer extends HTMLElement {
  client;
  /** A function that sends a message {text, files}. If that fails it gives the message back by `putBack`. */
  send = async () => {};
  /** A function that sends to a conversation {messageId, text, files, requestId}, which is said in place of a message, and
   * returns whether that was taken. Without `files` the message keeps its own. */
  sendEdit = async () => false;
  /** A function that stops the turn under way. */
  stop = async () => {};
  /** A function that begins a conversation, to which files can be uploaded. It gets a function that is called with the
   * id before the conversation is shown. */
  begin = async () => {};

  #conversationId = null;
  #isClosed = false;
  #edited = null; // {messageId, files} of the message that is edited
  #due = null; // the key of the draft that is sent as soon as its files are uploaded
  #isSending = false;
  #attachments;
  #text;
  #send;
  #stop;
  #attach;
  #hint;
  #drop;
  #editing;

  connectedCallback() {
    if (this.#text) return;
    this.#attachments = new Attachments(this.client, () => this.#noteFiles());
    this.#text = el("textarea", {
      id: "message", name: "message", rows: 1, placeholder: "Write a message", autocomplete: "off",
      oninput: () => this.#noteDraft(), onkeydown: (event) => this.#onKey(event), onpaste: (event) => this.#onPaste(event),
    });
    this.#send = el("button", { type: "submit", className: "button primary", disabled: true }, icon("send"), "Send");
    this.#stop = el("button", { type: "button", className: "button", hidden: true, onclick: () => this.stop() }, icon("stop"), "Stop");
    const chosen = el("input", { type: "file", multiple: true, hidden: true, onchange: () => this.#takeChosen(chosen) });
    this.#attach = iconButton("clip", "Attach files", () => chosen.click());
    this.#hint = el("p", { className: "hint", role: "status" }, HINT);
    const cancel = el("button", { type: "button", className: "link-button", onclick: () => this.#cancelEdit() }, "Cancel");
    this.#editing = el("div", { className: "editing", hidden: true }, icon("pencil"), el("p", { role: "status" }), cancel);
    const form = el(
      "form", { className: "composer measure", onsubmit: (event) => this.#submit(event) },
      this.#editing, el("label", { className: "visually-hidden", htmlFor: "message" }, "Message"), this.#text, this.#attachments.element,
      el("div", { className: "composer-bar" }, this.#attach, chosen, this.#hint, this.#stop, this.#send),
    );
    this.#drop = el("p", { className: "drop-here", hidden: true, "aria-hidden": "true" }, "Drop files here to attach them");
    this.append(form, this.#drop);
    this.#takeDropped();
    this.#restore();
  }

  set conversationId(id) {
    this.#conversationId = id;
    if (this.#text) this.#restore();
  }

  /** Say what a message would meet: whether a turn is under way, and whether messages are taken at all. */
  setState({ isBusy, isClosed }) {
    this.#isClosed = isClosed;
    this.#stop.hidden = !isBusy;
    this.#attach.disabled = isClosed;
    this.#text.placeholder = isClosed ? "This conversation is closed" : isBusy ? "Write a message for the next turn" : "Write a message";
    this.#showState();
  }

  focus() {
    this.#text.focus();
  }

  /** Put a message back, before what was typed since, into the draft of a conversation. */
  putBack(conversationId, { text, files }) {
    const key = keyOf(conversationId);
    const draft = draftOf(key);
    draft.write([text, draft.read()].filter(Boolean).join("\n"));
    this.#attachments.putBack(key, files);
    if (key === this.#key) this.#restore();
  }

  /** Return what was typed for the conversation and not sent, and forget it. */
  takeDraft() {
    const draft = draftOf(this.#key);
    const text = draft.read() ?? "";
    draft.discard();
    return text;
  }

  /** The key of the draft that is shown. */
  get #key() {
    return this.#edited ? editKeyOf(this.#conversationId) : keyOf(this.#conversationId);
  }

  #restore() {
    this.#edited = editOf(this.#conversationId).read();
    this.#editing.hidden = this.#edited === null;
    this.#editing.querySelector("p").textContent = this.#edited ? "You edit a message. What followed it will be hidden." : "";
    this.#text.value = draftOf(this.#key).read() ?? "";
    this.#attachments.show(this.#key, this.#conversationId);
    this.#noteFiles();
  }

  #noteDraft() {
    const draft = draftOf(this.#key);
    if (this.#text.value) draft.write(this.#text.value);
    else draft.discard();
    this.#showState();
  }

  #showState() {
    this.#text.disabled = this.#isClosed || this.#isSending;
    this.#send.disabled = !this.#maySend || this.#isDue;
    const hint = this.#isDue ? "It is sent when the files are uploaded." : HINT;
    if (this.#hint.textContent !== hint) this.#hint.textContent = hint;
  }

  get #maySend() {
    const isEmpty = !this.#text.value.trim() && this.#attachments.isEmpty;
    return !isEmpty && !this.#isClosed && !this.#isSending && !this.#attachments.isRefused;
  }

  get #isDue() {
    return this.#due === this.#key;
  }

  #onKey(event) {
    if (event.key === "Escape" && this.#edited) return this.#cancelEdit();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.#submit(event);
  }

  /** The draft is cleared before the request, so that it cannot be sent twice; who sends it puts it back if need be. */
  #submit(event) {
    event.preventDefault();
    if (!this.#maySend) return;
    if (this.#attachments.isUploading) this.#sendLater();
    else this.#sendNow();
  }

  /** Send what is written, if it is not sent already. */
  #sendNow() {
    this.#due = null;
    if (this.#edited) this.#sendEdited(this.#conversationId);
    else this.#sendNew();
  }

  #sendNew() {
    const message = { text: this.#text.value, files: this.#attachments.kept };
    this.#clear();
    this.send(message);
  }

  #clear() {
    this.#text.value = "";
    this.#attachments.clear();
    this.#noteDraft();
  }

  // --- a message that was said

  /** Write another text in place of that of a message {messageId, text, files}. */
  edit({ messageId, text, files }) {
    if (this.#isSending) return;
    const key = editKeyOf(this.#conversationId);
    editOf(this.#conversationId).write({ messageId, files });
    draftOf(key).write(text);
    this.#attachments.clear(key);
    this.#attachments.putBack(key, files);
    this.#restore();
    this.#text.focus();
  }

  #cancelEdit() {
    this.#clear();
    editOf(this.#conversationId).discard();
    this.#restore();
    this.#text.focus();
  }

  /** What is written stays until it is taken. Sent again after a lost answer it has the same id, and is taken once. */
  async #sendEdited(conversationId) {
    const { messageId, files: before, last = null } = this.#edited;
    const [text, files] = [this.#text.value, this.#attachments.kept];
    const said = JSON.stringify([text, files]);
    const requestId = last?.said === said ? last.requestId : newId();
    this.#edited = { messageId, files: before, last: { said, requestId } };
    editOf(conversationId).write(this.#edited);
    const changed = JSON.stringify(files) === JSON.stringify(before) ? {} : { files };
    this.#isSending = true;
    this.#showState();
    const isTaken = await this.sendEdit(conversationId, { messageId, text, requestId, ...changed });
    this.#isSending = false;
    this.#showState();
    if (isTaken) this.#forgetEdit(conversationId);
    if (conversationId === this.#conversationId) this.#text.focus();
  }

  #forgetEdit(conversationId) {
    if (conversationId === this.#conversationId) return this.#cancelEdit();
    const key = editKeyOf(conversationId);
    for (const draft of [draftOf(key), editOf(conversationId)]) draft.discard();
    this.#attachments.clear(key);
  }

  // --- files

  /** Send the message when its files are uploaded, for which a conversation is begun if there is none. */
  async #sendLater() {
    this.#due = this.#key;
    this.#isSending = this.#conversationId === null;
    this.#showState();
    if (!this.#isSending) return;
    await this.begin((conversationId) => this.#moveTo(conversationId));
    this.#isSending = false;
    if (this.#conversationId === null && this.#isDue) this.#due = null; // it could not be begun
    this.#noteFiles();
  }

  /** Give what was written without a conversation to this one. */
  #moveTo(conversationId) {
    const key = keyOf(conversationId);
    draftOf(key).write(this.takeDraft());
    this.#attachments.moveTo(key);
    this.#due = key;
  }

  #noteFiles() {
    if (this.#isDue && this.#attachments.isRefused) this.#due = null;
    if (this.#isDue && !this.#attachments.isUploading && this.#maySend) this.#sendNow();
    else this.#showState();
  }

  #takeChosen(input) {
    this.#attachments.add(input.files);
    input.value = "";
    this.#text.focus();
  }

  /** An image that was copied is attached. What has a text as well, as a table does, is pasted as one. */
  #onPaste(event) {
    const { files, types } = event.clipboardData;
    if (!files.length || types.includes("text/plain")) return;
    event.preventDefault();
    this.#attachments.add(files);
  }

  /** Files may be dropped anywhere on the page: a browser would leave it to show them. */
  #takeDropped() {
    const isOfFiles = (event) => event.dataTransfer?.types.includes("Files");
    const takes = () => !this.#isClosed && !this.hidden && !document.querySelector("dialog[open]");
    document.addEventListener("dragover", (event) => {
      if (!isOfFiles(event)) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = takes() ? "copy" : "none";
      this.#drop.hidden = !takes();
    });
    document.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) this.#drop.hidden = true;
    });
    document.addEventListener("drop", (event) => {
      if (!isOfFiles(event)) return;
      event.preventDefault();
      this.#drop.hidden = true;
      if (!takes()) return;
      this.#attachments.add(event.dataTransfer.files);
      this.#text.focus();
    });
  }
}

function keyOf(conversationId) {
  return conversationId ?? "new";
}

/** The key of what is written in place of a message of the conversation. */
function editKeyOf(conversationId) {
  return `${keyOf(conversationId)}:edit`;
}

function draftOf(key) {
  return new Draft(`message:${key}`);
}

/** Which message of a conversation is edited, and what was sent in its place without an answer. */
function editOf(conversationId) {
  return new Draft(`edit:${keyOf(conversationId)}`);
}

customElements.define("turnwise-composer", TurnwiseComposer);
