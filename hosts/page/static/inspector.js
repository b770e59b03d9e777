// A place for the element, until it is written.

class TurnwiseInspector extends HTMLElement {
  ask() {}

  show() {}
}

customElements.define("turnwise-inspector", TurnwiseInspector);
