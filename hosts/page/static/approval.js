// A tool that runs only if a person allows it. The person sees what would run, may edit the arguments, and allows or
// denies the call. Nothing here can allow a call by accident: "Allow" is never focused, Enter in a field does not press
// it, and it stays disabled for a moment after it appears under the pointer.

import { ArgumentsEditor } from "./arguments.js";
import { el } from "./dom.js";

const MILLISECONDS_BEFORE_ALLOWING = 400;

/** The panel of a call that waits for approval. See person.js for what a panel has. */
export class ApprovalPanel {
  #callId;
  #draft;
  #send;
  #editor;
  #note;

  constructor(state, { draft, send }) {
    const { call_id: callId, name, arguments: given } = state.data;
    this.#callId = callId;
    this.#draft = draft;
    this.#send = send;
    this.heading = `Allow the tool “${name}” to run?`;
    this.announcement = this.heading;
    const begun = draft.read() ?? {};
    this.#editor = new ArgumentsEditor(given ?? {}, begun.arguments, () => this.#keepDraft());
    this.element = el("div", {}, this.#editor.element, this.#noteField(begun.note ?? ""), this.#buttons());
  }

  /** What a person wrote here and has not sent. */
  get unsent() {
    const { mode, json } = this.#editor.state;
    return [mode === "json" ? json : "", this.#note.value].filter((text) => text.trim());
  }

  /** Show a refusal of the arguments beside them. Returns whether it is about them. */
  showProblem(problem) {
    if (problem.subject !== "arguments") return false;
    this.#editor.refuse(problem.message);
    return true;
  }

  #noteField(note) {
    this.#note = el("textarea", { id: `approval-note-${this.#callId}`, rows: 1, dir: "auto", maxLength: 2000, oninput: () => this.#keepDraft() });
    this.#note.value = note;
    const label = el("label", { htmlFor: this.#note.id }, "Reason, if you deny it (the model reads it)");
    return el("div", { className: "person-field" }, label, this.#note);
  }

  #buttons() {
    const allow = el("button", { type: "button", className: "button primary", disabled: true, onclick: () => this.#allow() }, "Allow");
    setTimeout(() => (allow.disabled = false), MILLISECONDS_BEFORE_ALLOWING);
    const deny = el("button", { type: "button", className: "button", onclick: () => this.#deny() }, "Deny");
    return el("div", { className: "person-actions" }, deny, allow);
  }

  #allow() {
    const edited = this.#editor.read();
    if (edited === null) return this.#editor.focus();
    const changed = edited.arguments === null ? {} : { arguments: edited.arguments };
    return this.#send("approveCall", { call_id: this.#callId, allowed: true, ...changed });
  }

  #deny() {
    const note = this.#note.value.trim() ? { note: this.#note.value } : {};
    return this.#send("approveCall", { call_id: this.#callId, allowed: false, ...note });
  }

  #keepDraft() {
    this.#draft.write({ arguments: this.#editor.state, note: this.#note.value });
  }
}
