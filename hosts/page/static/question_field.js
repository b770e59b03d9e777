// One question of a form: its options as radio buttons or checkboxes, "Other" with a text field, the preview of an
// option beside the options, and a note. A question without options is a text field. Every text comes from a model or a
// tool, and is set as text.

import { el } from "./dom.js";

let created = 0;

/** A question, with what a person has chosen so far. `place` says which of several it is. `onChange` is called after each
 * change. */
export class QuestionField {
  #question;
  #place;
  #id;
  #group;
  #choices = [];
  #other = null;
  #text;
  #note;
  #noteBox;
  #preview = null;
  #fault;
  #onChange;

  constructor(question, place, draft, onChange) {
    this.#question = question;
    this.#place = place;
    this.#id = `question-${(created += 1)}`;
    this.#onChange = onChange;
    this.#fault = el("p", { className: "person-fault", id: `${this.#id}-fault`, hidden: true });
    this.element = this.#isOpen ? this.#openField() : this.#choiceField();
    this.#restore(draft ?? {});
    this.element.addEventListener("input", () => this.#changed());
  }

  /** The text of the question, by which its answer is sent. */
  get name() {
    return this.#question.question;
  }

  /** Which of several questions it is, as people read it; empty if there is one. */
  get place() {
    return this.#place;
  }

  /** Where on the screen the text of the question ends. */
  get endOfTitle() {
    return this.element.querySelector(".question-text").getBoundingClientRect().bottom;
  }

  /** The answer as it is sent: a text, a list of texts where several may be chosen, or null if there is none. */
  get answer() {
    const own = this.#isOpen || this.#other.checked ? this.#ownWords : null;
    if (!this.#question.multiSelect) return own ?? this.#chosen[0] ?? null;
    const all = own === null ? this.#chosen : [...this.#chosen, own];
    return all.length ? all : null;
  }

  /** The note, or an empty text. */
  get note() {
    return this.#note.value.trim() ? this.#note.value : "";
  }

  /** What is wrong with the answer as it stands, as a sentence for people, or null. No answer is no fault. */
  get fault() {
    if (this.#isOpen || !this.#other.checked || this.#ownWords !== null) return null;
    return "Write your answer, or choose another option than “Other”.";
  }

  /** What a person wrote in their own words. */
  get written() {
    return [this.#text.value, this.#note.value].filter((text) => text.trim());
  }

  /** Everything that a person has done, for a draft. */
  get state() {
    const other = this.#other?.checked ?? false;
    return { chosen: this.#chosen, other, text: this.#text.value, note: this.#note.value };
  }

  /** Show a sentence about this question, or none, and say so to assistive technology. */
  showFault(sentence) {
    this.#fault.textContent = sentence ?? "";
    this.#fault.hidden = !sentence;
    this.element.classList.toggle("is-at-fault", Boolean(sentence));
    const field = this.#isOpen ? this.#text : this.#group;
    if (sentence && (this.#isOpen || !this.#question.multiSelect)) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }

  /** Put the focus where the answer is given. */
  focus() {
    if (this.#isOpen || this.#other.checked) this.#text.focus();
    else (this.#choices.find((choice) => choice.checked) ?? this.#choices[0]).focus();
  }

  get #isOpen() {
    return this.#question.options.length === 0;
  }

  get #ownWords() {
    return this.#text.value.trim() ? this.#text.value : null;
  }

  get #chosen() {
    return this.#question.options.filter((_, index) => this.#choices[index]?.checked).map((option) => option.label);
  }

  #openField() {
    this.#text = this.#textArea(this.name, "");
    this.#text.id = `${this.#id}-text`;
    this.#text.rows = 3;
    this.#text.setAttribute("aria-describedby", this.#fault.id);
    this.#text.removeAttribute("aria-label");
    const label = el("label", { className: "question-text", htmlFor: this.#text.id, dir: "auto" }, this.#title());
    return el("div", { className: "question" }, label, this.#fault, this.#text, this.#noteField());
  }

  #choiceField() {
    const several = this.#question.multiSelect;
    const properties = { "aria-describedby": this.#fault.id };
    if (!several) properties.role = "radiogroup";
    this.#text = this.#textArea(`Your own answer to: ${this.name}`, "Your own answer");
    const options = this.#question.options.map((option, index) => this.#option(option, index));
    const choices = el("div", { className: "question-options" }, options, this.#otherOption());
    const hasPreviews = this.#question.options.some((option) => option.preview);
    this.#group = el(
      "fieldset",
      properties,
      el("legend", { className: "question-text", dir: "auto" }, this.#title()),
      several ? el("p", { className: "person-hint" }, "Choose one or more.") : null,
      this.#fault,
      hasPreviews ? el("div", { className: "question-columns" }, choices, this.#previewPane()) : choices,
    );
    return el("div", { className: "question" }, this.#group, this.#noteField());
  }

  #title() {
    const { header, question } = this.#question;
    return [
      this.#place ? el("span", { className: "question-place" }, this.#place) : null,
      header ? el("span", { className: "question-header" }, header) : null,
      question,
    ];
  }

  #option(option, index) {
    const description = `${this.#id}-description-${index}`;
    const input = this.#input(option.description ? { "aria-describedby": description } : {});
    this.#choices.push(input);
    const row = el(
      "label",
      { className: "question-option" },
      input,
      el("span", { className: "option-label", dir: "auto" }, option.label),
      option.description
        ? el("span", { className: "option-description", id: description, dir: "auto" }, option.description)
        : null,
    );
    row.addEventListener("pointerenter", () => this.#showPreview(option));
    row.addEventListener("pointerleave", () => this.#showPreview(this.#shownByDefault));
    input.addEventListener("focus", () => this.#showPreview(option));
    // The description stands inside the label; the name of the input is the label of the option alone.
    input.setAttribute("aria-label", option.label);
    return row;
  }

  #otherOption() {
    this.#other = this.#input({ "aria-label": "Other" });
    this.#choices.push(this.#other);
    const row = el(
      "label",
      {},
      this.#other,
      el("span", { className: "option-label" }, "Other"),
    );
    this.#text.addEventListener("input", () => {
      if (this.#text.value) this.#other.checked = true;
    });
    row.addEventListener("pointerup", () => setTimeout(() => this.#other.checked && this.#text.focus()));
    return el("div", { className: "question-option question-other" }, row, this.#text);
  }

  #input(properties) {
    const type = this.#question.multiSelect ? "checkbox" : "radio";
    return el("input", { type, name: this.#id, ...properties });
  }

  #textArea(label, placeholder) {
    return el("textarea", { rows: 1, dir: "auto", "aria-label": label, placeholder });
  }

  #noteField() {
    this.#note = this.#textArea(`Note on: ${this.name}`, "Anything to add to this answer");
    this.#noteBox = el("details", { className: "question-note" }, el("summary", {}, "Add a note"), this.#note);
    return this.#noteBox;
  }

  #previewPane() {
    this.#preview = {
      title: el("p", { className: "preview-title" }),
      text: el("pre", { className: "preview-text", tabIndex: 0, role: "region", "aria-label": "Preview" }),
    };
    return el("div", { className: "question-preview" }, this.#preview.title, this.#preview.text);
  }

  get #shownByDefault() {
    const { options } = this.#question;
    const at = this.#choices.findIndex((choice) => choice === document.activeElement);
    const checked = this.#choices.findIndex((choice) => choice.checked);
    return options[at] ?? options[checked] ?? options.find((option) => option.preview);
  }

  #showPreview(option) {
    if (this.#preview === null || option === undefined) return;
    this.#preview.title.textContent = `Preview: ${option.label}`;
    this.#preview.text.textContent = option.preview ?? "This option has no preview.";
    this.#preview.text.classList.toggle("is-empty", !option.preview);
    this.#preview.text.setAttribute("aria-label", `Preview: ${option.label}`);
  }

  #restore({ chosen = [], other = false, text = "", note = "" }) {
    this.#question.options.forEach((option, index) => (this.#choices[index].checked = chosen.includes(option.label)));
    if (this.#other !== null) this.#other.checked = other;
    this.#text.value = text;
    this.#note.value = note;
    this.#noteBox.open = note !== "";
    this.#showPreview(this.#shownByDefault);
  }

  #changed() {
    this.showFault(null);
    this.#onChange();
  }
}
