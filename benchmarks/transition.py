"""What a transition costs, row by row, beside a bare look-up in a dictionary and beside the `transitions` library.

A conversation spends its life waiting for models and people, so a transition may cost microseconds, but it must not
cost more the longer the conversation is, and it must not be the place where a busy server's time goes. All figures of
one run are taken side by side, so read the ratios: they say more than the times, which a busy machine stretches.

    python benchmarks/transition.py

For each row of the table: the events that take it are drawn from the walks that the tests take, the best of several
rounds counts. `dictionary` looks up `(state type, event type)` and calls an empty function; `transitions` fires the
same event through the machine of that library, where each edge asks its guards.
"""

from __future__ import annotations

import statistics
import timeit
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

from turnwise.states import MACHINE, Context, Event, State, transition
from turnwise.testing.walking import Recorded, Taken, read_walks, walk

WALKS = Path(__file__).parent.parent / "tests" / "fixtures" / "walks.txt"
SAMPLES, ROUNDS, CALLS = 3, 5, 200

Situation = tuple[State, Event, Context]


def situations() -> dict[Taken, list[Situation]]:
    """A few situations for each row of the table."""
    found: defaultdict[Taken, list[Situation]] = defaultdict(list)
    for seed, choices in read_walks(WALKS):
        for stride in walk(seed, Recorded(choices)):
            met = found[stride.pair[1]]
            if len(met) < SAMPLES:
                met.append((stride.state, stride.event, stride.context))
    return found


def microseconds(function, *arguments: object, calls: int = CALLS) -> float:
    """The best of several rounds, for one call."""
    return min(timeit.repeat(lambda: function(*arguments), number=calls, repeat=ROUNDS)) / calls * 1e6


def fire(state: State, event: Event, context: Context) -> None:
    """The same event through the machine of the `transitions` library."""
    MACHINE.events[event.type].trigger(SimpleNamespace(state=state.type), state, event, context)


def measure(met: list[Situation]) -> tuple[float, float, float]:
    """What a row costs: by `transition`, by a dictionary, by the library."""
    rows = {(type(state), type(event)): _nothing for state, event, _ in met}
    ours = statistics.mean(microseconds(transition, *each) for each in met)
    bare = statistics.mean(microseconds(_look_up, rows, *each) for each in met)
    library = statistics.mean(microseconds(fire, *each, calls=10) for each in met)
    return ours, bare, library


def _look_up(rows: dict, state: State, event: Event, context: Context) -> None:
    rows[type(state), type(event)](state, event, context)


def _nothing(state: State, event: Event, context: Context) -> None:
    pass


def main() -> None:
    """Print the median row, the dearest rows, and the ratios."""
    costs = {str(taken): measure(met) for taken, met in situations().items()}
    ours, bare, library = (statistics.median(cost[n] for cost in costs.values()) for n in range(3))
    print(f"{len(costs)} rows; the median row costs {ours:.1f} µs")
    print(f"a bare dictionary {bare:.2f} µs: {ours / bare:.0f} times as much")
    print(f"firing `transitions` {library:.0f} µs: {ours / library:.2f} of it")
    print("the dearest rows:")
    for name, (cost, _, _) in sorted(costs.items(), key=lambda each: -each[1][0])[:8]:
        print(f"  {cost:6.1f} µs  {name}")


if __name__ == "__main__":
    main()
