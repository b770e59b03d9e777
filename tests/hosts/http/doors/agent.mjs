// Runs scenarios with the HttpAgent of @ag-ui/client, and prints what it received of each as JSON.
import { HttpAgent } from "@ag-ui/client";

const [url] = process.argv.slice(2);
console.warn = () => {};
console.error = () => {};

/** A thread: `run` runs the agent once, after the user has said `text` if there is one. */
class Thread {
  constructor(name) {
    this.agent = new HttpAgent({ url, threadId: `${name}-${process.pid}`, initialState: { page: 3 } });
    this.runs = [];
  }

  async run({ text, parameters } = {}) {
    if (text !== undefined) {
      this.agent.addMessage({ id: `m${this.agent.messages.length}-${this.runs.length}`, role: "user", content: text });
    }
    const run = { events: [], error: null, failure: null };
    const subscriber = {
      onEvent: ({ event }) => void run.events.push(event),
      onRunErrorEvent: ({ event }) => void (run.error = { code: event.code, message: event.message }),
      onRunFailed: ({ error }) => void (run.failure = String(error)),
    };
    try {
      run.result = (await this.agent.runAgent(parameters, subscriber)).result;
    } catch (error) {
      run.failure ??= String(error);
    }
    run.interrupts = this.agent.pendingInterrupts;
    this.runs.push(run);
    return run;
  }

  get report() {
    return { runs: this.runs, messages: this.agent.messages, state: this.agent.state };
  }
}

const scenarios = {
  async says(thread) {
    await thread.run({ text: "say Hello" });
    await thread.run({ text: "recall" });
  },
  async looks(thread) {
    await thread.run({ text: "look Kyoto" });
  },
  async thinks(thread) {
    await thread.run({ text: "think Well" });
  },
  async asks(thread) {
    const { interrupts } = await thread.run({ text: "ask" });
    const payload = { answers: { "Which airport?": "Narita" } };
    await thread.run({ parameters: { resume: [{ interruptId: interrupts[0].id, status: "resolved", payload }] } });
  },
  async declines(thread) {
    const { interrupts } = await thread.run({ text: "ask" });
    await thread.run({ parameters: { resume: [{ interruptId: interrupts[0].id, status: "cancelled" }] } });
  },
  async approves(thread) {
    const { interrupts } = await thread.run({ text: "book Nara" });
    const payload = { approved: true, editedArgs: { place: "Kobe" } };
    await thread.run({ parameters: { resume: [{ interruptId: interrupts[0].id, status: "resolved", payload }] } });
  },
  async fails(thread) {
    await thread.run({ text: "fail" });
  },
  async offers(thread) {
    const tool = { name: "confirm", description: "Ask the page", parameters: {} };
    await thread.run({ text: "say x", parameters: { tools: [tool] } });
  },
};

const reports = {};
for (const [name, scenario] of Object.entries(scenarios)) {
  const thread = new Thread(name);
  await scenario(thread);
  reports[name] = thread.report;
}
process.stdout.write(JSON.stringify(reports));
