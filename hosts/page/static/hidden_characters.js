// Shows what a reader cannot see: characters that have no shape of their own, such as control characters, characters of
// no width and spaces that only look like one, and words whose letters come from several alphabets, so that they read as
// another word. Whoever approves a call must see what will run.
//
// What is hidden follows from Unicode's properties, by the same rules as in the terminal (effects/printable.py, where
// they are explained); a test compares the two. Visible text stays as it is: emoji, joined letters and ideographic spaces
// are not hidden where they belong.

import { el } from "./dom.js";

/** Return a text in which each hidden character is written as its code point, such as ⟨U+202E⟩, and behind each word
 * that reads as another one stands which letters are of another alphabet, such as ⟨Cyrillic а⟩. */
export function withHiddenShown(text) {
  return partsOf(text).map((part) => part.mark ?? part.text).join("");
}

/** Return the same as nodes, in which what was added stands out. */
export function hiddenShown(text) {
  return partsOf(text).map((part) => (part.mark === undefined ? part.text : el("mark", { className: "hidden-character" }, part.mark)));
}

/** Return whether something in a text would be marked. */
export function hidesSomething(text) {
  return partsOf(text).some((part) => part.mark !== undefined);
}

/** The text in parts {text} and {mark}. */
function partsOf(text) {
  const parts = [];
  let end = 0;
  for (const { index, length, mark } of marksIn(text)) {
    if (index > end) parts.push({ text: text.slice(end, index) });
    parts.push({ mark });
    end = index + length;
  }
  if (end < text.length) parts.push({ text: text.slice(end) });
  return parts;
}

/** What is to be marked, {index, length, mark}, in order. A mark of length 0 is inserted. */
function marksIn(text) {
  const marks = Array.from(text.matchAll(HIDDEN), (found) => ({ index: found.index, length: found[0].length, mark: codePoint(found[0]) }));
  for (let index = endOf(text); index < text.length; index += 1) marks.push({ index, length: 1, mark: codePoint(text[index]) });
  if (NOT_ASCII.test(text)) {
    for (const { 0: word, index } of text.matchAll(WORD)) {
      const mark = explanationOf(word);
      if (mark) marks.push({ index: index + word.length, length: 0, mark });
    }
  }
  return marks.sort((one, other) => one.index - other.index || one.length - other.length);
}

/** Where the blanks at the end of a text begin, which nobody sees. */
function endOf(text) {
  let end = text.length;
  while (text[end - 1] === " " || text[end - 1] === "\t") end -= 1;
  return end;
}

function codePoint(character) {
  return `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

// --- characters without a shape

const BLANK = "\\u2800\\u{1D159}\\u{13441}\\u{13442}\\u{16FE4}";
const EMOJI = "[\\p{So}‼⁉ℹ↔◻◼◽◾⤴⤵〰〽]";
const VIRAMA = "[\\u094D\\u09CD\\u0A4D\\u0ACD\\u0B4D\\u0BCD\\u0C4D\\u0CCD\\u0D4D\\u0DCA]";
const WIDE = "[\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Hangul}\\u3000-\\u303F\\uFF00-\\uFF60]";
const JOINED_SCRIPTS = ["Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala"];

/** Where a character without a shape does what it is for: it chooses how an emoji looks, joins two of them, chooses the
 * form of letters, or separates words of East Asian scripts. */
const BELONGS = [
  `(?<=${EMOJI})[\\uFE0E\\uFE0F]`,
  "(?<=[0-9#*])\\uFE0F(?=\\u20E3)",
  `(?<=${EMOJI}[\\uFE0F\\u{1F3FB}-\\u{1F3FF}]?)\\u200D(?=${EMOJI})`,
  "(?<=\\p{Script=Arabic})\\u200C(?=\\p{Script=Arabic})",
  ...JOINED_SCRIPTS.flatMap((script) => {
    const letter = `\\p{Script=${script}}`;
    return [`(?<=(?=${letter})${VIRAMA})[\\u200C\\u200D](?=${letter})`, `(?<=${letter})[\\u200C\\u200D](?=(?=${letter})${VIRAMA})`];
  }),
  `(?<=${WIDE})\\u3000(?=${WIDE})`,
].join("|");

const HIDDEN = new RegExp(`(?!${BELONGS})(?![ \\n\\t])(?:[\\p{C}\\p{Z}\\p{DI}${BLANK}]|(?<=(\\p{Mn}))\\1)`, "gu");

// --- words that read as another word

const ALPHABETS = ["Latin", "Greek", "Cyrillic", "Armenian", "Cherokee", "Coptic", "Lisu", "Deseret", "Osage"];
const ALPHABET_PATTERNS = ALPHABETS.map((name) => [name, new RegExp(`^\\p{Script=${name}}$`, "u")]);
const WORD = /[\p{L}\p{M}\p{N}\p{DI}]+/gu;
const NOT_ASCII = /[^\0-\x7F]/;
const SAME = new Set("асеорхуіјѕһԁԛԝӏүАВЕКМНОРСТУХІЈЅԚԜӀҮΑΒΕΖΗΙΚΜΝΟΡΤΥΧον");
const SIMILAR = new Set([...SAME, ..."αγικρσυ"]);

function explanationOf(word) {
  if (!NOT_ASCII.test(word)) return "";
  const kinds = new Map();
  for (const character of word) {
    const kind = kindOf(character);
    if (kind !== "") kinds.set(kind, (kinds.get(kind) ?? new Set()).add(character));
  }
  const foreign = [...kinds].filter(([kind, letters]) => !PLAIN.has(kind) && misleads(word, kind, letters, kinds));
  return foreign.map(([kind, letters]) => `⟨${kind} ${[...letters].join(", ")}⟩`).join("");
}

const PLAIN = new Set(["Latin", "plain digits"]);
const DIGITS = new Set(["plain digits", "other digits"]);

/** Whether the letters of this kind let the word read as another one. */
function misleads(word, kind, letters, kinds) {
  if (kind === "other digits") return kinds.has("plain digits");
  const plain = [...letters].map(plainForm);
  if (kind === "Greek" && kinds.has("Latin")) return plain.some((letter) => SIMILAR.has(letter));
  const alphabets = [...kinds.keys()].filter((one) => !DIGITS.has(one));
  return alphabets.length > 1 || ([...word].length > 1 && plain.every((letter) => SAME.has(letter)));
}

function kindOf(character) {
  if (/\p{Nd}/u.test(character)) return NOT_ASCII.test(character) ? "other digits" : "plain digits";
  const plain = plainForm(character);
  if (NOT_ASCII.test(character) && /[\p{Ll}\p{Lu}\p{Nl}]/u.test(character) && /[A-Za-z]/.test(plain)) return "styled";
  if (!/\p{L}/u.test(character)) return "";
  return ALPHABET_PATTERNS.find(([, pattern]) => pattern.test(plain))?.[0] ?? "";
}

/** The character that this one is a variant of, such as the letter of a mathematical letter; else itself. */
function plainForm(character) {
  const form = character.normalize("NFKC");
  return [...form].length === 1 ? form : character;
}
