"""What must hold of a conversation however it was disturbed: the promises to which both kinds of disturbance hold it,
processes that are killed and simulations. Each is told in a sentence where it is broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ..states.effects import ExecuteTool
from ..states.events import DoubtResolved
from ..states.log import LogEntry
from ..states.states import Closed, Failed, Idle, State, pending


def runs_beyond_contract(entries: Sequence[LogEntry], times_begun: Callable[[int], int]) -> Iterator[str]:
    """A tool that must run at most once is begun once, and once more each time that a person says so. `times_begun`
    tells of an effect how often the world outside saw it begin."""
    verdicts = (entry.event for entry in entries if isinstance(entry.event, DoubtResolved))
    again = Counter(event.call_id for event in verdicts if event.verdict == "again")
    calls = {one.effect_id: one.call for entry in entries for one in entry.effects if isinstance(one, ExecuteTool)}
    for effect_id, call in calls.items():
        times = times_begun(effect_id)
        if call.crash == "at_most_once" and times > 1 + again[call.call_id]:
            yield f"{call.name} must run at most once, and was begun {times} times as the effect {effect_id}"


def open_work(state: State) -> Iterator[str]:
    """A conversation that has come to its end rests, and waits for nothing."""
    if pending(state) or not isinstance(state, Idle | Failed | Closed):
        yield f"it rests in {state.type} and waits for {sorted(pending(state))}"
