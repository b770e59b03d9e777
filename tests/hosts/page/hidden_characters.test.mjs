// What hidden_characters.js does (see test_hidden_characters.py).

import assert from "node:assert/strict";
import test from "node:test";

import { withHiddenShown } from "./hidden_characters.js";

for (const [what, hidden, code] of [
  ["reverses what follows", "\u202e", "202E"],
  ["isolates what follows", "\u2066", "2066"],
  ["has no width", "\u200b", "200B"],
  ["joins without a shape", "\u200d", "200D"],
  ["belongs to a tag", "\u{e0041}", "E0041"],
  ["controls a terminal", "\u001b", "001B"],
  ["is half a character", "\ud800", "D800"],
  ["ends a line unseen", "\u2028", "2028"],
]) {
  test(`a character that ${what} is shown`, () => {
    assert.equal(withHiddenShown(`pay${hidden}pal`), `pay⟨U+${code}⟩pal`);
  });
}

test("visible text stays as it is", () => {
  const text = "Zürich → 東京\n\tשלום 🚆 é";
  assert.equal(withHiddenShown(text), text);
});
