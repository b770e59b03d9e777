// A small client that is written against the generated types only: it compiles if they fit its use of the API.
import type { components, operations, paths } from "./api.js";

type Schemas = components["schemas"];
type Answer<Name extends keyof operations, Status extends number> = operations[Name] extends {
  responses: { [key in Status]: { content: { "application/json": infer Body } } };
}
  ? Body
  : never;

class ProblemError extends Error {
  constructor(readonly problem: Schemas["Problem"]) {
    super(problem.detail);
  }
}

async function request<Body>(base: string, method: string, path: keyof paths | string, body?: unknown): Promise<Body> {
  const response = await fetch(base + path, {
    method,
    headers: { "content-type": "application/json" },
    body: body === undefined ? null : JSON.stringify(body),
  });
  const read: unknown = await response.json();
  if (!response.ok) throw new ProblemError(read as Schemas["Problem"]);
  return read as Body;
}

export async function ask(base: string, text: string): Promise<string> {
  const wanted: Schemas["NewConversation"] = { title: "A table", preset: "assistant" };
  const created = await request<Answer<"createConversation", 201>>(base, "POST", "/conversations", wanted);
  const message: Schemas["NewMessage"] = { text };
  const sent = await request<Answer<"sendMessage", 202>>(base, "POST", `/conversations/${created.id}/messages`, message);
  const status: "running" | "queued" | string = sent.turn.status;
  return `${sent.message_id}: ${status}, turn ${sent.turn.turn.toFixed()}`;
}

// Updates are told apart by their type.
export function shown(update: Schemas["Update"]): string {
  switch (update.type) {
    case "snapshot":
      return update.data.transcript.map((message) => message.text ?? "").join("\n");
    case "token":
      return update.data.text;
    case "tool":
      return `${update.data.name}(${Object.keys(update.data.arguments).join()}) is ${update.data.status}`;
    case "state_change":
      return (update.data.data.questions ?? []).map((question) => question.question).join("\n");
    case "turn_ended":
      return `${update.data.reply} (${(update.data.usage.input_tokens ?? 0).toFixed()} tokens)`;
    case "message":
      return `${update.id}: ${update.data.text}`;
    case "thought":
    case "delivery":
      return update.data.text;
    default:
      return update.type;
  }
}

export function path(step: Schemas["StepView"]): string {
  return `${step.seq.toFixed()}: ${step.passed.join(" > ")} > ${step.state.type}`;
}

export function tree(update: Schemas["TreeUpdate"]): string {
  return update.type === "tree_snapshot" ? update.data.conversations.map((one) => one.title).join() : update.type;
}

export function place(map: Schemas["MachineMap"], type: Schemas["State"]["type"]): [number, number] {
  const state = map.states.find((one) => one.type === type);
  return state === undefined ? [0, 0] : [state.x, state.y];
}

// @ts-expect-error a turn has no such field
export const misspelt = (turn: Schemas["Turn"]): unknown => turn.answr;

// @ts-expect-error a body has no other keys
export const tooMuch: Schemas["NewMessage"] = { text: "Hello", colour: "red" };

// @ts-expect-error what an answer may leave out has to be looked for
export const unasked = (turn: Schemas["Turn"]): number => turn.questions.length;
