// Shows JSON as elements: names and values in colours of their own, long texts and long lists cut short until asked for.

import { el } from "./dom.js";
import { isLongNumber, textFor } from "./exact_json.js";

const LONGEST_TEXT = 400;
const MOST_MEMBERS = 50;

/** Return the elements that show a value of JSON. */
export function json(value) {
  return el("div", { className: "json" }, valueOf(value));
}

function valueOf(value) {
  if (Array.isArray(value)) return membersOf(value.map((member) => [null, member]), "[", "]");
  if (value !== null && typeof value === "object" && !isLongNumber(value)) return membersOf(Object.entries(value), "{", "}");
  if (typeof value === "string") return textOf(value);
  return el("span", { className: "json-atom" }, textFor(value));
}

function membersOf(members, open, close) {
  if (members.length === 0) return el("span", { className: "json-mark" }, open + close);
  const list = el("ul", {}, members.slice(0, MOST_MEMBERS).map(memberOf));
  if (members.length > MOST_MEMBERS) list.append(moreOf(members.slice(MOST_MEMBERS), list));
  return [el("span", { className: "json-mark" }, open), list, el("span", { className: "json-mark" }, close)];
}

function memberOf([name, value]) {
  return el("li", {}, name !== null && [el("span", { className: "json-name" }, name), ": "], valueOf(value));
}

function moreOf(members, list) {
  const more = el("li", {}, button(`${members.length} more`, () => {
    more.replaceWith(...members.slice(0, MOST_MEMBERS).map(memberOf));
    if (members.length > MOST_MEMBERS) list.append(moreOf(members.slice(MOST_MEMBERS), list));
  }));
  return more;
}

function textOf(text) {
  if (text.length <= LONGEST_TEXT) return el("span", { className: "json-text" }, JSON.stringify(text));
  const shown = el("span", { className: "json-text" }, `${JSON.stringify(text.slice(0, LONGEST_TEXT)).slice(0, -1)}…`);
  const more = button(`${text.length - LONGEST_TEXT} more characters`, () => {
    shown.textContent = JSON.stringify(text);
    more.remove();
  });
  return [shown, " ", more];
}

function button(words, onclick) {
  return el("button", { type: "button", className: "link-button", onclick }, words);
}
