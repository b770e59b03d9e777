// The page: which conversation is shown, and who shows what of it.
//
// One conversation is followed at a time. Its updates are applied to one view, which the panels are given at most once
// per frame. The address says which conversation it is (`#/c/<id>`), so a page can be reloaded and linked to.

import "./chat.js";
import "./inspector.js";
import "./list.js";
import "./person.js";
import "./session.js";
import { Client, Problem } from "./client.js";
import { el, icon, iconButton, replaceChildren } from "./dom.js";
import { preference, setPreference } from "./preferences.js";
import { apply, emptyView, withTurns } from "./view.js";

/** After how many milliseconds a conversation that cannot be read is asked for again. */
const READ_AGAIN = 2000;

const NARROW = matchMedia("(max-width: 899px)");
const NO_ROOM_FOR_INSPECTOR = matchMedia("(max-width: 1099px)");

class TurnwiseApp extends HTMLElement {
  #client = new Client(document.baseURI);
  #conversationId = null;
  #conversation = null;
  #view = emptyView();
  #connection = { phase: "connecting" };
  #stream = null;
  #newest = null;
  #frame = 0;

  connectedCallback() {
    this.#build();
    this.#client.onUnauthorized = (problem) => this.#session.ask(problem);
    addEventListener("hashchange", () => this.#route());
    this.addEventListener("select", (event) => event instanceof CustomEvent && this.#select(event.detail.conversationId));
    this.addEventListener("forked", (event) => this.#select(event.detail.conversationId));
    this.addEventListener("changed", () => this.#refresh());
    this.addEventListener("problem", (event) => this.#tell(event.detail.problem));
    this.addEventListener("signed-in", () => this.#begin());
    this.addEventListener("release", () => this.#chat.focusComposer());
    this.addEventListener("keydown", (event) => event.key === "Escape" && this.#closeDrawers());
    this.#begin();
  }

  // --- what the page is made of

  #build() {
    this.#list = el("turnwise-list", { className: "list" });
    this.#person = el("turnwise-person", { className: "person" });
    this.#chat = el("turnwise-chat", { className: "chat" });
    this.#inspector = el("turnwise-inspector", { className: "inspector" });
    this.#session = el("turnwise-session");
    for (const element of [this.#list, this.#chat, this.#person, this.#inspector, this.#session]) {
      element.client = this.#client;
    }
    this.#chat.person = this.#person;
    this.#chat.navigation = [
      iconButton("menu", "Conversations", () => this.#openList(), { className: "icon-button for-list" }),
    ];
    this.#chat.actions = [
      iconButton("theme", "Change between light and dark", () => changeTheme()),
      iconButton("panel", "Inspector", () => this.#toggleInspector(), { className: "icon-button for-inspector" }),
    ];
    this.#alert = el("div", { className: "alerts", role: "alert" });
    this.#backdrop = el("div", { className: "backdrop", onclick: () => this.#closeDrawers() });
    replaceChildren(
      this,
      el("a", { className: "skip-link", href: "#message", onclick: (event) => this.#skip(event) }, "Skip to the message"),
      el("nav", { className: "column list-column", "aria-label": "Conversations" }, this.#drawerBar("Conversations"), this.#list),
      el("main", { className: "column chat-column" }, this.#chat, this.#alert),
      el("aside", { className: "column inspector-column", "aria-label": "Inspector" }, this.#drawerBar("Inspector"), this.#inspector),
      this.#backdrop,
      this.#session,
    );
    this.classList.toggle("without-inspector", preference("inspector") === "closed");
    for (const query of [NARROW, NO_ROOM_FOR_INSPECTOR]) query.addEventListener("change", () => this.#closeDrawers());
    this.#closeDrawers();
  }

  #list;
  #chat;
  #person;
  #inspector;
  #session;
  #alert;
  #backdrop;

  /** What closes a column that lies above the others. */
  #drawerBar(name) {
    const close = iconButton("close", `Close ${name.toLowerCase()}`, () => this.#closeDrawers());
    return el("div", { className: "drawer-bar" }, el("span", {}, name), close);
  }

  #skip(event) {
    event.preventDefault();
    this.#chat.focusComposer();
  }

  // --- which conversation is shown

  #begin() {
    this.#list.load();
    this.#chat.loadChoices();
    this.#conversationId = undefined;
    this.#route();
  }

  #route() {
    const id = /^#\/c\/(.+)$/.exec(location.hash)?.[1];
    this.#show(id ? decoded(id) : null);
  }

  #select(conversationId) {
    const hash = conversationId ? `#/c/${encodeURIComponent(conversationId)}` : "#/";
    if (location.hash !== hash) location.hash = hash;
    else this.#route();
    this.#list.load();
    this.#closeDrawers();
  }

  #show(conversationId) {
    if (conversationId === this.#conversationId) return;
    this.#stream?.close();
    this.#stream = null;
    this.#conversationId = conversationId;
    this.#conversation = null;
    this.#view = emptyView();
    this.#connection = { phase: "connecting" };
    for (const element of [this.#list, this.#chat, this.#person, this.#inspector]) element.conversationId = conversationId;
    this.#render();
    this.#closeDrawers();
    if (conversationId) this.#follow(conversationId);
  }

  async #follow(conversationId) {
    const newest = (this.#newest = Symbol("the newest attempt to follow a conversation"));
    await this.#refresh();
    if (this.#newest !== newest || this.#conversationId !== conversationId) return;
    if (this.#connection.phase === "waiting") setTimeout(() => this.#newest === newest && this.#follow(conversationId), READ_AGAIN);
    if (!this.#conversation) return;
    this.#stream = this.#client.followConversation(conversationId, {
      onUpdate: (update) => this.#take(conversationId, update),
      onState: (connection) => this.#noteConnection(connection),
    });
  }

  #noteConnection(connection) {
    if (connection.phase === "open") this.#list.load();
    this.#connection = connection;
    this.#render();
  }

  /** Ask what the updates do not tell: the title, the rules and what it has cost. */
  async #refresh() {
    const conversationId = this.#conversationId;
    if (!conversationId) return;
    try {
      const conversation = await this.#client.getConversation(conversationId);
      if (this.#conversationId !== conversationId) return;
      this.#conversation = conversation;
    } catch (problem) {
      if (this.#conversationId !== conversationId || problem.status === 401) return;
      if (problem.status === 404) this.#connection = { phase: "ended", reason: "deleted", problem };
      else if (!this.#conversation) this.#connection = { phase: "waiting" };
    }
    this.#render();
  }

  async #readTurns(conversationId) {
    try {
      const { turns } = await this.#client.listTurns(conversationId);
      if (this.#conversationId !== conversationId) return;
      this.#view = withTurns(this.#view, turns);
      this.#render();
    } catch (problem) {
      if (problem.code !== "unreachable") this.#tell(problem);
    }
  }

  #take(conversationId, update) {
    if (conversationId !== this.#conversationId) return;
    this.#view = apply(this.#view, update, { textIsThought: this.#conversation?.policy?.text === "thought" });
    if (update.type === "snapshot" && update.data.state.data.turn > 0) this.#readTurns(conversationId);
    if (update.type === "turn_ended" || update.type === "snapshot") this.#chat.readUsage();
    if (update.type === "state_change") this.#list.noteState(conversationId, update.data.type);
    this.#render();
  }

  // --- showing it

  #render() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#chat.showConversation(this.#conversation, this.#connection);
      for (const element of [this.#chat, this.#person, this.#inspector]) element.show(this.#view);
    });
  }

  #tell(problem) {
    if (problem.status === 401) return; // the form for the token says so
    const sentence = problem instanceof Problem || problem instanceof Error ? problem.message : String(problem);
    const alert = el("div", { className: "alert" }, icon("alert"), el("p", {}, sentence));
    alert.append(iconButton("close", "Dismiss", () => alert.remove()));
    this.#alert.append(alert);
    while (this.#alert.children.length > 3) this.#alert.firstChild.remove();
  }

  // --- the columns at the sides

  #openList() {
    this.classList.add("list-open");
    this.#settleDrawers();
    this.#focusDrawer(".list-column");
  }

  /** The focus goes into a drawer that opens, and back to its button when it closes. */
  #focusDrawer(name) {
    this.querySelector(`${name} .drawer-bar button`).focus();
  }

  #toggleInspector() {
    if (NO_ROOM_FOR_INSPECTOR.matches) {
      this.classList.add("inspector-open");
      this.#settleDrawers();
      this.#focusDrawer(".inspector-column");
    } else {
      const closed = this.classList.toggle("without-inspector");
      setPreference("inspector", closed ? "closed" : "open");
    }
    this.#settleDrawers();
  }

  #closeDrawers() {
    const opener = this.classList.contains("list-open") ? ".for-list" : this.classList.contains("inspector-open") ? ".for-inspector" : null;
    const hadFocus = this.querySelector(".column:not(.chat-column):focus-within") !== null;
    this.classList.remove("list-open", "inspector-open");
    this.#settleDrawers();
    if (opener && hadFocus) this.querySelector(opener).focus();
  }

  /** A column that is out of sight takes no focus; what lies behind an open drawer neither. */
  #settleDrawers() {
    const [list, inspector] = [".list-column", ".inspector-column"].map((one) => this.querySelector(one));
    const listOpen = this.classList.contains("list-open");
    const inspectorOpen = this.classList.contains("inspector-open");
    list.inert = NARROW.matches ? !listOpen : inspectorOpen;
    inspector.inert = NO_ROOM_FOR_INSPECTOR.matches ? !inspectorOpen : this.classList.contains("without-inspector");
    this.#chat.inert = listOpen || inspectorOpen;
    this.querySelector(".for-list").setAttribute("aria-expanded", String(!list.inert));
    this.querySelector(".for-inspector").setAttribute("aria-expanded", String(!inspector.inert));
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

// --- light and dark

function changeTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const shown = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
  const theme = shown === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  setPreference("theme", theme);
}

const theme = preference("theme");
if (theme) document.documentElement.dataset.theme = theme;

customElements.define("turnwise-app", TurnwiseApp);
