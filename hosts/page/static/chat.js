// One conversation, as people hold it: its title and state, what was said, what waits for a person, and the composer.

import "./composer.js";
import "./options.js";
import { newId } from "./client.js";
import { askFor, askToChoose } from "./dialogs.js";
import { el, emit, icon, iconButton, replaceChildren } from "./dom.js";
import { Outgoing } from "./outgoing.js";
import { stateLabel, stateTone } from "./states.js";
import { Transcript } from "./transcript.js";
import { isBusy, marksDeliveries, mayHaveBranches } from "./view.js";
import { oneLine, usageDetails, usageText } from "./words.js";

class TurnwiseChat extends HTMLElement {
  /** The `Client`, the element for what waits for a person, and buttons for both ends of the header. */
  client;
  person;
  navigation = [];
  actions = [];

  #conversationId = null;
  #conversation = null;
  #view = null;
  #newConversationId = null;
  #outgoing = new Outgoing();
  #transcript;
  #title;
  #badge;
  #usage;
  #rename;
  #options;
  #start;
  #gone;
  #connection;
  #lost = el("p", {}); // in the connection: what is said if it is lost
  #tryNow;
  #channels = [];
  #composer;
  #loading;
  #branches = []; // those that were left
  #isRegenerating = false;

  connectedCallback() {
    if (this.#transcript) return;
    this.#transcript = new Transcript(this.client, {
      withdraw: (messageId) => this.#withdraw(messageId),
      edit: (message) => this.#composer.edit(message),
      regenerate: (turn) => this.#regenerate(turn),
      branches: () => this.#chooseBranch(),
    });
    this.#title = el("h1", {}, "New conversation");
    this.#badge = el("span", { className: "badge", hidden: true });
    this.#usage = el("span", { className: "usage total", hidden: true });
    this.#rename = iconButton("pencil", "Rename", () => this.#askForTitle(), { hidden: true });
    this.#connection = el("div", { className: "connection", hidden: true });
    this.#tryNow = el("button", { type: "button", className: "button small", onclick: () => emit(this, "try-now") });
    this.#connection.append(icon("alert"), el("div", { role: "status" }, this.#lost), this.#tryNow);
    this.#loading = el("div", { className: "loading measure", "aria-hidden": "true" }, [62, 84, 48].map(() => el("div", { className: "skeleton" })));
    this.#options = el("turnwise-options");
    this.#start = el(
      "section", { className: "start measure", "aria-labelledby": "start-title" },
      el("h2", { id: "start-title" }, "Start a conversation"),
      el("p", {}, "Write a message below. Everything that happens is stored step by step, and the inspector shows it."),
      this.#options,
    );
    const begin = () => this.#beginAnew();
    this.#gone = el(
      "section", { className: "start gone measure", "aria-labelledby": "gone-title", hidden: true },
      el("h2", { id: "gone-title" }, "This conversation does not exist"),
      el("p", {}, "It was deleted, or it belongs to somebody else."),
      el("button", { type: "button", className: "button", onclick: begin }, icon("plus"), "Start a new one"),
    );
    this.#composer = el("turnwise-composer");
    this.#composer.client = this.client;
    this.#composer.send = (message) => this.#send(message);
    this.#composer.sendEdit = (conversationId, edit) => this.#edit(conversationId, edit);
    this.#composer.begin = (onBegun) => this.#request(() => this.#create(onBegun));
    this.#composer.stop = () => this.#stop();
    const header = el(
      "header", { className: "chat-header" }, this.navigation,
      el(
        "div", { className: "chat-heading" },
        el("div", { className: "chat-title" }, this.#title, this.#rename),
        el("div", { className: "chat-status" }, this.#badge, this.#usage),
      ),
      el("div", { className: "actions" }, this.actions),
    );
    replaceChildren(this, header, this.#connection, this.#start, this.#gone, this.#loading, this.#transcript.element, this.person, this.#composer);
  }

  set conversationId(id) {
    this.#conversationId = id;
    this.#conversation = null;
    this.#view = null;
    this.#usage.hidden = true;
    this.#transcript.reset(id);
    this.#composer.conversationId = id;
    this.#outgoing.conversationId = id;
  }

  focusComposer() {
    this.#composer.focus();
  }

  /** Read what a new conversation can be given: models and tools. */
  loadChoices(permissions) {
    this.#options.load(this.client, permissions);
  }

  // --- showing

  /** Show what is known of the conversation beside its updates, how the connection is, and which channels there are. */
  showConversation(conversation, connection, channels) {
    this.#conversation = conversation;
    this.#channels = channels;
    this.#rename.hidden = !conversation;
    this.#showConnection(connection);
  }

  show(view) {
    this.#view = view;
    const isGone = this.#connection.dataset.phase === "ended" && this.#connection.dataset.reason === "deleted";
    this.#gone.hidden = !isGone;
    this.#composer.hidden = isGone;
    this.#start.hidden = this.#conversationId !== null;
    this.#loading.hidden = this.#conversationId === null || view.known || isGone;
    this.#transcript.element.hidden = this.#conversationId === null || !view.known || isGone;
    this.#showTitle(view);
    this.#showBadge(view);
    this.#composer.setState({ isBusy: isBusy(view), isClosed: view.state.type === "closed" });
    if (!view.known) return;
    for (const message of this.#outgoing.takeLost(view)) this.#composer.putBack(this.#conversationId, message);
    const marks = marksDeliveries(view, this.#conversation?.policy, this.#channels);
    this.#transcript.goesBack = view.state.type !== "closed" && this.#conversation?.parent === null; // a sub-agent has one task
    this.#transcript.show(view, this.#outgoing.shown(view), marks);
  }

  /** A conversation without a title of its own is called by its first message. */
  #showTitle(view) {
    const said = view.items.find((item) => item.kind === "message" && item.role === "user" && !item.origin);
    const known = this.#conversation?.title || (said ? oneLine(said.text, 80) : view.known ? "Untitled conversation" : "Conversation");
    const title = this.#conversationId ? known : "New conversation";
    if (this.#title.textContent === title) return;
    this.#title.textContent = title;
    document.title = this.#conversationId === null ? "turnwise" : `${title} · turnwise`;
  }

  #showBadge(view) {
    this.#badge.hidden = !view.known;
    const type = view.state.data.questions?.length ? "awaiting_user_response" : view.state.type; // sub-agents may ask
    this.#badge.dataset.tone = stateTone(type);
    const label = stateLabel(type);
    if (this.#badge.textContent !== label) this.#badge.textContent = label;
  }

  #showConnection({ phase, reason = "", isLost, isUnsent, isTrying }) {
    this.#connection.dataset.phase = phase;
    this.#connection.dataset.reason = reason;
    this.#connection.hidden = !isLost;
    const what = isUnsent ? "The server could not be reached: what you sent last may not have arrived." : "The connection to the server is lost.";
    const sentence = isLost ? `${what} The page connects again by itself.` : "";
    if (this.#lost.textContent !== sentence) this.#lost.textContent = sentence;
    this.#tryNow.textContent = isTrying ? "Trying…" : "Try now";
    this.#tryNow.setAttribute("aria-disabled", String(isTrying));
  }

  /** Ask what the conversation has cost so far. */
  async readUsage() {
    const conversationId = this.#conversationId;
    try {
      const usage = await this.client.getUsage(conversationId);
      if (conversationId !== this.#conversationId) return;
      this.#usage.textContent = usageText(usage);
      this.#usage.title = `The conversation so far: ${usageDetails(usage)}`;
      this.#usage.hidden = !this.#usage.textContent;
    } catch {
      this.#usage.hidden = true; // the streams tell when the server is away
    }
  }

  /** Ask for the branches that were left, if there may be any: the server reads the whole log for them. */
  async readBranches(view) {
    const conversationId = this.#conversationId;
    try {
      const branches = mayHaveBranches(view) ? (await this.client.listBranches(conversationId)).branches : [];
      if (conversationId !== this.#conversationId) return;
      this.#branches = branches;
      this.#transcript.showBranches(branches.length);
    } catch {
      // what was known stays; they are asked for again
    }
  }

  // --- requests

  /** Send a message; without a conversation it begins one. What is refused goes back into the composer. */
  async #send(message) {
    let conversationId = this.#conversationId;
    try {
      conversationId ??= await this.#create();
      await this.#sendTo(conversationId, message);
    } catch (problem) {
      this.#composer.putBack(conversationId, message);
      emit(this, "problem", { problem });
    }
  }

  async #sendTo(conversationId, message) {
    const messageId = this.#outgoing.add(conversationId, message);
    this.#showOutgoing();
    this.#transcript.toEnd();
    const files = message.files.map(sentFile);
    try {
      await this.client.sendMessage(conversationId, { text: message.text, files, message_id: messageId, when_busy: "queue" });
    } catch (problem) {
      this.#outgoing.fail(conversationId, messageId, problem);
      this.#showOutgoing();
      throw problem;
    }
  }

  /** Create a conversation under an id of the page's own: asked again after a lost answer, the server makes no second
   * one. `onBegun` is called with its id before it is shown. */
  async #create(onBegun = () => {}) {
    this.#newConversationId ??= newId();
    try {
      const { id } = await this.client.createConversation({ ...this.#options.chosen, id: this.#newConversationId });
      this.#newConversationId = null;
      onBegun(id);
      emit(this, "select", { conversationId: id });
      return id;
    } catch (problem) {
      const mayExist = problem.status === 0 || problem.status >= 500;
      if (!mayExist) this.#newConversationId = null;
      throw problem;
    }
  }

  async #withdraw(messageId) {
    const conversationId = this.#conversationId;
    const message = this.#outgoing.find(messageId);
    await this.#request(async () => {
      await this.client.withdrawMessage(conversationId, { message_id: messageId });
      if (message) this.#composer.putBack(conversationId, message);
    });
  }

  // --- going back

  #edit(conversationId, { messageId, text, files, requestId }) {
    const body = { message_id: messageId, text, request_id: requestId, ...(files ? { files: files.map(sentFile) } : {}) };
    this.#transcript.toEnd();
    return this.#request(() => this.client.editMessage(conversationId, body));
  }

  async #regenerate(turn) {
    if (this.#isRegenerating) return;
    this.#isRegenerating = true;
    this.#transcript.toEnd();
    await this.#request(() => this.client.regenerateTurn(this.#conversationId, { turn, request_id: newId() }));
    this.#isRegenerating = false;
  }

  async #chooseBranch() {
    const conversationId = this.#conversationId;
    const choices = this.#branches.map(({ number, hidden, text }) => ({ value: number, label: oneLine(text, 120) || "Without a message", detail: turnsText(hidden) }));
    const branch = await askToChoose("Return to another branch", choices, "Return");
    if (branch !== null) await this.#request(() => this.client.switchBranch(conversationId, { branch, request_id: newId() }));
  }

  /** Begin a conversation in the place of one that is gone, with what was typed for that one. */
  #beginAnew() {
    const text = this.#composer.takeDraft();
    emit(this, "select", { conversationId: null });
    if (text) this.#composer.putBack(null, { text, files: [] });
  }

  #showOutgoing() {
    if (this.#view?.known) this.show(this.#view);
  }

  async #askForTitle() {
    const conversationId = this.#conversationId; // the browser's way back leaves the dialog open
    const title = await askFor("Rename the conversation", "Title", this.#conversation?.title ?? "");
    if (title === null) return;
    await this.#request(() => this.client.changeConversation(conversationId, { title }));
    emit(this, "changed");
  }

  /** Stop the turn that is shown, and not one that has begun since. */
  #stop() {
    return this.#request(() => this.client.cancelTurn(this.#conversationId, { turn: this.#view.state.data.turn }));
  }

  /** Ask the server, and return whether it has not refused. */
  async #request(ask) {
    try {
      await ask();
      return true;
    } catch (problem) {
      emit(this, "problem", { problem });
      return false;
    }
  }
}

/** Say which turns these are. */
function turnsText(turns) {
  if (turns.length > 4) return `${turns.length} turns up to ${Math.max(...turns)}`;
  return `${turns.length === 1 ? "turn" : "turns"} ${turns.join(", ")}`;
}

/** How a message names a file that the conversation has. */
function sentFile({ sha256, url, name, media_type: mediaType }) {
  return { ...(sha256 ? { sha256 } : { url }), ...(name ? { name } : {}), media_type: mediaType };
}

customElements.define("turnwise-chat", TurnwiseChat);
