// How states, times, counts and money read.

/** What each state is called, by its type. */
export const STATE_LABELS = {
  idle: "Ready",
  profile_selecting: "Choosing a profile",
  memory_recalling: "Remembering",
  llm_requesting: "Thinking",
  retry_waiting: "Waiting to try again",
  tool_executing: "Running a tool",
  awaiting_user_response: "Needs an answer",
  awaiting_approval: "Needs approval",
  awaiting_sub_agents: "Sub-agents at work",
  verifying: "Checking the work",
  summarizing: "Summing up",
  compacting: "Condensing",
  cancelling: "Stopping",
  in_doubt: "Needs a decision",
  failed: "Failed",
  closed: "Closed",
};

const WAITS_FOR_PERSON = new Set(["awaiting_user_response", "awaiting_approval", "in_doubt"]);
const RESTS = new Set(["idle", "closed", "failed"]);

/** Return how a state is coloured: "rest", "busy", "person", "failed" or "closed". */
export function stateTone(type) {
  if (WAITS_FOR_PERSON.has(type)) return "person";
  if (type === "failed" || type === "closed") return type;
  return RESTS.has(type) ? "rest" : "busy";
}

/** Return the label of a state. A state of a later version is called by its type. */
export function stateLabel(type) {
  return STATE_LABELS[type] ?? type.replaceAll("_", " ");
}

const UNITS = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

/** Return when something was, seen from `now` (milliseconds): "just now", "5 min. ago", "yesterday". */
export function relativeTime(iso, now = Date.now()) {
  const seconds = Math.round((new Date(iso).getTime() - now) / 1000);
  for (const [unit, length] of UNITS) {
    if (Math.abs(seconds) >= length) return relative.format(Math.trunc(seconds / length), unit);
  }
  return "just now";
}

const number = new Intl.NumberFormat("en");

/** Return a number with separators. */
export function count(value) {
  return number.format(value);
}

/** Return what something has cost: tokens, and money where the price is known. Empty if nothing is known. */
export function usageText(usage) {
  if (!usage) return "";
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
  const parts = tokens ? [`${count(tokens)} tokens`] : [];
  if (usage.cost !== null && usage.cost !== undefined) parts.push(money(usage.cost));
  return parts.join(" · ");
}

/** Return what `usageText` shortens: each kind of token. */
export function usageDetails(usage) {
  const lines = [`${count(usage.input_tokens ?? 0)} tokens in`, `${count(usage.output_tokens ?? 0)} tokens out`];
  if (usage.cached_tokens) lines.push(`${count(usage.cached_tokens)} of the input from the cache`);
  if (usage.reasoning_tokens) lines.push(`${count(usage.reasoning_tokens)} of the output for thinking`);
  return lines.join(", ");
}

function money(dollars) {
  if (dollars === 0) return "$0";
  return dollars < 0.01 ? `$${Number(dollars.toPrecision(2))}` : `$${dollars.toFixed(2)}`;
}

/** Return a text on one line, cut to a length. */
export function oneLine(text, length = 120) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}
