// <turnwise-step-list>: all steps of a conversation as a list, of which only those in sight are elements.
//
//   element.show({ steps, seq, titleOf })
//
// One stop of the Tab key; the arrow keys, Page Up and Down, Home and End choose a step. It emits `scrub` {seq}.

import { el, emit, replaceChildren } from "./dom.js";
import { inWords } from "./words.js";

const HEIGHT = 34; // of a row, in pixels, as in inspector.css
const MARGIN = 6; // rows above and below those in sight
const PER_PAGE = 10; // rows that Page Up and Page Down pass

class TurnwiseStepList extends HTMLElement {
  #rows = el("div", { className: "step-rows" });
  #shown = { steps: null, seq: 0, titleOf: String };
  #sought = 0;

  connectedCallback() {
    if (this.firstChild) return;
    this.setAttribute("role", "listbox");
    this.setAttribute("aria-label", "Steps");
    this.tabIndex = 0;
    this.append(this.#rows);
    this.addEventListener("scroll", () => this.#render(), { passive: true });
    this.addEventListener("keydown", (event) => this.#move(event));
    new ResizeObserver(() => this.#render()).observe(this);
  }

  /** Show the steps, and the step `seq` as chosen. */
  show(shown) {
    this.#shown = shown;
    this.#rows.style.height = `${shown.steps.last * HEIGHT}px`;
    if (this.clientHeight > 0 && this.#sought !== shown.seq) {
      this.#sought = shown.seq;
      this.#reveal(shown.seq);
    }
    this.#render();
  }

  #reveal(seq) {
    const top = (seq - 1) * HEIGHT;
    if (top < this.scrollTop) this.scrollTop = top;
    else if (top + HEIGHT > this.scrollTop + this.clientHeight) this.scrollTop = top + HEIGHT - this.clientHeight;
  }

  #render() {
    const { steps, seq } = this.#shown;
    if (!steps || this.clientHeight === 0) return;
    const first = Math.max(1, Math.floor(this.scrollTop / HEIGHT) + 1 - MARGIN);
    const last = Math.min(steps.last, Math.ceil((this.scrollTop + this.clientHeight) / HEIGHT) + MARGIN);
    const rows = [];
    for (let one = first; one <= last; one += 1) rows.push(this.#row(one, steps.at(one), one === seq));
    replaceChildren(this.#rows, rows);
    const isRendered = seq >= first && seq <= last;
    if (isRendered) this.setAttribute("aria-activedescendant", `step-${seq}`);
    else this.removeAttribute("aria-activedescendant");
  }

  #row(seq, step, isChosen) {
    const row = el(
      "div",
      {
        id: `step-${seq}`,
        className: "step-row",
        role: "option",
        "aria-selected": String(isChosen),
        "aria-posinset": seq,
        "aria-setsize": this.#shown.steps.last,
        onclick: () => emit(this, "scrub", { seq }),
      },
      el("span", { className: "step-seq" }, String(seq)),
      el("span", {}, step ? inWords(step.event.type) : "…"),
      el("span", { className: "step-state" }, step ? this.#shown.titleOf(step.state.type) : ""),
    );
    row.style.top = `${(seq - 1) * HEIGHT}px`;
    return row;
  }

  #move(event) {
    const { seq, steps } = this.#shown;
    const targets = {
      ArrowDown: seq + 1, ArrowUp: seq - 1, PageDown: seq + PER_PAGE, PageUp: seq - PER_PAGE, Home: 1, End: steps.last,
    };
    if (!(event.key in targets)) return;
    event.preventDefault();
    const wanted = Math.min(steps.last, Math.max(1, targets[event.key]));
    emit(this, "scrub", { seq: wanted === steps.last ? null : wanted });
  }
}

customElements.define("turnwise-step-list", TurnwiseStepList);
