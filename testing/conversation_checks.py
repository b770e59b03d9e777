"""Invariants of a conversation that hold however it was disturbed, by processes that are killed or by simulations.

Each function yields a sentence for each place where its invariant does not hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ..states.effects import ExecuteTool
from ..states.events import DoubtResolved
from ..states.states import Closed, Failed, Idle, State, pending
from ..states.step import LogEntry


def runs_beyond_contract(entries: Sequence[LogEntry], times_begun: Callable[[int], int]) -> Iterator[str]:
    """A tool that must run at most once is begun once, and once more each time that a person says so. `times_begun`
    returns how often an effect was begun, as seen from outside."""
    verdicts = (entry.event for entry in entries if isinstance(entry.event, DoubtResolved))
    again = Counter(event.call_id for event in verdicts if event.verdict == "again")
    runs = {one.effect_id: one.call for entry in entries for one in entry.effects if isinstance(one, ExecuteTool)}
    for call in dict.fromkeys(runs.values()):
        times = sum(times_begun(effect_id) for effect_id, run in runs.items() if run == call)
        if call.crash == "at_most_once" and times > 1 + again[call.call_id]:
            yield f"{call.name} must run at most once, and was begun {times} times for the call {call.call_id}"


def open_work(state: State) -> Iterator[str]:
    """A conversation in which nothing is left to be done rests, and waits for nothing."""
    if pending(state) or not isinstance(state, Idle | Failed | Closed):
        yield f"it rests in {state.type} and waits for {sorted(pending(state))}"
