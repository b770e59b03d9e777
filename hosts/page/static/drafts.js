// What a person has written and what is not part of the conversation yet: a message or an answer that was begun, and the
// messages that are under way. A draft survives a reload of the page and stays in its tab: two tabs do not overwrite each
// other's drafts. Where the browser keeps nothing (storage is full or switched off), it lasts as long as the page.

const PREFIX = "turnwise:draft:";
const keptHere = new Map();

/** The draft of what `key` names. */
export class Draft {
  #key;

  constructor(key) {
    this.#key = PREFIX + key;
  }

  /** Return what was written last, or null. */
  read() {
    try {
      return JSON.parse(sessionStorage.getItem(this.#key) ?? keptHere.get(this.#key) ?? "null");
    } catch {
      return JSON.parse(keptHere.get(this.#key) ?? "null");
    }
  }

  /** Replace what was written before. `value` is anything that JSON can hold. */
  write(value) {
    const text = JSON.stringify(value);
    keptHere.set(this.#key, text);
    try {
      sessionStorage.setItem(this.#key, text);
    } catch {
      // It is kept in the page alone.
    }
  }

  /** Forget what was written. */
  discard() {
    keptHere.delete(this.#key);
    try {
      sessionStorage.removeItem(this.#key);
    } catch {
      // Nothing was stored.
    }
  }
}
