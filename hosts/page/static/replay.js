// Replays a conversation and shows the verdict: every step comes out as it was stored, or the first that does not.

import { el, icon } from "./dom.js";
import { json } from "./json.js";
import { inWords } from "./words.js";

/** Return the elements that show an answer of `GET /conversations/{id}/replay`. `onShow(seq)` goes to a step. */
export function verdict({ events, divergence }, onShow) {
  if (!divergence) {
    const sentence = events === 1 ? "The only step comes out as it was stored." : `All ${events} steps come out as they were stored.`;
    return el("p", { className: "verdict ok" }, icon("check"), sentence);
  }
  const [expected, actual] = [linesOf(divergence.expected), linesOf(divergence.actual)];
  return el(
    "div",
    { className: "verdict bad" },
    el("p", {}, icon("alert"), el("strong", {}, `Step ${divergence.seq} does not come out as it was stored.`)),
    el("p", {}, divergence.reason),
    divergence.seq > 1 && el("button", { type: "button", className: "button small", onclick: () => onShow(divergence.seq - 1) }, `Show step ${divergence.seq - 1}`),
    divergence.event && el("details", { className: "effect" }, el("summary", {}, icon("chevron"), `Its event: ${inWords(divergence.event.type)}`), json(divergence.event)),
    el("div", { className: "compared" }, side("As stored", expected, actual), side("As it comes out now", actual, expected)),
  );
}

function side(title, lines, others) {
  const known = new Set(others);
  const differs = (line) => !known.has(line);
  return el(
    "section",
    {},
    el("h4", {}, title),
    lines.length === 0
      ? el("p", { className: "quiet" }, "Nothing.")
      : el("pre", { tabIndex: 0 }, lines.map((line) => (differs(line) ? el("mark", {}, `${line}\n`) : `${line}\n`))),
  );
}

function linesOf(outcome) {
  return outcome ? pretty(outcome).split("\n") : [];
}

function pretty(value) {
  return JSON.stringify(value, null, 2);
}
