// What the page shows of one conversation, as data. It follows from the updates alone: nothing here knows the document
// or the network, so the same updates give the same view everywhere, and it is tested without a browser.
//
// A view is never changed. `apply` returns a new one that shares with the old one everything that stayed the same, so
// whoever shows it finds what changed by comparing with ===.
//
//   {
//     known,        whether a snapshot has arrived
//     lastId,       the id of the newest stored update, "seq.n"; null before there is one
//     state,        {type, data} as in state_change
//     items,        what was said and done, oldest first; see below
//     streaming,    the answer that a model writes now: {turn, request, attempt, text, thinking, output, restarts}, or null;
//                   `output` is a typed answer, as far as it can be read
//     speech,       what a tool is to say and was not delivered yet: {turn, request, attempt, text}, or null
//     turns,        the turns that have ended, by their number: the data of turn_ended
//   }
//
// Each item has a `kind`, a `key` that no other item of the view has, and its `turn`:
//
//   message   role "user" or "assistant", text, files, citations, messageId, origin, delivery, isStopped, heard
//   thought   text
//   tool      callId, name, arguments, rawArguments, status, result, error, speaks, progress, files
//   left_out  text: what the turn goes on without, and why; it is not in the transcript, so a snapshot does not have it
//   delivery  text, relayed, delivery, heard: a text that the user receives and that is no message of its own
//
// `heard` is null, or what the user has heard of a text that they interrupted, to which it is cut if it begins so.
//
// `delivery` is null for a text that is shown here only, else {ordinal, channels}, where `channels` tells by the name of
// each channel whether it has taken the text: {taken: true} or {taken: false, sentence}.

import { asksPerson, isRest } from "./states.js";

const EMPTY = Object.freeze({
  known: false,
  lastId: null,
  state: Object.freeze({ type: "idle", data: Object.freeze({ turn: 0 }) }),
  items: Object.freeze([]),
  streaming: null,
  speech: null,
  turns: new Map(),
});

/** Return the view of a conversation of which nothing is known yet. */
export function emptyView() {
  return EMPTY;
}

/**
 * Return the view after an update `{type, id, data}`. A stored update that the view knows already changes nothing, and
 * so does one of a type that is not known. `textIsThought` is that of the conversation's policy (`text: "thought"`):
 * a snapshot does not tell which texts of the model are for the user.
 */
export function apply(view, update, { textIsThought = false } = {}) {
  if (update.type === "snapshot") return fromSnapshot(view, update, textIsThought);
  if (update.id && view.lastId !== null && !isAfter(update.id, view.lastId)) return view;
  const handle = Object.hasOwn(HANDLERS, update.type) ? HANDLERS[update.type] : null;
  const changed = handle ? handle(view, update.data, update.id, textIsThought) : view;
  return update.id ? { ...changed, lastId: update.id } : changed;
}

/** Return the view with turns that have ended, as the server lists them. Those that it knows stay. */
export function withTurns(view, turns) {
  const known = new Map(turns.map((turn) => [turn.turn, endItem(turn)]));
  for (const [number, end] of view.turns) known.set(number, end);
  return { ...view, turns: known };
}

/** Return whether the turn waits for a person, also for one who is to answer a sub-agent. */
export function waitsForPerson(view) {
  return asksPerson(view.state);
}

/** Return whether a turn is under way, so that it can be cancelled; it may wait for a person. */
export function isBusy(view) {
  return view.known && !isRest(view.state.type);
}

/** Return the view of a conversation that was deleted meanwhile: nothing happens in it, and nobody is asked any more. */
export function afterDeletion(view) {
  return { ...view, state: { type: "closed", data: { turn: view.state.data.turn } }, streaming: null, speech: null };
}

/** Return the newest turn that is shown, or 0. */
export function newestTurn(view) {
  return view.items.at(-1)?.turn ?? 0;
}

/** Return whether the conversation may have branches that were left: turns are numbered through all of them, so some of
 * the numbers are missing. */
export function mayHaveBranches(view) {
  const shown = new Set(view.items.map((item) => item.turn).filter((turn) => turn > 0));
  return shown.size < view.state.data.turn;
}

/** Return whether people are told which texts were delivered: where they go out through channels, or where not all texts
 * of the model are for the user, by the rules or because a tool speaks. */
export function marksDeliveries(view, policy, channels) {
  const isForUser = ["auto", "reply"].includes(policy?.text ?? "auto") && (policy?.silent ?? "allow") === "allow";
  return channels.length > 0 || !isForUser || view.items.some((item) => item.kind === "delivery" || item.speaks);
}

/** Return what is shown of the answer that a model writes now: its text, or as JSON the typed answer that it gives in
 * place of a text. */
export function streamedText(streaming) {
  if (streaming === null || streaming.text || streaming.output === null) return streaming?.text ?? "";
  return JSON.stringify(streaming.output, null, 2);
}

/** Return the items of a view, each turn that has ended followed by its end. */
export function itemsWithEnds(view) {
  return view.items.flatMap((item, index) => {
    const isLast = view.items[index + 1]?.turn !== item.turn;
    const end = isLast ? view.turns.get(item.turn) : undefined;
    return end ? [item, end] : [item];
  });
}

// --- the order of updates

function isAfter(id, other) {
  const [seq, n] = id.split(".").map(Number);
  const [otherSeq, otherN] = other.split(".").map(Number);
  return seq > otherSeq || (seq === otherSeq && n > otherN);
}

// --- a snapshot

function fromSnapshot(view, { id, data }, textIsThought) {
  return {
    known: true,
    lastId: id,
    state: data.state,
    items: itemsOfTranscript(data.transcript, "snapshot", data.state, textIsThought),
    streaming: data.streaming ? { thinking: "", text: "", output: null, ...data.streaming, restarts: restartsAfter(view) } : null,
    speech: data.streaming?.speech ? speechOf(data.streaming, data.streaming.speech) : null,
    turns: view.turns,
  };
}

/** The conversation went to another branch: its transcript takes the place of all that was shown. */
function rewind(view, { transcript }, id, textIsThought) {
  const shown = new Set(transcript.map((message) => message.turn ?? 0));
  const turns = new Map([...view.turns].filter(([number]) => shown.has(number)));
  const items = itemsOfTranscript(transcript, id, { type: "idle" }, textIsThought);
  return { ...view, items, streaming: null, speech: null, turns };
}

/** The user has told what they have heard of a turn: what it holds now takes the place of what was shown of it. */
function cut(view, { turn, transcript }, id, textIsThought) {
  const items = itemsOfTranscript(transcript, id, { type: "idle" }, textIsThought);
  const first = view.items.findIndex((item) => item.turn === turn);
  if (first < 0) return view;
  const [before, behind] = [view.items.slice(0, first), view.items.slice(first).filter((item) => item.turn !== turn)];
  return { ...view, items: [...before, ...items, ...behind] };
}

/** The items of all messages. `name` tells their keys from those of other transcripts. */
function itemsOfTranscript(transcript, name, state, textIsThought) {
  const items = transcript.flatMap((message, index) => itemsOf(message, `${name}:${index}`, textIsThought && message.turn > 0));
  return numbered(settled(withResults(items), state));
}

/** The items of one message; results are joined with their calls afterwards. */
function itemsOf(message, key, isThought) {
  const { role, text = "", turn = 0, deliveries = [], heard = null } = message;
  if (role === "tool") return [resultOf(message), ...deliveries.map((one, n) => delivered(`${key}:${n}`, turn, one, n === deliveries.length - 1 ? heard : null))];
  if (role !== "user" && role !== "assistant") return [];
  const items = message.thinking ? [{ kind: "thought", key: `${key}:thinking`, turn, text: message.thinking }] : [];
  const isOwn = role === "assistant" && deliveries.includes(text);
  if (role === "assistant" && isThought && !message.spoken) {
    if (text.trim()) items.push({ kind: "thought", key, turn, text });
  } else if (text.trim() || message.files?.length) {
    items.push({ ...messageItem(key, message), delivery: isOwn ? unnumbered() : null });
  }
  const others = isOwn && !isThought ? deliveries.filter((one) => one !== text) : deliveries;
  items.push(...others.map((one, n) => delivered(`${key}:${n}`, turn, one)));
  items.push(...(message.tool_calls ?? []).map((call) => callItem(call, turn)));
  return items;
}

function messageItem(key, { role, text = "", turn = 0, files = [], citations = [], message_id: messageId = "", origin = "", stopped, heard = null }) {
  const isStopped = Boolean(stopped);
  return { kind: "message", key, turn, role, text, files, citations, messageId, origin, delivery: null, isStopped, heard };
}

function delivered(key, turn, text, heard = null) {
  return { kind: "delivery", key: `delivery:${key}`, turn, text, relayed: false, delivery: unnumbered(), heard };
}

function unnumbered() {
  return { ordinal: 0, channels: {} };
}

function callItem(call, turn) {
  return {
    kind: "tool", key: `tool:${call.call_id}`, turn, callId: call.call_id, name: call.name, arguments: call.arguments ?? {},
    rawArguments: call.raw_arguments ?? null, status: "waiting", result: null, error: null,
    speaks: (call.acts ?? []).includes("speech"), progress: "", files: [],
  };
}

function resultOf({ tool_call_id: callId, text = "", error = false, stopped = null, files = [] }) {
  const status = stopped ?? (error ? "failed" : "completed");
  return { kind: "result", callId, status, result: error ? null : text, error: error ? text : null, files };
}

/** The items with each result put into the call that it belongs to. A result without a call is left out. */
function withResults(items) {
  const results = new Map(items.filter((item) => item.kind === "result").map((item) => [item.callId, item]));
  return items
    .filter((item) => item.kind !== "result")
    .map((item) => {
      if (item.kind !== "tool" || !results.has(item.callId)) return item;
      const { status, result, error, files } = results.get(item.callId);
      return { ...item, status, result, error, files };
    });
}

/** The first call without a result is the one that runs, if the state is one in which calls run. The others are not
 * shown until they begin, as for somebody who watches. */
function settled(items, state) {
  const first = items.find((item) => item.kind === "tool" && item.status === "waiting");
  const running = CALLS_RUN.has(state.type) ? first : undefined;
  return items
    .filter((item) => item.status !== "waiting" || item === running)
    .map((item) => (item === running ? { ...item, status: "running" } : item));
}

const CALLS_RUN = new Set(["tool_executing", "awaiting_user_response", "awaiting_sub_agents", "in_doubt", "cancelling"]);

/** The items with their deliveries counted, from 1 in each turn. */
function numbered(items) {
  const counts = new Map();
  return items.map((item) => {
    if (!item.delivery) return item;
    const ordinal = (counts.get(item.turn) ?? 0) + 1;
    counts.set(item.turn, ordinal);
    return { ...item, delivery: { ...item.delivery, ordinal } };
  });
}

// --- updates

const HANDLERS = {
  rewound: rewind,
  heard: cut,
  state_change: changeState,
  message: addMessage,
  thought: addThought,
  tool: showTool,
  tool_progress: showProgress,
  delivery: addDelivery,
  delivered: (view, data) => noteDelivery(view, data, { taken: true }),
  delivery_failed: (view, data) => noteDelivery(view, data, { taken: false, sentence: data.sentence }),
  turn_ended: endTurn,
  token: addToken,
  output: addOutput,
};

function changeState(view, { type, data: { left_out: leftOut = [], ...data } }, id) {
  const { turn, request, attempt } = data;
  const goes = view.streaming && view.streaming.request === request && view.streaming.attempt === attempt;
  const notes = leftOut.map((text, index) => ({ kind: "left_out", key: `${id}:${index}`, turn, text }));
  const items = notes.length ? [...view.items, ...notes] : view.items;
  const speech = isGivenUp(view.speech, type, data) ? null : view.speech;
  return { ...view, known: true, state: { type, data }, streaming: goes ? view.streaming : null, speech, items };
}

/** Whether what a tool was to say is not said: the response with it has failed, or nothing more is done. */
function isGivenUp(speech, type, { request, attempt }) {
  if (speech === null || isRest(type) || type === "retry_waiting") return true;
  return request === speech.request && attempt !== speech.attempt;
}

function addMessage(view, data, id) {
  const streaming = data.role === "assistant" ? null : view.streaming;
  return { ...view, streaming, items: [...view.items, messageItem(id, data)] };
}

function addThought(view, { text, turn }, id) {
  return { ...view, streaming: null, items: [...view.items, { kind: "thought", key: id, turn, text }] };
}

function showTool(view, data) {
  const shown = callItem(data, data.turn);
  const { status, result = null, error = null, speaks, files = [] } = data;
  const item = { ...shown, status, result, error, speaks, files };
  const index = view.items.findLastIndex((one) => one.key === item.key);
  if (index < 0) return { ...view, items: [...view.items, item] };
  const progress = status === "running" ? view.items[index].progress : "";
  return { ...view, items: view.items.with(index, { ...item, progress }) };
}

function showProgress(view, { call_id: callId, text }) {
  const index = view.items.findLastIndex((one) => one.kind === "tool" && one.callId === callId);
  if (index < 0 || view.items[index].status !== "running") return view;
  return { ...view, items: view.items.with(index, { ...view.items[index], progress: text }) };
}

/** A delivery marks the message whose text it is, else it is an item of its own. */
function addDelivery(before, { text, turn, ordinal, relayed = false }, id) {
  const view = relayed ? before : { ...before, speech: withoutDelivered(before.speech, text) };
  const delivery = { ordinal, channels: {} };
  const index = view.items.findLastIndex(
    (one) => one.kind === "message" && one.role === "assistant" && one.turn === turn && one.text === text && !one.delivery,
  );
  if (index >= 0) return { ...view, items: view.items.with(index, { ...view.items[index], delivery }) };
  return { ...view, items: [...view.items, { kind: "delivery", key: `delivery:${id}`, turn, text, relayed, delivery, heard: null }] };
}

/** What is still to be said behind this text; nothing if something else was said. */
function withoutDelivered(speech, text) {
  const rest = speech?.text.startsWith(text) ? speech.text.slice(text.length).trimStart() : "";
  return rest ? { ...speech, text: rest } : null;
}

function noteDelivery(view, { turn, ordinal, channel }, outcome) {
  const index = view.items.findLastIndex((one) => one.turn === turn && one.delivery?.ordinal === ordinal);
  if (index < 0) return view;
  const item = view.items[index];
  const channels = { ...item.delivery.channels, [channel]: outcome };
  return { ...view, items: view.items.with(index, { ...item, delivery: { ...item.delivery, channels } }) };
}

function endTurn(view, data) {
  return { ...view, speech: null, turns: new Map(view.turns).set(data.turn, endItem(data)) };
}

function endItem(data) {
  return { kind: "end", key: `end:${data.turn}`, ...data };
}

function addToken(view, token) {
  return token.kind === "speech" ? addSpeech(view, token) : addText(view, token);
}

function addSpeech(view, { text, from_start: fromStart = false, ...token }) {
  const now = view.speech;
  const goesOn = now !== null && !fromStart && now.request === token.request && now.attempt === token.attempt;
  return { ...view, speech: speechOf(token, goesOn ? now.text + text : text) };
}

function speechOf({ turn, request, attempt }, text) {
  return { turn, request, attempt, text };
}

function addText(view, { text, kind, turn, request, attempt, from_start: fromStart = false }) {
  const base = streamingOf(view, turn, request, attempt);
  const restarts = base === view.streaming && fromStart ? base.restarts + 1 : base.restarts;
  return { ...view, streaming: { ...base, restarts, [kind]: fromStart ? text : base[kind] + text } };
}

function addOutput(view, { value, turn, request, attempt }) {
  return { ...view, streaming: { ...streamingOf(view, turn, request, attempt), output: value } };
}

/** What was streamed of the answer to this attempt of this request. */
function streamingOf(view, turn, request, attempt) {
  const now = view.streaming;
  if (now !== null && now.request === request && now.attempt === attempt) return now;
  return { turn, request, attempt, text: "", thinking: "", output: null, restarts: restartsAfter(view) };
}

/** How often the streamed text began anew: whoever shows it appends while this number stays, else replaces. */
function restartsAfter(view) {
  return (view.streaming?.restarts ?? 0) + 1;
}
