// <turnwise-tree>: the agents that belong together, as a tree that follows what happens: sub-agents below the
// conversation that started them, background agents below the one that they work for.
//
//   element.client, element.conversationId
//   element.isShown = true          it follows the server only while it is shown: a browser opens few connections
//
// It emits `select` {conversationId}.

import { el, emit, replaceChildren } from "./dom.js";
import { stateLabel, stateTone } from "./states.js";

const MOST_ROWS = 500;

class TurnwiseTree extends HTMLElement {
  client = null;
  #conversationId = null;
  #agents = new Map();
  #folded = new Set();
  #stream = null;
  #phase = "connecting";
  #frame = 0;
  #tabStop = null; // the id of the row that takes the focus

  connectedCallback() {
    this.addEventListener("keydown", (event) => this.#move(event));
  }

  set conversationId(id) {
    this.#conversationId = id;
    this.#tabStop = id;
    this.#renderLater();
  }

  /** Follow the server, or stop. */
  set isShown(isShown) {
    if (isShown === Boolean(this.#stream)) return;
    if (isShown) this.#follow();
    else {
      this.#stream.close();
      this.#stream = null;
    }
  }

  #follow() {
    this.#agents.clear();
    this.#phase = "connecting";
    this.#stream = this.client.followConversations({
      onUpdate: (update) => this.#take(update),
      onState: ({ phase }) => {
        this.#phase = phase;
        this.#renderLater();
      },
    });
    this.#renderLater();
  }

  #take({ conversation_id: id, type, data }) {
    if (type === "tree_snapshot") this.#agents = new Map(data.conversations.map((agent) => [agent.id, agent]));
    else if (type === "conversation_opened") this.#agents.set(data.conversation.id, data.conversation);
    else if (type === "conversation_deleted") this.#agents.delete(id);
    else if (type === "state_change" && this.#agents.has(id)) this.#agents.set(id, { ...this.#agents.get(id), state: data.type });
    else if (type === "message" && data.role === "user" && this.#agents.get(id)?.title === "") {
      this.#agents.set(id, { ...this.#agents.get(id), title: data.text });
    } else return;
    this.#renderLater();
  }

  // --- showing it

  #renderLater() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#render();
    });
  }

  #render() {
    if (!this.#stream) return;
    const hadFocus = this.contains(document.activeElement);
    const rows = this.#rows();
    const isKnown = this.#agents.size > 0;
    if (!rows.some(({ agent }) => agent.id === this.#tabStop)) this.#tabStop = rows[0]?.agent.id ?? null;
    replaceChildren(
      this,
      !isKnown && el("div", { className: "skeleton" }),
      isKnown && el("ul", { className: "agents", role: "tree", "aria-label": "Agents" }, rows.slice(0, MOST_ROWS).map((row) => this.#row(row))),
      rows.length > MOST_ROWS && el("p", { className: "quiet" }, `${rows.length - MOST_ROWS} more are not shown.`),
      isKnown && rows.length <= 1 && el("p", { className: "empty" }, "No other agents belong to this conversation."),
    );
    if (hadFocus) this.querySelector("[tabindex='0']")?.focus();
  }

  #row({ agent, level, place, siblings, children }) {
    const isCurrent = agent.id === this.#conversationId;
    const isFolded = this.#folded.has(agent.id);
    return el(
      "li",
      {
        role: "treeitem",
        className: isCurrent ? "agent current" : "agent",
        dataset: { id: agent.id, level },
        tabIndex: agent.id === this.#tabStop ? 0 : -1,
        "aria-level": level,
        "aria-posinset": place,
        "aria-setsize": siblings,
        "aria-expanded": children > 0 ? String(!isFolded) : null,
        "aria-current": isCurrent ? "true" : null,
        onclick: () => this.#choose(agent.id),
      },
      el("span", { className: "dot", dataset: { tone: stateTone(agent.state) } }),
      el("span", { className: "agent-title" }, agent.title || "Untitled"),
      el("span", { className: "agent-meta" }, [roleOf(agent), stateLabel(agent.state), isFolded && children > 0 && `${children} hidden`].filter(Boolean).join(" · ")),
    );
  }

  /** The rows in sight, from the root of the conversation's tree down. */
  #rows() {
    const children = new Map();
    for (const agent of this.#agents.values()) {
      const above = belongsTo(agent);
      if (above) children.set(above, [...(children.get(above) ?? []), agent]);
    }
    const rows = [];
    const seen = new Set();
    const add = (agent, level, place, siblings) => {
      if (seen.has(agent.id)) return;
      seen.add(agent.id);
      const below = (children.get(agent.id) ?? []).sort(inOrder);
      rows.push({ agent, level, place, siblings, children: below.length });
      if (!this.#folded.has(agent.id)) below.forEach((child, index) => add(child, level + 1, index + 1, below.length));
    };
    const root = this.#root();
    if (root) add(root, 1, 1, 1);
    return rows;
  }

  #root() {
    let agent = this.#agents.get(this.#conversationId);
    const seen = new Set();
    while (agent && !seen.has(agent.id)) {
      seen.add(agent.id);
      const above = this.#agents.get(belongsTo(agent));
      if (!above) break;
      agent = above;
    }
    return agent;
  }

  // --- choosing

  #choose(id) {
    this.#tabStop = id;
    emit(this, "select", { conversationId: id });
    this.#renderLater();
  }

  #move(event) {
    const row = event.target.closest("[role='treeitem']");
    if (!row) return;
    const rows = [...this.querySelectorAll("[role='treeitem']")];
    const place = rows.indexOf(row);
    const { id, level } = row.dataset;
    const isOpen = row.getAttribute("aria-expanded");
    const steps = {
      ArrowDown: () => this.#focus(rows[place + 1]),
      ArrowUp: () => this.#focus(rows[place - 1]),
      Home: () => this.#focus(rows[0]),
      End: () => this.#focus(rows.at(-1)),
      Enter: () => this.#choose(id),
      " ": () => this.#choose(id),
      ArrowRight: () => (isOpen === "false" ? this.#fold(id, false) : isOpen === "true" && this.#focus(rows[place + 1])),
      ArrowLeft: () => {
        if (isOpen === "true") this.#fold(id, true);
        else this.#focus(rows.slice(0, place).findLast((one) => Number(one.dataset.level) < Number(level)));
      },
    };
    if (!Object.hasOwn(steps, event.key)) return;
    event.preventDefault();
    steps[event.key]();
  }

  #fold(id, isFolded) {
    if (isFolded) this.#folded.add(id);
    else this.#folded.delete(id);
    this.#render();
  }

  #focus(row) {
    if (!row) return;
    this.querySelector("[role='treeitem'][tabindex='0']")?.setAttribute("tabindex", -1);
    row.setAttribute("tabindex", 0);
    this.#tabStop = row.dataset.id;
    row.focus();
  }
}

/** The id of the conversation that an agent belongs to. */
function belongsTo(agent) {
  return agent.parent ?? agent.works_for;
}

function roleOf(agent) {
  if (agent.parent) return "sub-agent";
  return agent.role === "background" ? "background" : "";
}

/** Sub-agents first, by the numbers in their ids; then background agents by their titles. */
function inOrder(one, other) {
  if (Boolean(one.parent) !== Boolean(other.parent)) return one.parent ? -1 : 1;
  return nameOf(one).localeCompare(nameOf(other), "en", { numeric: true });
}

function nameOf(agent) {
  return agent.parent ? agent.id : agent.title;
}

customElements.define("turnwise-tree", TurnwiseTree);
