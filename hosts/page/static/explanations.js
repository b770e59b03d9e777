// Explains the states and the lines of the map in words.

import { el } from "./dom.js";

/** What a state is for, and where it leads. `when` says when it is or was the state of the conversation, if it is the one
 * that is shown. `onPoint(lines)` is called for the lines whose entry is under the pointer. */
export function explainState(map, state, when, onPoint) {
  const ways = waysOut(map, state.type);
  return [
    el(
      "p",
      { className: "explained" },
      el("strong", {}, state.title),
      el("code", {}, state.name),
      when && el("span", { className: "chip accent" }, when),
    ),
    el("p", {}, withCode(state.description)),
    ways.length > 0 && el("ul", { className: "ways" }, ways.map((way) => entryOf(map, way, onPoint))),
  ];
}

/** The events that take a line, in each of its directions. */
export function explainLine(map, line) {
  const directions = [[line.source, line.target], ...(line.both ? [[line.target, line.source]] : [])];
  return directions.map(([source, target]) => {
    const { events, passedFrom } = map.traffic(source, target);
    return [
      el("p", { className: "explained" }, el("strong", {}, `${map.titleOf(source)} → ${map.titleOf(target)}`)),
      events.length > 0 && el("p", { className: "events" }, codes(events)),
      events.length === 0 && passedFrom.length > 0 && el("p", {}, `Passed on ways from ${listed(passedFrom.map((one) => map.titleOf(one)))}.`),
    ];
  });
}

/** Where a state leads, as [{targets, lines, events}]: what the same events can lead to stands together. */
function waysOut(map, type) {
  const found = new Map();
  for (const { line, isReversed } of map.lines.values()) {
    const [source, target] = isReversed ? [line.target, line.source] : [line.source, line.target];
    const beginning = source === "turn" ? [type, "turn", target] : [type, target];
    const taken = map.data.transitions.filter(({ route }) => startsWith(route, beginning));
    if ((source !== type && source !== "turn") || taken.length === 0) continue;
    const events = [...new Set(taken.flatMap((one) => one.events))];
    const way = found.get(events.join(" ")) ?? { targets: [], lines: [], events };
    way.targets.push(target);
    way.lines.push(line);
    found.set(events.join(" "), way);
  }
  return [...found.values()];
}

function entryOf(map, { targets, lines, events }, onPoint) {
  return el(
    "li",
    { onpointerenter: () => onPoint(lines) },
    el("span", { className: "events" }, codes(events)),
    el("span", {}, `→ ${targets.map((target) => map.titleOf(target)).join(", ")}`),
  );
}

function startsWith(route, beginning) {
  return beginning.every((node, index) => route[index] === node);
}

function codes(events) {
  return events.map((event) => el("code", {}, event));
}

function listed(words) {
  return words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words.join("");
}

/** A sentence whose names between backticks are shown as code. */
function withCode(sentence) {
  return sentence.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));
}
