// Asks for the token of a server that wants one. It is exchanged for a cookie, because an EventSource can send no
// header; the page itself never stores the token.

import { el, emit } from "./dom.js";

/** A dialog for the token. It dispatches `signed-in` when the server has taken one. */
class TurnwiseSession extends HTMLElement {
  #dialog;
  #field;
  #fault;
  #isSending = false;
  #isKnown = false;

  /** The client that opens the session. */
  client = null;

  /** Ask for the token, unless the dialog is open already. A server that refuses requests although it took a token gets
   * its sentence shown: its users may sign in elsewhere. */
  ask(problem = null) {
    this.#dialog ??= this.#build();
    if (this.#dialog.open) return;
    this.#dialog.showModal();
    this.#refuse(this.#isKnown ? (problem?.message ?? "") : "");
  }

  #build() {
    this.#field = el("input", {
      id: "session-token",
      type: "password",
      required: true,
      autocomplete: "current-password",
      "aria-describedby": "session-hint session-fault",
    });
    this.#fault = el("p", { id: "session-fault", className: "person-fault", role: "alert" });
    const form = el(
      "form",
      { noValidate: true, onsubmit: (event) => this.#submit(event) },
      el("h2", { id: "session-heading" }, "Sign in"),
      el("p", { id: "session-hint", className: "person-hint" }, "This server asks for the token that it was started with."),
      el("label", { htmlFor: this.#field.id }, "Token"),
      this.#field,
      this.#fault,
      el("div", { className: "dialog-bar" }, el("button", { type: "submit", className: "button primary" }, "Sign in")),
    );
    const dialog = el("dialog", { className: "dialog session", "aria-labelledby": "session-heading" }, form);
    this.append(dialog);
    return dialog;
  }

  async #submit(event) {
    event.preventDefault();
    if (this.#isSending) return;
    const token = this.#field.value.trim();
    if (token === "") return this.#refuse("Enter the token.");
    this.#isSending = true;
    try {
      await this.client.openSession(token);
      this.#refuse("");
      this.#field.value = "";
      this.#isKnown = true;
      this.#dialog.close();
      emit(this, "signed-in");
    } catch (problem) {
      this.#refuse(problem.message);
    } finally {
      this.#isSending = false;
    }
  }

  #refuse(sentence) {
    this.#fault.textContent = sentence;
    if (sentence) this.#field.setAttribute("aria-invalid", "true");
    else this.#field.removeAttribute("aria-invalid");
    this.#field.focus();
  }
}

customElements.define("turnwise-session", TurnwiseSession);
