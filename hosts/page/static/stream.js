// Follows updates as they happen, by one EventSource after the other, each of which goes on where the one before it ended.
//
// A connection that breaks is opened again from the last update that was seen. While the tab is hidden there is no
// connection, because a browser opens only six to a server.

import { parseExactly } from "./exact_json.js";

/** Milliseconds before the first attempt to connect again, and the most before any other. */
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;

/** After how many failures in a row a snapshot is asked for, since the server may not know the last id any more. */
const FAILURES_BEFORE_SNAPSHOT = 4;

/** The types of updates, each of which is an event of its own in the stream. */
const UPDATE_TYPES = [
  "snapshot", "rewound", "heard", "state_change", "message", "thought", "tool", "delivery", "turn_ended",
  "token", "output", "tool_progress", "delivered", "delivery_failed",
];

/** Reasons after which a stream is not opened again. */
const FINAL_REASONS = new Set(["closed", "deleted"]);

/**
 * A stream of updates. It begins at once, and lasts until `close`.
 *
 * `event` is the name of its events; null stands for the types of updates. `onUpdate` gets each update, and `onState` the
 * state of the connection: {phase: "connecting" | "open" | "waiting" | "paused" | "ended", reason?, problem?}. `probe`
 * sends any request to the same server, and rejects with the `Problem` that keeps the stream from being opened.
 */
export class Stream {
  #address;
  #options;
  #source = null;
  #lastId = null;
  #failures = 0;
  #timer = null;
  #ended = false;
  #onVisibility = () => (document.hidden ? this.#pause() : this.#resume());

  constructor(url, options) {
    this.#address = url;
    this.#options = options;
    document.addEventListener("visibilitychange", this.#onVisibility);
    if (document.hidden) this.#report("paused");
    else this.#open();
  }

  /** End it for good. */
  close() {
    this.#ended = true;
    document.removeEventListener("visibilitychange", this.#onVisibility);
    this.#disconnect();
  }

  #open() {
    if (this.#ended || this.#source) return;
    this.#report("connecting");
    const url = new URL(this.#address);
    if (this.#lastId !== null) url.searchParams.set("last_event_id", this.#lastId);
    const source = new EventSource(url);
    this.#source = source;
    source.onopen = () => {
      this.#failures = 0;
      this.#report("open");
    };
    source.onerror = () => this.#lose();
    for (const type of this.#options.event ? [this.#options.event] : UPDATE_TYPES) {
      source.addEventListener(type, (event) => this.#take(event));
    }
    source.addEventListener("end", (event) => this.#end(JSON.parse(event.data)));
  }

  #take(event) {
    const update = parseExactly(event.data);
    if (update.id) this.#lastId = update.id;
    this.#options.onUpdate(update);
  }

  #end({ data }) {
    const reason = data?.reason ?? "unknown";
    if (!FINAL_REASONS.has(reason)) return this.#lose();
    this.close();
    this.#report("ended", { reason });
  }

  /** The connection broke. The browser would try again by itself, but from the id with which it began. */
  #lose() {
    if (this.#ended) return;
    this.#disconnect();
    const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.#failures) * (0.75 + Math.random() / 2);
    this.#failures += 1;
    if (this.#failures > FAILURES_BEFORE_SNAPSHOT) this.#lastId = null; // another database may not know the id
    this.#report("waiting");
    this.#timer = setTimeout(() => this.#probe(), wait);
  }

  /** Try again now, if it waits for the next attempt. */
  tryNow() {
    if (this.#ended || this.#source || document.hidden) return;
    clearTimeout(this.#timer);
    this.#failures = 0;
    this.#probe();
  }

  /** Ask why, before the next attempt: an EventSource does not tell what the server answered. */
  async #probe() {
    try {
      await this.#options.probe();
    } catch (problem) {
      if (this.#ended) return;
      if (problem.status === 404 || problem.status === 401) {
        this.close();
        this.#report("ended", { reason: problem.status === 404 ? "deleted" : "unauthorized", problem });
      } else if (!document.hidden) {
        this.#lose();
      }
      return;
    }
    if (!document.hidden) this.#open();
  }

  #pause() {
    this.#disconnect();
    this.#report("paused");
  }

  #resume() {
    this.#failures = 0;
    this.#open();
  }

  #disconnect() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #report(phase, more = {}) {
    this.#options.onState({ phase, ...more });
  }
}
