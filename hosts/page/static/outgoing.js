// The messages that were sent from this tab and are not part of the conversation yet: under way, or waiting for a turn.
//
// A state names the messages that wait by their ids only, so their texts are kept here, over reloads too.

export class Outgoing {
  #conversationId = null;
  #messages = [];
  #unsure = null;

  set conversationId(id) {
    this.#conversationId = id;
    this.#messages = id ? read(id) : [];
  }

  /**
   * Note a message, and return its id. A message that may have arrived although its request failed gets the same id when
   * it is sent again, so that it is not said twice.
   */
  add(conversationId, text, newId) {
    const isAgain = this.#unsure?.conversationId === conversationId && this.#unsure.text === text;
    const messageId = isAgain ? this.#unsure.messageId : newId();
    this.#unsure = null;
    this.#conversationId = conversationId;
    this.#messages = [...this.#messages.filter((one) => one.messageId !== messageId), { messageId, text }];
    this.#write();
    return messageId;
  }

  /** Note that the request for a message has failed. */
  fail(conversationId, messageId, problem) {
    const failed = this.#messages.find((one) => one.messageId === messageId);
    this.#messages = this.#messages.filter((one) => one.messageId !== messageId);
    if (failed && (problem.status === 0 || problem.status >= 500)) this.#unsure = { conversationId, ...failed };
    this.#write();
  }

  textOf(messageId) {
    return this.#messages.find((one) => one.messageId === messageId)?.text ?? "";
  }

  /** Return what to show behind a view: {messageId, text, isQueued}; and forget what has become part of it. */
  shown(view) {
    const inbox = view.state.data.inbox ?? [];
    if (!this.#messages.length && !inbox.length) return [];
    const said = new Set(view.items.filter((item) => item.messageId).map((item) => item.messageId));
    const still = this.#messages.filter((one) => !said.has(one.messageId));
    if (still.length !== this.#messages.length) {
      this.#messages = still;
      this.#write();
    }
    const queued = inbox.map((messageId) => ({ messageId, text: this.textOf(messageId) || "A message from elsewhere", isQueued: true }));
    const sending = this.#messages.filter((one) => !inbox.includes(one.messageId));
    return [...queued, ...sending.map((one) => ({ ...one, isQueued: false }))];
  }

  #write() {
    if (!this.#conversationId) return;
    const name = storageName(this.#conversationId);
    if (this.#messages.length) sessionStorage.setItem(name, JSON.stringify(this.#messages));
    else sessionStorage.removeItem(name);
  }
}

function read(conversationId) {
  try {
    return JSON.parse(sessionStorage.getItem(storageName(conversationId)) ?? "[]");
  } catch {
    return [];
  }
}

function storageName(conversationId) {
  return `turnwise.sent.${conversationId}`;
}
