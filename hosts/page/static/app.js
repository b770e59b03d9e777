// The page: it knows which conversation is shown, follows it, and gives the parts of the page what there is to show.
//
//   list.js                      the conversations
//   chat.js                      the one that is shown: what was said, and the composer
//   person.js                    in the chat: what the conversation waits for from a person
//   inspector.js                 the machine, the steps of the log, the agents, the outbox
//   session.js                   the form for the token
//   client.js, view.js           the API of the server, and what the updates of a conversation come to
//
// One conversation is followed at a time. Its updates are applied to one view, which the parts are given at most once per
// frame. The address says which conversation it is (`#/c/<id>`), so a page can be reloaded and linked to. A part asks
// for something by an event, which bubbles up to here: see `connectedCallback`.

import "./chat.js";
import "./inspector.js";
import "./list.js";
import "./person.js";
import "./session.js";
import { Client } from "./client.js";
import { SideColumns } from "./columns.js";
import { el, icon, iconButton, replaceChildren } from "./dom.js";
import { applyTheme, changeTheme } from "./theme.js";
import { afterDeletion, apply, emptyView, withTurns } from "./view.js";

/** After how many milliseconds a conversation that cannot be read is asked for again. */
const READ_AGAIN = 2000;

/** For how many milliseconds at least it is said that something may not have arrived. */
const READING = 5000;

class TurnwiseApp extends HTMLElement {
  #client = new Client(document.baseURI);
  #conversationId = null;
  #conversation = null;
  #view = emptyView();
  #channels = null; // the names of the channels of the engine, once they are known
  #connection = { phase: "connecting" };
  #isReached = true; // whether the newest request reached the server
  #isUnsent = false; // whether something that a person sent may not have arrived
  #forgetting = 0;
  #isTrying = false; // whether a person has asked to try again now
  #stream = null;
  #newestBeginning = null; // to read what the reader may do: an earlier one that is still under way begins nothing
  #newestAttempt = null; // to follow a conversation: an earlier one that is still under way opens no stream
  #frame = 0;

  #list = el("turnwise-list");
  #person = el("turnwise-person");
  #chat = el("turnwise-chat");
  #inspector = el("turnwise-inspector");
  #session = el("turnwise-session");
  #alerts = el("div", { className: "alerts", role: "alert" });
  #columns;

  connectedCallback() {
    this.#build();
    this.#client.onUnauthorized = (problem) => this.#session.ask(problem);
    this.#client.onReached = (isReached) => this.#noteReached(isReached);
    addEventListener("hashchange", () => this.#route());
    this.addEventListener("select", (event) => {
      const isOurs = event instanceof CustomEvent; // a text field emits a `select` of its own
      if (isOurs) this.#select(event.detail.conversationId);
    });
    this.addEventListener("forked", (event) => this.#select(event.detail.conversationId));
    this.addEventListener("changed", () => this.#refresh());
    this.addEventListener("problem", (event) => this.#showProblem(event.detail.problem));
    this.addEventListener("signed-in", () => this.#begin());
    this.addEventListener("try-now", () => this.#tryNow());
    this.addEventListener("release", () => this.#chat.focusComposer()); // what had the focus is gone
    this.addEventListener("keydown", (event) => event.key === "Escape" && this.#columns.closeDrawer());
    this.#begin();
  }

  // --- what the page is made of

  #build() {
    for (const part of [this.#list, this.#chat, this.#person, this.#inspector, this.#session]) part.client = this.#client;
    this.#columns = new SideColumns(this, { list: this.#list, chat: this.#chat, inspector: this.#inspector });
    const { elements, buttons, backdrop } = this.#columns;
    this.#chat.person = this.#person;
    this.#chat.navigation = [buttons.list];
    this.#chat.actions = [iconButton("theme", "Change between light and dark", changeTheme), buttons.inspector];
    replaceChildren(
      this,
      el("a", { className: "skip-link", href: "#message", onclick: (event) => this.#skip(event) }, "Skip to the message"),
      elements.list,
      el("main", { className: "column chat-column" }, this.#chat, this.#alerts),
      elements.inspector,
      backdrop,
      this.#session,
    );
  }

  #skip(event) {
    event.preventDefault();
    this.#chat.focusComposer();
  }

  // --- which conversation is shown

  async #begin() {
    const newest = (this.#newestBeginning = Symbol());
    this.#list.load();
    const permissions = await this.#permissions();
    if (this.#newestBeginning !== newest) return;
    this.#columns.mayInspect(permissions.includes("log"));
    this.#person.permissions = permissions;
    this.#chat.loadChoices(permissions);
    this.#conversationId = undefined;
    this.#route();
  }

  /** Ask what the reader may do: what the server would refuse is not offered. Nothing is known without an answer. */
  async #permissions() {
    try {
      return (await this.#client.listPermissions()).permissions;
    } catch {
      return [];
    }
  }

  #route() {
    const id = /^#\/c\/(.+)$/.exec(location.hash)?.[1];
    this.#open(id ? decoded(id) : null);
  }

  #select(conversationId) {
    const hash = conversationId ? `#/c/${encodeURIComponent(conversationId)}` : "#/";
    if (location.hash !== hash) location.hash = hash;
    else this.#route();
    this.#list.load();
    this.#columns.closeDrawer();
  }

  #open(conversationId) {
    if (conversationId === this.#conversationId) return;
    this.#stream?.close();
    this.#stream = null;
    this.#conversationId = conversationId;
    this.#conversation = null;
    this.#view = emptyView();
    this.#connection = { phase: "connecting" };
    this.#alerts.replaceChildren(); // they were about the other conversation
    for (const part of [this.#list, this.#chat, this.#person, this.#inspector]) part.conversationId = conversationId;
    this.#renderLater();
    this.#columns.closeDrawer();
    if (conversationId) this.#follow(conversationId);
  }

  async #follow(conversationId) {
    const newest = (this.#newestAttempt = Symbol());
    await this.#refresh();
    if (this.#newestAttempt !== newest || this.#conversationId !== conversationId) return;
    if (this.#connection.phase === "waiting") setTimeout(() => this.#newestAttempt === newest && this.#follow(conversationId), READ_AGAIN);
    if (!this.#conversation) return;
    this.#readChannels(conversationId);
    this.#stream = this.#client.followConversation(conversationId, {
      onUpdate: (update) => this.#take(conversationId, update),
      onState: (connection) => this.#noteConnection(connection),
    });
  }

  #noteConnection(connection) {
    if (connection.phase === "open") {
      this.#list.load();
      this.#inspector.readAgain();
    }
    if (connection.reason === "deleted") this.#view = afterDeletion(this.#view);
    this.#connection = connection;
    this.#renderLater();
  }

  // --- whether the server can be reached; one sentence says so, for all parts of the page

  #noteReached(isReached) {
    if (isReached === this.#isReached) return;
    this.#isReached = isReached;
    this.#forgetUnsentLater();
    this.#inspector.isReached = isReached;
    this.#renderLater();
  }

  async #tryNow() {
    if (this.#isTrying) return;
    this.#isTrying = true;
    this.#renderLater();
    if (this.#stream) this.#stream.tryNow();
    else if (this.#conversationId) this.#follow(this.#conversationId);
    await this.#list.load();
    this.#isTrying = false;
    this.#renderLater();
  }

  /** Ask which channels there are. They are those of the engine, the same for all conversations. */
  async #readChannels(conversationId) {
    if (this.#channels !== null || !this.#person.permissions.includes("log")) return;
    const answer = await this.#client.getOutbox(conversationId).catch(() => null);
    if (answer === null) return;
    this.#channels = answer.channels;
    this.#renderLater();
  }

  /** Ask what the updates do not tell: the title and the rules. */
  async #refresh() {
    const conversationId = this.#conversationId;
    if (!conversationId) return;
    try {
      const conversation = await this.#client.getConversation(conversationId);
      if (this.#conversationId !== conversationId) return;
      this.#conversation = conversation;
    } catch (problem) {
      if (this.#conversationId !== conversationId || problem.status === 401) return;
      if (problem.status === 404) return this.#noteConnection({ phase: "ended", reason: "deleted", problem });
      if (!this.#conversation) return this.#noteConnection({ phase: "waiting" });
    }
    this.#renderLater();
  }

  async #readTurns(conversationId) {
    try {
      const { turns } = await this.#client.listTurns(conversationId);
      if (this.#conversationId !== conversationId) return;
      this.#view = withTurns(this.#view, turns);
      this.#renderLater();
    } catch (problem) {
      if (problem.code !== "unreachable") this.#showProblem(problem);
    }
  }

  #take(conversationId, update) {
    if (conversationId !== this.#conversationId) return;
    this.#view = apply(this.#view, update, { textIsThought: this.#conversation.text === "thought" });
    if (update.type === "snapshot" && update.data.state.data.turn > 0) this.#readTurns(conversationId);
    if (update.type === "rewound" && update.data.turn > 0) this.#readTurns(conversationId);
    if (update.type === "snapshot" || update.type === "rewound") this.#chat.readBranches(this.#view);
    if (update.type === "turn_ended" || update.type === "snapshot") this.#chat.readUsage();
    if (update.type === "state_change") this.#list.noteState(conversationId, update.data.type);
    this.#renderLater();
  }

  // --- showing it

  #renderLater() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      const isLost = this.#isUnsent || !this.#isReached || (this.#conversationId !== null && this.#connection.phase === "waiting");
      const connection = { ...this.#connection, isLost, isUnsent: this.#isUnsent, isTrying: this.#isTrying };
      this.#chat.showConversation(this.#conversation, connection, this.#channels ?? []);
      this.#person.policy = this.#conversation?.policy ?? null;
      for (const part of [this.#chat, this.#person, this.#inspector]) part.show(this.#view);
    });
  }

  #showProblem(problem) {
    if (problem.status === 401) return; // the form for the token says so
    if (problem.code === "unreachable") return this.#noteUnsent();
    const alert = el("div", { className: "alert" }, icon("alert"), el("p", {}, problem.message));
    alert.append(iconButton("close", "Dismiss", () => alert.remove()));
    this.#alerts.append(alert);
    while (this.#alerts.children.length > 3) this.#alerts.firstChild.remove();
  }

  #noteUnsent() {
    this.#isUnsent = true;
    this.#forgetUnsentLater();
    this.#renderLater();
  }

  /** Say no longer that something may not have arrived, once the server can be reached and people had time to read it. */
  #forgetUnsentLater() {
    clearTimeout(this.#forgetting);
    if (!this.#isUnsent || !this.#isReached) return;
    this.#forgetting = setTimeout(() => {
      this.#isUnsent = false;
      this.#renderLater();
    }, READING);
  }
}

/** Return the id in an address; one that is no valid address is nobody's id, and is not found. */
function decoded(id) {
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}

applyTheme();
customElements.define("turnwise-app", TurnwiseApp);
