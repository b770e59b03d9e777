// What routes.js and steps.js do, with the map of the machine and all routes of the table (see test_routes.py).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { MachineMap } from "./routes.js";
import { newestStep, PAGE, Steps } from "./steps.js";
import { inWords } from "./words.js";

const { machine, routes } = JSON.parse(readFileSync(process.env.MACHINE, "utf8"));
const map = new MachineMap(machine);

test("the routes of the table are the routes of the map", () => {
  for (const { source, target, junctions, route } of routes) {
    assert.deepEqual(map.routeOf(source, junctions, target), route);
  }
});

test("the first step comes from the start", () => {
  assert.deepEqual(map.routeOf(null, [], "idle"), ["start", "idle"]);
});

test("a step that stays has one node", () => {
  assert.deepEqual(map.routeOf("idle", [], "idle"), ["idle"]);
});

test("a junction of a later version is passed over", () => {
  assert.deepEqual(map.routeOf("llm_requesting", ["UNHEARD_OF"], "tool_executing"), ["llm_requesting", "tool_executing"]);
});

test("a route is drawn over the lines between its nodes", () => {
  const lines = map.linesOf(["tool_executing", "llm_requesting", "summarizing"]);

  assert.deepEqual(lines.map(({ line, isReversed }) => [line.source, line.target, isReversed]), [
    ["llm_requesting", "tool_executing", true],
    ["llm_requesting", "summarizing", false],
  ]);
});

test("names of classes and types read as words", () => {
  const names = ["LlmResponse", "ask_user_question_pending", "sub_agent_finished"];
  assert.deepEqual(names.map(inWords), ["LLM response", "Ask user question pending", "Sub-agent finished"]);
});

test("the id of a snapshot names the step after the newest one", () => {
  assert.deepEqual(["12.0", "12.3"].map(newestStep), [11, 12]);
});

/** A log of so many steps, and what was read of it. */
class Log {
  reads = [];

  constructor(length) {
    this.length = length;
    this.breaksAt = Infinity;
  }

  async getLog(_, { after, limit }) {
    this.reads.push([after, limit]);
    const last = Math.min(this.length, after + limit);
    if (last >= this.breaksAt) throw Object.assign(new Error("Step 7 cannot be read."), { code: "store_error" });
    return { steps: Array.from({ length: last - after }, (_, index) => ({ seq: after + index + 1 })) };
  }

  async replayConversation() {
    return { divergence: this.breaksAt < Infinity ? { seq: this.breaksAt } : null };
  }
}

/** The steps of a log; `settled` is fulfilled at the next change. */
function following(log) {
  let tell;
  const steps = new Steps(log, "id", () => tell());
  const next = () => new Promise((resolve) => (tell = resolve));
  tell = () => {};
  return { steps, next };
}

test("of a long log only the page is read that is looked at", async () => {
  const log = new Log(5000);
  const { steps, next } = following(log);
  steps.extendTo(5000);

  assert.equal(steps.at(4321), undefined);
  await next();

  assert.equal(steps.at(4321).seq, 4321);
  assert.deepEqual(log.reads, [[4300, PAGE]]);
});

test("what is only passed while scrubbing is not read", async () => {
  const log = new Log(5000);
  const { steps, next } = following(log);
  steps.extendTo(5000);

  for (let seq = 5000; seq > 0; seq -= 1) steps.at(seq);
  await next();

  assert.equal(log.reads.length, 1);
});

test("new steps are read behind those that are known", async () => {
  const log = new Log(3);
  const { steps, next } = following(log);
  steps.extendTo(3);
  steps.at(3);
  await next();
  log.length = 5;
  steps.extendTo(4);

  assert.equal(steps.at(4), undefined);
  await next();

  assert.deepEqual(log.reads, [[0, PAGE], [3, PAGE - 3]]);
  assert.equal(steps.last, 5);
  assert.deepEqual(steps.between(2, 9).map(({ seq }) => seq), [2, 3, 4, 5]);
});

test("a log is shown up to the step that does not come out as it was stored", async () => {
  const log = new Log(20);
  log.breaksAt = 7;
  const { steps, next } = following(log);
  steps.extendTo(20);
  steps.at(20);
  await next();

  assert.deepEqual([steps.last, steps.divergence, steps.problem], [6, { seq: 7 }, null]);
  steps.at(6);
  await next();
  assert.equal(steps.at(6).seq, 6);
  steps.extendTo(21);
  assert.equal(steps.last, 6);
});

test("a problem is kept until it is tried again", async () => {
  const log = new Log(2);
  log.getLog = async () => Promise.reject(new Error("The server cannot be reached."));
  const { steps, next } = following(log);
  steps.extendTo(2);
  steps.at(2);
  await next();

  assert.equal(steps.problem.message, "The server cannot be reached.");
  delete log.getLog;
  steps.retry();
  steps.at(2);
  await next();
  assert.deepEqual([steps.problem, steps.at(2).seq], [null, 2]);
});
