// How times, counts, money, and names and texts of any length read.

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

/** Return the size of a file: "17 bytes", "120 kB", "2.4 MB". */
export function bytes(size) {
  if (size < 1000) return `${size} bytes`;
  const [value, unit] = size < 999_500 ? [size / 1000, "kB"] : [size / 1_000_000, "MB"];
  return `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} ${unit}`;
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

/** Return the name of a class or of a type as words: "LLM response" for "LlmResponse", "Tool executing" for
 * "tool_executing". */
export function inWords(name) {
  const words = name.replace(/_/g, " ").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase().replace("sub agent", "sub-agent");
  return words.replace(/^./, (letter) => letter.toUpperCase()).replace(/\bllm\b/gi, "LLM");
}

/** Return a text on one line, cut to a length. */
export function oneLine(text, length = 120) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}
