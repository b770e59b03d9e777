// The columns beside the chat: the list of conversations and the inspector. Where the window has no room for a column it
// is a drawer, which lies above the chat and holds the focus while it is open.

import { el, iconButton } from "./dom.js";
import { preference, setPreference } from "./preferences.js";

/** Where a column is a drawer. style.css has the same widths. */
const IS_DRAWER = { list: matchMedia("(max-width: 899px)"), inspector: matchMedia("(max-width: 1099px)") };

export class SideColumns {
  #app;
  #chat;
  #columns;
  #buttons;
  #isInspectable = false;
  #drawer = null; // the name of the column whose drawer is open

  /** Make the columns of `app`, in which the elements `list` and `inspector` stand beside `chat`. */
  constructor(app, { list, chat, inspector }) {
    this.#app = app;
    this.#chat = chat;
    this.#columns = {
      list: this.#column("nav", "list-column", "Conversations", list),
      inspector: this.#column("aside", "inspector-column", "Inspector", inspector),
    };
    this.#buttons = {
      list: iconButton("menu", "Conversations", () => this.#open("list"), { className: "icon-button for-list" }),
      inspector: iconButton("panel", "Inspector", () => this.#toggleInspector()),
    };
    this.backdrop = el("div", { className: "backdrop", onclick: () => this.closeDrawer() });
    app.classList.add("without-inspector"); // until it is known whether the reader may inspect
    this.#buttons.inspector.hidden = true;
    for (const query of Object.values(IS_DRAWER)) query.addEventListener("change", () => this.closeDrawer());
    this.#update();
  }

  /** Show the inspector, or neither it nor its button: what it reads of the log may be refused. */
  mayInspect(isAllowed) {
    this.#isInspectable = isAllowed;
    this.#buttons.inspector.hidden = !isAllowed;
    this.#app.classList.toggle("without-inspector", !isAllowed || preference("inspector") === "closed");
    this.#update();
  }

  /** The columns as elements: {list, inspector}. */
  get elements() {
    return this.#columns;
  }

  /** The buttons that open the columns, for the header of the chat: {list, inspector}. */
  get buttons() {
    return this.#buttons;
  }

  /** Close the drawer that is open, if there is one. A focus in it goes back to the button that opened it. */
  closeDrawer() {
    const open = this.#drawer;
    const hadFocus = open !== null && this.#columns[open].contains(document.activeElement);
    this.#drawer = null;
    this.#update();
    if (hadFocus) this.#buttons[open].focus();
  }

  #column(tag, className, name, content) {
    const close = iconButton("close", `Close ${name.toLowerCase()}`, () => this.closeDrawer());
    const bar = el("div", { className: "drawer-bar" }, el("span", {}, name), close);
    return el(tag, { className: `column ${className}`, "aria-label": name }, bar, content);
  }

  #open(name) {
    this.#drawer = name;
    this.#update();
    this.#columns[name].querySelector(".drawer-bar button").focus();
  }

  #toggleInspector() {
    if (IS_DRAWER.inspector.matches) return this.#open("inspector");
    const isHidden = this.#app.classList.toggle("without-inspector");
    setPreference("inspector", isHidden ? "closed" : "open");
    return this.#update();
  }

  /** A column that is out of sight takes no focus, and neither does what lies behind an open drawer. */
  #update() {
    const isHidden = { list: false, inspector: this.#app.classList.contains("without-inspector") };
    for (const [name, column] of Object.entries(this.#columns)) {
      const isOpen = this.#drawer === name;
      this.#app.classList.toggle(`${name}-open`, isOpen);
      column.inert = IS_DRAWER[name].matches ? !isOpen : isHidden[name] || this.#drawer !== null;
      this.#buttons[name].setAttribute("aria-expanded", String(!column.inert));
    }
    this.#chat.inert = this.#drawer !== null;
  }
}
