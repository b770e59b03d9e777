// <turnwise-tape>: the steps of a conversation on a tape, with a slider to scrub, as the player of a recording has one.
//
//   element.show({ seq, last, isLive, step, titleOf })
//
// It emits `scrub` {seq}; a `seq` of null means: go to the newest step and stay there.

import { el, emit, iconButton } from "./dom.js";
import { inWords } from "./words.js";

class TurnwiseTape extends HTMLElement {
  #slider = el("input", { type: "range", min: 1, max: 1, value: 1, step: 1, className: "tape-slider", "aria-label": "Step" });
  #where = el("span", { className: "tape-where" });
  #when = el("span", { className: "tape-when" });
  #what = el("span", { className: "tape-what" });
  #live = el("button", { type: "button", className: "tape-live", onclick: () => emit(this, "scrub", { seq: null }) }, "Live");
  #back = iconButton("chevron", "Previous step", () => this.#by(-1), { className: "icon-button back" });
  #forward = iconButton("chevron", "Next step", () => this.#by(1));
  #seq = 0;
  #last = 0;

  connectedCallback() {
    if (this.firstChild) return;
    this.#slider.addEventListener("input", () => this.#scrub(Number(this.#slider.value)));
    this.append(
      el("div", { className: "tape-text" }, this.#where, this.#when, this.#what),
      el("div", { className: "tape-bar" }, this.#back, this.#slider, this.#forward, this.#live),
    );
  }

  /** Show the step `seq` of `last` steps; `step` is undefined as long as it is being read. */
  show({ seq, last, isLive, step, titleOf }) {
    [this.#seq, this.#last] = [seq, last];
    const isEmpty = last === 0;
    this.#slider.disabled = isEmpty;
    this.#slider.max = Math.max(1, last);
    this.#slider.value = Math.max(1, seq);
    this.#back.disabled = seq <= 1;
    this.#forward.disabled = seq >= last;
    this.#live.setAttribute("aria-pressed", String(isLive));
    this.#where.textContent = isEmpty ? "Reading the steps…" : `Step ${seq} of ${last}`;
    this.#when.textContent = step ? `turn ${step.turn} · ${new Date(step.at).toLocaleTimeString("en")}` : "";
    this.#what.textContent = step ? `${inWords(step.event.type)} → ${titleOf(step.state.type)}` : "";
    this.#slider.setAttribute("aria-valuetext", step ? `${this.#where.textContent}: ${this.#what.textContent}` : this.#where.textContent);
  }

  #by(distance) {
    this.#scrub(Math.min(this.#last, Math.max(1, this.#seq + distance)));
  }

  #scrub(seq) {
    emit(this, "scrub", { seq: seq >= this.#last ? null : seq });
  }
}

customElements.define("turnwise-tape", TurnwiseTape);
