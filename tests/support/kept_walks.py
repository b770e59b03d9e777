"""The walks that are kept in fixtures/walks.txt, and what they go through.

Taking all of them needs seconds, so it is done once in a process, for all tests that ask; conftest.py lets one process
run all these tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from turnwise.states import Closed, Context, Event, ProfileTransferred, Schedule, ScheduleChanged, State, Verifying
from turnwise.states.grammar import Junction
from turnwise.states.machine import branches_for, entry_for
from turnwise.states.states import Busy
from turnwise.states.table import TABLE
from turnwise.states.values.turn import MAX_INBOX, Waiting
from turnwise.testing.generation.chance import Chance
from turnwise.testing.generation.events import candidates, every_request
from turnwise.testing.generation.vocabulary import Vocabulary
from turnwise.testing.strategies import NOON

from ..walking import (
    Coverage,
    Kept,
    Pair,
    RecordedChoices,
    WalkStep,
    generator_of,
    place_of,
    read_walks,
    walk,
)

WALKS = Path(__file__).parent.parent / "fixtures" / "walks.txt"

SCHEDULED = ScheduleChanged(event_id="schedule", at=NOON, schedule=Schedule(every=60, task="Look."), next_wake=NOON)
"""A schedule, which no sub-agent may have."""

TRANSFERRED = ProfileTransferred(event_id="profile", at=NOON, profile="unknown")
"""A hand-over to a profile that no policy has."""

FULL_INBOX = tuple(Waiting(event_id=f"waiting {n}", seq=n) for n in range(MAX_INBOX))


@dataclass
class Survey:
    """What the kept walks go through."""

    coverage: Coverage = field(default_factory=Coverage)
    pairs: dict[Kept, list[Pair]] = field(default_factory=dict)
    """The pairs of rows that each walk takes, in order."""
    checked: list[Kept] = field(default_factory=list)
    """The walks in which work is verified."""
    entries: set[tuple[type[State], int]] = field(default_factory=set)
    """Each entry of the table that some event met, by its state and its place there."""
    branches: set[tuple[str, int]] = field(default_factory=set)
    """Each branch that some step took, by the name of its junction and its place there."""

    def take(self, kept: Kept) -> None:
        """Take a walk. At every thirtieth step, offer the state whatever else could happen: as it is, with a full
        inbox, and when the conversation is closed; unless each entry of that state was met before."""
        seed, choices = kept
        pairs, checked = self.pairs.setdefault(kept, []), False
        generator = generator_of(seed)
        for place, step in enumerate(walk(seed, RecordedChoices(choices))):
            self.coverage.add(step.pair)
            pairs.append(step.pair)
            checked = checked or isinstance(step.state, Verifying)
            self._meet(step, step.state, step.event)
            self._branch(step)
            if place % 30 == 0:
                self._meet_everything(step, generator)
        if checked:
            self.checked.append(kept)

    def _meet_everything(self, step: WalkStep, generator: tuple[Chance, Vocabulary]) -> None:
        waking = step.state.replace(book=step.state.book.replace(wake=NOON))
        crowded = waking.replace(inbox=FULL_INBOX) if isinstance(waking, Busy) else Closed()
        for state in (step.state, crowded):
            if all((type(state), place) in self.entries for place in range(len(TABLE[type(state)]))):
                continue
            for event in (*candidates(*generator, state, NOON), *every_request(*generator, state, NOON)):
                self._meet(step, state, event)
        self._meet(step, step.state, SCHEDULED, step.context.replace(role="sub_agent"))
        self._meet(step, step.state, TRANSFERRED)

    def _meet(self, step: WalkStep, state: State, event: Event, context: Context | None = None) -> None:
        entry = entry_for(state, event, context or step.context)
        if entry is not None:
            self.entries.add((type(state), place_of(type(state), entry)))

    def _branch(self, step: WalkStep) -> None:
        target = step.pair[1].row.to
        if not isinstance(target, Junction):
            return
        for branch in branches_for(step.state, step.event, step.context):
            assert isinstance(target, Junction)
            self.branches.add((target.name, target.branches.index(branch)))
            target = branch.to


@cache
def survey() -> Survey:
    """Take every kept walk, once in this process."""
    found = Survey()
    for kept in read_walks(WALKS):
        found.take(kept)
    return found
