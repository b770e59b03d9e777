"""The loop: how one conversation moves.

    event -> transition           pure; may refuse, or find that nothing is to be done
          -> runner.commit        one transaction: the event, the effects, the new state
          -> publish              watchers see only what is durable
          -> runner.perform       model requests, tools, timers; never before the commit
          -> answers              come back as events, by the same door

That nothing is lost in a crash follows from the order of these lines. If the commit fails, memory and store both stay
as they were.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from ..effects.clock import Clock
from ..effects.context import UNAWAITED, EffectContext, LiveKind
from ..effects.dispatcher import Log, Performer, Runner
from ..persistence.errors import StorageFailed, StoreConflict
from ..states.effects import Effect
from ..states.errors import Refused, StoreError, TurnwiseError
from ..states.events import (
    AgentMessage,
    CompactionRequested,
    Event,
    PolicyChanged,
    Request,
    RetryRequested,
    UserMessage,
)
from ..states.machine import transition
from ..states.policy.policy import ModelSpec
from ..states.states import Closed, Failed, Idle, State, pending
from ..states.step import Step
from .feed import Feed
from .mailbox import Mailbox
from .ports import Keeper, Observer
from .projection import ConversationProjection
from .recovery import reports
from .turn_waiters import TurnWaiters
from .updates import Update

logger = logging.getLogger("turnwise.loop")

_BROKEN = "Something broke inside the program that runs this conversation; ask for the conversation again."


class Loop:
    """Drives one conversation. Everything that happens to it goes through `request`; answers come by themselves.

    `memory` is the conversation as stored, `feed` what watchers see of it, `outcomes` what callers wait for.
    """

    def __init__(
        self,
        conversation_id: str,
        memory: ConversationProjection,
        log: Log,
        performers: Mapping[type[Effect], Performer],
        clock: Clock,
        models: tuple[ModelSpec, ...],
        keeper: Keeper,
        observer: Observer | None = None,
    ) -> None:
        self.conversation_id = conversation_id
        self.memory = memory
        self.feed = Feed()
        self.outcomes = TurnWaiters(memory)
        self._clock = clock
        self._models = models
        self._keeper = keeper
        self._observer = observer
        if isinstance(memory.state, Closed):
            self.feed.close()
        self._mailbox = Mailbox(self._take)
        self._log = log
        self._runner = Runner(log, performers, clock, self._mailbox.post)

    @property
    def state(self) -> State:
        """Where the conversation rests, as stored."""
        return self.memory.state

    # --- one step

    async def _take(self, event: Event) -> Step:
        """Handle one event. Raises `Refused`, or a `StoreError` if the step could not be stored.

        An answer or a report that cannot be taken, for a reason that will not pass, would leave the turn waiting for
        ever: then the conversation is let go of, and whoever waits for it is told.
        """
        try:
            return await self._handled(event)
        except (Refused, StorageFailed):
            raise
        except StoreConflict as conflict:
            self._keeper.lose(self, conflict)
            raise
        except Exception as error:
            if not isinstance(event, Request):
                self._keeper.lose(self, error if isinstance(error, TurnwiseError) else StoreError(_BROKEN))
            raise

    async def _handled(self, event: Event) -> Step:
        if isinstance(event, Request) and self.memory.knows(event):
            return Step(self.state, ignored=True)
        begins = isinstance(event, UserMessage | AgentMessage | CompactionRequested)
        if begins or (isinstance(event, RetryRequested) and isinstance(self.state, Failed)):
            await self._adopt_models()
        return await self._step(event)

    async def _step(self, event: Event) -> Step:
        step = transition(self.state, event, self.memory.context)
        if step.ignored:
            logger.debug("Nothing to do about %s in %s", event.type, self.state.type)
            return step
        self.memory.read()  # a log that cannot be read to its end must not grow
        await self._runner.commit(event, step)
        if self._observer is not None:
            self._observer.stepped(self.conversation_id, self.state, event, step)
        self._publish(self.memory.advance(event, step))
        self._runner.perform(step.effects, self.scene())
        if isinstance(step.state, Closed):
            self.memory.release()
        self._keeper.keep(self)
        return step

    async def _adopt_models(self) -> None:
        """The engine may have been opened with other models than before; at rest the conversation takes them up."""
        policy = self.memory.context.policy
        if policy.models != self._models and isinstance(self.state, Idle | Failed):
            policy = policy.model_copy(update={"models": self._models})
            await self._step(PolicyChanged(event_id=str(uuid.uuid4()), at=self._clock.now(), policy=policy))

    def _publish(self, updates: tuple[Update, ...]) -> None:
        self.feed.publish(*updates)
        self.outcomes.tell()
        if isinstance(self.state, Closed):
            self.feed.close()

    def scene(self) -> EffectContext:
        """What a performer may look at now."""
        memory, turn = self.memory, self.memory.state.book.turn
        return EffectContext(self.conversation_id, turn, memory.context, memory.transcript, self._show, self._log)

    def _show(self, effect_id: int, kind: LiveKind, data: dict[str, Any]) -> None:
        if kind in UNAWAITED or effect_id in pending(self.state):
            self.feed.publish(Update(kind, data))

    # --- from outside

    async def request(self, event: Event) -> Step:
        """Have an event handled, after all that came before it. Raises `Refused`."""
        if self._observer is None:
            return await self._mailbox.request(event)
        with self._observer.asked(self.conversation_id, event):
            return await self._mailbox.request(event)

    # --- from beginning to end

    def wake(self) -> None:
        """Take up what another process left in the middle, after the conversation was read from the store."""
        for report in reports(self.state, self._clock.now()):
            self._mailbox.post(report)
        self._keeper.keep(self)

    async def handled(self) -> None:
        """Return when all that has happened so far is stored, or the store takes nothing."""
        await self._mailbox.handled()

    async def sent(self) -> None:
        """Return when all that was said so far has been tried on every channel."""
        await self._runner.sent()

    async def close(self, why: TurnwiseError, *, keeps: bool = True, sends: bool = True) -> None:
        """Stop driving. What is under way is told to stop; what finishes all the same is stored, if this `keeps`, and
        what was said goes out, if it `sends`. Everything else is dropped as in a crash.

        Whoever waits, or asks for something later, gets `why`.
        """
        self._mailbox.shut(why)
        await self._runner.stop(keeps=keeps)
        await self._mailbox.close(keeps=keeps)
        self.outcomes.close(why)
        self.feed.close()
        await self._runner.close(sends=sends)
