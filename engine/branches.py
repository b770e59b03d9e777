"""The branches of one conversation as its application sees them, and what its log says of the points between turns.

A request to go back names a message or a turn. What the machine needs beside that stands in the log: which turn has
taken the message, which messages it has taken before, how full the window of the model was then. So the log is read
once for such a request, which says of it what was read; if the conversation goes to another branch before the request
arrives, it is refused and made once more.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..states.branches import Branches, messages_of
from ..states.effects import PersistMessage, SwitchBranch
from ..states.errors import Refused
from ..states.events import (
    Branching,
    BranchSwitched,
    Event,
    HistoryCompacted,
    LlmResponse,
    MessageEdited,
    RetryRequested,
    UserMessage,
)
from ..states.states import Cancelling, Closed, State
from ..states.step import LogEntry
from ..states.values.messages import Heard, Usage
from ..states.values.turn import Waiting
from .json_forms import as_json
from .loop import Loop
from .projection import ReadEntries
from .requests import MAX_ATTEMPTS, Filled, HandledRequest, Outcome, make


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A branch that a conversation has left, and can return to by `Conversation.switch`.

    `number` is its newest turn, and its name. `turns` are all its turns, oldest first, and `hidden` those of them that
    the branch under way does not have. `text` is what a person, or another agent, said at the beginning of the first
    of these, and `left_at` the moment of the newest step of the branch.
    """

    number: int
    turns: tuple[int, ...]
    hidden: tuple[int, ...]
    text: str
    left_at: datetime

    @property
    def data(self) -> dict[str, Any]:
        """The branch as JSON."""
        return as_json(self, complete=True)


class TurnTree:
    """The turns of a log, all of whose entries are given, and which rests or moves on in this state."""

    def __init__(self, entries: Sequence[LogEntry], state: State) -> None:
        self._entries = entries
        self._branches = Branches.of(entries)
        self.turns: int = state.book.turn
        self.branch: int = state.book.branch

    @property
    def newest(self) -> int:
        """The newest turn of the branch under way; 0 if it has none."""
        return next((turn for turn in range(self.turns, 0, -1) if self._branches.shows(turn)), 0)

    def left(self) -> tuple[Branch, ...]:
        """The branches that were left, oldest first."""
        left_at = {_turn_of(entry): entry.event.at for entry in self._entries}
        return tuple(self._branch(number, left_at[number]) for number in self._branches.left(self.turns))

    def find_message(self, message_id: str) -> tuple[UserMessage, int]:
        """Return a message of a user that is shown, and the turn that has taken it. Raises `Refused`:
        `unknown_message`, `hidden`."""
        taken = [(event, turn) for event, turn in self._taken() if event.event_id == message_id]
        if not taken:
            raise Refused("unknown_message", message_id)
        shown = [(event, turn) for event, turn in taken if self._branches.shows(turn)]
        if not shown:
            raise Refused("hidden", message_id)
        return shown[-1]

    def messages_before(self, message_id: str, turn: int) -> tuple[Waiting, ...]:
        """The messages that this turn has taken before this one."""
        taken = messages_of(self._entries, turn)
        return taken[: next(place for place, one in enumerate(taken) if one.event_id == message_id)]

    def edited(self, message_id: str) -> dict[str, Any]:
        """Return what an edit of this message says besides its text. Raises `Refused`: `unknown_message`,
        `hidden`."""
        message, turn = self.find_message(message_id)
        return {**_kept_fields(message), "before": turn, "again": self.messages_before(message_id, turn)}

    def answered_again(self, seen: int | None = None) -> dict[str, Any]:
        """Return what a request says by which the newest turn is answered again, which must be the one that was `seen`.
        Raises `Refused`: `moved_on`, `nothing_to_regenerate`."""
        if seen not in (None, self.newest):
            raise Refused("moved_on")
        before, again = self.turn_to_answer_again()
        return {"before": before, "again": again, "newest": self.turns}

    def rewound(self, to: int | str) -> dict[str, Any] | None:
        """Return what a request says that goes back to this turn, or in front of the message with this id; None if
        nothing follows. Raises `Refused`: `unknown_turn`, `unknown_message`, `hidden`."""
        before = self.find_message(to)[1] if isinstance(to, str) else self.turn_behind(to)
        return None if before is None else {"before": before}

    def switched(self, turn: int) -> dict[str, Any]:
        """Return what a request says that returns to this branch. Raises `Refused`: `unknown_branch`."""
        if turn not in self._branches.left(self.turns):
            raise Refused("unknown_branch", str(turn))
        return {}

    def turn_to_answer_again(self) -> tuple[int, tuple[Waiting, ...]]:
        """Return the turn that the newest turn is, or tries again, and the messages that it has taken. Raises `Refused`
        with `nothing_to_regenerate`."""
        turn = self.newest
        begun = {entry.turn for entry in self._entries if isinstance(entry.event, RetryRequested)}
        while turn in begun:
            turn = self._branches.before(turn)
        taken = messages_of(self._entries, turn) if turn else ()
        if not taken:
            raise Refused("nothing_to_regenerate")
        return turn, taken

    def turn_behind(self, turn: int) -> int | None:
        """The turn that follows this one on the branch under way; None if it is the newest. Raises `Refused`:
        `unknown_turn`, `hidden`."""
        if not 0 <= turn <= self.turns:
            raise Refused("unknown_turn", str(turn))
        if turn and not self._branches.shows(turn):
            raise Refused("hidden", f"turn {turn}")
        path = self._branches.turns_to(self.newest)
        return next((one for one in path if one > turn), None)

    def window_used(self, turn: int) -> tuple[int, int]:
        """The tokens of the last model request of the branch that ends with this turn, since its last compaction, and
        about how many of these are old results of tools."""
        turns, used = {0, *self._branches.turns_to(turn)}, (0, 0)
        for entry in self._entries:
            if _turn_of(entry) not in turns:
                continue
            if isinstance(entry.event, LlmResponse):
                used = (entry.event.usage.tokens, entry.event.clearable)
            elif isinstance(entry.event, HistoryCompacted):
                used = (0, 0)
        return used

    def with_window(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return these fields of a request with the tokens that the window holds at its point."""
        ends = self._branches.before(fields["before"]) if "before" in fields else fields["turn"]
        used, clearable = self.window_used(ends)
        return {**fields, "window_used": used, **({"clearable": clearable} if clearable else {})}

    def _taken(self) -> Iterator[tuple[UserMessage, int]]:
        """Yield the messages of users that turns have taken, each with the turn; several times if several have."""
        sent: dict[int, UserMessage] = {}
        for entry in self._entries:
            if isinstance(entry.event, UserMessage):
                sent[entry.seq] = entry.event
            for effect in entry.effects:
                if isinstance(effect, PersistMessage) and isinstance(effect.said, Heard) and effect.said.seq in sent:
                    yield sent[effect.said.seq], entry.turn

    def _branch(self, number: int, left_at: datetime) -> Branch:
        turns = self._branches.turns_to(number)
        hidden = tuple(turn for turn in turns if not self._branches.shows(turn))
        first = messages_of(self._entries, hidden[0])
        text = self._entries[first[0].seq - 1].event.texts[0] if first else ""
        return Branch(number=number, turns=turns, hidden=hidden, text=text, left_at=left_at)


def _turn_of(entry: LogEntry) -> int:
    """The turn to which the event of this step belongs, or that was the newest one. `Pure.`"""
    return entry.turn if entry.ended is None else entry.ended.turn


def _kept_fields(message: UserMessage) -> dict[str, Any]:
    """What a message holds besides its text and what is said of how it was sent: an edited one keeps it. `Pure.`"""
    left_out = {"type", "event_id", "at", "text", "when_busy"}
    return {name: getattr(message, name) for name in UserMessage.model_fields if name not in left_out}


_Resolve = Callable[[TurnTree], dict[str, Any] | None]
"""Returns what the log says of a request; None if there is nothing to do."""


class BranchRequests:
    """Makes the requests of one conversation to go to another branch, and waits until it is there."""

    def __init__(
        self,
        loop: Loop,
        read_entries: ReadEntries,
        ask: Callable[[Event, Filled], Awaitable[Outcome]],
        spent: Callable[[], Usage],
    ) -> None:
        """`spent` tells what the answers under way have cost."""
        self._loop = loop
        self._read_entries = read_entries
        self._ask = ask
        self._spent = spent

    async def tree(self) -> TurnTree:
        """Return the turns of the log as it is now."""
        while True:
            state = self._loop.state
            entries = await self._read_entries(0, state.book.seq)
            if state is self._loop.state:
                return TurnTree(entries, state)

    async def request(
        self, kind: type[Branching], named: Mapping[str, Any], resolve: _Resolve, request_id: str | None
    ) -> HandledRequest | None:
        """Make a request of this kind. `named` is what the caller gave, and `resolve` adds what the log says of it.
        Returns None if there is nothing to do. Raises `InvalidInput` and `Refused`."""
        filled = frozenset(kind.model_fields) - named.keys() - {"type", "at", "event_id", "when_busy"}
        event_id = str(uuid.uuid4()) if request_id is None else request_id
        if request_id is None:
            filled |= {"event_id"}
        elif (handled := await self._handled_before(kind, event_id, named, filled)) is not None:
            return handled
        for _ in range(MAX_ATTEMPTS):
            tree = await self.tree()
            if (resolved := resolve(tree)) is None:
                return None
            fields = tree.with_window({**resolved, **named, "branch": tree.branch, "usage": self._spent()})
            try:
                outcome = await self._ask(make(kind, event_id=event_id, at=self._loop.now(), **fields), filled)
                return outcome.handled
            except Refused as refused:
                if refused.code != "moved_on":
                    raise
        raise Refused("moved_on")

    async def _handled_before(
        self, kind: type[Branching], event_id: str, named: Mapping[str, Any], filled: Filled
    ) -> HandledRequest | None:
        """Return the request as it was handled before. What it names may be hidden by now. Raises `Refused` if another
        one was handled under its id."""
        point = {} if kind is BranchSwitched else {"before": 1}
        sent = make(kind, event_id=event_id, at=self._loop.now(), **point, **named)
        return await self._loop.recent_requests.find(sent, filled)

    async def until_there(self, handled: HandledRequest) -> None:
        """Wait while the turn is being cancelled from which this request leads to another branch. Raises `Refused` with
        `closed` if the conversation ends instead."""
        loop = self._loop
        with loop.follower.waiting():
            while self._is_coming(handled) and not loop.feed.closed:
                await loop.feed.changed()
        if self._is_coming(handled):
            await loop.catch_up()  # raises why nothing moves any more
        if isinstance(loop.state, Closed) and loop.state.book.branch < handled.seq:
            raise Refused("closed")

    def _is_coming(self, handled: HandledRequest) -> bool:
        """Whether the step of this request is still to be seen here, or everything is to stop behind it."""
        state = self._loop.state
        return state.book.seq < handled.seq or _is_leaving(state)

    async def turn_begun_by(self, handled: HandledRequest) -> tuple[int, int] | None:
        """Return the step in which the conversation has gone to another branch by this request, and the turn that
        begins there; None if it has not. Of an edited message, the step and the turn that have taken it: it may wait
        behind others, and what was made again of that turn has another number."""
        is_edit = isinstance(handled.request, MessageEdited)
        for entry in await self._read_entries(handled.seq - 1):
            for effect in entry.effects:
                match effect:
                    case SwitchBranch(turns=turns) if not is_edit:
                        return entry.seq, turns + 1
                    case PersistMessage(said=Heard(seq=handled.seq)) if is_edit:
                        return entry.seq, entry.turn
        return None


def _is_leaving(state: State) -> bool:
    """Whether the conversation goes to another branch once everything has stopped. `Pure.`"""
    return isinstance(state, Cancelling) and state.goes_to is not None
