// <turnwise-inspector>: looks into a conversation. The machine with its state and its way, the steps on a tape, the
// agents as a tree, the outbox; what all has cost, and whether the log replays as it was stored.
//
//   element.client, element.conversationId
//   element.show(view)       at most once a frame
//
// Nothing is read from the server while the inspector is out of sight.

import "./outbox.js";
import "./step.js";
import "./step_list.js";
import "./tape.js";
import "./tree.js";
import { el, emit, iconButton, replaceChildren } from "./dom.js";
import { TRAIL } from "./machine.js";
import { verdict } from "./replay.js";
import { MachineMap } from "./routes.js";
import { newestStep, Steps } from "./steps.js";
import { count, inWords, usageDetails, usageText } from "./words.js";

const TABS = { machine: "Machine", steps: "Steps", agents: "Agents", outbox: "Outbox" };

class TurnwiseInspector extends HTMLElement {
  #client = null;
  #conversationId = null;
  #view = null;
  #map = null;
  #steps = null;
  #chosen = null; // the step that is shown; null for the newest, whichever it is
  #tab = "machine";
  #frame = 0;
  #turns = -1; // how many had ended when the usage was read
  #delivered = null; // the items of the view when the outbox was read
  #isReadingMap = false;
  #isReached = true;
  #mapProblem = null;
  #shownProblem = { problem: null, divergence: null };
  #titleOf = inWords; // until there is a map

  #tabs = new Map();
  #panels = new Map();
  #machine = el("turnwise-machine");
  #tape = el("turnwise-tape");
  #list = el("turnwise-step-list");
  #step = el("turnwise-step");
  #tree = el("turnwise-tree");
  #outbox = el("turnwise-outbox");
  #usage = el("span", { className: "usage" });
  #verdict = el("div", { role: "status" });
  #notice = el("div", { className: "steps-notice" });
  #empty = el("p", { className: "empty" }, "Choose a conversation to look into it.");

  set client(client) {
    this.#client = client;
    for (const element of [this.#step, this.#tree, this.#outbox]) element.client = client;
  }

  set conversationId(id) {
    this.#steps?.close();
    this.#conversationId = id;
    this.#steps = id ? new Steps(this.#client, id, () => this.#renderLater()) : null;
    this.#chosen = null;
    this.#view = null;
    this.#turns = -1;
    this.#delivered = null;
    this.#mapProblem = null;
    for (const element of [this.#step, this.#tree, this.#outbox]) element.conversationId = id;
    this.#usage.textContent = "";
    replaceChildren(this.#verdict);
    this.#renderLater();
  }

  /** Show a conversation, of which `view` is what is known. */
  show(view) {
    const isSame = ["lastId", "turns", "items"].every((key) => this.#view && view[key] === this.#view[key]);
    this.#view = view;
    if (!isSame) this.#renderLater();
  }

  connectedCallback() {
    if (this.firstChild) return;
    this.#build();
    this.addEventListener("scrub", (event) => this.#scrub(event.detail));
    const column = this.closest(".column") ?? this;
    new MutationObserver(() => this.#renderLater()).observe(column, { attributeFilter: ["inert"] });
    this.#choose(this.#tab);
  }

  // --- what it is made of

  #build() {
    const bar = el("div", { role: "tablist", "aria-label": "Inspector", className: "tabs", onkeydown: (event) => this.#moveTab(event) });
    for (const [name, title] of Object.entries(TABS)) this.#tabs.set(name, this.#tabOf(name, title));
    bar.append(...this.#tabs.values());
    const replay = el("button", { type: "button", className: "button small", onclick: () => this.#replay(replay) }, "Replay");
    this.#panelOf("machine", this.#machine);
    this.#panelOf("steps", el("div", { className: "steps-bar" }, replay, this.#usage), this.#verdict, this.#list, this.#step);
    this.#panelOf("agents", this.#tree);
    this.#panelOf("outbox", this.#outbox);
    const fullScreen = iconButton("expand", "Full screen", () => this.#toggleFullScreen(), { hidden: !document.fullscreenEnabled });
    replaceChildren(this, el("header", { className: "inspector-header" }, bar, fullScreen), this.#empty, [...this.#panels.values()], this.#notice, this.#tape);
  }

  #tabOf(name, title) {
    const properties = { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, dataset: { tab: name } };
    return el("button", { ...properties, onclick: () => this.#choose(name) }, title);
  }

  #panelOf(name, ...children) {
    const properties = { id: `panel-${name}`, role: "tabpanel", className: `panel panel-${name}`, "aria-labelledby": `tab-${name}` };
    this.#panels.set(name, el("section", properties, children));
  }

  #choose(name) {
    this.#tab = name;
    for (const [one, tab] of this.#tabs) {
      tab.setAttribute("aria-selected", String(one === name));
      tab.tabIndex = one === name ? 0 : -1;
    }
    this.#renderLater();
    this.#render();
  }

  #moveTab(event) {
    const names = [...this.#tabs.keys()];
    const place = names.indexOf(this.#tab);
    const targets = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: -1 };
    if (!(event.key in targets)) return;
    event.preventDefault();
    const name = names.at(targets[event.key] % names.length);
    this.#choose(name);
    this.#tabs.get(name).focus();
  }

  #toggleFullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.requestFullscreen();
  }

  // --- showing it

  #renderLater() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#render();
    });
  }

  #render() {
    const isShown = this.isConnected && !this.closest("[inert]") && this.checkVisibility();
    const hasConversation = this.#conversationId !== null && this.#conversationId !== undefined;
    this.#tree.isShown = isShown && hasConversation && this.#tab === "agents";
    if (!isShown) return;
    this.#empty.hidden = hasConversation;
    for (const [name, panel] of this.#panels) panel.hidden = name !== this.#tab || (!hasConversation && name !== "machine");
    const hasTape = hasConversation && ["machine", "steps"].includes(this.#tab);
    this.#tape.hidden = this.#notice.hidden = !hasTape;
    this.#readMap();
    if (!hasConversation) return this.#machine.show([]);
    if (this.#view?.lastId) this.#steps.extendTo(newestStep(this.#view.lastId));
    this.#refreshUsage();
    if (this.#tab === "outbox") this.#refreshOutbox();
    if (hasTape) this.#renderSteps();
  }

  #renderSteps() {
    const { last } = this.#steps;
    const seq = Math.min(this.#chosen ?? last, last);
    const step = this.#steps.at(seq);
    const titleOf = this.#titleOf;
    this.#showProblem();
    this.#tape.show({ seq, last, isLive: this.#chosen === null, step, titleOf });
    if (this.#tab === "machine" && this.#map) this.#showMachine(seq, step);
    if (this.#tab !== "steps") return;
    this.#list.show({ steps: this.#steps, seq, titleOf });
    this.#step.show({ step, before: this.#steps.at(seq - 1), titleOf });
  }

  /** Light the state of a step; as long as the newest step is being read, the state that the updates tell. */
  #showMachine(seq, step) {
    const isLive = seq >= this.#steps.last;
    if (step) this.#machine.show(this.#trailTo(seq), isLive);
    else if (this.#chosen === null && this.#view?.known) this.#machine.show([{ seq, event: null, route: [this.#view.state.type] }]);
  }

  /** The newest steps up to `seq` with the way that each took, for the drawing. */
  #trailTo(seq) {
    return this.#steps.between(seq - TRAIL + 1, seq).map((step) => {
      const before = step.seq === 1 ? null : (this.#steps.at(step.seq - 1)?.state.type ?? step.state.type);
      return { seq: step.seq, event: step.event.type, route: this.#map.routeOf(before, step.passed, step.state.type) };
    });
  }

  #showProblem() {
    const { divergence } = this.#steps;
    const problems = [this.#mapProblem, this.#steps.problem];
    const problem = problems.find((one) => one && (this.#isReached || one.code !== "unreachable")) ?? null;
    if (this.#shownProblem.problem === problem && this.#shownProblem.divergence === divergence) return;
    this.#shownProblem = { problem, divergence };
    const retry = el("button", { type: "button", className: "link-button", onclick: () => this.#retry() }, "Try again");
    if (problem) replaceChildren(this.#notice, el("p", { className: "error" }, problem.message, " ", retry));
    else if (divergence) {
      const sentence = `Steps from ${divergence.seq} on cannot be shown: another version of the machine made them. Replay says more.`;
      replaceChildren(this.#notice, el("p", { className: "error" }, sentence));
    } else replaceChildren(this.#notice);
  }

  /** Whether the server can be reached. As long as it cannot, the page says so, and not each part of it. */
  set isReached(isReached) {
    this.#isReached = isReached;
    this.#renderLater();
  }

  /** Read what could not be read as long as the server could not be reached. */
  readAgain() {
    if (this.#mapProblem !== null || this.#steps?.problem) this.#retry();
    if (this.#outbox.isUnread) this.#outbox.refresh();
  }

  #retry() {
    this.#mapProblem = null;
    this.#steps.retry();
  }

  // --- scrubbing

  #scrub({ seq, show = false }) {
    this.#chosen = seq !== null && seq >= this.#steps.last ? null : seq;
    if (show) {
      this.#choose("steps");
      this.#tabs.get("steps").focus();
    }
    this.#renderLater();
  }

  // --- what is read beside the steps

  async #readMap() {
    if (this.#map || this.#isReadingMap || this.#mapProblem) return;
    this.#isReadingMap = true;
    try {
      this.#map = new MachineMap(await this.#client.getMachine());
      this.#machine.map = this.#map;
      this.#titleOf = (type) => this.#map.titleOf(type);
      this.#renderLater();
    } catch (problem) {
      this.#mapProblem = problem;
      this.#renderLater();
    }
    this.#isReadingMap = false;
  }

  async #refreshUsage() {
    const turns = this.#view?.turns.size ?? 0;
    if (turns === this.#turns || this.#tab !== "steps") return;
    this.#turns = turns;
    const id = this.#conversationId;
    const usage = await this.#client.getUsage(id).catch(() => null);
    if (id !== this.#conversationId || !usage) return;
    const words = usageText(usage);
    const counted = turns === 1 ? "1 turn" : `${count(turns)} turns`;
    this.#usage.textContent = [turns > 0 && counted, words].filter(Boolean).join(" · ");
    this.#usage.title = usageDetails(usage);
  }

  #refreshOutbox() {
    if (this.#view === null || this.#view.items === this.#delivered) return;
    this.#delivered = this.#view.items;
    this.#outbox.refresh();
  }

  async #replay(button) {
    const id = this.#conversationId;
    button.disabled = true;
    replaceChildren(this.#verdict, el("p", { className: "quiet" }, "Replaying…"));
    try {
      const report = await this.#client.replayConversation(id);
      if (id === this.#conversationId) replaceChildren(this.#verdict, verdict(report, (seq) => this.#scrub({ seq })));
    } catch (problem) {
      if (id === this.#conversationId) replaceChildren(this.#verdict);
      emit(this, "problem", { problem });
    }
    button.disabled = false;
  }
}

customElements.define("turnwise-inspector", TurnwiseInspector);
