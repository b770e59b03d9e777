// Asks a caller whom the server does not know to sign in. There are two ways, and the refusal says which one it is.
//
// A server with a token gets a form for it. The token is exchanged for a cookie, because an EventSource can send no
// header; the page itself never stores it. Where the server is a part of an application that has users of its own, no
// token helps: the page says so, and leads to where people sign in, if the application has told it.

import { el, emit } from "./dom.js";

/** A dialog. It dispatches `signed-in` when the server has taken a token, or may know the caller by now. */
class TurnwiseSession extends HTMLElement {
  #dialog;
  #elsewhere;
  #field;
  #fault;
  #isSending = false;
  #isKnown = false;

  /** The client that opens the session. */
  client = null;

  /** Ask, unless a dialog is open already. A server that refuses requests although it took a token gets its sentence
   * shown. */
  ask(problem = null) {
    if (this.querySelector("dialog[open]")) return;
    if (problem?.signIn === "application") return this.#leadElsewhere(problem.loginUrl);
    this.#dialog ??= this.#build();
    this.#dialog.showModal();
    this.#refuse(this.#isKnown ? (problem?.message ?? "") : "");
  }

  /** Say that the application must know who the caller is. A person who has signed in meanwhile asks again. */
  #leadElsewhere(loginUrl) {
    this.#elsewhere?.remove();
    const sentence = loginUrl
      ? "You are not signed in to the application that these conversations belong to."
      : "Sign in to the application that these conversations belong to: this page has no sign-in of its own.";
    const again = el("button", { type: "button", className: "button", onclick: () => this.#askAgain() }, "Try again");
    const link = loginUrl ? el("a", { className: "button primary", href: loginUrl }, "Sign in") : null;
    this.#elsewhere = el(
      "dialog",
      { className: "dialog session", "aria-labelledby": "elsewhere-heading", "aria-describedby": "elsewhere-sentence" },
      el(
        "div",
        { className: "dialog-content" },
        el("h2", { id: "elsewhere-heading" }, "Sign in"),
        el("p", { id: "elsewhere-sentence" }, sentence),
        el("div", { className: "dialog-bar" }, again, link),
      ),
    );
    this.append(this.#elsewhere);
    this.#elsewhere.showModal();
    (link ?? again).focus();
  }

  #askAgain() {
    this.#elsewhere.close();
    emit(this, "signed-in");
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
