// What the conversation waits for from a person: answers, an approval, a decision about a call in doubt, or another try
// after a failure. There is one panel for each, which the state of the conversation chooses.
//
// A panel is made from the state and from {draft, send, listChildren, describeTool, policy}: `draft` keeps what a person has begun,
// `send(operation, body)` sends a decision, `listChildren()` reads the sub-agents, and `describeTool(name)` what a tool is
// for. `policy` are the rules of the conversation, as far as they are known. It has a `heading`, an
// `announcement` for screen readers, and an `element`. It may also have `unsent` (texts that a person wrote and has not
// sent), a `tone`, and `showProblem(problem)`, which shows a refusal where it belongs and returns whether it could.
// `noteVisible(end)`, if it has one, is told where on the screen the buttons begin, which cover what lies below them.
//
// A panel lasts as long as its question does: other updates leave it, what was typed, and the focus alone. The server
// decides about races: a person who answers too late reads the server's sentence and keeps what they wrote.

import { ApprovalPanel, OperatorPanel } from "./approval.js";
import { newId } from "./client.js";
import { el, emit } from "./dom.js";
import { DoubtPanel } from "./doubt.js";
import { Draft } from "./drafts.js";
import { FailurePanel } from "./failure.js";
import { QuestionPanel } from "./questions.js";
import { stateLabel } from "./states.js";

const PANELS = {
  awaiting_user_response: QuestionPanel,
  awaiting_sub_agents: QuestionPanel,
  awaiting_approval: ApprovalPanel,
  in_doubt: DoubtPanel,
  failed: FailurePanel,
};

/** Return the panel for a state. A call that is left to the operator is shown to others, who cannot decide about it. */
function panelFor({ type, data }, permissions) {
  const isOthers = data.approval_by === "operator" && !permissions.includes("approvals");
  return isOthers ? OperatorPanel : PANELS[type];
}

/** Shows what a person is asked. It dispatches `release` when it held the focus and what it asked is gone. */
class TurnwisePerson extends HTMLElement {
  /** The rules of the conversation that is shown, as far as they are known. */
  policy = null;

  /** What the reader may do. */
  permissions = [];

  #client;
  #conversationId = null;
  #state = null;
  #asked = null;
  #section = null;
  #notice = null;
  #present = el("span"); // in the notice: the state, which goes on changing
  #live;

  connectedCallback() {
    if (this.#live) return;
    this.#live = el("p", { className: "visually-hidden", role: "status" });
    this.append(this.#live);
  }

  set client(client) {
    this.#client = client;
  }

  /** The conversation that is shown. Another one takes away the panel; its draft is kept. */
  set conversationId(id) {
    if (id === this.#conversationId) return;
    this.#conversationId = id;
    this.#state = null;
    this.#replacePanel(null);
    this.#showNotice(null);
  }

  /** Show what the state of a view asks of a person. */
  show(view) {
    if (!view.known || view.state === this.#state || !this.#conversationId) return;
    this.#state = view.state;
    this.#present.textContent = ` ${this.#presentState()}`;
    const key = keyOf(view.state);
    if (key !== null && key === this.#asked?.key && !this.#asked.isSent) return;
    const gone = this.#asked;
    const hadFocus = this.contains(document.activeElement);
    this.#replacePanel(key === null ? null : this.#ask(key, view.state));
    this.#explain(gone);
    this.#moveFocus(hadFocus);
  }

  // --- what is asked

  #ask(key, state) {
    const draft = new Draft(`${this.#conversationId}:${key}`);
    const asked = new Asked(key, draft, this.#client, this.#conversationId);
    const send = (operation, body) => asked.send(operation, body);
    const listChildren = () => this.#client.listChildren(this.#conversationId);
    const describeTool = (name) => this.#describeTool(name);
    const given = { draft, send, listChildren, describeTool, policy: this.policy };
    asked.panel = new (panelFor(state, this.permissions))(state, given);
    return asked;
  }

  /** Return what a tool is for, as the model reads it; undefined if the server offers it no longer. */
  async #describeTool(name) {
    const { tools } = await this.#client.listTools();
    return tools.find((tool) => tool.name === name)?.description;
  }

  #replacePanel(asked) {
    this.#asked?.sendAfterSignIn(null);
    this.#asked = asked;
    this.#section?.remove();
    this.#section = asked === null ? null : asked.section();
    if (asked === null) return;
    this.append(this.#section);
    this.#live.textContent = asked.panel.announcement;
  }

  /** Say why something is no longer asked, if this person was about to answer it. */
  async #explain(gone) {
    if (!gone) return;
    const conversationId = this.#conversationId;
    await gone.settled; // the update may come before the response to the request that caused it
    gone.draft.discard();
    if (conversationId !== this.#conversationId) return;
    const isLate = gone.refusal !== null;
    if (gone.isSent && !isLate) return this.#showNotice(null);
    if (gone.panel.tone === "failure" && !isLate) return; // a message continues after a failure
    const unsent = gone.panel.unsent ?? [];
    const sentence = isLate ? gone.refusal : "This is no longer asked.";
    if (isLate || unsent.length > 0) this.#showNotice(sentence, unsent);
    this.#live.textContent = [sentence, this.#asked?.panel.announcement ?? this.#presentState()].join(" ");
  }

  #presentState() {
    return `The conversation is now: ${stateLabel(this.#state.type)}.`;
  }

  #showNotice(sentence, unsent = []) {
    this.#notice?.remove();
    this.#notice = null;
    if (sentence === null) return;
    const close = () => {
      this.#showNotice(null);
      emit(this, "release");
    };
    this.#notice = el(
      "div",
      { className: "person-notice" },
      el("p", {}, el("strong", {}, sentence), this.#present),
      unsent.length > 0 ? el("p", {}, "You had written:") : null,
      unsent.map((text) => el("blockquote", { dir: "auto" }, text)),
      el("button", { type: "button", className: "button", onclick: close }, "Dismiss"),
    );
    this.#live.after(this.#notice);
  }

  // --- the focus

  /** Move the focus to a new panel, unless the person is busy elsewhere, and away from one that is gone. */
  #moveFocus(hadFocus) {
    if (this.#section === null) {
      if (hadFocus) emit(this, "release");
    } else if (hadFocus || isFree(document.activeElement)) {
      this.#section.querySelector("h2").focus();
    }
  }
}

/** One thing that is asked: its panel, and the request that answers it. */
class Asked {
  panel = null;
  /** Whether the server has taken an answer of this page. */
  isSent = false;
  /** The sentence of the server if it asks for something else by now; else null. */
  refusal = null;
  /** Settles when no request is under way. */
  settled = Promise.resolve();
  #client;
  #conversationId;
  #section;
  #alert = el("p", { className: "person-fault", role: "alert" });
  #isSending = false;
  #sent = { content: null, id: null };
  #onSignIn = null;

  constructor(key, draft, client, conversationId) {
    this.key = key;
    this.draft = draft;
    this.#client = client;
    this.#conversationId = conversationId;
  }

  /** Return the element that shows the panel. A refusal stands above the buttons, which are always in sight. */
  section() {
    const heading = el("h2", { id: "person-heading", tabIndex: -1 }, this.panel.heading);
    const properties = { className: `person-panel is-${this.panel.tone ?? "question"}`, "aria-labelledby": heading.id };
    this.#section = el("section", properties, heading, this.panel.element);
    const buttons = this.#section.querySelector(".person-actions, .doubt-choices");
    buttons.prepend(this.#alert);
    this.#section.addEventListener("scroll", () => this.#noteVisible(buttons), { passive: true });
    new ResizeObserver(() => this.#noteVisible(buttons)).observe(this.#section);
    return this.#section;
  }

  /** Show whether the buttons cover a part of the panel, which can be scrolled. */
  #noteVisible(buttons) {
    const { scrollHeight, scrollTop, clientHeight } = this.#section;
    buttons.classList.toggle("covers", scrollHeight - scrollTop - clientHeight > 1);
    this.panel.noteVisible?.(buttons.getBoundingClientRect().top);
  }

  /** Send a decision, once: a second click while it is under way, or after it was taken, sends nothing. The same
   * decision is sent again under the same id, so that it counts once if only its response was lost. */
  send(operation, body) {
    if (!this.#isSending && !this.isSent) this.settled = this.#send(operation, body);
  }

  /** Send the newest decision, or nothing, when the person has signed in. */
  sendAfterSignIn(send) {
    document.removeEventListener("signed-in", this.#onSignIn);
    this.#onSignIn = send;
    if (send !== null) document.addEventListener("signed-in", send, { once: true });
  }

  async #send(operation, body) {
    const content = JSON.stringify([operation, body]);
    if (this.#sent.content !== content) this.#sent = { content, id: newId() };
    this.#showBusy((this.#isSending = true));
    this.#alert.textContent = "";
    try {
      await this.#client[operation](this.#conversationId, { ...body, request_id: this.#sent.id });
      this.isSent = true;
      this.#sent = { content: null, id: null };
      this.draft.discard();
    } catch (problem) {
      this.#show(problem, operation, body);
    } finally {
      this.#isSending = false;
      this.#showBusy(this.isSent);
    }
  }

  #show(problem, operation, body) {
    if (problem.status === 401) {
      if (this.#section.isConnected) this.sendAfterSignIn(() => this.send(operation, body));
    } else if (problem.code === "unreachable") {
      return emit(this.#section, "problem", { problem }); // one sentence says so for the whole page
    } else if (problem.code === "wrong_state") {
      this.refusal = problem.message;
    }
    const isShown = problem.subject ? (this.panel.showProblem?.(problem) ?? false) : false;
    if (isShown) return;
    this.#alert.textContent = problem.message;
  }

  #showBusy(isBusy) {
    this.#section.setAttribute("aria-busy", String(isBusy));
    for (const button of this.#section.querySelectorAll(".person-actions button, .doubt-choices button")) {
      if (isBusy) button.setAttribute("aria-disabled", "true");
      else button.removeAttribute("aria-disabled");
    }
  }
}

/** What a state asks, as a text that changes when something else is asked; null if it asks nothing. One call may ask
 * several questions, one after the other. */
function keyOf({ type, data }) {
  if (!Object.hasOwn(PANELS, type)) return null;
  if (type === "awaiting_sub_agents" && !data.questions?.length) return null;
  return JSON.stringify([type, data.turn, data.call_id, data.questions]);
}

/** Whether the person does nothing with what has the focus, so that it may be moved. */
function isFree(active) {
  if (active === null || active === document.body) return true;
  if (active.closest("dialog")) return false;
  const form = active.closest("main form");
  return form !== null && [...form.querySelectorAll("textarea")].every((field) => field.value === "");
}

customElements.define("turnwise-person", TurnwisePerson);
