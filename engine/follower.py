"""Follows the store while somebody waits for a conversation that another loop drives.

A loop is told of its own steps. Those of another loop over the same store, in this process or in another one, it finds
when it looks; so it looks now and then, but only while a caller waits here and an effect in flight is not its own. One
that also waits for what people do has it look while the conversation waits for a person, whose answer any engine takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

from ..effects.clock import Clock
from ..states.effects import AwaitedEffect, Effect
from ..states.errors import Refused, TurnwiseError
from ..states.states import AwaitingPerson, InDoubt, pending
from .projections.projection import ConversationProjection

logger = logging.getLogger("turnwise.loop")

INTERVAL = timedelta(seconds=0.5)
"""Between two looks at the store: soon enough for a person who waits, and seldom enough for a store with thousands of
conversations that are waited for."""

PERSON_INTERVAL = timedelta(seconds=5)
"""Between two looks while only a person is waited for, who may take days and mostly answers in this engine."""

_NOTHING: frozenset[int] = frozenset()


class Follower:
    """Has `catch_up` called at an interval, by `clock`, while somebody waits and another loop may move the conversation
    of `projection`."""

    __slots__ = ("_catch_up", "_clock", "_elsewhere", "_projection", "_task", "_waiting", "_waiting_for_people")

    def __init__(
        self, catch_up: Callable[[], Awaitable[None]], clock: Clock, projection: ConversationProjection
    ) -> None:
        self._catch_up = catch_up
        self._clock = clock
        self._projection = projection
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

    def take_over(self) -> frozenset[int]:
        """Whatever is in flight is carried out here from now on. Returns the effects that were not."""
        elsewhere, self._elsewhere = self._elsewhere, _NOTHING
        return elsewhere

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
        if self._waiting and self._task is None and self._interval() is not None:
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
            return PERSON_INTERVAL
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
