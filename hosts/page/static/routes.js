// Finds the way that a step took over the map of the machine. It knows neither the document nor the network.

/** The map of `GET /machine`, indexed. */
export class MachineMap {
  #standIns;
  #framed;

  constructor(data) {
    this.data = data;
    this.states = new Map(data.states.map((state) => [state.type, state]));
    this.lines = new Map();
    this.#standIns = new Map(data.junctions.map((junction) => [junction.name, junction.state]));
    this.#framed = new Set(data.frame.states);
    for (const line of data.lines) {
      this.lines.set(key(line.source, line.target), { line, isReversed: false });
      if (line.both) this.lines.set(key(line.target, line.source), { line, isReversed: true });
    }
  }

  /** The line from one node to the next, and whether it was given the other way round; undefined if there is none. */
  lineBetween(source, target) {
    return this.lines.get(key(source, target));
  }

  /** The title of a node. */
  titleOf(node) {
    return node === "turn" ? this.data.frame.title : (this.states.get(node)?.title ?? "Start");
  }

  /**
   * The nodes over which a step is drawn. `source` is the state before it, null for the first step; `passed` are the
   * names of the junctions that it went through. A step that stays has one node.
   */
  routeOf(source, passed, target) {
    if (source === null) return ["start", target];
    const route = [source];
    let last = source;
    for (const node of [...passed.map((name) => this.#standIns.get(name)), target]) {
      if (node === undefined || node === last) continue;
      route.push(...this.#leg(last, node));
      last = node;
    }
    return route;
  }

  /** The nodes behind `source` on the way to `target`: over a line, out of the frame, or over a state between. */
  #leg(source, target) {
    if (this.lineBetween(source, target)) return [target];
    if (this.#framed.has(source) && this.lineBetween("turn", target)) return ["turn", target];
    const between = this.data.states.find(
      ({ type }) => this.lineBetween(source, type) && this.lineBetween(type, target),
    );
    return between ? [between.type, target] : [target];
  }

  /** The lines of a route, in its order: [{line, isReversed}]. */
  linesOf(route) {
    return route.slice(1).map((node, index) => this.lineBetween(route[index], node)).filter(Boolean);
  }

  /** The events that leave `source` over its line to `next`, and, if none does, the states from which this line is
   * passed: {events, passedFrom}. */
  traffic(source, next) {
    const events = new Set();
    const passedFrom = new Set();
    for (const { route, events: some } of this.data.transitions) {
      const place = route.findIndex((node, index) => node === source && route[index + 1] === next);
      if (place === 0 || (place > 0 && source === "turn")) some.forEach((event) => events.add(event));
      else if (place > 0) passedFrom.add(route[0]);
    }
    return { events: [...events], passedFrom: [...passedFrom] };
  }
}

function key(source, target) {
  return `${source} ${target}`;
}
