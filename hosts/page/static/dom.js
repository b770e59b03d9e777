// Makes elements. Text is always set as text: nothing here, or anywhere in the page, turns a string into markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Return a new element `name` with these properties and children.
 *
 * A property that the element has is set on it (`className`, `htmlFor`, `disabled`, a listener such as `onclick`;
 * `dataset` takes an object); any other one becomes an attribute (`aria-label`, `role`). Undefined, null and false leave an attribute out. Children are
 * nodes, strings, or arrays of them; what is null, undefined or false is left out.
 */
export function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  setProperties(element, properties);
  element.append(...present(children));
  return element;
}

/** Return a new SVG element with these attributes and children. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value);
  }
  element.append(...present(children));
  return element;
}

function setProperties(element, properties) {
  for (const [key, value] of Object.entries(properties)) {
    if (key === "dataset") Object.assign(element.dataset, value);
    else if (key in element) element[key] = value ?? "";
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value);
    else element.removeAttribute(key);
  }
}

/** Replace all children of an element; the children are given as to `el`. */
export function replaceChildren(element, ...children) {
  element.replaceChildren(...present(children));
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** The outlines of the icons, on a grid of 16 by 16. */
const ICONS = {
  again: "M13 8a5 5 0 1 1-1.5-3.6L13 6m0-3.5V6H9.5",
  alert: "M8 2 15 14H1L8 2Zm0 4.5v3.5m0 1.9v.1",
  branch: "M4.5 4.5v7m0 0a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3Zm0-7a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Zm7 0a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Zm0 0v1.5a3 3 0 0 1-3 3h-4",
  check: "m3 8.5 3.2 3.2L13 4.8",
  clip: "m13 7.5-5.2 5.2a3.2 3.2 0 0 1-4.5-4.5l5.6-5.6a2.1 2.1 0 0 1 3 3L6.3 11.2a1 1 0 0 1-1.5-1.5L9.6 5",
  chevron: "m6 3.5 4.5 4.5L6 12.5",
  clock: "M8 4.5V8l2.5 1.5M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12Z",
  close: "m3.5 3.5 9 9m0-9-9 9",
  expand: "M9.5 2.5h4v4m0-4L9 7M6.5 13.5h-4v-4m0 4L7 9",
  file: "M9.5 2H4v12h8V4.5L9.5 2Zm0 0v2.5H12",
  down: "M8 3v10m0 0 4-4m-4 4L4 9",
  menu: "M2 4h12M2 8h12M2 12h12",
  panel: "M2.5 3h11v10h-11zM9.5 3v10",
  pencil: "M10.5 3 13 5.5 5.5 13H3v-2.5L10.5 3Z",
  plus: "M8 3v10M3 8h10",
  send: "M8 13V3m0 0L4 7m4-4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
  theme: "M8 2a6 6 0 1 0 0 12V2Zm0 0a6 6 0 0 1 0 12",
  tool: "M9.8 5.2a3 3 0 0 1 3.9-3L11.8 4l.3 1.6 1.6.3 1.8-1.9a3 3 0 0 1-3.9 3.9L6 13.5A1.8 1.8 0 0 1 3.5 11l5.6-5.6c.4-.1.6-.2.7-.2Z",
  trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5 5 13.5h6l.5-9M6.8 7v4m2.4-4v4",
};

/** Return an icon. It is hidden from screen readers: what shows it has a label or a text of its own. */
export function icon(name) {
  const shape = svg("path", { d: ICONS[name], "stroke-linecap": "round", "stroke-linejoin": "round" });
  return svg("svg", { viewBox: "0 0 16 16", class: `icon icon-${name}`, "aria-hidden": "true", focusable: "false" }, shape);
}

/** Return a button that shows an icon only. Its label is its name, and shown when the pointer rests on it. */
export function iconButton(name, label, onclick, properties = {}) {
  return el("button", { type: "button", className: "icon-button", "aria-label": label, title: label, onclick, ...properties }, icon(name));
}

/** Ask the elements around `element` for something by an event, which bubbles. */
export function emit(element, type, detail = {}) {
  element.dispatchEvent(new CustomEvent(type, { detail, bubbles: true, composed: true }));
}
