"""The loop: how one conversation moves.

    event -> transition           pure; may refuse, or find that nothing is to be done
          -> log.append           one transaction: the event, the effects, the new state, the outbox
          -> publish              watchers see only what is durable
          -> dispatcher.dispatch  model requests, tools, timers, deliveries; never before the commit
          -> answers              come back as events, by the same door

That nothing is lost in a crash follows from the order of these lines. If the commit fails, memory and store both stay
as they were.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..effects.clock import Clock
from ..effects.context import UNAWAITED, EffectContext, History, LiveKind
from ..persistence.errors import StorageFailed, StoreConflict
from ..states.effects import ControlEffect, Effect, OutgoingEffect
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
from .outbox import OutboxTargets
from .ports import Dispatcher, Keeper, Observer
from .projection import ConversationProjection
from .recovery import reports
from .turn_waiters import TurnWaiters
from .updates import Update

if TYPE_CHECKING:
    from ..persistence.ports import Log

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
        history: History,
        dispatcher: Dispatcher,
        outbox: OutboxTargets,
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
        self._history = history
        self._dispatcher = dispatcher
        self._outbox = outbox
        self._is_closing = False

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
        await self._log.append(event, step, self._outbox.of(step.effects))
        if self._observer is not None:
            self._observer.stepped(self.conversation_id, self.state, event, step)
        self._publish(self.memory.advance(event, step))
        self._dispatch(step.effects)
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

    def _dispatch(self, effects: Sequence[Effect]) -> None:
        """Hand the effects of a committed step to the dispatcher. Of a loop that closes only what goes out is begun."""
        if self._is_closing:
            effects = [effect for effect in effects if isinstance(effect, OutgoingEffect)]
        for effect in effects:
            if isinstance(effect, ControlEffect):
                self._dispatcher.abort(self.conversation_id, effect.effect_id)
        self._dispatcher.dispatch(effects, self.effect_context())

    def effect_context(self) -> EffectContext:
        """Return what a performer may look at that carries out an effect of the newest step."""
        book = self.memory.state.book
        return EffectContext(
            self.conversation_id, book.seq, book.turn, self.memory.context, self._history, self._show, self._log
        )

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

    def answer(self, answer: Event) -> None:
        """Have the answer to an effect handled, after all that came before it."""
        self._mailbox.post(answer)

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
        await self._dispatcher.tried(self.conversation_id)

    async def close(self, why: TurnwiseError, *, keeps: bool = True, sends: bool = True) -> None:
        """Stop driving. What is under way is told to stop; what finishes all the same is stored, if this `keeps`, and
        what was said goes out, if it `sends`. Everything else is dropped as in a crash.

        Whoever waits, or asks for something later, gets `why`.
        """
        self._mailbox.shut(why)
        self._is_closing = True
        await self._dispatcher.stop(self.conversation_id, answers=keeps)
        await self._mailbox.close(keeps=keeps)
        self.outcomes.close(why)
        self.feed.close()
        await self._dispatcher.release(self.conversation_id, deliver=sends)
