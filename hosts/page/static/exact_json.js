// Reads JSON without rounding. JavaScript keeps integers up to 2^53; a longer one, such as the number of an account, would
// change on its way from the model to the person who approves it. Such a number becomes an object that `JSON.stringify`
// writes back as it was (`JSON.rawJSON`). A browser without it rounds the number, and `isExact` tells.

const LONG_NUMBER = /\d{16}/;
const INTEGER = /^-?\d+$/;

/** Return what a text of JSON holds. Raises SyntaxError. */
export function parseExactly(text) {
  return JSON.rawJSON && LONG_NUMBER.test(text) ? JSON.parse(text, keepInteger) : JSON.parse(text);
}

/** Return whether every number in a value is what it was in the JSON that it was read from. */
export function isExact(value) {
  if (typeof value === "number") {
    const mayBeRounded = !JSON.rawJSON && Number.isInteger(value) && !Number.isSafeInteger(value);
    return Number.isFinite(value) && !mayBeRounded;
  }
  return value === null || typeof value !== "object" || Object.values(value).every(isExact);
}

/** Return whether a value is a number that `JSON.stringify` alone can write. */
export function isLongNumber(value) {
  return JSON.isRawJSON?.(value) ?? false;
}

/** Return a text as it is, and any other value as JSON. A value from elsewhere may have no `toString` that works. */
export function textFor(value) {
  return typeof value === "string" ? value : JSON.stringify(value) ?? "";
}

function keepInteger(_, value, { source } = {}) {
  const isRounded = typeof value === "number" && INTEGER.test(source) && !Number.isSafeInteger(value);
  return isRounded ? JSON.rawJSON(source) : value;
}
