// The steps of one conversation, read from its log in pages: of a long log only what is looked at.
//
//   const steps = new Steps(client, conversationId, () => …called when something has changed…)
//   steps.extendTo(41)          the log has at least so many steps
//   steps.at(12)                the step, or undefined, and then its page is read
//
// One page is read at a time, because the end of a long log takes the server seconds. Whoever still misses a step when
// `changed` is called asks again: what was only passed while scrubbing is not read.
//
// Steps are counted from 1 without gaps. `last` is the newest one known, 0 for none.

export const PAGE = 100;
const MOST_PAGES = 20; // pages that are kept: an event can be large

export class Steps {
  #client;
  #conversationId;
  #changed;
  #pages = new Map(); // steps by the number of their page, each without a gap from its first
  #isReading = false;
  #isClosed = false;

  constructor(client, conversationId, changed) {
    this.#client = client;
    this.#conversationId = conversationId;
    this.#changed = changed;
    this.last = 0;
    /** The problem that kept the steps from being read, or null. */
    this.problem = null;
    /** What the replay says, where a step does not come out as it was stored: no step from there on can be read. */
    this.divergence = null;
  }

  /** Nothing is told any more. */
  close() {
    this.#isClosed = true;
  }

  /** The log has at least `seq` steps. */
  extendTo(seq) {
    if (seq <= this.last || this.divergence) return;
    this.last = seq;
    this.problem = null;
    this.#changed();
  }

  /** The step `seq`; undefined if it is not there yet. Its page is being read then. */
  at(seq) {
    if (seq < 1 || seq > this.last) return undefined;
    const page = pageOf(seq);
    const step = this.#pages.get(page)?.[(seq - 1) % PAGE];
    if (!step && !this.problem) this.#read(page);
    return step;
  }

  /** The steps from `first` to `last` as far as they are there; what is missing is being read. */
  between(first, last) {
    const found = [];
    for (let seq = Math.max(1, first); seq <= Math.min(last, this.last); seq += 1) {
      const step = this.at(seq);
      if (step) found.push(step);
    }
    return found;
  }

  /** Read again after a problem. */
  retry() {
    this.problem = null;
    this.divergence = null;
    this.#changed();
  }

  async #read(page) {
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      await this.#readPage(page);
      this.problem = null;
    } catch (problem) {
      if (!this.#isClosed) await this.#explain(problem);
    }
    this.#isReading = false;
    if (!this.#isClosed) this.#changed();
  }

  async #readPage(page) {
    const known = this.#pages.get(page) ?? [];
    const after = page * PAGE + known.length;
    const end = Math.min((page + 1) * PAGE, this.divergence ? this.last : Infinity);
    if (end <= after) return;
    const { steps } = await this.#client.getLog(this.#conversationId, { after, limit: end - after });
    if (steps.length === 0) throw new Error("The step cannot be read yet.");
    this.#pages.delete(page);
    this.#pages.set(page, [...known, ...steps]);
    if (this.#pages.size > MOST_PAGES) this.#pages.delete(this.#pages.keys().next().value);
    this.last = Math.max(this.last, steps.at(-1).seq);
  }

  /** A log of which a step does not come out as it was stored can be read up to that step. */
  async #explain(problem) {
    this.problem = problem;
    if (this.divergence || problem.code !== "store_error") return;
    const { divergence } = await this.#client.replayConversation(this.#conversationId).catch(() => ({}));
    if (!divergence) return;
    this.divergence = divergence;
    this.last = divergence.seq - 1;
    this.problem = null;
  }
}

/** The newest step that an update tells of, by its id "seq.n". That of a snapshot has an n of 0 and is the next one. */
export function newestStep(id) {
  const [seq, place] = id.split(".").map(Number);
  return place === 0 ? seq - 1 : seq;
}

function pageOf(seq) {
  return Math.floor((seq - 1) / PAGE);
}
