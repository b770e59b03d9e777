// The conversations, the one that changed last first.
//
// The list is read again when something happened here, when the tab is shown again, and every few seconds, so it shows
// what other clients do. As many are read as are shown.

import { askFor, askToConfirm } from "./dialogs.js";
import { el, emit, icon, iconButton, replaceChildren } from "./dom.js";
import { stateLabel, stateTone } from "./states.js";
import { relativeTime } from "./words.js";

const PAGE = 30;
const MOST = 200;
const READ_AGAIN = 10_000;
const SETTLE = 400;

class TurnwiseList extends HTMLElement {
  client;

  #conversationId = null;
  #conversations = null;
  #next = null;
  #problem = null;
  #timer = null;
  #reads = 0;
  #rendered = new Map();
  #rows;
  #more;
  #end; // tells when the end of the list comes into view
  #state;

  connectedCallback() {
    if (this.#rows) return;
    this.#rows = el("ul", { className: "conversations" });
    this.#more = el("button", { type: "button", className: "more", hidden: true, onclick: () => this.#readMore() }, "Show more");
    this.#state = el("div", { className: "list-state", role: "status" });
    const create = el("button", { type: "button", className: "button new", onclick: () => this.#begin() }, icon("plus"), "New conversation");
    const scroller = el("div", { className: "list-scroller" }, this.#state, this.#rows, this.#more);
    replaceChildren(this, el("header", { className: "list-header" }, el("p", { className: "brand" }, "turnwise"), create), scroller);
    this.#end = new IntersectionObserver((entries) => entries.at(-1).isIntersecting && this.#readMore(), { root: scroller });
    this.#end.observe(this.#more);
    document.addEventListener("visibilitychange", () => !document.hidden && this.load());
    setInterval(() => !document.hidden && this.load(), READ_AGAIN);
  }

  set conversationId(id) {
    this.#conversationId = id;
    this.#render();
  }

  /** Note the state of a conversation that the page follows; its place in the list may have changed too. */
  noteState(conversationId, type) {
    const known = this.#conversations?.find((one) => one.id === conversationId);
    if (known) {
      known.state = type;
      this.#render();
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.load(), SETTLE);
  }

  /** Read the list again. */
  async load() {
    const limit = Math.min(MOST, Math.max(PAGE, this.#conversations?.length ?? 0));
    this.#reads += 1;
    const read = this.#reads;
    try {
      const { conversations, next } = await this.client.listConversations({ role: "foreground", limit });
      if (read !== this.#reads) return; // a later answer tells more
      const rest = (this.#conversations ?? []).slice(limit);
      this.#conversations = [...conversations, ...rest.filter((one) => !conversations.some((other) => other.id === one.id))];
      this.#next = rest.length ? this.#next : next;
      this.#problem = null;
    } catch (problem) {
      this.#problem = problem;
    }
    this.#render();
  }

  async #readMore() {
    const before = this.#next;
    if (!before || this.#problem) return;
    this.#next = null;
    try {
      const { conversations, next } = await this.client.listConversations({ role: "foreground", limit: PAGE, before });
      const known = new Set(this.#conversations.map((one) => one.id));
      this.#conversations = [...this.#conversations, ...conversations.filter((one) => !known.has(one.id))];
      this.#next = next;
      this.#watchEnd();
    } catch (problem) {
      this.#next = before;
      if (problem.code !== "unreachable") emit(this, "problem", { problem });
    }
    this.#render();
  }

  /** Have the observer say again whether the end is in view: it tells of changes, and the end may be in view still. */
  #watchEnd() {
    this.#end.unobserve(this.#more);
    this.#end.observe(this.#more);
  }

  // --- showing it

  #render() {
    if (!this.#rows) return;
    const conversations = (this.#conversations ?? []).filter(isOfPeople);
    this.#more.hidden = !this.#next;
    replaceChildren(this.#state, this.#stateOf(conversations));
    this.#renderRows(conversations);
  }

  /** Rows that say the same as before stay the same elements, so that no click and no focus on them is lost. */
  #renderRows(conversations) {
    const focused = this.#rows.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    const before = this.#rendered;
    this.#rendered = new Map();
    const rows = conversations.map((one) => {
      const said = JSON.stringify([one.title, one.state, ago(one.updated_at), one.id === this.#conversationId]);
      const known = before.get(one.id);
      const rendered = known?.said === said ? known : { said, element: this.#row(one) };
      this.#rendered.set(one.id, rendered);
      return rendered.element;
    });
    if (rows.length === this.#rows.children.length && rows.every((row, index) => row === this.#rows.children[index])) return;
    replaceChildren(this.#rows, rows);
    if (focused) this.#rows.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }

  #stateOf(conversations) {
    if (this.#problem && this.#problem.status !== 401 && this.#problem.code !== "unreachable") {
      const again = el("button", { type: "button", className: "link-button", onclick: () => this.load() }, "Try again");
      return [el("p", { className: "error" }, this.#problem.message), again];
    }
    if (this.#conversations === null) return [80, 65, 72].map(() => el("div", { className: "skeleton" }));
    return conversations.length ? null : el("p", {}, "No conversations yet. Write a message to begin one.");
  }

  #row(conversation) {
    const { id, state, updated_at: updatedAt } = conversation;
    const title = conversation.title || "Untitled conversation";
    const isShown = id === this.#conversationId;
    const link = el(
      "a", {
        href: `#/c/${encodeURIComponent(id)}`, className: "conversation-link", dataset: { focus: `open ${id}` },
        "aria-current": isShown ? "page" : null, onclick: (event) => this.#open(event, id),
      },
      el("span", { className: "conversation-title" }, title),
      el(
        "span", { className: "conversation-meta" },
        el("span", { className: "dot", dataset: { tone: stateTone(state) }, "aria-hidden": "true" }),
        el("span", {}, stateLabel(state)),
        el("time", { dateTime: updatedAt, title: new Date(updatedAt).toLocaleString("en") }, ago(updatedAt)),
      ),
    );
    const actions = [
      iconButton("pencil", `Rename ${title}`, () => this.#rename(conversation), { dataset: { focus: `rename ${id}` } }),
      iconButton("trash", `Delete ${title}`, () => this.#delete(conversation, title), { dataset: { focus: `delete ${id}` } }),
    ];
    return el("li", { className: "conversation" }, link, el("div", { className: "conversation-actions" }, actions));
  }

  #begin() {
    emit(this, "select", { conversationId: null });
    emit(this, "release"); // the focus goes to where the first message is written
  }

  #open(event, conversationId) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // into a tab or window of its own
    event.preventDefault();
    emit(this, "select", { conversationId });
  }

  async #rename(conversation) {
    const title = await askFor("Rename the conversation", "Title", conversation.title ?? "");
    if (title === null) return;
    await this.#request(() => this.client.changeConversation(conversation.id, { title }));
  }

  async #delete(conversation, title) {
    if (!(await askToConfirm("Delete the conversation?", `“${title}” and its log are deleted for good.`, "Delete"))) return;
    await this.#request(async () => {
      await this.client.deleteConversation(conversation.id);
      this.#conversations = this.#conversations.filter((one) => one.id !== conversation.id);
      if (conversation.id === this.#conversationId) emit(this, "select", { conversationId: null });
    });
  }

  async #request(ask) {
    try {
      await ask();
    } catch (problem) {
      emit(this, "problem", { problem });
    }
    await this.load();
    emit(this, "changed");
  }
}

/** Return how long ago a conversation changed. The clock of the server may be ahead. */
function ago(iso) {
  return relativeTime(iso, Math.max(Date.now(), new Date(iso).getTime()));
}

/** Return whether a conversation is for people. A stateless completion is one only while it runs. */
function isOfPeople({ metadata }) {
  return metadata["turnwise.completion"] !== "stateless";
}

customElements.define("turnwise-list", TurnwiseList);
