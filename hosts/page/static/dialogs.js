// Asks for a text or a confirmation, above the page. The browser keeps the focus inside, and Escape means no.

import { el } from "./dom.js";

/** Return the text that a person enters, or null. */
export function askFor(title, label, text = "") {
  const input = el("input", { type: "text", id: "dialog-input", value: text, maxLength: 200, autocomplete: "off" });
  const content = [el("label", { htmlFor: "dialog-input" }, label), input];
  return askInDialog({ title, content, action: "Save", valueOf: () => input.value.trim(), focused: input });
}

/** Return the value of the choice {value, label, detail} that a person makes, or null; the button that does it says
 * `action`. */
export function askToChoose(title, choices, action) {
  const radios = choices.map(({ value }, index) => el("input", { type: "radio", name: "dialog-choice", value, required: true, checked: index === choices.length - 1 }));
  const rows = choices.map(({ label, detail }, index) =>
    el("label", { className: "dialog-choice" }, radios[index], el("span", { dir: "auto" }, label), el("span", { className: "detail" }, detail)),
  );
  const content = el("div", { className: "dialog-choices", role: "radiogroup", "aria-labelledby": "dialog-title" }, rows);
  const valueOf = () => choices[radios.findIndex((one) => one.checked)].value;
  return askInDialog({ title, content, action, valueOf, focused: radios.at(-1) });
}

/** Return whether a person confirms; the button that does it says `action`. */
export async function askToConfirm(title, sentence, action) {
  const content = el("p", {}, sentence);
  return (await askInDialog({ title, content, action, tone: "danger", valueOf: () => true })) === true;
}

/** Return what `valueOf` says when a person presses the button `action`; null if they press "Cancel" or Escape. */
function askInDialog({ title, content, action, tone = "primary", valueOf, focused = null }) {
  return new Promise((resolve) => {
    const cancel = el("button", { type: "button", className: "button", onclick: () => dialog.close() }, "Cancel");
    const accept = el("button", { type: "submit", className: `button ${tone}` }, action);
    let value = null;
    const onsubmit = (event) => {
      event.preventDefault();
      value = valueOf();
      dialog.close();
    };
    const form = el("form", { onsubmit }, el("h2", { id: "dialog-title" }, title), content, el("div", { className: "dialog-bar" }, cancel, accept));
    const dialog = el("dialog", { className: "dialog", "aria-labelledby": "dialog-title" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(value);
    });
    document.body.append(dialog);
    dialog.showModal();
    (focused ?? cancel).focus();
    if (focused?.type === "text") focused.select();
  });
}
