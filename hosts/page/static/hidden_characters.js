// Makes characters visible that have no shape of their own: control characters, characters of no width, and those that
// show a text in another order than it has. Whoever approves a call must see what will run.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;
const KEPT = new Set(["\n", "\t"]);

/** Return a text in which each hidden character is written as its code point, such as ⟨U+202E⟩. */
export function withHiddenShown(text) {
  return text.replace(HIDDEN, (character) => (KEPT.has(character) ? character : codePoint(character)));
}

function codePoint(character) {
  return `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
}
