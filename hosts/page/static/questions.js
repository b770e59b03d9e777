// The questions of one call, asked together. They are answered in one request or declined: then the model goes on, or the
// turn ends, which the rules of the conversation say and the button too. The server decides whether
// the answers are complete, because a conversation may accept some of them: what is refused is shown at its question.

import { el, icon, replaceChildren } from "./dom.js";
import { QuestionField } from "./question_field.js";

/** The form for the questions in which `state` waits. See person.js for what a panel has. */
export class QuestionPanel {
  #fields;
  #below;
  #draft;
  #callId;
  #send;

  constructor(state, { draft, send, listChildren, policy }) {
    const { questions, call_id: callId } = state.data;
    this.#callId = callId;
    this.#draft = draft;
    this.#send = send;
    const begun = draft.read() ?? {};
    this.#fields = questions.map((question, index) => {
      const place = questions.length > 1 ? `Question ${index + 1} of ${questions.length}` : "";
      return new QuestionField(question, place, begun[question.question], () => this.#keepDraft());
    });
    this.heading = headingOf(state);
    this.announcement = [`${this.heading}:`, ...questions.map(({ question }) => question)].join(" ");
    this.element = this.#form(policy?.questions?.cancel === "resume" ? GOES_ON : ENDS_TURN);
    if (state.type === "awaiting_sub_agents") this.#nameAsking(listChildren);
  }

  /** What a person wrote here and has not sent. */
  get unsent() {
    return this.#fields.flatMap((field) => field.written);
  }

  /** Show a refusal at the question that it is about. Returns whether there is one. */
  showProblem(problem) {
    const field = this.#fields.find(({ name }) => isAbout(name, problem.subject));
    if (field === undefined) return false;
    if (problem.code === "missing_answer") this.#markUnanswered();
    field.showFault(problem.message);
    field.focus();
    return true;
  }

  /** Say that a question lies below the end of what can be seen, and lead to it. */
  noteVisible(end) {
    const hidden = this.#fields.find((field) => field.endOfTitle > end);
    this.#below.hidden = hidden === undefined;
    if (hidden === undefined) return;
    replaceChildren(this.#below, icon("down"), hidden.place);
    this.#below.onclick = () => {
      hidden.element.scrollIntoView({ block: "start" });
      hidden.focus();
    };
  }

  #form({ label, title }) {
    this.#below = el("button", { type: "button", className: "link-button question-below", hidden: true });
    const buttons = el(
      "div",
      { className: "person-actions" },
      el("button", { type: "submit", className: "button primary" }, this.#fields.length === 1 ? "Send answer" : "Send answers"),
      el("button", { type: "button", className: "button", title, onclick: () => this.#decline() }, label),
      this.#below,
    );
    const onsubmit = (event) => {
      event.preventDefault();
      this.#submit();
    };
    const onkeydown = (event) => {
      const sends = event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing;
      if (sends) event.currentTarget.requestSubmit();
    };
    return el("form", { noValidate: true, onsubmit, onkeydown }, this.#fields.map(({ element }) => element), buttons);
  }

  /** Say which task the sub-agent has that asks: the id of its call begins with its number among the agents. */
  async #nameAsking(listChildren) {
    const number = this.#callId.split(".", 1)[0];
    try {
      const { conversations } = await listChildren();
      const title = conversations.find(({ id }) => effectOf(id) === number)?.title;
      if (title) this.element.prepend(el("p", { className: "person-hint question-task", dir: "auto" }, `Its task: ${title}`));
    } catch {
      // The question can be answered without its task.
    }
  }

  #submit() {
    for (const field of this.#fields) field.showFault(field.fault);
    const faulty = this.#fields.find((field) => field.fault !== null);
    if (faulty !== undefined) return faulty.focus();
    if (this.#fields.every((field) => field.answer === null)) {
      this.#markUnanswered();
      return this.#fields[0].focus();
    }
    return this.#send("answerQuestions", this.#body());
  }

  #body() {
    const answered = this.#fields.filter((field) => field.answer !== null);
    const answers = Object.fromEntries(answered.map((field) => [field.name, field.answer]));
    const noted = this.#fields.filter((field) => field.note);
    const annotations = Object.fromEntries(noted.map((field) => [field.name, { notes: field.note }]));
    return { answers, ...(noted.length ? { annotations } : {}), call_id: this.#callId };
  }

  #decline() {
    return this.#send("declineQuestions", { call_id: this.#callId });
  }

  #markUnanswered() {
    for (const field of this.#fields) {
      if (field.answer === null) field.showFault("This question has no answer yet.");
    }
  }

  #keepDraft() {
    this.#draft.write(Object.fromEntries(this.#fields.map((field) => [field.name, field.state])));
  }
}

const GOES_ON = { label: "Decline to answer", title: "The model goes on without an answer." };
const ENDS_TURN = { label: "Stop without answering", title: "The turn ends, and the conversation waits for your next message." };

/** Whether a refusal is about this question. The server shortens long subjects. */
function isAbout(question, subject) {
  return question === subject || (subject.endsWith("…") && question.startsWith(subject.slice(0, -1)));
}

function headingOf({ type, data: { questions } }) {
  const asks = type === "awaiting_sub_agents" ? "A sub-agent asks you" : "The assistant asks you";
  return questions.length === 1 ? `${asks} a question` : `${asks} ${questions.length} questions`;
}

/** The number of the effect that started the sub-agent with this id, which ends with it, or with it and a mark. */
function effectOf(id) {
  return /\/(\d+)(?:\/[0-9a-f]{12})?$/.exec(id)?.[1];
}
