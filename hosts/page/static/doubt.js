// A call that was running when the server ended, and that must not run twice: only a person can find out whether it
// ran.

import { writtenArguments } from "./arguments.js";
import { el } from "./dom.js";
import { withHiddenShown } from "./hidden_characters.js";

const VERDICTS = [
  ["ran", "It ran", "The model is told that the call ran and that its result is lost."],
  ["did_not_run", "It did not run", "The model is told that nothing happened."],
  ["again", "Run it again", "The tool runs once more, with the same arguments."],
];

/** The panel of a call in doubt. See person.js for what a panel has. */
export class DoubtPanel {
  constructor(state, { send }) {
    const { call_id: callId, name, arguments: given, raw_arguments: raw } = state.data;
    this.heading = `Did the tool “${withHiddenShown(name)}” run?`;
    this.announcement = this.heading;
    const sentence = "The server ended while this call was running, so nobody knows whether it took effect. Look where you would see its effect, then say what happened.";
    const choices = VERDICTS.map(([verdict, label, meaning], index) => {
      const meaningId = `doubt-${callId}-${index}`;
      const decide = () => send("resolveCall", { call_id: callId, verdict });
      const button = el("button", { type: "button", className: "button", "aria-describedby": meaningId, onclick: decide }, label);
      return el("div", { className: "doubt-choice" }, button, el("p", { className: "person-hint", id: meaningId }, meaning));
    });
    const written = writtenArguments(given ?? {}, raw);
    this.element = el("div", {}, el("p", { className: "doubt-sentence" }, sentence), written, el("div", { className: "doubt-choices" }, choices));
  }
}
