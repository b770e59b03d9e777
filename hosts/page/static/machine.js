// <turnwise-machine>: the machine as a drawing. It shows in which state a conversation is, and which way it came.
//
//   element.map = new MachineMap(await client.getMachine())
//   element.show([{seq, route, event}, …], isLive)     up to `TRAIL` steps, the last of which is the one to show, and
//                                                 whether it is the newest one;
//                                                 its `event` is null while only its state is known
//
// The states are one stop of the Tab key; the arrow keys go from one to the next. Whatever has the focus or is under the
// pointer is explained below the drawing, by the same words for everybody.

import { el, replaceChildren, svg } from "./dom.js";
import { explainLine, explainState } from "./explanations.js";
import { arrowHead, rounded } from "./outlines.js";

export const TRAIL = 8; // how many steps back the way is drawn, each fainter than the one after it
const CORNER = 9; // the radius of the bends of lines
const HEAD = 7; // the length of the heads of arrows
const LIT_HEAD = 10; // that of the newest step
const LINE_HEIGHT = 15; // between two lines of a title

const KINDS = { rest: "at rest", busy: "busy", person: "waits for a person", end: "the end" };
const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

class TurnwiseMachine extends HTMLElement {
  #map = null;
  #steps = [];
  #isLive = true;
  #states = new Map();
  #trail = svg("g", { class: "trail", "aria-hidden": "true" });
  #numbers = svg("g", { class: "numbers", "aria-hidden": "true" });
  #text = el("p", { className: "visually-hidden" });
  #explanation = el("div", { className: "machine-explanation" });
  #explained = null;
  #shown = null;

  /** Draw a map. */
  set map(map) {
    this.#map = map;
    this.#shown = null;
    this.#states.clear();
    const { width, height } = map.data;
    const drawing = svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, class: "machine", role: "group", "aria-label": "The machine" },
      this.#drawFrame(),
      svg("g", {}, map.data.lines.map((line) => this.#drawLine(line))),
      this.#trail,
      svg("circle", { class: "origin", cx: map.data.lines[0].points[0][0], cy: map.data.lines[0].points[0][1], r: 5 }),
      map.data.states.map((state) => this.#drawState(state)),
      this.#numbers,
    );
    drawing.addEventListener("keydown", (event) => this.#move(event));
    drawing.addEventListener("pointerleave", () => this.#explain(null));
    drawing.addEventListener("focusout", () => this.#explain(null));
    replaceChildren(this, this.#text, drawing, legend(), this.#explanation);
    this.show(this.#steps, this.#isLive);
  }

  /** Show where the last of these steps has led, and the way of the steps before it. */
  show(steps, isLive = true) {
    const name = [isLive, ...steps.map(({ seq, route }) => [seq, ...route].join(" "))].join();
    this.#steps = steps;
    this.#isLive = isLive;
    if (!this.#map || name === this.#shown) return;
    this.#shown = name;
    const last = this.#steps.at(-1) ?? null;
    const current = last?.route.at(-1) ?? null;
    for (const [type, group] of this.#states) {
      const isCurrent = type === current;
      group.classList.toggle("current", isCurrent);
      if (isCurrent) group.setAttribute("aria-current", "step");
      else group.removeAttribute("aria-current");
      group.setAttribute("aria-label", this.#labelOf(type, isCurrent));
    }
    this.#settleTabStop(current);
    this.#drawTrail();
    const text = this.#textOf(last);
    if (this.#text.textContent !== text) this.#text.textContent = text;
    this.#explain(null);
  }

  // --- drawing

  #drawFrame() {
    const { points, title } = this.#map.data.frame;
    const [left, top] = points[0];
    return svg(
      "g",
      { class: "frame" },
      svg("path", { d: `${rounded([...points, points[0]], 14, true)}Z` }),
      svg("text", { x: left + 14, y: top + 22 }, title),
    );
  }

  #drawLine(line) {
    const group = svg(
      "g",
      { class: "line", "data-line": nameOf(line) },
      svg("path", { class: "touch", d: rounded(line.points, CORNER) }),
      svg("path", { class: "stroke", d: rounded(line.points, CORNER) }),
      head(line.points, HEAD),
      line.both && head(line.points.toReversed(), HEAD),
    );
    group.addEventListener("pointerenter", () => this.#explain({ line }));
    return group;
  }

  #drawState(state) {
    const { box_width: width, box_height: height } = this.#map.data;
    const lines = wrapped(state.title);
    const top = state.y - ((lines.length - 1) * LINE_HEIGHT) / 2;
    const group = svg(
      "g",
      { class: `state ${state.kind} ${state.type}`, role: "button", tabindex: -1, "data-state": state.type },
      svg("rect", { x: state.x - width / 2, y: state.y - height / 2, width, height, rx: radiusOf(state, height) }),
      state.kind === "end" &&
        svg("rect", { class: "inner", x: state.x - width / 2 + 3.5, y: state.y - height / 2 + 3.5, width: width - 7, height: height - 7, rx: 7 }),
      svg("text", {}, lines.map((line, index) => titleLine(line, state.x, top + index * LINE_HEIGHT))),
    );
    group.addEventListener("pointerenter", () => this.#explain({ state }));
    group.addEventListener("focus", () => this.#explain({ state }));
    group.addEventListener("click", () => group.focus());
    this.#states.set(state.type, group);
    return group;
  }

  /** Draw the way of the newest steps over the lines, and write at each state the number of the step that led there. */
  #drawTrail() {
    const numbers = new Map();
    const paths = this.#steps.map((step, index) => {
      const age = this.#steps.length - 1 - index;
      numbers.set(step.route.at(-1), { seq: step.seq, age });
      return svg("g", { class: age === 0 ? "way newest" : "way", "data-age": age }, this.#wayOf(step, age));
    });
    replaceChildren(this.#trail, paths);
    replaceChildren(this.#numbers, [...numbers].map(([type, number]) => this.#drawNumber(type, number)));
    for (const [type, group] of this.#states) group.classList.toggle("visited", numbers.has(type));
    const passed = new Set(this.#steps.at(-1)?.route.slice(1, -1));
    for (const [type, group] of this.#states) group.classList.toggle("passed", passed.has(type));
    const isOutOfFrame = this.#steps.at(-1)?.route.includes("turn") ?? false;
    this.querySelector(".frame").classList.toggle("left", isOutOfFrame);
  }

  #wayOf(step, age) {
    const lines = this.#map.linesOf(step.route);
    return lines.map(({ line, isReversed }, index) => {
      const points = isReversed ? line.points.toReversed() : line.points;
      const isEnd = index === lines.length - 1;
      return [svg("path", { class: "stroke", d: rounded(points, CORNER), pathLength: 1 }), isEnd && age === 0 && head(points, LIT_HEAD)];
    });
  }

  #drawNumber(type, { seq, age }) {
    const { x, y } = this.#map.states.get(type);
    const { box_width: width, box_height: height } = this.#map.data;
    const text = String(seq);
    const size = 11 + 6.2 * text.length;
    const [left, top] = [x + width / 2 - size + 5, y - height / 2 - 8];
    return svg(
      "g",
      { class: "number", "data-age": age, "data-state": type },
      svg("rect", { x: left, y: top, width: size, height: 16, rx: 8 }),
      svg("text", { x: left + size / 2, y: top + 8 }, text),
    );
  }

  // --- words

  #labelOf(type, isCurrent) {
    const { title, kind } = this.#map.states.get(type);
    return [title, KINDS[kind], isCurrent && (this.#isLive ? "the current state" : `the state at ${this.#when}`)].filter(Boolean).join(", ");
  }

  /** When the state that is lit is, or was, that of the conversation. */
  get #when() {
    return this.#isLive ? "now" : `step ${this.#steps.at(-1)?.seq}`;
  }

  #textOf(last) {
    if (last === null) return "No step is shown.";
    if (last.event === null) return `The conversation is in ${this.#map.titleOf(last.route[0])}.`;
    const titles = last.route.map((node) => this.#map.titleOf(node));
    if (titles.length === 1) return `Step ${last.seq}: ${last.event}. The conversation stays in ${titles[0]}.`;
    const over = titles.length > 2 ? ` over ${titles.slice(1, -1).join(", ")}` : "";
    return `Step ${last.seq}: ${last.event}. From ${titles[0]}${over} to ${titles.at(-1)}.`;
  }

  /** Explain a state or a line; without either, the current state. */
  #explain(wanted) {
    const current = this.#steps.at(-1)?.route.at(-1);
    const focused = this.#map.states.get(this.querySelector(".state:focus")?.dataset.state);
    const shown = wanted ?? (focused ? { state: focused } : { state: this.#map.states.get(current) });
    const name = shown.line ? nameOf(shown.line) : (shown.state?.type ?? "");
    const isCurrent = name === current;
    const when = isCurrent ? this.#when : null;
    if (this.#explained === `${name} ${when}`) return;
    this.#explained = `${name} ${when}`;
    this.#point(shown.line ? [shown.line] : this.#linesAt(shown.state));
    if (shown.line) replaceChildren(this.#explanation, explainLine(this.#map, shown.line));
    else if (shown.state) replaceChildren(this.#explanation, explainState(this.#map, shown.state, when, (lines) => this.#point(lines)));
    else replaceChildren(this.#explanation);
  }

  /** Mark these lines in the drawing. */
  #point(lines) {
    const names = new Set(lines.map(nameOf));
    for (const group of this.querySelectorAll(".line")) group.classList.toggle("pointed", names.has(group.dataset.line));
  }

  /** The lines of a state that has the focus or is under the pointer. */
  #linesAt(state) {
    const isPointed = state && this.querySelector(".state:focus, .state:hover")?.dataset.state === state.type;
    return isPointed ? this.#map.data.lines.filter((line) => line.source === state.type || line.target === state.type) : [];
  }

  // --- keyboard

  #settleTabStop(current) {
    const focused = this.querySelector(".state:focus");
    const stop = focused ?? this.#states.get(current ?? "idle");
    for (const group of this.#states.values()) group.setAttribute("tabindex", group === stop ? 0 : -1);
  }

  #move(event) {
    const direction = ARROWS[event.key];
    const from = this.#map.states.get(event.target.dataset?.state);
    if (!direction || !from) return;
    event.preventDefault();
    const next = nearest(this.#map.data.states, from, direction);
    if (!next) return;
    this.#states.get(next.type).focus();
    this.#settleTabStop(null);
  }
}

function legend() {
  const entries = Object.entries(KINDS).map(([kind, words]) => el("li", {}, el("span", { className: `swatch ${kind}` }), words));
  return el("ul", { className: "machine-legend", "aria-label": "Kinds of states" }, entries);
}

function head(points, length) {
  return svg("path", { class: "head", d: arrowHead(points, length) });
}

/** A title on one line or two, as equally long as its words allow. */
function wrapped(title) {
  if (title.length <= 13) return [title];
  const words = title.split(" ");
  const splits = words.slice(1).map((_, index) => [words.slice(0, index + 1).join(" "), words.slice(index + 1).join(" ")]);
  const longest = (lines) => Math.max(...lines.map((line) => line.length));
  return splits.reduce((one, other) => (longest(other) < longest(one) ? other : one));
}

/** The next state in a direction: the nearest one, where a distance across counts twice. */
function nearest(states, from, [across, down]) {
  const distance = (state) => {
    const [x, y] = [state.column - from.column, state.row - from.row];
    const along = x * across + y * down;
    return along > 0 ? along + 2 * Math.abs(x * down + y * across) : Infinity;
  };
  const best = states.reduce((one, other) => (distance(other) < distance(one) ? other : one));
  return distance(best) === Infinity ? null : best;
}

/** A line of a title. The space behind it has a place of its own, so that the line stands in the middle. */
function titleLine(line, x, y) {
  return [svg("tspan", { x, y }, line), svg("tspan", { x, y }, " ")];
}

function radiusOf(state, height) {
  return state.kind === "rest" ? height / 2 : 9;
}

function nameOf(line) {
  return `${line.source} ${line.target}`;
}

customElements.define("turnwise-machine", TurnwiseMachine);
