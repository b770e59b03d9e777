// What a view must hold, for conversations that a real engine recorded (tests/support/browser/page_recordings.py).

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";

import { apply, emptyView, isBusy, itemsWithEnds, marksDeliveries, streamedText, waitsForPerson, withTurns } from "./view.js";

const folder = process.env.RECORDINGS;
const recordings = Object.fromEntries(
  readdirSync(folder).map((name) => [name.replace(".json", ""), JSON.parse(readFileSync(`${folder}/${name}`, "utf8"))]),
);

/** The views after each update of a watcher. One that came back goes on with what it had seen. */
function viewsOf({ textIsThought, watchers }, watcher = 0) {
  const [all, { after, updates }] = [watchers[0].updates, watchers[watcher]];
  const seen = watcher > 0 && after ? all.slice(0, all.findIndex(({ id }) => id === after) + 1) : [];
  let view = seen.reduce((before, update) => apply(before, update, { textIsThought }), emptyView());
  return updates.map((update) => (view = apply(view, update, { textIsThought })));
}

function lastOf(recording, watcher = 0) {
  return viewsOf(recording, watcher).at(-1);
}

/** What the items of a view say, without what only those know who saw them happen, and without the calls of a history
 * that was given, which only a snapshot shows. */
function said(view) {
  const items = view.items.filter((item) => item.kind !== "tool" || item.turn > 0);
  return items.map(({ key, delivery, ...item }) => ({ ...item, delivery: delivery ? delivery.ordinal : null }));
}

const kinds = (view) => view.items.map((item) => item.kind);
const tool = (view, index = 0) => view.items.filter((item) => item.kind === "tool")[index];

for (const [name, recording] of Object.entries(recordings)) {
  test(`${name}: whoever joins at any time sees the same in the end`, () => {
    const seen = withTurns(lastOf(recording), recording.turns); // the page reads them again when a branch returns
    recording.watchers.forEach((_, watcher) => {
      const view = withTurns(lastOf(recording, watcher), recording.turns);
      assert.deepEqual(said(view), said(seen), `watcher ${watcher}`);
      assert.deepEqual(view.state, seen.state);
      assert.deepEqual([...view.turns.keys()].sort(), [...seen.turns.keys()].sort());
      assert.equal(view.streaming, null);
    });
  });

  test(`${name}: an update that comes twice changes nothing`, () => {
    const options = { textIsThought: recording.textIsThought };
    let view = emptyView();
    for (const update of recording.watchers[0].updates) {
      view = apply(view, update, options);
      if (update.id) assert.equal(apply(view, update, options), view, update.id);
    }
  });

  test(`${name}: keys are unique, and a view that is shown never changes`, () => {
    const views = viewsOf(recording);
    const copies = views.map((view) => structuredClone(view));
    assert.deepEqual(views, copies);
    for (const view of views) {
      const keys = itemsWithEnds(view).map((item) => item.key);
      assert.equal(new Set(keys).size, keys.length, keys.join(" "));
    }
  });
}

test("a turn with tools: thought, text, cards with results and errors, the answered question, the delivered reply", () => {
  const view = lastOf(recordings.tools);
  assert.deepEqual(kinds(view), ["message", "message", "tool", "tool", "tool", "thought", "message"]);
  const [first, failed, asked] = [0, 1, 2].map((index) => tool(view, index));
  assert.deepEqual([first.status, first.arguments, first.result], ["completed", { party: 2 }, "A table for 2 at Kikunoi."]);
  assert.equal(failed.status, "failed");
  assert.match(failed.error, /seats/);
  assert.equal(failed.result, null);
  assert.equal(JSON.parse(asked.result).answers["Which time?"], "6:30 PM");
  assert.equal(view.items[1].delivery, null);
  assert.deepEqual(view.items.at(-1).delivery, { ordinal: 1, channels: { recording: { taken: true } } });
  assert.equal(itemsWithEnds(view).at(-1).kind, "end");
});

test("a tool that runs shows its progress until it ends", () => {
  const shown = viewsOf(recordings.tools).map((view) => tool(view)?.progress);
  assert.ok(shown.includes("asking Kikunoi"));
  assert.equal(shown.at(-1), "");
});

test("while a question is open the view waits for a person", () => {
  const asking = viewsOf(recordings.tools).find(waitsForPerson);
  assert.equal(asking.state.type, "awaiting_user_response");
  assert.equal(asking.state.data.questions[0].question, "Which time?");
  assert.ok(isBusy(asking));
  assert.ok(!waitsForPerson(lastOf(recordings.tools)));
});

test("where the text of the model is its thinking, the user receives what it says by tool only", () => {
  for (const watcher of [0, 1]) {
    const view = lastOf(recordings.talk, watcher);
    const received = view.items.filter((item) => item.delivery).map((item) => item.text);
    assert.deepEqual(received, ["I am on it.", "Your train leaves at nine."]);
    assert.ok(!view.items.some((item) => item.kind === "message" && item.role === "assistant"));
  }
});

test("tokens of another attempt replace those of the attempt that broke off", () => {
  const streamed = viewsOf(recordings.cut).map((view) => view.streaming?.text ?? "");
  assert.ok(streamed.includes("An answer that"));
  assert.ok(streamed.includes("The whole answer."));
  assert.ok(!streamed.some((text) => text.includes("that") && text.includes("whole")));
  assert.equal(streamed.at(-1), "");
});

test("an answer that broke off is taken away when the state says that another attempt follows", () => {
  const waiting = viewsOf(recordings.cut).filter((view) => view.state.type === "retry_waiting");
  assert.ok(waiting.length > 0);
  assert.ok(waiting.every((view) => view.streaming === null));
});

test("a delivery marks the message with its text, and is an item of its own if no message has it", () => {
  const message = (id, text) => ({ type: "message", id, data: { role: "assistant", text, turn: 1 } });
  const delivery = (id, text, ordinal) => ({ type: "delivery", id, data: { text, turn: 1, ordinal } });
  const updates = [message("3.1", "I look."), message("5.1", "Found."), delivery("5.2", "I look.", 1), delivery("6.1", "By voice.", 2)];
  const { items } = updates.reduce((view, update) => apply(view, update), emptyView());
  assert.deepEqual(items.map(({ text, delivery: mark }) => [text, mark?.ordinal ?? null]), [["I look.", 1], ["Found.", null], ["By voice.", 2]]);
});

test("whoever joins in the middle of an answer has its beginning, once", () => {
  for (const watcher of [2, 3]) {
    const streamed = viewsOf(recordings.cut, watcher).map((view) => view.streaming).filter(Boolean);
    assert.ok(streamed.some(({ text, thinking }) => text === "The whole " && thinking === "Hm."), `watcher ${watcher}`);
    assert.ok(streamed.some(({ text }) => text === "The whole answer."));
    assert.ok(streamed.every(({ text }) => "The whole answer.".startsWith(text) || "An answer that".startsWith(text)));
  }
});

test("the number of restarts tells whether the text only grew", () => {
  let before = null;
  for (const { streaming } of viewsOf(recordings.cut)) {
    const isSame = before && streaming && ["request", "attempt", "restarts"].every((one) => before[one] === streaming[one]);
    if (isSame) assert.ok(streaming.text.startsWith(before.text) && streaming.thinking.startsWith(before.thinking));
    before = streaming;
  }
});

test("what a tool is to say is shown until it is delivered, or given up", () => {
  const piece = (text, more = {}) => ({ type: "token", id: null, data: { text, kind: "speech", turn: 1, request: 3, attempt: 1, ...more } });
  const state = (id, type) => ({ type: "state_change", id, data: { type, data: { turn: 1 } } });
  const delivery = (id, text) => ({ type: "delivery", id, data: { text, turn: 1, ordinal: 1 } });
  const steps = [piece("It ra"), piece("ins.\n\nBye."), state("4.1", "tool_executing")];
  let view = steps.reduce((before, update) => apply(before, update), emptyView());
  assert.equal(view.speech.text, "It rains.\n\nBye.");
  assert.equal(view.streaming, null);
  view = apply(view, delivery("5.1", "It rains."));
  assert.equal(view.speech.text, "Bye.");
  assert.equal(apply(view, delivery("6.1", "Bye.")).speech, null);
  assert.equal(apply(view, delivery("6.1", "Another text.")).speech, null);
  assert.equal(apply(view, { type: "turn_ended", id: "6.1", data: { turn: 1 } }).speech, null);
  assert.equal(apply(view, state("6.1", "retry_waiting")).speech, null);
  assert.equal(apply(view, piece("A", { attempt: 2 })).speech.text, "A");
  assert.equal(apply(view, piece("All of it.", { from_start: true })).speech.text, "All of it.");
});

test("a piece from the start replaces what was shown of its kind", () => {
  const piece = (text, more = {}) => ({ type: "token", id: null, data: { text, kind: "text", turn: 1, request: 3, attempt: 1, ...more } });
  let view = apply(apply(emptyView(), piece("Hello wor")), piece("Hello world", { from_start: true }));
  assert.equal(view.streaming.text, "Hello world");
  view = apply(view, piece("!", { attempt: 2 }));
  assert.equal(view.streaming.text, "!");
});

test("a typed answer is shown as far as it was written, unless its text is", () => {
  const answer = { turn: 1, request: 3, attempt: 1 };
  const output = (value, more = {}) => ({ type: "output", id: null, data: { value, ...answer, ...more } });
  const token = (text) => ({ type: "token", id: null, data: { text, kind: "text", ...answer } });
  const seen = (...updates) => streamedText(updates.reduce((view, update) => apply(view, update), emptyView()).streaming);
  assert.equal(seen(), "");
  assert.equal(seen(output({ party: 2 }), output({ party: 25 })), '{\n  "party": 25\n}');
  assert.equal(seen(output({ party: 2 }), output(0, { attempt: 2 })), "0");
  assert.equal(seen(output({ party: 2 }), token('{"party": 25'), output({ party: 25 })), '{"party": 25');
});

test("messages that wait are named by the state, and one that was withdrawn never appears", () => {
  const inboxes = viewsOf(recordings.queued).map((view) => (view.state.data.inbox ?? []).join(" "));
  assert.ok(inboxes.includes("m2 m3"));
  const users = lastOf(recordings.queued).items.filter((item) => item.role === "user");
  assert.deepEqual(users.map((item) => item.messageId), ["m1", "m2"]);
});

test("a turn that was cancelled ends its tool and says so", () => {
  const view = lastOf(recordings.cancelled);
  assert.equal(tool(view).status, "cancelled");
  assert.equal(itemsWithEnds(view).at(-1).status, "cancelled");
  const joined = viewsOf(recordings.cancelled, 1)[0];
  assert.equal(tool(joined).status, "running");
});

test("a failed turn and the turn that tries it again both end", () => {
  const view = lastOf(recordings.failed);
  assert.deepEqual([...view.turns.values()].map((turn) => turn.status), ["failed", "completed"]);
  assert.ok(viewsOf(recordings.failed).some((seen) => seen.state.type === "failed" && seen.state.data.sentence));
});

test("a history that was given is shown with its calls and their results", () => {
  const view = lastOf(recordings.given, 1);
  assert.deepEqual(kinds(view), ["message", "message", "tool", "message", "message", "message", "message", "message"]);
  assert.deepEqual([tool(view).status, tool(view).result], ["completed", "At Nobu."]);
});

test("a stopped answer stays, and what was not heard goes away, also behind the end of its turn", () => {
  const seen = viewsOf(recordings.stopped);
  const view = seen.at(-1);
  const said = view.items.filter((item) => item.role === "assistant" || item.kind === "delivery");
  assert.deepEqual(said.map((item) => [item.text, item.isStopped ?? false, item.heard]), [
    ["One, two, ", true, null], ["Three.", false, "Three."], ["Five.", false, "Five."],
    ["Seven. Eight.", false, null], ["Nine.", true, "Nine."],
  ]);
  assert.ok(seen.some(({ items }) => items.some((item) => item.text === "Three. Four." && item.citations[0].title === "A page")));
});

test("files of messages and of results are named, as it happens and for whoever comes later", () => {
  for (const watcher of [0, 1]) {
    const view = lastOf(recordings.files, watcher);
    assert.deepEqual(view.items[0].files.map((file) => file.media_type), ["image/png", "application/pdf"]);
    assert.deepEqual(tool(view).files.map((file) => file.name), ["table.png"]);
  }
});

test("an update of a type that is not known changes nothing but the id that was seen", () => {
  const view = apply(lastOf(recordings.failed), { type: "later", id: "999.1", data: {} });
  assert.equal(view.lastId, "999.1");
  assert.equal(view.items, apply(view, { type: "constructor", id: null, data: {} }).items);
});

test("of deliveries is only spoken where there are any, or where not every text is for the user", () => {
  const plain = { items: [{ kind: "message" }] };
  assert.equal(marksDeliveries(plain, null, []), false);
  assert.equal(marksDeliveries(plain, { text: "auto", silent: "allow" }, []), false);
  assert.equal(marksDeliveries(plain, { text: "reply", silent: "allow" }, []), false);
  assert.equal(marksDeliveries(plain, { text: "reply", silent: "allow" }, ["sms"]), true);
  assert.equal(marksDeliveries(plain, { text: "thought", silent: "allow" }, []), true);
  assert.equal(marksDeliveries(plain, { text: "reply", silent: "nudge" }, []), true);
  assert.equal(marksDeliveries({ items: [{ kind: "tool", speaks: true }] }, { text: "reply" }, []), true);
});

test("what a turn goes on without stands where it happened, and is no part of the state", () => {
  const update = { type: "state_change", id: "3.1", data: { type: "llm_requesting", data: { turn: 1, left_out: ["No documents."] } } };
  const view = apply(emptyView(), update);

  assert.deepEqual(view.items, [{ kind: "left_out", key: "3.1:0", turn: 1, text: "No documents." }]);
  assert.deepEqual(view.state, { type: "llm_requesting", data: { turn: 1 } });
});

test("what a tool was to say when it was stopped is no thought, though all text is one", () => {
  const state = { type: "idle", data: { turn: 1 } };
  const transcript = [true, false].map((spoken) => ({ role: "assistant", text: "It ra", turn: 1, stopped: "cancelled", spoken }));
  const view = apply(emptyView(), { type: "snapshot", id: "9.0", data: { state, transcript } }, { textIsThought: true });

  assert.deepEqual(kinds(view), ["message", "thought"]);
});
