// A place for the element, until it is written.

class TurnwisePerson extends HTMLElement {
  ask() {}

  show() {}
}

customElements.define("turnwise-person", TurnwisePerson);
