"""The house of a simulated conversation: a real engine over a store, opened and closed again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ...states.effects import DeliverToUser
from ...states.errors import EngineClosed, Refused
from ...states.events import Event
from ...states.policy.policy import ModelSpec, Policy
from ...states.states import State
from ...states.step import Step
from .call_recorder import CallRecorder
from .channels import Line
from .clock import VirtualClock
from .disk import Disk, Row
from .storage import Storage
from .world import World

if TYPE_CHECKING:
    from ...effects.channels.delivery_dispatcher import DeliveryDispatcher
    from ...engine.conversation import Conversation
    from ...engine.engine import Engine
    from ...engine.loop import Loop


class _Unasked:
    """A model that is never asked: `World` performs the requests."""

    def __init__(self, spec: ModelSpec) -> None:
        self.name = spec.name
        self.window = spec.window

    async def complete(self, request: Any, show: Any) -> Any:
        """Never called."""
        raise AssertionError


class EngineHost:
    """Opens engines of the type given, one after the other, over one disk, with one conversation in it.

    `times_closed` counts those that were closed; `opened_at` is the step at which the newest took up the conversation.
    """

    def __init__(
        self,
        engine: type[Engine],
        clock: VirtualClock,
        disk: Disk,
        storage: Storage,
        world: World,
        notebook: CallRecorder,
        lines: Sequence[Line] = (),
        courier: type[DeliveryDispatcher] | None = None,
    ) -> None:
        self.clock = clock
        self.disk = disk
        self.notebook = notebook
        self.times_closed = 0
        self.opened_at = 1
        self.store: object = None
        """The store that is open."""
        self._type = engine
        self._storage = storage
        self._world = world
        self._lines = lines
        self._courier = courier
        self._engine: Engine | None = None
        self._loop: Loop | None = None
        self._id = ""

    async def open(self, models: tuple[ModelSpec, ...], feed: int, *, create: Policy | None = None) -> None:
        """Open an engine with these models, and go on; or with `create` begin a conversation under these rules.

        `feed` is how many updates are kept for watchers.
        """
        from ...effects.channels.delivery_dispatcher import DeliveryDispatcher
        from ...engine.settings import Settings

        self._world.begun.clear()
        self.store = await self._storage.open()
        first, *others = map(_Unasked, models)
        performers = dict(self._world.performers())
        if self._lines:
            del performers[DeliverToUser]
        for line in self._lines:
            line.engine = self.times_closed
        with patch("turnwise.engine.bootstrap.DeliveryDispatcher", self._courier or DeliveryDispatcher):
            engine = self._type.open(
                store=self.store,  # type: ignore[arg-type]
                model=first,
                fallback_models=others,
                performers=performers,
                channels=self._lines,
                clock=self.clock,
                settings=Settings(kept_updates=feed),
            )
        await engine
        if create is not None:
            self._id = (await engine.create(policy=create, system="You book tables.")).id
        self._prepare(await engine.registry.read(self._id))
        self._engine = engine

    async def close(self, *, by_crash: bool = False) -> None:
        """Close the engine, whatever it is doing. In a crash nothing more is stored, not even the step in hand; the
        process dies between two statements."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            self.times_closed += 1
            self.notebook.story.tell("host", "dies" if by_crash else "closes the engine")
            if by_crash:
                await self._die()
                await engine.registry.drop(self._id, EngineClosed())
            store, self.store = self.store, None
            await engine.close()
            await store.close()  # type: ignore[attr-defined]
            self.notebook.story.tell("host", "is gone" if by_crash else "has closed the engine")

    async def _die(self) -> None:
        dice = self.disk.dice
        self._storage.die_after(dice.number(0, 4))
        if not self._storage.is_dead:
            await asyncio.sleep(dice.pick((0.0, 0.02, 1.0)))
        self._storage.die_after(0)

    async def handle(self) -> Conversation:
        """A new handle on the conversation. Raises `EngineClosed`."""
        if self._engine is None:
            raise EngineClosed
        return await self._engine.get(self._id)

    @property
    def loop(self) -> Loop:
        """What drives the conversation, or did so until the engine was closed."""
        assert self._loop is not None, "the house was never opened"
        return self._loop

    @property
    def conversation_id(self) -> str:
        """The id of the conversation."""
        return self._id

    @property
    def stored(self) -> State:
        """Where the conversation rests, as stored."""
        return self.disk.head(self._id)

    @property
    def rows(self) -> Sequence[Row]:
        """All steps, as stored."""
        return self.disk.rows[self._id]

    def post(self, answer: Event) -> None:
        """Drop an answer straight into the mailbox, as a performer's comes."""
        self.loop.answer(answer)

    def _prepare(self, loop: Loop) -> None:
        """Note all requests at its door."""
        self._loop = loop
        self.opened_at = self.stored.book.seq
        request = loop.request

        async def heard(event: Event) -> Step:
            try:
                return await request(event)
            except Refused:
                if self._storage.is_dead:
                    raise EngineClosed from None
                raise

        async def door(event: Event) -> Step:
            return await self.notebook.door(event, heard(event))

        loop.request = door  # type: ignore[method-assign]
