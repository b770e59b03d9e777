// A turn that failed. A person can have it tried again; a new message continues without it.

import { el } from "./dom.js";

/** The panel of a failed turn. See person.js for what a panel has. */
export class FailurePanel {
  constructor(state, { send }) {
    const { sentence, inbox = [] } = state.data;
    this.heading = "This turn failed";
    this.announcement = `${this.heading}. ${sentence}`;
    this.tone = "failure";
    const waiting = inbox.length === 1 ? "1 message waits" : `${inbox.length} messages wait`;
    const retry = el("button", { type: "button", className: "button primary", onclick: () => send("retryTurn", {}) }, "Try again");
    this.element = el(
      "div",
      {},
      el("p", { dir: "auto" }, sentence),
      inbox.length > 0 ? el("p", { className: "person-hint" }, `${waiting} until you try again or send another one.`) : null,
      el("div", { className: "person-actions" }, retry),
    );
  }
}
