// A place for the element, until it is written.

class TurnwiseSession extends HTMLElement {
  ask() {}

  show() {}
}

customElements.define("turnwise-session", TurnwiseSession);
