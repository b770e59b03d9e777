// What hidden_characters.js does (see test_hidden_characters.py).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { withHiddenShown } from "./hidden_characters.js";

const { examples, innocent, every, shown } = JSON.parse(readFileSync(process.env.TEXTS, "utf8"));

for (const [text, shown] of Object.entries(examples)) {
  test(`${JSON.stringify(text)} is shown as ${shown}`, () => assert.equal(withHiddenShown(text), shown));
}

for (const text of innocent) {
  test(`${text} stays as it is`, () => assert.equal(withHiddenShown(text), text));
}

test("half a character is shown", () => assert.equal(withHiddenShown("pay\ud800pal"), "pay⟨U+D800⟩pal"));

test("every character is shown as in the terminal", () => {
  const expected = shown.split("\n");
  const differing = withHiddenShown(every).split("\n").filter((line, index) => line !== expected[index]);
  assert.deepEqual(differing.slice(0, 20), []);
});
