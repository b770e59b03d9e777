// The messages that were sent from this tab and are not part of the conversation yet: under way, or waiting for a turn.
//
// A state names the messages that wait by their ids only, so their texts are kept here, over reloads too.

import { newId } from "./client.js";
import { Draft } from "./drafts.js";

export class Outgoing {
  #conversationId = null;
  #messages = [];
  #unsure = null;

  set conversationId(id) {
    this.#conversationId = id;
    this.#messages = id ? (sentTo(id).read() ?? []) : [];
  }

  /**
   * Note a message, and return its id. A message that may have arrived although its request failed gets the same id when
   * it is sent again, so that it is not said twice.
   */
  add(conversationId, text) {
    const isAgain = this.#unsure?.conversationId === conversationId && this.#unsure.text === text;
    const messageId = isAgain ? this.#unsure.messageId : newId();
    this.#unsure = null;
    this.#conversationId = conversationId;
    this.#messages = [...this.#messages.filter((one) => one.messageId !== messageId), { messageId, text, isQueued: false }];
    this.#write();
    return messageId;
  }

  /** Note that the request for a message has failed. */
  fail(conversationId, messageId, problem) {
    const text = this.textOf(messageId);
    this.#keep((one) => one.messageId !== messageId);
    if (problem.status === 0 || problem.status >= 500) this.#unsure = { conversationId, messageId, text };
  }

  /** Return the text of a message that was sent from here, or an empty one. */
  textOf(messageId) {
    return this.#messages.find((one) => one.messageId === messageId)?.text ?? "";
  }

  /** Return what to show behind a view: {messageId, text, isQueued}; and forget what has become part of it. */
  shown(view) {
    const inbox = view.state.data.inbox ?? [];
    if (!this.#messages.length && !inbox.length) return [];
    const said = new Set(view.items.filter((item) => item.messageId).map((item) => item.messageId));
    for (const one of this.#messages) one.isQueued ||= inbox.includes(one.messageId);
    this.#keep((one) => !said.has(one.messageId) && (inbox.includes(one.messageId) || !one.isQueued));
    const queued = inbox.map((messageId) => ({ messageId, text: this.textOf(messageId) || "A message from elsewhere", isQueued: true }));
    return [...queued, ...this.#messages.filter((one) => !inbox.includes(one.messageId))];
  }

  #keep(condition) {
    const kept = this.#messages.filter(condition);
    if (kept.length === this.#messages.length) return;
    this.#messages = kept;
    this.#write();
  }

  #write() {
    if (!this.#conversationId) return;
    if (this.#messages.length) sentTo(this.#conversationId).write(this.#messages);
    else sentTo(this.#conversationId).discard();
  }
}

function sentTo(conversationId) {
  return new Draft(`sent:${conversationId}`);
}
