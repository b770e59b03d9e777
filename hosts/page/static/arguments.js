// The arguments of a tool call, shown as the model wrote them, and edited as fields or as JSON. Fields are offered
// where every argument is a text, a number or a yes/no. What the model wrote stays in sight, and arguments that were
// not changed are not sent at all, so that they run exactly as they were written.

import { el, icon } from "./dom.js";
import { isExact, parseExactly } from "./exact_json.js";
import { hiddenShown, hidesSomething, withHiddenShown } from "./hidden_characters.js";

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const TOO_LARGE = "This number has more digits than this browser can keep.";

let created = 0;

/** An editor for `original`, an object of JSON. `raw` is what the model wrote where that is no such object. `onChange` is
 * called after each change. `end` is an element at the end of what the model wrote. */
export class ArgumentsEditor {
  #original;
  #id = `arguments-${(created += 1)}`;
  #mode = "none";
  #fields = new Map();
  #json = null;
  #fault;
  #editor;
  #switch;
  #onChange;

  constructor(original, raw, draft, onChange) {
    this.#original = original;
    this.#onChange = onChange;
    this.#fault = el("p", { className: "person-fault", id: `${this.#id}-fault`, role: "alert" });
    this.#editor = el("div", { className: "arguments-editor", hidden: true });
    this.#switch = el("div", { className: "arguments-modes" });
    this.end = el("div", { className: "arguments-end" });
    this.element = el("div", { className: "arguments" }, writtenArguments(original, raw), this.end, this.#switch, this.#editor, this.#fault);
    this.#edit(draft?.mode ?? "none", draft);
  }

  /** What a person has done so far, for a draft. */
  get state() {
    const texts = [...this.#fields].map(([name, { field }]) => [name, typeOf(field)]);
    return { mode: this.#mode, json: this.#json?.value, fields: Object.fromEntries(texts) };
  }

  /** Return `{arguments}`: the edited ones, or null if they are as the model wrote them. Returns null, and shows why,
   * if they cannot be sent. */
  read() {
    const { value, fault, field } = this.#parsed();
    this.#showFault(fault, field);
    if (fault) return null;
    return { arguments: value === undefined || isSame(value, this.#original) ? null : value };
  }

  #parsed() {
    if (this.#mode === "none") return { value: undefined };
    return this.#mode === "json" ? this.#parsedJson() : this.#parsedFields();
  }

  #parsedJson() {
    const fault = (sentence) => ({ fault: sentence, field: this.#json });
    try {
      const value = parseExactly(this.#json.value);
      if (value === null || typeof value !== "object" || Array.isArray(value)) {
        return fault("The arguments must be a JSON object, such as {\"name\": \"value\"}.");
      }
      return isExact(value) ? { value } : fault(TOO_LARGE);
    } catch (error) {
      return fault(`This is not valid JSON: ${error.message}.`);
    }
  }

  #parsedFields() {
    const values = [];
    for (const [name, { field, kind }] of this.#fields) {
      const text = field.value.trim();
      if (kind === "number" && !NUMBER.test(text)) return { fault: `“${name}” must be a number.`, field };
      if (kind === "number" && !isExact(parseExactly(text))) return { fault: `“${name}”: ${TOO_LARGE}`, field };
      values.push([name, kind === "boolean" ? field.checked : kind === "number" ? parseExactly(text) : field.value]);
    }
    return { value: Object.fromEntries(values) };
  }

  #edit(mode, draft) {
    const before = this.#mode === "none" ? {} : this.#parsed();
    const current = before.value ?? this.#original;
    this.#mode = mode;
    this.#showFault(null);
    this.#fields = new Map();
    this.#json = null;
    this.#editor.hidden = mode === "none";
    if (mode === "none") this.#editor.replaceChildren();
    if (mode === "json") this.#editor.replaceChildren(...this.#jsonEditor(current, draft));
    if (mode === "fields") this.#editor.replaceChildren(...this.#fieldEditor(current, draft));
    this.#switch.replaceChildren(...this.#modeButtons());
  }

  #modeButtons() {
    if (!isExact(this.#original)) return [el("p", { className: "person-hint" }, `Not editable here: ${TOO_LARGE}`)];
    const button = (label, mode) => {
      const change = () => {
        this.#edit(mode);
        this.#onChange();
        (this.#editor.querySelector("textarea, input") ?? this.#switch.querySelector("button")).focus();
      };
      return el("button", { type: "button", className: "link-button", onclick: change }, label);
    };
    if (this.#mode === "none") return [button("Edit arguments", isFlat(this.#original) ? "fields" : "json")];
    const isFields = this.#mode === "fields";
    const other = isFields ? button("Edit as JSON", "json") : isFlat(this.#original) && button("Edit as fields", "fields");
    return [button("Undo all edits", "none"), ...(other ? [other] : [])];
  }

  #jsonEditor(current, draft) {
    this.#json = el("textarea", {
      className: "arguments-json",
      id: `${this.#id}-json`,
      rows: 6,
      spellcheck: false,
      autocapitalize: "off",
      "aria-describedby": this.#fault.id,
      oninput: () => this.#changed(),
    });
    this.#json.value = draft?.json ?? JSON.stringify(current, null, 2);
    return [el("label", { htmlFor: this.#json.id }, "Arguments as JSON"), this.#json];
  }

  #fieldEditor(current, draft) {
    return Object.keys(this.#original).map((name, index) => {
      const written = this.#original[name];
      const kind = typeof written;
      const given = draft?.fields?.[name] ?? (typeof current[name] === kind ? current[name] : written);
      const id = `${this.#id}-field-${index}`;
      const field = fieldFor(kind, given, { id, "aria-describedby": `${id}-written ${this.#fault.id}` });
      const note = el("p", { className: "arguments-before", id: `${id}-written`, hidden: true }, `The model wrote: ${withHiddenShown(String(written))}`);
      const mark = () => (note.hidden = typeOf(field) === (kind === "boolean" ? written : String(written)));
      field.addEventListener("input", () => {
        mark();
        this.#changed();
      });
      mark();
      this.#fields.set(name, { field, kind });
      const label = el("label", { htmlFor: id, dir: "auto" }, withHiddenShown(name));
      return el("div", { className: `arguments-field is-${kind}` }, label, field, note);
    });
  }

  #changed() {
    this.#showFault(null);
    if (this.#mode === "json") this.#showFault(this.#parsedJson().fault, this.#json);
    this.#onChange();
  }

  #showFault(sentence, field) {
    this.#fault.textContent = sentence ?? "";
    for (const marked of this.#editor.querySelectorAll("[aria-invalid]")) marked.removeAttribute("aria-invalid");
    if (sentence) field?.setAttribute("aria-invalid", "true");
  }

  /** Show why the server refused the edited arguments. The sentence names the fields that it is about. */
  refuse(sentence) {
    this.#showFault(sentence, this.#json);
    this.#fault.scrollIntoView({ block: "center" });
    this.focus();
  }

  /** Put the focus on the field that cannot be sent. */
  focus() {
    this.#editor.querySelector("[aria-invalid]")?.focus();
  }
}

/** What the model wrote, to read: a list of names and values, or the text `raw` where that is no object of JSON. What is
 * hidden is marked, and a sentence says what the marks mean. */
export function writtenArguments(given, raw) {
  const names = Object.keys(given);
  const texts = raw === undefined ? names.flatMap((name) => [name, textOf(given[name])]) : [raw];
  const note = texts.some(hidesSomething) ? el("p", { className: "hidden-note" }, icon("alert"), el("span", {}, HIDDEN_NOTE)) : null;
  if (raw !== undefined) return [note, el("pre", { className: "argument-text", dir: "auto" }, hiddenShown(raw))];
  if (names.length === 0) return el("p", { className: "person-hint" }, "No arguments.");
  const rows = names.map((name) => [el("dt", { dir: "auto" }, hiddenShown(name)), el("dd", {}, shown(given[name]))]);
  return [note, el("dl", { className: "argument-list" }, rows)];
}

const HIDDEN_NOTE = "Something in here cannot be seen, or reads as something else. It is marked ⟨like this⟩.";

function shown(value) {
  if (value === "") return el("span", { className: "person-hint" }, "empty text");
  return el("pre", { dir: "auto" }, hiddenShown(textOf(value)));
}

function textOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

function fieldFor(kind, given, properties) {
  if (kind === "boolean") {
    const field = el("input", { type: "checkbox", ...properties });
    field.checked = given === true;
    return field;
  }
  const field =
    kind === "number"
      ? el("input", { type: "text", inputMode: "decimal", ...properties })
      : el("textarea", { rows: 1, dir: "auto", ...properties });
  field.value = String(given);
  return field;
}

/** What stands in a field: a text, or whether it is checked. */
function typeOf(field) {
  return field.type === "checkbox" ? field.checked : field.value;
}

function isFlat(given) {
  const values = Object.values(given);
  return values.length > 0 && values.every((value) => ["string", "number", "boolean"].includes(typeof value));
}

function isSame(one, other) {
  return JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));
}

function sorted(value) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(sorted);
  return Object.keys(value)
    .sort()
    .map((key) => [key, sorted(value[key])]);
}
