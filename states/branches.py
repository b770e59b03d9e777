"""The branches of a conversation: which of its turns are on the branch that it is on, and what was said on the others.

A conversation that goes back does not forget. Its turns form a tree: each turn has one before it, and the branch under
way is the path from the first turn to the newest one. Whenever the conversation goes to another point of the tree, a
new stretch of turns grows out of it there. So the tree is known by the points at which stretches begin, which are few,
and a turn belongs to the stretch that began last before it.

A branch is named by its newest turn. What is behind the point to which a conversation goes is hidden: it stands in the
log, and returns when somebody switches to a branch that holds it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple

from .effects import PersistMessage, SwitchBranch
from .events import AgentMessage, UserMessage, WakeUp, waiting
from .step import LogEntry
from .values.messages import Heard, Message, Said
from .values.turn import BranchPoint, Waiting

ROOT = 1
"""The first stretch, which begins with the conversation. Every stretch is named by the turn with which it begins, or
would begin."""


class Part(NamedTuple):
    """The part of a stretch that is on a path: everything up to the end of the turn `turn`. It is the one before the
    first turn of the stretch, if the path left the stretch there."""

    stretch: int
    turn: int


@dataclass(frozen=True)
class Branches:
    """The tree of the turns of a conversation. `stretch` is the one under way."""

    origins: Mapping[int, Part] = field(default_factory=dict)
    """The point out of which each stretch grew, apart from the first one."""
    stretch: int = ROOT

    @classmethod
    def of(cls, log: Iterable[LogEntry]) -> Branches:
        """The tree of the turns of this log. `Pure.`"""
        branches = cls()
        for entry in log:
            branches = branches.followed_by(entry)
        return branches

    def followed_by(self, entry: LogEntry) -> Branches:
        """The tree after the next step of the log, which is this one again unless the step switches. `Pure.`"""
        switch = next((effect for effect in entry.effects if type(effect) is SwitchBranch), None)
        return self if switch is None else self.after(switch)

    def after(self, switch: SwitchBranch) -> Branches:
        """The tree after the conversation went to another point. `Pure.`"""
        begins = switch.turns + 1
        return Branches({**self.origins, begins: self.part(switch.to)}, begins)

    def part(self, to: BranchPoint) -> Part:
        """The stretch with this point, up to there. `Pure.`"""
        return Part(self.stretch_of(to.turn), to.turn - 1 if to.before else to.turn)

    def stretch_of(self, turn: int) -> int:
        """The stretch that this turn belongs to. `Pure.`"""
        return max((begins for begins in self.origins if begins <= turn), default=ROOT)

    def path_to(self, part: Part) -> list[Part]:
        """The parts of stretches that lead from the beginning of the conversation to here, and this one. `Pure.`"""
        path = [part]
        while (before := self.origins.get(path[-1].stretch)) is not None:
            path.append(before)
        return path[::-1]

    @property
    def path(self) -> list[Part]:
        """The path of the branch under way, without the stretch under way, which is shown as a whole. `Pure.`"""
        origin = self.origins.get(self.stretch)
        return [] if origin is None else self.path_to(origin)

    def shows(self, turn: int) -> bool:
        """Whether this turn is on the branch under way. `Pure.`"""
        stretch = self.stretch_of(turn)
        return stretch == self.stretch or any(one.stretch == stretch and turn <= one.turn for one in self.path)

    def hidden(self, turns: int) -> Iterator[tuple[int, int]]:
        """Yield the first and the last turn of each row of turns that are not on the branch under way, out of so many
        turns, in their order. `Pure.`"""
        begin = ROOT
        for part in (*self.path, Part(self.stretch, turns)):
            if part.turn >= part.stretch:
                if begin < part.stretch:
                    yield begin, part.stretch - 1
                begin = part.turn + 1
        if begin <= turns:
            yield begin, turns

    def before(self, turn: int) -> int:
        """The turn in front of this one on its branch; 0 for the first one. `Pure.`"""
        stretch = self.stretch_of(turn)
        while turn == stretch and (origin := self.origins.get(stretch)) is not None:
            stretch, turn = origin.stretch, origin.turn + 1
        return turn - 1

    def turns_to(self, turn: int) -> tuple[int, ...]:
        """The turns of the branch whose newest one is `turn`, oldest first. `Pure.`"""
        turns: list[int] = []
        while turn:
            turns.append(turn)
            turn = self.before(turn)
        return tuple(turns[::-1])

    def left(self, turns: int) -> tuple[int, ...]:
        """The newest turn of each branch that was left, out of so many turns, oldest first. `Pure.`"""
        continued = {self.before(turn) for turn in range(1, turns + 1)}
        return tuple(turn for turn in range(1, turns + 1) if turn not in continued and not self.shows(turn))


def messages_of(log: Iterable[LogEntry], turn: int) -> tuple[Waiting, ...]:
    """The messages that this turn has taken, in the order in which they entered, as a turn of another branch can take
    them again. `log` is a log from its beginning to the end of that turn or beyond. `Pure.`"""
    sent: dict[int, UserMessage | AgentMessage | WakeUp] = {}
    taken: list[Waiting] = []
    for entry in log:
        if isinstance(entry.event, UserMessage | AgentMessage | WakeUp):
            sent[entry.seq] = entry.event
        if entry.ended is not None and entry.ended.turn == turn:
            break
        if entry.turn == turn:
            said = [effect.said for effect in entry.effects if type(effect) is PersistMessage]
            taken += [waiting(sent[one.seq], one.seq) for one in said if isinstance(one, Heard) and one.seq in sent]
    return tuple(taken)


@dataclass(frozen=True)
class Stretches:
    """What was said in each stretch of a conversation that has gone to another branch, with the places of the texts
    that may still be delivered: the stretch and the place in it. `parts` are the stretches of the branch under way,
    each with the place at which it begins there."""

    said: Mapping[int, tuple[Message, ...]] = field(default_factory=dict)
    places: Mapping[Said, tuple[int, int]] = field(default_factory=dict)
    parts: tuple[tuple[int, int], ...] = ((ROOT, 0),)

    def keep(self, messages: Sequence[Message], places: Mapping[Said, int]) -> Stretches:
        """The stretches with what is said in them now: `messages` are those of the branch under way. `Pure.`"""
        said = {**self.said}
        ends = [*(begin for _, begin in self.parts[1:]), len(messages)]
        for (stretch, begin), end in zip(self.parts, ends, strict=True):
            said[stretch] = (*messages[begin:end], *said.get(stretch, ())[end - begin :])
        begins = [begin for _, begin in self.parts]
        kept = {**self.places}
        for text, place in places.items():
            stretch, begin = self.parts[bisect_right(begins, place) - 1]
            kept[text] = (stretch, place - begin)
        return replace(self, said=said, places=kept)

    def show(self, path: Iterable[Part], stretch: int) -> tuple[Stretches, list[Message], dict[Said, int]]:
        """The stretches where this path leads to the new one, the messages of the path, and the places of their texts.
        `Pure.`"""
        messages: list[Message] = []
        shown: dict[int, tuple[int, int]] = {}
        for part in path:
            said = self.said.get(part.stretch, ())
            count = bisect_right(said, part.turn, key=attrgetter("turn"))
            shown[part.stretch] = (len(messages), count)
            messages += said[:count]
        parts = (*((one, begin) for one, (begin, _) in shown.items()), (stretch, len(messages)))
        places = {
            text: shown[one][0] + place
            for text, (one, place) in self.places.items()
            if one in shown and place < shown[one][1]
        }
        said_there = {**self.said, stretch: ()}
        return replace(self, said=said_there, parts=parts), messages, places
