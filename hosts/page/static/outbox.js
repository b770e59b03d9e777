// <turnwise-outbox>: what is still to be delivered, how often it was tried, and when it is tried again.
//
//   element.client, element.conversationId
//   element.refresh()
//
// It emits `scrub` {seq} for the step that a delivery stands in.

import { el, emit, replaceChildren } from "./dom.js";
import { relativeTime } from "./words.js";

class TurnwiseOutbox extends HTMLElement {
  client = null;
  conversationId = null;
  #isReading = false;
  #isStale = false;

  /** Whether the server could not be reached when the outbox was to be read. */
  isUnread = false;

  /** Read the outbox again. */
  async refresh() {
    this.#isStale = this.#isReading;
    this.isUnread = false;
    if (this.#isReading || !this.conversationId) return;
    this.#isReading = true;
    const id = this.conversationId;
    try {
      const { deliveries, channels } = await this.client.getOutbox(id);
      if (id === this.conversationId) this.#render(deliveries, channels);
    } catch (problem) {
      if (id === this.conversationId) this.#fail(problem);
    }
    this.#isReading = false;
    if (this.#isStale || id !== this.conversationId) this.refresh();
  }

  #render(deliveries, channels) {
    const rows = deliveries.map((delivery) => this.#row(delivery));
    replaceChildren(
      this,
      deliveries.length === 0
        ? el("p", { className: "empty" }, channels.length ? "Everything is delivered." : "There are no channels: what is said is read here, and by other clients.")
        : el(
            "table",
            { className: "outbox" },
            el("caption", { className: "visually-hidden" }, "Deliveries that are not acknowledged"),
            el("thead", {}, el("tr", {}, ["To", "Attempts", "Next attempt", "Step"].map((title) => el("th", { scope: "col" }, title)))),
            el("tbody", {}, rows),
          ),
    );
  }

  #row({ target, attempts, next_attempt: next, seq }) {
    const step = el("button", { type: "button", className: "link-button", "aria-label": `Show step ${seq}`, onclick: () => emit(this, "scrub", { seq, show: true }) }, String(seq));
    return el("tr", {}, el("th", { scope: "row" }, target), el("td", {}, String(attempts)), el("td", {}, whenOf(next)), el("td", {}, step));
  }

  #fail(problem) {
    this.isUnread = problem.code === "unreachable"; // the page says so, and asks again
    if (this.isUnread) return;
    const again = el("button", { type: "button", className: "button small", onclick: () => this.refresh() }, "Try again");
    replaceChildren(this, el("p", { className: "error" }, problem.message), again);
  }
}

function whenOf(next) {
  if (next === null || new Date(next) <= new Date()) return "at once";
  return el("time", { dateTime: next, title: next }, relativeTime(next));
}

customElements.define("turnwise-outbox", TurnwiseOutbox);
