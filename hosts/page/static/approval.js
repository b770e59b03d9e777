// A tool that runs only if a person allows it. The person sees what would run, may edit the arguments, and allows or
// denies the call. Nothing here can allow a call by accident: "Allow" is never focused, Enter in a field does not press
// it, and it stays disabled for a moment after it appears under the pointer, and until the end of the arguments has been
// in sight. Where they are long, "Read on" scrolls to it, for those who do not scroll, too.

import { ArgumentsEditor, writtenArguments } from "./arguments.js";
import { el, icon } from "./dom.js";
import { hiddenShown, withHiddenShown } from "./hidden_characters.js";

const MILLISECONDS_BEFORE_ALLOWING = 400;

/** The panel of a call that waits for approval. See person.js for what a panel has. */
export class ApprovalPanel {
  #callId;
  #draft;
  #send;
  #editor;
  #note;
  #allow;
  #readOn;
  #actions;
  #hasWaited = false;
  #isEndInSight = false;
  #isRead = false;

  constructor(state, { draft, send, describeTool }) {
    const { call_id: callId, name, arguments: given, raw_arguments: raw, approval_by: by } = state.data;
    this.#callId = callId;
    this.#draft = draft;
    this.#send = send;
    this.heading = `Allow the tool “${withHiddenShown(name)}” to run?`;
    this.announcement = this.heading;
    const begun = draft.read() ?? {};
    this.#editor = new ArgumentsEditor(given ?? {}, raw, begun.arguments, () => this.#keepDraft());
    const whose = by === "operator" ? el("p", { className: "person-hint" }, "Only an operator may allow this call.") : null;
    this.element = el("div", {}, whose, this.#editor.element, this.#noteField(begun.note ?? ""), this.#buttons());
    this.#describe(name, describeTool);
    new IntersectionObserver((entries) => this.#noteEnd(entries.at(-1).isIntersecting)).observe(this.#editor.end);
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

  /** Note that the panel was scrolled or has another size: its buttons cover what lies below their upper edge. */
  noteVisible() {
    const { bottom } = this.#editor.end.getBoundingClientRect();
    this.#isRead ||= this.#isEndInSight && bottom <= this.#actions.getBoundingClientRect().top + 1;
    this.#allow.disabled = !this.#hasWaited || !this.#isRead;
    this.#readOn.hidden = this.#isRead;
  }

  #noteEnd(isInSight) {
    this.#isEndInSight = isInSight;
    this.noteVisible();
  }

  /** Say what the tool is for: people need not know it by its name. */
  async #describe(name, describeTool) {
    const description = await describeTool(name).catch(() => "");
    if (!description) return;
    const properties = { className: "call-description", dir: "auto", tabIndex: 0, role: "region", "aria-label": "What the tool does" };
    this.element.prepend(el("div", properties, hiddenShown(description)));
  }

  #noteField(note) {
    this.#note = el("textarea", { id: `approval-note-${this.#callId}`, rows: 1, dir: "auto", maxLength: 2000, oninput: () => this.#keepDraft() });
    this.#note.value = note;
    const label = el("label", { htmlFor: this.#note.id }, "Reason, if you deny it (the model reads it)");
    return el("div", { className: "person-field" }, label, this.#note);
  }

  #buttons() {
    const hintId = `approval-hint-${this.#callId}`;
    const allowing = { type: "button", className: "button primary", disabled: true, "aria-describedby": hintId };
    this.#allow = el("button", { ...allowing, onclick: () => this.#allowCall() }, "Allow");
    const deny = el("button", { type: "button", className: "button", onclick: () => this.#deny() }, "Deny");
    const reading = { type: "button", className: "link-button", onclick: () => this.#scrollOn() };
    this.#readOn = el(
      "span",
      { className: "question-below", hidden: true },
      el("span", { className: "person-hint", id: hintId }, "Read the arguments to their end to allow the call."),
      el("button", reading, icon("down"), "Read on"),
    );
    this.#actions = el("div", { className: "person-actions" }, deny, this.#allow, this.#readOn);
    setTimeout(() => {
      this.#hasWaited = true;
      this.noteVisible();
    }, MILLISECONDS_BEFORE_ALLOWING);
    return this.#actions;
  }

  /** Show what comes next of the arguments, most of a panel at a time so that nothing is passed over. */
  #scrollOn() {
    const panel = this.element.closest("section");
    const before = panel.scrollTop;
    panel.scrollBy({ top: (panel.clientHeight - this.#actions.offsetHeight) * 0.8, behavior: "instant" });
    if (panel.scrollTop === before) this.#editor.end.scrollIntoView({ block: "center", behavior: "instant" });
  }

  #allowCall() {
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

/** The panel of a call about which only somebody who acts for the application may decide. */
export class OperatorPanel {
  constructor(state) {
    const { name, arguments: given, raw_arguments: raw } = state.data;
    this.heading = `The tool “${withHiddenShown(name)}” waits for an operator`;
    this.announcement = this.heading;
    const sentence = "The conversation goes on when somebody who may do so has decided about this call. Until then you can stop the turn.";
    const nothing = el("div", { className: "person-actions" });
    this.element = el("div", {}, el("p", { className: "doubt-sentence" }, sentence), writtenArguments(given ?? {}, raw), nothing);
  }
}
