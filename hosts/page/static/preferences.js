// What a person prefers, remembered by the browser for all tabs. Where it remembers nothing, nothing is lost but that.

/** Return what was set last under this name, or null. */
export function preference(name) {
  try {
    return localStorage.getItem(`turnwise.${name}`);
  } catch {
    return null;
  }
}

/** Remember a text under this name. */
export function setPreference(name, text) {
  try {
    localStorage.setItem(`turnwise.${name}`, text);
  } catch {
    // The next page begins with what is usual.
  }
}
