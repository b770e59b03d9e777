// <turnwise-step>: one step in detail: its event, its effects, the state after it, and what a model was sent.
//
//   element.client, element.conversationId
//   element.show({ step, before, titleOf })     `before` is the step before it, if it is there
//
// The sections that are open stay open from step to step. It emits `forked` {conversationId} and `problem` {problem}.

import { el, emit, icon, replaceChildren } from "./dom.js";
import { json } from "./json.js";
import { modelRequest } from "./model_request.js";
import { isRest } from "./states.js";
import { inWords } from "./words.js";

const SETTLED = 150; // milliseconds that a step is shown before its request is read, so that scrubbing reads few

class TurnwiseStep extends HTMLElement {
  client = null;
  conversationId = null;
  #step = null;
  #before;
  #titleOf;
  #open = new Set(["Event"]);
  #timer = 0;

  /** Show a step. */
  show({ step, before, titleOf }) {
    if (step === this.#step && before === this.#before && titleOf === this.#titleOf) return;
    this.#step = step ?? null;
    this.#before = before;
    this.#titleOf = titleOf;
    if (!step) return replaceChildren(this);
    const source = before ? `${titleOf(before.state.type)} → ` : "";
    replaceChildren(
      this,
      el(
        "header",
        { className: "step-header" },
        el("h3", {}, inWords(step.event.type)),
        el("p", {}, source, el("strong", {}, titleOf(step.state.type))),
        el("p", { className: "step-meta" }, `Step ${step.seq} · turn ${step.turn} · `, timeOf(step.at)),
        this.#forkButton(step),
      ),
      this.#section("Event", () => json(step.event)),
      this.#section("Effects", () => effectsOf(step.effects), step.effects.length),
      step.requests.length > 0 && this.#section("Model request", (body) => this.#readRequest(step, body)),
      this.#section("State", () => json(step.state.data ?? {})),
      step.passed.length > 0 && el("p", { className: "step-meta" }, "Through ", step.passed.map((name) => el("code", {}, name))),
    );
  }

  #section(title, content, count = null) {
    const body = el("div", { className: "section-body" });
    const fill = () => body.childNodes.length === 0 && replaceChildren(body, content(body));
    const isOpen = this.#open.has(title);
    const section = el(
      "details",
      { className: "section", open: isOpen, ontoggle: () => this.#noteOpen(section, title, fill) },
      el("summary", {}, icon("chevron"), title, count !== null && el("span", { className: "count" }, String(count))),
      body,
    );
    if (isOpen) fill();
    return section;
  }

  #noteOpen(section, title, fill) {
    if (section.open) {
      this.#open.add(title);
      fill();
    } else {
      this.#open.delete(title);
    }
  }

  #readRequest(step, body) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(async () => {
      if (step !== this.#step) return;
      try {
        replaceChildren(body, modelRequest(await this.client.getModelRequest(this.conversationId, step.seq)));
      } catch (problem) {
        replaceChildren(body, el("p", { className: "error" }, problem.message));
      }
    }, SETTLED);
    return el("p", { className: "quiet" }, "Reading…");
  }

  #forkButton(step) {
    const rests = isRest(step.state.type);
    const words = rests ? "Fork from here" : "Fork from the rest before this step";
    const properties = { type: "button", className: "button small", title: words, "aria-label": words };
    const button = el("button", { ...properties, onclick: () => this.#fork(step.seq, button) }, icon("branch"), rests ? "Fork from here" : "Fork");
    return button;
  }

  async #fork(seq, button) {
    button.disabled = true;
    try {
      const { conversation } = await this.#copyUpTo(seq);
      emit(this, "forked", { conversationId: conversation.id });
    } catch (problem) {
      emit(this, "problem", { problem });
    }
    button.disabled = false;
  }

  /** Copy the conversation up to a step, or, as the button says, to the nearest possible one before it. */
  async #copyUpTo(seq) {
    try {
      return await this.client.forkConversation(this.conversationId, seq);
    } catch (problem) {
      const before = problem.steps?.find((step) => step < seq);
      if (before === undefined) throw problem;
      return await this.client.forkConversation(this.conversationId, before);
    }
  }
}

function effectsOf(effects) {
  if (effects.length === 0) return el("p", { className: "quiet" }, "None.");
  return effects.map((effect) =>
    el(
      "details",
      { className: "effect" },
      el("summary", {}, icon("chevron"), inWords(effect.type), effect.effect_id !== undefined && el("code", {}, `#${effect.effect_id}`)),
      json(effect),
    ),
  );
}

/** When a step happened, in the time zone of the reader. */
function timeOf(at) {
  const moment = new Date(at);
  const words = moment.toLocaleString("en", { dateStyle: "medium", timeStyle: "medium" });
  return el("time", { dateTime: at, title: at }, words);
}

customElements.define("turnwise-step", TurnwiseStep);
