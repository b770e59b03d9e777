// The messages that were sent from this tab and are not part of their conversation yet: under way, or waiting for a turn.
//
// A state names the messages that wait by their ids only, so what they say is kept here, over reloads too. A request may
// end when another conversation is shown, or not at all, because the page was reloaded meanwhile.

import { newId } from "./client.js";
import { Draft } from "./drafts.js";

const ELSEWHERE = { text: "A message from elsewhere", files: [] };

export class Outgoing {
  /** The conversation that is shown. */
  conversationId = null;
  #sentHere = new Set(); // the ids of the messages that this page has sent, not one before a reload

  /**
   * Note a message, and return its id. A message that may have arrived although its request failed gets the same id when
   * it is sent again, so that it is not said twice.
   */
  add(conversationId, { text, files }) {
    const unsure = unsureOf(conversationId).read();
    const isSame = unsure?.text === text && JSON.stringify(unsure.files) === JSON.stringify(files);
    const messageId = isSame ? unsure.messageId : newId();
    unsureOf(conversationId).discard();
    this.#sentHere.add(messageId);
    write(conversationId, [...without(messageId, sentTo(conversationId)), { messageId, text, files }]);
    return messageId;
  }

  /** Note that the request for a message has failed. */
  fail(conversationId, messageId, problem) {
    const message = this.#find(conversationId, messageId);
    this.#forget(conversationId, messageId);
    if ((problem.status === 0 || problem.status >= 500) && message) unsureOf(conversationId).write(message);
  }

  /** Return a message {text, files} that was sent from here to the conversation that is shown; undefined if it was not. */
  find(messageId) {
    return this.#find(this.conversationId, messageId);
  }

  /** Return the messages that were lost: a page before this one sent them, and they are not part of the view. The request
   * may still be under way, so the last of them gets its id again when it is sent again. */
  takeLost(view) {
    const { inbox, said } = arrived(view);
    const isLost = ({ messageId }) => !this.#sentHere.has(messageId) && !said.has(messageId) && !inbox.includes(messageId);
    const lost = sentTo(this.conversationId).filter((one) => isLost(one) && !one.isQueued);
    for (const message of lost) {
      this.#forget(this.conversationId, message.messageId);
      unsureOf(this.conversationId).write(message);
    }
    return lost;
  }

  /** Return what to show behind a view: {messageId, text, files, isQueued}; and forget what has become part of it. */
  shown(view) {
    const sent = sentTo(this.conversationId);
    const { inbox, said } = arrived(view);
    if (!sent.length && !inbox.length) return [];
    const kept = sent
      .map((one) => ({ ...one, isQueued: Boolean(one.isQueued) || inbox.includes(one.messageId) }))
      .filter((one) => !said.has(one.messageId) && (inbox.includes(one.messageId) || !one.isQueued));
    if (JSON.stringify(kept) !== JSON.stringify(sent)) write(this.conversationId, kept);
    const queued = inbox.map((messageId) => ({ ...ELSEWHERE, ...this.find(messageId), messageId, isQueued: true }));
    return [...queued, ...kept.filter((one) => !one.isQueued)];
  }

  #find(conversationId, messageId) {
    return sentTo(conversationId).find((one) => one.messageId === messageId);
  }

  #forget(conversationId, messageId) {
    this.#sentHere.delete(messageId);
    write(conversationId, without(messageId, sentTo(conversationId)));
  }
}

/** The ids of the messages that a conversation has: those that wait for a turn, and those that were said. */
function arrived(view) {
  const said = new Set(view.items.filter((item) => item.messageId).map((item) => item.messageId));
  return { inbox: view.state.data.inbox ?? [], said };
}

function without(messageId, messages) {
  return messages.filter((one) => one.messageId !== messageId);
}

function sentTo(conversationId) {
  return draftOf(conversationId).read() ?? [];
}

function write(conversationId, messages) {
  if (messages.length) draftOf(conversationId).write(messages);
  else draftOf(conversationId).discard();
}

function draftOf(conversationId) {
  return new Draft(`sent:${conversationId}`);
}

function unsureOf(conversationId) {
  return new Draft(`unsure:${conversationId}`);
}
