"""Measures what a transition costs, row by row, beside a dictionary look-up and beside the `transitions` library.

A conversation mostly waits for models and people, so a transition may cost microseconds. It must not cost more the
longer the conversation is, nor dominate the processor time of a busy server. All figures of one run are measured side
by side: the ratios say more than the times, which grow on a busy machine.

    python benchmarks/transition.py            every row of the table
    python benchmarks/transition.py --quick    a few rows, to see that it works; its figures say little

The events of each row are taken from the kept walks of the tests, and the best of several rounds counts. `dictionary`
looks up `(state type, event type)` and calls an empty function; `transitions` fires the
same event through the machine of that library, where each edge asks its guards.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import timeit
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

from figures import Figure, print_figures

from turnwise.states import MACHINE, Context, Event, State, transition

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))

from tests.walking import RecordedChoices, TakenRow, read_walks, walk  # noqa: E402

WALKS = ROOT / "tests" / "fixtures" / "walks.txt"
SAMPLES, ROUNDS, CALLS = 3, 5, 200

Situation = tuple[State, Event, Context]


def situations(walks: int | None = None) -> dict[TakenRow, list[Situation]]:
    """Return a few situations for each row that the first `walks` kept walks take."""
    found: defaultdict[TakenRow, list[Situation]] = defaultdict(list)
    for seed, choices in islice(read_walks(WALKS), walks):
        for step in walk(seed, RecordedChoices(choices)):
            samples = found[step.pair[1]]
            if len(samples) < SAMPLES:
                samples.append((step.state, step.event, step.context))
    return found


def microseconds(function, *arguments: object, calls: int = CALLS) -> float:
    """Return the best time of several rounds, for one call."""
    return min(timeit.repeat(lambda: function(*arguments), number=calls, repeat=ROUNDS)) / calls * 1e6


def fire(state: State, event: Event, context: Context) -> None:
    """Fire the event through the machine of the `transitions` library."""
    MACHINE.events[event.type].trigger(SimpleNamespace(state=state.type), state, event, context)


def measure(samples: list[Situation]) -> tuple[float, float, float]:
    """Return the cost of a row: by `transition`, by a dictionary, by the library."""
    rows = {(type(state), type(event)): _nothing for state, event, _ in samples}
    ours = statistics.mean(microseconds(transition, *each) for each in samples)
    bare = statistics.mean(microseconds(_look_up, rows, *each) for each in samples)
    library = statistics.mean(microseconds(fire, *each, calls=10) for each in samples)
    return ours, bare, library


def _look_up(rows: dict, state: State, event: Event, context: Context) -> None:
    rows[type(state), type(event)](state, event, context)


def _nothing(state: State, event: Event, context: Context) -> None:
    pass


def figures(costs: dict[str, tuple[float, float, float]]) -> Iterator[Figure]:
    """The median row, and what it is beside the others."""
    ours, bare, library = (statistics.median(cost[n] for cost in costs.values()) for n in range(3))
    yield Figure("a transition, the median row", f"{ours:.1f} µs", name="transition", number=ours, unit="µs")
    ratio = ours / bare
    yield Figure(
        "  beside a dictionary", f"{ratio:.0f} times {bare:.2f} µs", name="transition-dictionary", number=ratio
    )
    ratio = ours / library
    note = f"{ratio:.2f} of {library:.0f} µs"
    yield Figure("  beside the library `transitions`", note, name="transition-library", number=ratio)


def main() -> None:
    """Print the median row, the ratios, and the most expensive rows."""
    parser = argparse.ArgumentParser(description="What a transition costs.")
    parser.add_argument("--quick", action="store_true", help="a few rows, to see that it works")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each figure")
    given = parser.parse_args()
    costs = {str(row): measure(samples) for row, samples in situations(2 if given.quick else None).items()}
    print_figures(figures(costs), given.json)
    if given.json:
        return
    print(f"the most expensive of {len(costs)} rows:")
    for name, (cost, _, _) in sorted(costs.items(), key=lambda each: -each[1][0])[:8]:
        print(f"  {cost:6.1f} µs  {name}")


if __name__ == "__main__":
    main()
