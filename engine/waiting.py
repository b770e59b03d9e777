"""Callers that wait for a turn, where a turn stopped, and what looks at the store while another engine moves it.

A turn can be returned when it has ended, or when it waits for a person; until then its caller waits. It may wait for a
person several times, and in the end it ends.

A caller that repeats a request gets the turn as it was when it stopped first after that request, even if it has gone on
since. The newest stops are held in memory; an older one is found by reading the log once more.

The steps of another engine over the same store are found only by looking. That is done while somebody waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from ..effects.clock import Clock
from ..states.effects import AwaitedEffect, Effect
from ..states.errors import Refused, StoreError, TurnwiseError
from ..states.events import Answer
from ..states.states import AwaitingPerson, InDoubt, InTurn, pending
from ..states.step import LogEntry
from ..states.transcript import Transcript
from .projection import ConversationProjection, is_queued
from .turns import QueuedTurn, RunningTurn, Turn, WaitingTurn, ended_turn, waiting_turn, waits_for_person
from .updates import replayed_steps

logger: logging.Logger = logging.getLogger("turnwise.loop")

K = TypeVar("K")

T = TypeVar("T")


class TurnWaiters:
    """The callers that wait for turns of one conversation. Whoever advances the projection must call `notify`."""

    __slots__ = ("_closed", "_follower", "_projection", "_stops", "_waiters")

    def __init__(self, projection: ConversationProjection, follower: Follower) -> None:
        """`follower` is told while somebody waits."""
        self._projection = projection
        self._follower = follower
        self._stops = _TurnStops(projection)
        self._waiters: list[_Waiter[Any, Any]] = []
        self._closed: TurnwiseError | None = None

    async def stopped_after(self, seq: int, number: int) -> Turn:
        """Wait until this turn has ended, or waits for a person, at or after the step `seq` for the first time, and
        return it as it was then. Raises `StoreError` if the log cannot be read."""
        await self.read_contents()
        earlier = await self._read_stop(number, seq)
        if earlier is not None:
            return earlier
        return await self._wait_for(lambda wanted: self._stops.remembered(wanted, seq), number)

    async def newest(self) -> Turn:
        """Wait until the newest turn has ended or waits for a person, and return it. Raises `Refused`: `wrong_state` if
        there was no turn yet."""
        number = self._projection.state.book.turn
        if not number:
            raise Refused("wrong_state", sentence="The conversation has had no turn yet.")
        return await self._wait_for(self._of_turn, number)

    def of_message(self, message_id: str) -> Coroutine[Any, Any, Turn]:
        """Wait for the turn that takes this message. Raises `Refused` if none will, by itself."""
        return self._wait_for(self._of_message, message_id)

    async def number_of(self, message_id: str) -> int:
        """Wait until a turn has taken this message, and return its number. Raises `Refused` if none will, by itself."""
        return await self._wait_for(self._projection.turn_of, message_id, for_stop=False)

    async def of_message_now(self, message_id: str) -> Turn:
        """Return the turn of this message as it is at this moment."""
        if is_queued(message_id, self._projection.state):
            return QueuedTurn()
        await self.read_contents()
        number = self._projection.turn_of(message_id)
        return QueuedTurn() if number is None else await self.turn_now(number)

    async def turn_now(self, number: int) -> Turn:
        """Return this turn as it is at this moment. Reads the log only if the turn does not go on."""
        state = self._projection.state
        if isinstance(state, InTurn) and state.turn.number == number and not waits_for_person(state):
            return RunningTurn(number=number, profile=self._projection.profile)
        await self.read_contents()
        return self._of_turn(number) or RunningTurn(number=number, profile=self._projection.profile)

    def notify(self, entry: LogEntry) -> None:
        """The conversation has moved on by this step: return the turns that can be returned now."""
        waits = self._stops.note()
        if self._waiters:
            # An answer within a turn that goes on stops no turn, and no message is withdrawn or refused by it.
            stops = entry.ended is not None or waits or not isinstance(self._projection.state, InTurn)
            goes_on = not stops and isinstance(entry.event, Answer)
            self._waiters = [one for one in self._waiters if (goes_on and one.for_stop) or not one.is_served()]

    def fail_all(self, why: TurnwiseError) -> None:
        """Nothing moves any more: whoever waits, or would have to wait later, gets `why`."""
        self._closed = why
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(why)
        self._waiters.clear()

    async def _wait_for(self, find: Callable[[K], T | None], key: K, *, for_stop: bool = True) -> T:
        await self.read_contents()
        if (found := find(key)) is not None:
            return found
        if self._closed is not None:
            raise self._closed
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiters.append(_Waiter(find, key, future, for_stop))
        self._follower.add_waiter()
        try:
            return await future
        finally:
            self._follower.remove_waiter()

    async def read_contents(self) -> None:
        """Read what turns are found in, unless it is in memory. Raises `StoreError`."""
        if not self._projection.is_read:
            with self._store_errors():
                await self._projection.read_contents()

    async def _read_stop(self, number: int, since: int) -> Turn | None:
        with self._store_errors():
            return await self._stops.earlier(number, since)

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Raise the reason for which the loop was closed, if the store was closed with it."""
        try:
            yield
        except StoreError:
            if self._closed is not None:
                raise self._closed from None
            raise

    def _of_message(self, message_id: str) -> Turn | None:
        number = self._projection.turn_of(message_id)
        return None if number is None else self._of_turn(number)

    def _of_turn(self, number: int) -> Turn | None:
        waits = self._stops.current()
        return waits if waits is not None and waits.number == number else self._projection.turns.get(number)


@dataclass(eq=False, slots=True)
class _Waiter(Generic[K, T]):
    """A caller that waits for what `find` returns for `key`. It returns None as long as that is not there, and raises
    `Refused` if it never will be. `for_stop`: it waits for a turn to end, or to wait for a person.

    `key` stands apart, so that no partial is held for each caller."""

    find: Callable[[K], T | None]
    key: K
    future: asyncio.Future[T]
    for_stop: bool

    def is_served(self) -> bool:
        """Whether the caller has its result now, or does not wait any more."""
        if self.future.done():
            return True
        try:
            found = self.find(self.key)
        except Refused as refused:
            self.future.set_exception(refused)
            return True
        if found is not None:
            self.future.set_result(found)
        return found is not None


REMEMBERED = 64
"""How many waits for a person are remembered: those of the last minutes, within which requests are repeated."""


class _TurnStops:
    """The stops of the turns of one conversation. Whoever advances the projection must call `note`."""

    __slots__ = ("_begin", "_projection", "_waits")

    def __init__(self, projection: ConversationProjection) -> None:
        self._projection = projection
        self._waits: list[_Wait] = []
        self._begin: int | None = None
        """The step from which on every wait is in memory; None while the contents of the projection are not."""

    def note(self) -> bool:
        """Remember the state in which the conversation now rests, if it waits for a person. Returns whether it does."""
        projection = self._projection
        waits = waits_for_person(projection.state)
        if not projection.is_read:
            self._begin = None
            self._waits.clear()
            return waits
        if self._begin is None:
            self._begin = projection.seq
        if waits and (turn := self.current()) is not None:
            self._waits.append(_Wait(projection.seq, turn))
            if len(self._waits) > REMEMBERED:
                self._begin = self._waits.pop(0).seq + 1
        return waits

    def current(self) -> WaitingTurn | None:
        """Return the turn that waits for a person now. The contents must have been read."""
        state, projection = self._projection.state, self._projection
        if waits_for_person(state):
            return waiting_turn(state, projection.transcript, projection.context.policy)
        return None

    async def earlier(self, number: int, since: int) -> Turn | None:
        """Return the first stop of a turn at or after the step `since`, if it came before those in memory. None means
        that `remembered` knows it, or that there was none yet. The contents must have been read. Raises `StoreError`.
        """
        if self._begin is None:
            self.note()
        begin = self._begin
        if begin is None or since >= begin:
            return None
        return _first_stop(await self._projection.read_entries(0, begin - 1), number, since)

    def remembered(self, number: int, since: int) -> Turn | None:
        """Return the first stop of a turn at or after the step `since`, as far as it is in memory. The contents must
        have been read."""
        for seq, turn in self._waits:
            if seq >= since and turn.number == number:
                return turn
        return self._projection.turns.get(number)


class _Wait(NamedTuple):
    seq: int
    turn: WaitingTurn


def _first_stop(entries: Iterable[LogEntry], number: int, since: int) -> Turn | None:
    """Return the turn with this number as it was when it ended, or waited for a person, at or after the step `since`
    for the first time; None if that is not among `entries`, the first of a log. `Pure.`"""
    transcript = Transcript()
    try:
        for entry, _, state, context, _ in replayed_steps(entries):
            transcript.add(entry)
            if entry.seq < since:
                continue
            if entry.ended is not None and entry.ended.turn == number:
                return ended_turn(entry.ended, transcript, context.policy)
            if waits_for_person(state) and state.turn.number == number:
                return waiting_turn(state, transcript, context.policy)
    except Refused:  # another version of the state machine wrote the log, as a replay reports
        return None
    return None


_NOTHING: frozenset[int] = frozenset()

INTERVAL = timedelta(seconds=0.5)
"""Between two looks at the store: soon enough for a person who waits, and seldom enough for a store with thousands of
conversations that are waited for."""

_PERSON_INTERVAL = timedelta(seconds=5)
"""Between two looks while only a person is waited for, who may take days and mostly answers in this engine."""


class Follower:
    """Has `catch_up` called at an interval, by `clock`, while somebody waits and another loop may move the conversation
    of `projection`.

    A loop is told of its own steps. Those of another loop over the same store, in this process or in another one, it
    finds when it looks; so it looks now and then, but only while a caller waits here and an effect in flight is not its
    own. One that also waits for what people do has it look while the conversation waits for a person, whose answer any
    engine takes.

    It never `looks` where the engine is told of the steps of others, as `relay.py` says.
    """

    __slots__ = (
        "_catch_up",
        "_clock",
        "_elsewhere",
        "_looks",
        "_projection",
        "_task",
        "_waiting",
        "_waiting_for_people",
    )

    def __init__(
        self,
        catch_up: Callable[[], Awaitable[None]],
        clock: Clock,
        projection: ConversationProjection,
        *,
        looks: bool = True,
    ) -> None:
        self._catch_up = catch_up
        self._clock = clock
        self._projection = projection
        self._looks = looks
        self._elsewhere = pending(projection.state) or _NOTHING
        """Effects in flight that another loop carries out, or nobody."""
        self._waiting = 0
        self._waiting_for_people = 0
        self._task: asyncio.Task[bool] | None = None

    def note(self, effects: Sequence[Effect]) -> None:
        """A step is stored. `effects` are those that another loop carries out."""
        if effects:
            self._elsewhere |= {effect.effect_id for effect in effects if isinstance(effect, AwaitedEffect)}
        if self._elsewhere or self._waiting_for_people:
            self._begin()

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for the conversation."""
        return self._waiting > 0

    def take_over(self) -> frozenset[int]:
        """Whatever is in flight is carried out here from now on. Returns the effects that were not."""
        elsewhere, self._elsewhere = self._elsewhere, _NOTHING
        return elsewhere

    def begin(self, effects: Iterable[Effect]) -> None:
        """These are carried out here from now on."""
        self._elsewhere -= {effect.effect_id for effect in effects if isinstance(effect, AwaitedEffect)}

    def halt(self) -> None:
        """Nothing that is in flight is carried out here any more."""
        self._elsewhere = pending(self._projection.state) or _NOTHING

    @contextmanager
    def waiting(self, *, for_people: bool = False) -> Iterator[None]:
        """While this lasts, somebody waits for the conversation, or also `for_people` to act on it in another
        engine."""
        self.add_waiter(for_people=for_people)
        try:
            yield
        finally:
            self.remove_waiter(for_people=for_people)

    def add_waiter(self, *, for_people: bool = False) -> None:
        """Somebody waits from now on, until `remove_waiter`. Cheaper than `waiting`, for the callers of turns."""
        self._waiting += 1
        self._waiting_for_people += for_people
        self._begin()

    def remove_waiter(self, *, for_people: bool = False) -> None:
        """Somebody waits no longer."""
        self._waiting -= 1
        self._waiting_for_people -= for_people
        if not self._waiting and self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        if self._looks and self._waiting and self._task is None and self._interval() is not None:
            self._task = asyncio.ensure_future(self._follow())
            self._task.add_done_callback(self._has_ended)

    def _interval(self) -> timedelta | None:
        """Return the time until the next look, or None if no other loop moves the conversation."""
        state = self._projection.state
        if self._elsewhere:
            self._elsewhere &= pending(state)
        if self._elsewhere:
            return INTERVAL
        if self._waiting_for_people and isinstance(state, AwaitingPerson | InDoubt):
            return _PERSON_INTERVAL
        return None

    async def _follow(self) -> bool:
        """Look at the store until nobody waits, or no other loop moves the conversation. Returns whether that can be
        done again."""
        try:
            while self._waiting and (interval := self._interval()) is not None:
                await self._clock.sleep_until(self._clock.now() + interval)
                with suppress(Refused):  # the store takes nothing at the moment
                    await self._catch_up()
            return True
        except TurnwiseError:
            return False  # the loop has failed or was closed, which it tells whoever waits
        except Exception:
            logger.exception("The steps of another engine cannot be followed.")
            return False

    def _has_ended(self, following: asyncio.Task[bool]) -> None:
        self._task = None
        if following.cancelled() or following.result():
            self._begin()  # somebody may have begun to wait again in the meantime
