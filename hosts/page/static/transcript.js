// The log of a conversation: its items in order, the answer that is being written, and what is still on its way.
//
// It is drawn once a frame, and only what changed: items that are the same object keep their element, and a streamed
// answer grows by `appendData`. Of a long conversation only the newest items are in the document; earlier ones are added
// when a person asks for them or scrolls up to their beginning.

import { el, icon, replaceChildren } from "./dom.js";
import { render, renderAgain, userMessage } from "./items.js";
import { Markdown } from "./markdown.js";
import { isRest, stateLabel } from "./states.js";
import { StreamedAnswer } from "./streamed_answer.js";
import { itemsWithEnds, newestTurn, streamedText, waitsForPerson } from "./view.js";

/** How many items a conversation begins with, and how many are added at a time. */
const PAGE = 80;

export class Transcript {
  #client;
  #markdown;
  #given = null; // what items are rendered with
  #shown = new Map();
  #view = null;
  #limit = PAGE;
  #total = 0;
  #sticks = true;
  #isScrolledUp = false;
  #top = 0;
  #endObserver;
  #countdown = 0;
  #stream = new StreamedAnswer();
  #actions;
  #afterwards;
  #regenerate;
  #branches;
  #earlier;
  #list;
  #pending;
  #activity;
  #end;
  #announcer;
  #jump;


  /** What a person asks for: `actions` are {withdraw, edit, regenerate, branches}, functions that get the id of a message
   * that waits, a message that was said, the number of the newest turn, and nothing. */
  constructor(client, actions) {
    this.#client = client;
    this.#markdown = new Markdown(client, () => this.#stick());
    this.#actions = actions;
    this.#regenerate = el("button", { type: "button", className: "button small", onclick: () => actions.regenerate(newestTurn(this.#view)) }, icon("again"), "Answer again");
    this.#branches = el("button", { type: "button", className: "button small", onclick: () => actions.branches() });
    this.#afterwards = el("div", { className: "afterwards" }, this.#regenerate, this.#branches);
    this.#earlier = el("button", { type: "button", className: "earlier", hidden: true, onclick: () => this.#addPage() }, "Show earlier messages");
    this.#list = el("div", { className: "items" });
    this.#pending = el("div", { className: "items pending" });
    this.#activity = el("p", { className: "activity", hidden: true });
    this.#end = el("div", { className: "transcript-end" });
    this.#announcer = el("div", { className: "visually-hidden", role: "status" });
    this.#jump = el("button", { type: "button", className: "jump", hidden: true, onclick: () => this.toEnd() }, icon("down"), "Newest");
    const column = el("div", { className: "measure" }, this.#earlier, this.#list, this.#stream.element, this.#activity, this.#pending, this.#afterwards, this.#end);
    this.scroller = el("div", { className: "transcript", tabIndex: 0, role: "region", "aria-label": "Messages" }, column);
    this.element = el("div", { className: "transcript-frame" }, this.scroller, this.#jump, this.#announcer);
    const options = { root: this.scroller, rootMargin: "0px 0px 48px 0px" };
    this.#endObserver = new IntersectionObserver((entries) => this.#noteEnd(entries.at(-1).isIntersecting), options);
    this.#endObserver.observe(this.#end);
    const sizes = new ResizeObserver(() => this.#stick()); // an image has arrived, or the composer has grown
    sizes.observe(column);
    sizes.observe(this.scroller);
    this.scroller.addEventListener("scroll", () => this.#noteScroll(), { passive: true });
    new IntersectionObserver(([entry]) => entry.isIntersecting && this.#addPage(), { root: this.scroller }).observe(this.#earlier);
  }

  /** Forget everything: another conversation follows. */
  reset(conversationId) {
    const addressOf = (sha256) => this.#client.fileAddress(conversationId, sha256);
    this.#given = { markdown: this.#markdown, addressOf, onEdit: this.#actions.edit };
    this.showBranches(0);
    this.#shown.clear();
    this.#list.replaceChildren();
    this.#limit = PAGE;
    this.#total = 0;
    this.#sticks = true;
    this.#isScrolledUp = false;
    this.#view = null;
    this.#announcer.textContent = "";
  }

  /** Show a view, and the messages that are on their way: {messageId, text, files, isQueued}. Whether a text was delivered is
   * said if `marksDeliveries`: where people only read it here, that says nothing. */
  show(view, pending, marksDeliveries) {
    this.element.classList.toggle("marks-deliveries", marksDeliveries);
    const before = this.#view;
    this.#view = view;
    if (before?.items !== view.items || before?.turns !== view.turns) this.#showItems(before);
    this.#stream.show(view.streaming, view.speech);
    this.#showActivity(view);
    this.#showAfterwards();
    this.#showPending(pending);
    this.#stick();
  }

  /** Say whether the conversation goes back, so that messages can be edited and answered again. */
  set goesBack(goesBack) {
    this.element.classList.toggle("goes-back", goesBack);
  }

  /** Offer the branches that were left; there are so many. */
  showBranches(count) {
    this.#branches.hidden = count === 0;
    replaceChildren(this.#branches, icon("branch"), count === 1 ? "1 other branch" : `${count} other branches`);
    this.#showAfterwards();
  }

  /** Scroll to the end, and stay there. */
  toEnd() {
    this.#sticks = true;
    this.#stick();
  }

  // --- items

  #showItems(before) {
    const all = itemsWithEnds(this.#view);
    if (before?.known && !this.#sticks) this.#limit += Math.max(0, all.length - this.#total); // nothing leaves from above a reader
    this.#total = all.length;
    const rows = all.slice(-this.#limit);
    const keys = new Set(rows.map((row) => row.key));
    for (const [key, { element }] of this.#shown) {
      if (keys.has(key)) continue;
      element.remove();
      this.#shown.delete(key);
    }
    let place = this.#list.firstChild;
    for (const row of rows) {
      const old = this.#shown.get(row.key)?.element;
      const element = this.#elementOf(row);
      if (old && old === place) place = element.nextSibling;
      else this.#list.insertBefore(element, place);
    }
    this.#earlier.hidden = all.length <= rows.length;
    if (before?.known) this.#announce(before.items.length);
  }

  #elementOf(row) {
    const known = this.#shown.get(row.key);
    if (known?.row === row) return known.element;
    const element = known ? renderAgain(row, this.#given, known.row, known.element) : render(row, this.#given);
    if (known && element !== known.element) replace(known.element, element);
    this.#shown.set(row.key, { row, element });
    return element;
  }

  #addPage() {
    if (!this.#view || this.#earlier.hidden) return;
    const first = this.#list.firstElementChild;
    const top = first?.getBoundingClientRect().top;
    this.#limit += PAGE;
    this.#showItems(null);
    if (first) this.scroller.scrollTop += first.getBoundingClientRect().top - top;
  }

  /** Tell a screen reader what was said since; the answer that streams is not read piece by piece. */
  #announce(from) {
    const said = this.#view.items.slice(from).filter((item) => item.kind === "delivery" || (item.kind === "message" && item.role === "assistant"));
    if (said.length) this.#announcer.textContent = said.map((item) => item.text).join("\n");
  }

  // --- what happens now

  /** What can be asked for at rest. A turn that failed has a panel of its own, by which it is tried again. */
  #showAfterwards() {
    const rests = this.#view?.known && this.#view.state.type === "idle";
    this.#regenerate.hidden = !rests || newestTurn(this.#view) === 0;
    this.#afterwards.hidden = !rests || (this.#regenerate.hidden && this.#branches.hidden);
  }

  #showActivity(view) {
    const { type, data } = view.state;
    const isSpeaking = view.speech !== null && view.speech.request === data.request;
    const isWriting = isSpeaking || streamedText(view.streaming) !== "";
    this.#activity.hidden = !view.known || isRest(type) || isWriting || waitsForPerson(view);
    clearTimeout(this.#countdown);
    if (type === "retry_waiting" && view.known) this.#countdown = setTimeout(() => this.#showActivity(this.#view), 1000);
    const text = `${stateLabel(type)}${attemptText(type, data)}`;
    if (this.#activity.dataset.text === text) return;
    this.#activity.dataset.text = text;
    replaceChildren(this.#activity, el("span", { className: "spinner", "aria-hidden": "true" }), text);
  }

  #showPending(pending) {
    const text = JSON.stringify(pending);
    if (this.#pending.dataset.text === text) return;
    this.#pending.dataset.text = text;
    replaceChildren(this.#pending, pending.map((one) => this.#pendingMessage(one)));
  }

  #pendingMessage({ messageId, text, files, isQueued }) {
    const withdraw = el("button", { type: "button", className: "link-button", onclick: () => this.#actions.withdraw(messageId) }, "Withdraw");
    const note = isQueued
      ? el("p", { className: "mark" }, icon("clock"), "Waits for the next turn", withdraw)
      : el("p", { className: "mark" }, "Sending…");
    return userMessage({ text, files }, {}, note);
  }

  // --- scrolling

  /** Whether the end is in sight is observed, not measured, so a token costs no layout of its own. Only a person leaves
   * the end, by scrolling up; where content has grown, the end is followed. */
  #noteEnd(isInSight) {
    if (isInSight) this.#sticks = true;
    else if (this.#isScrolledUp) this.#sticks = false;
    else this.#stick();
    this.#isScrolledUp = false;
    this.#jump.hidden = this.#sticks;
  }

  #noteScroll() {
    const top = this.scroller.scrollTop;
    if (top < this.#top) {
      this.#isScrolledUp = true;
      this.#endObserver.unobserve(this.#end); // observing anew tells where the end is now
      this.#endObserver.observe(this.#end);
    }
    this.#top = top;
  }

  #stick() {
    if (this.#sticks) this.scroller.scrollTo({ top: Number.MAX_SAFE_INTEGER, behavior: "instant" });
  }
}

/** Put an element in the place of another one. A focus inside stays on the same part. */
function replace(old, element) {
  const parts = [...old.querySelectorAll("summary, pre, a, button")];
  const place = parts.indexOf(document.activeElement);
  old.replaceWith(element);
  if (place >= 0) element.querySelectorAll("summary, pre, a, button")[place]?.focus();
}

/** Return which attempt is made, or when the next one follows. */
function attemptText(type, { attempt, due }) {
  if (type !== "retry_waiting") return attempt > 1 ? `; attempt ${attempt}` : "";
  const seconds = Math.max(0, Math.round((new Date(due).getTime() - Date.now()) / 1000));
  return `; attempt ${attempt} follows in ${seconds} s`;
}
