// Shows Markdown. The server reads it and answers with a tree of nodes; here the tree becomes elements, one by one.
// No string is ever read as markup: a tag, an attribute or an address that is not listed here is left out.

import { el } from "./dom.js";

const TAGS = new Set([
  "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong", "s", "a",
  "br", "hr", "table", "thead", "tbody", "tr", "th", "td",
]);
const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const ALIGNMENTS = new Set(["left", "center", "right"]);

/** The most texts in one request. */
const BATCH = 40;
/** The server answers with a longer text as it is. */
const LONGEST = 20_000;
/** After how many milliseconds texts are sent again if the server could not be reached. */
const SEND_AGAIN = 3000;
/** How many trees are remembered. */
const REMEMBERED = 400;

/** Return the nodes of a tree as new elements and texts. */
function nodesOf(tree) {
  return tree.map((node) => (typeof node === "string" ? document.createTextNode(node) : elementOf(node)));
}

function elementOf({ tag, children = [], href, start, align, language }) {
  const inner = nodesOf(children);
  if (!TAGS.has(tag)) return el("span", {}, inner);
  if (tag === "a") return isSafe(href) ? el("a", { href, target: "_blank", rel: "noopener noreferrer" }, inner) : el("span", {}, inner);
  if (tag === "table") return el("div", { className: "table-frame", tabIndex: 0, role: "group", "aria-label": "Table" }, el("table", {}, inner));
  const element = el(tag === "h1" || tag === "h2" ? "h3" : tag, {}, inner); // the page has its own h1 and h2
  if (tag === "ol" && Number.isInteger(start)) element.start = start;
  if (ALIGNMENTS.has(align)) element.dataset.align = align;
  if (tag === "pre") element.tabIndex = 0;
  if (tag === "pre" && typeof language === "string" && language) element.dataset.language = language;
  return element;
}

/** Return whether a link may lead to an address that a model wrote. */
export function isSafe(href) {
  try {
    return SCHEMES.has(new URL(href).protocol);
  } catch {
    return false; // relative addresses too: a text of a model does not know this server
  }
}

/** Fills elements with rendered Markdown. Texts are sent to the server together, and each is sent once. */
export class Markdown {
  #client;
  #onFilled;
  #trees = new Map();
  #waiting = new Map();
  #unsent = [];

  /** `onFilled` is called after elements were filled, which may have changed their height. */
  constructor(client, onFilled = () => {}) {
    this.#client = client;
    this.#onFilled = onFilled;
  }

  /** Show a text in an element: as it is until its tree is there, which may be at once. */
  fill(element, text) {
    const tree = this.#trees.get(text);
    if (tree) {
      show(element, tree);
      return;
    }
    element.classList.add("plain");
    element.textContent = text;
    if (!text.trim() || text.length > LONGEST) return;
    const elements = this.#waiting.get(text);
    if (elements) {
      elements.push(element);
      return;
    }
    this.#waiting.set(text, [element]);
    this.#sendLater(text);
  }

  #sendLater(text) {
    if (!this.#unsent.length) queueMicrotask(() => this.#send());
    this.#unsent.push(text);
  }

  async #send() {
    const texts = this.#unsent;
    this.#unsent = [];
    for (let begin = 0; begin < texts.length; begin += BATCH) await this.#render(texts.slice(begin, begin + BATCH));
  }

  async #render(texts) {
    try {
      const { trees } = await this.#client.renderMarkdown(texts);
      texts.forEach((text, index) => {
        this.#remember(text, trees[index]);
        for (const element of this.#waiting.get(text)) show(element, trees[index]);
        this.#waiting.delete(text);
      });
      this.#onFilled();
    } catch (problem) {
      const isRefused = problem.status >= 400 && problem.status < 500;
      if (!isRefused) setTimeout(() => this.#sendAgain(texts), SEND_AGAIN);
      else for (const text of texts) this.#waiting.delete(text);
    }
  }

  /** Send what is still shown as it was written. */
  #sendAgain(texts) {
    for (const text of texts) {
      const shown = this.#waiting.get(text).filter((element) => element.isConnected);
      if (shown.length) {
        this.#waiting.set(text, shown);
        this.#sendLater(text);
      } else this.#waiting.delete(text);
    }
  }

  #remember(text, tree) {
    this.#trees.set(text, tree);
    if (this.#trees.size > REMEMBERED) this.#trees.delete(this.#trees.keys().next().value);
  }
}

function show(element, tree) {
  element.classList.remove("plain");
  element.replaceChildren(...nodesOf(tree));
}
