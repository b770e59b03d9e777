// How each item of a view looks: messages, thoughts, tool calls, deliveries, and the ends of turns.

import { el, icon, iconButton } from "./dom.js";
import { fileElements } from "./files.js";
import { parseExactly, textFor } from "./exact_json.js";
import { isSafe } from "./markdown.js";
import { oneLine, usageDetails, usageText } from "./words.js";

const ASKS = "ask_user_question";

/** Return the element that shows an item. `shown` is {markdown, addressOf, onEdit}: what fills the texts of the model,
 * where the bytes of a file are, and what is called with a message of the user that is to be edited. */
export function render(item, shown) {
  return RENDERERS[item.kind](item, shown);
}

/** Return the element for an item that was `row` before and shown by the element `old`. Progress is written into the old
 * one, because a tool may report often, and who opens its card or reads in it is not to be disturbed. Else it is a new
 * one, in which stays open what was folded open. */
export function renderAgain(item, shown, row, old) {
  if (hasOnlyProgressed(row, item)) {
    showProgress(old.querySelector(".progress"), item);
    return old;
  }
  const element = render(item, shown);
  const details = element.querySelectorAll("details");
  old.querySelectorAll("details").forEach((one, index) => {
    if (details[index]) details[index].open = one.open;
  });
  return element;
}

const RENDERERS = {
  message: renderMessage, thought: renderThought, left_out: renderLeftOut, tool: renderTool, delivery: renderDelivery, end: renderEnd,
};

// --- messages

function renderMessage(item, shown) {
  if (item.role === "user") return item.origin ? agentMessage(item, shown) : userMessage(item, shown);
  const body = el("div", { className: "text prose", dir: "auto" });
  shown.markdown.fill(body, item.text);
  const isFromBefore = item.turn === 0; // the history that the conversation began with was delivered elsewhere, if at all
  const mark = item.delivery ? deliveryMark(item.delivery) : isFromBefore || item.isStopped ? null : displayOnly();
  return el(
    "article", { className: "item assistant", "aria-label": "Assistant" },
    body, fileElements(item.files, shown.addressOf), citationList(item.citations), mark, interruptionMark(item),
  );
}

/** The sources that the model names, each once, as links where they have a safe address. */
function citationList(citations) {
  const sources = new Map(citations.map((one) => [one.url || one.title || one.quote, one]));
  sources.delete(undefined);
  if (!sources.size) return null;
  return el("ol", { className: "citations", "aria-label": "Sources" }, [...sources.values()].map((one) => el("li", {}, citation(one))));
}

function citation({ url = "", title = "", quote = "" }) {
  const name = oneLine(title || url || quote, 100);
  const isLink = isSafe(url);
  return isLink ? el("a", { href: url, target: "_blank", rel: "noopener noreferrer", title: quote || url }, name) : el("span", { title: quote }, name);
}

/** Say that an answer was stopped, or interrupted while it was spoken, and where. */
function interruptionMark({ text, isStopped = false, heard }) {
  if (!isStopped && heard === null) return null;
  const where = heard === null ? "" : heard.trim() === text.trim() ? "; heard up to here" : `; heard: “${oneLine(heard, 80)}”`;
  return el("p", { className: "mark stopped" }, icon("stop"), `${isStopped ? "Stopped" : "Interrupted"}${where}`);
}

/** Return the message of a user; also one that is on its way, which has a `note` below it, and whose files cannot be
 * read yet. */
export function userMessage(item, { addressOf = null, onEdit = null } = {}, note = null) {
  const { text, files, messageId } = item;
  const said = text ? el("div", { className: "text plain", dir: "auto" }, text) : null;
  const body = el("div", { className: "bubble" }, said, fileElements(files, addressOf));
  return el("article", { className: "item user", "aria-label": "You" }, body, note, onEdit && messageId && editButton(item, onEdit));
}

function editButton(item, onEdit) {
  const said = item.text ? `: ${oneLine(item.text, 40)}` : "";
  return el("div", { className: "item-actions" }, iconButton("pencil", `Edit the message${said}`, () => onEdit(item)));
}

function agentMessage(item, { markdown, addressOf }) {
  const body = el("div", { className: "text prose", dir: "auto" });
  markdown.fill(body, item.text);
  const summary = el("summary", {}, icon("branch"), el("span", {}, `Message of the agent ${item.origin}`));
  return el("article", { className: "item aside", "aria-label": `Agent ${item.origin}` }, el("details", {}, summary, body, fileElements(item.files, addressOf)));
}

function renderThought(item) {
  const summary = el("summary", {}, icon("chevron"), el("span", {}, "Thought"), el("span", { className: "excerpt" }, oneLine(item.text)));
  const body = el("div", { className: "text plain", dir: "auto" }, item.text);
  return el("article", { className: "item thought", "aria-label": "Thought" }, el("details", {}, summary, body));
}

function renderLeftOut(item) {
  return el("p", { className: "item left-out", dir: "auto" }, item.text);
}

// --- deliveries

function renderDelivery(item, { markdown }) {
  const body = el("div", { className: "text prose", dir: "auto" });
  markdown.fill(body, item.text);
  const label = item.relayed ? "Relayed to the user" : "Said to the user";
  return el("article", { className: "item assistant delivery", "aria-label": label }, body, deliveryMark(item.delivery, item.relayed), interruptionMark(item));
}

function deliveryMark({ channels }, relayed = false) {
  const failed = Object.entries(channels).filter(([, outcome]) => !outcome.taken);
  const taken = Object.keys(channels).filter((name) => channels[name].taken);
  const what = relayed ? "Relayed" : "Delivered";
  const names = taken.length ? ` by ${taken.join(", ")}` : "";
  return [
    el("p", { className: "mark of-delivery delivered", title: "The user receives this text." }, icon("check"), `${what}${names}`),
    failed.map(([name, { sentence }]) => el("p", { className: "mark failed" }, icon("alert"), `${name}: ${sentence}`)),
  ];
}

function displayOnly() {
  return el("p", { className: "mark of-delivery", title: "The model wrote this text beside its work. It is not delivered to the user." }, "Display only");
}

// --- tools

const STATUS = {
  running: "running", completed: "done", failed: "failed", cancelled: "cancelled", denied: "not allowed",
};

function renderTool(item, { addressOf }) {
  const asks = item.name.endsWith(ASKS);
  const answered = asks ? answersOf(item) : null;
  const summary = el(
    "summary", {}, icon("tool"), el("code", { className: "tool-name" }, item.name),
    el("span", { className: "excerpt" }, answered ? "" : asks ? questionsLine(item) : argumentsLine(item)),
    el("span", { className: `status status-${item.status}` }, asks && item.status === "running" ? "asked" : (STATUS[item.status] ?? item.status)),
  );
  const card = el("details", { className: "card" }, summary, el("div", { className: "card-body" }, toolBody(item)));
  const progress = showProgress(el("p", { className: "progress", role: "status" }), item);
  const error = item.error ? el("p", { className: "tool-error" }, oneLine(item.error, 300)) : null;
  return el("article", { className: "item tool", "aria-label": `Tool ${item.name}` }, card, progress, error, answered, fileElements(item.files, addressOf));
}

function showProgress(element, { status, progress }) {
  element.hidden = status !== "running" || !progress;
  element.textContent = element.hidden ? "" : progress;
  return element;
}

function hasOnlyProgressed(before, item) {
  return item.kind === "tool" && Object.keys(item).every((key) => key === "progress" || item[key] === before[key]);
}

function toolBody(item) {
  const parts = [el("h4", {}, "Arguments"), code(item.rawArguments ?? JSON.stringify(item.arguments, null, 2))];
  if (item.rawArguments !== null) parts[0].append(" (not a JSON object)");
  if (item.result !== null) parts.push(el("h4", {}, "Result"), code(pretty(item.result)));
  if (item.error !== null) parts.push(el("h4", {}, item.status === "failed" ? "Error" : "What the model reads"), code(item.error));
  return parts;
}

function code(text) {
  return el("pre", { tabIndex: 0 }, el("code", {}, text));
}

/** Return JSON indented, and any other text as it is. */
function pretty(text) {
  try {
    const value = parseExactly(text);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : text;
  } catch {
    return text;
  }
}

function argumentsLine(item) {
  const written = Object.entries(item.arguments).map(([key, value]) => `${key}: ${textFor(value)}`);
  return oneLine(item.rawArguments ?? written.join(", "), 160);
}

function questionsLine(item) {
  return oneLine(questionsOf(item).map(({ question }) => textFor(question ?? "")).join(" "), 160);
}

function questionsOf(item) {
  const { questions } = item.arguments;
  return Array.isArray(questions) ? questions.filter((one) => typeof one === "object" && one !== null) : [];
}

/** Return the questions of a call that has ended, and the answers that were given. */
function answersOf(item) {
  const questions = questionsOf(item);
  if (item.status === "running" || item.status === "failed" || !questions.length) return null;
  const answers = answersIn(item.result);
  const rows = questions.map(({ question = "" }) => textFor(question)).flatMap((question) => [
    el("dt", {}, question), el("dd", {}, answers && Object.hasOwn(answers, question) ? answerText(answers[question]) : "No answer"),
  ]);
  return answers || item.status !== "completed" ? el("dl", { className: "answers" }, rows) : null;
}

function answersIn(result) {
  try {
    const { answers } = JSON.parse(result ?? "");
    return typeof answers === "object" ? answers : null;
  } catch {
    return null;
  }
}

function answerText(answer) {
  if (Array.isArray(answer)) return answer.map(textFor).join(", ");
  return answer ? textFor(answer) : "No answer";
}

// --- the ends of turns

const ENDS = {
  cancelled: "Stopped; the conversation goes on.",
  incomplete: "The turn ended before it was complete.",
  failed: "The turn failed.",
};

function renderEnd(turn) {
  const notes = [];
  if (turn.status !== "completed") notes.push(turn.failure ?? ENDS[turn.status] ?? turn.status);
  if (turn.limit) notes.push(`It reached its limit of ${turn.limit.replaceAll("_", " ")}.`);
  if (turn.truncated) notes.push("The answer was cut off: it reached the model's limit.");
  const silent = turn.status === "completed" && turn.silent ? el("span", { className: "note of-delivery" }, "Nothing was delivered to the user.") : null;
  const usage = usageText(turn.usage);
  const cost = usage ? el("span", { className: "usage", title: usageDetails(turn.usage) }, usage) : null;
  const profile = turn.profile ? el("span", { className: "usage" }, turn.profile) : null;
  return el(
    "footer", { className: `item end end-${turn.status}`, "aria-label": `End of turn ${turn.turn}` },
    notes.map((note) => el("span", { className: "note" }, note)), silent, profile, cost,
  );
}
