// What a new conversation can be given before its first message: a model, instructions, and tools.

import { el, replaceChildren } from "./dom.js";

class TurnwiseOptions extends HTMLElement {
  #model = null;
  #system = null;
  #tools = [];

  /** Read the models and tools that the server offers. Without them a conversation begins with its defaults. Only with
   * the permission `system` it can be given instructions. */
  async load(client, permissions) {
    try {
      const [{ models }, { tools }] = await Promise.all([client.listModels(), client.listTools()]);
      this.#build(models, tools, permissions.includes("system"));
    } catch {
      this.replaceChildren();
    }
  }

  /** The chosen options as the body of a request; what was left alone is left out. */
  get chosen() {
    const unchecked = this.#tools.filter((box) => !box.checked);
    return {
      ...(this.#model?.selectedIndex > 0 ? { model: this.#model.value } : {}),
      ...(this.#system?.value.trim() ? { system: this.#system.value.trim() } : {}),
      ...(unchecked.length ? { tools: this.#tools.filter((box) => box.checked).map((box) => box.value) } : {}),
    };
  }

  #build(models, tools, mayInstruct) {
    this.#model = models.length > 1 ? el("select", { id: "option-model" }, models.map((name) => el("option", { value: name }, name))) : null;
    this.#system = mayInstruct ? el("textarea", { id: "option-system", rows: 3, placeholder: "You are …" }) : null;
    this.#tools = tools.map(({ name }) => el("input", { type: "checkbox", value: name, checked: true }));
    const boxes = tools.map(({ name, description }, index) =>
      el("label", { className: "tool-choice", title: description ?? "" }, this.#tools[index], el("code", {}, name)),
    );
    const fields = [
      this.#model && el("div", { className: "field" }, el("label", { htmlFor: "option-model" }, "Model"), this.#model),
      this.#system && el("div", { className: "field" }, el("label", { htmlFor: "option-system" }, "Instructions"), this.#system),
      tools.length > 0 && el("fieldset", { className: "field" }, el("legend", {}, "Tools"), el("div", { className: "tool-choices" }, boxes)),
    ];
    if (!fields.some(Boolean)) return this.replaceChildren();
    replaceChildren(this, el("details", { className: "options" }, el("summary", {}, "Options"), el("div", { className: "fields" }, fields)));
  }
}

customElements.define("turnwise-options", TurnwiseOptions);
