"""The dispatcher in this process: it starts the effects of committed steps as tasks of the event loop.

A dispatcher receives effects only after their step is stored. Each outcome returns as an event. One awaited effect
gives exactly one answer: the answer of its performer, an acknowledgement if a tool or a sub-agent was stopped, or
`EffectFailed` if the performer failed or there is none. Other effects that are aborted are no longer awaited and give
no answer.

A delivery's first attempt ends before a tool starts that was asked for after it, so that what is said before a tool
runs is heard before it runs. Model requests do not wait for deliveries. The conversation handles events meanwhile, and
an effect that is aborted before its turn never starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

from ..states.effects import OUTGOING, AwaitedEffect, Effect, OutgoingEffect
from ..states.events import Answer
from .answer_sender import AnswerSender
from .application_functions import pass_on_interrupt
from .clock import Clock
from .context import EffectContext
from .conversation_effects import ConversationEffects, Telling
from .logs import performer_logger, redacting

logger = performer_logger("turnwise.dispatcher")

ENDS_PROCESS = "a performer tried to end the process"
"""What is raised instead of an exception that asyncio would let out of its event loop."""

Performer = Callable[[Any, EffectContext], Awaitable[Answer | None]]
"""Carries out one kind of effect, and returns the answer if the effect is awaited. It must end by itself, so it keeps a
deadline. A performer of outgoing effects is a `Sender` if they are to survive a crash; another one tries them once."""


@runtime_checkable
class Sender(Protocol):
    """The performer of an effect that nobody awaits and that must arrive all the same.

    The effect is stored in the outbox for each of its targets, in the transaction of its step, and stays there until
    the sender acknowledges that target in the `receipts` of the context.
    """

    def targets_of(self, effect: Any) -> Sequence[str]:
        """Return the names of those whom this effect must reach. If there are none, nothing is stored and nothing
        done. Must depend on nothing that changes while the engine is open."""
        ...

    async def __call__(self, effect: Any, context: EffectContext) -> None:
        """Try each target once, and return. Further attempts go on in the background."""
        ...


def senders_of(performers: Mapping[type[Effect], Performer]) -> dict[type[Effect], Sender]:
    """Return the performers of outgoing effects that are senders. The other performers are not looked at, because that
    takes some time for each, and every engine does it when it opens."""
    outgoing = ((kind, performers.get(kind)) for kind in OUTGOING)
    return {kind: one for kind, one in outgoing if isinstance(one, Sender)}


@runtime_checkable
class Abortable(Protocol):
    """The performer of awaited effects that may outlast it, such as a sub-agent, which goes on by itself when nobody
    waits for it any longer. So it is told to stop them, instead of being cancelled, and answers when they have stopped.
    """

    async def abort(self, effect: Any, context: EffectContext) -> None:
        """Stop the effect. If it is being performed here, the answer still comes from there. Otherwise it is not going
        to be performed; it has never begun, or an earlier process has begun it."""
        ...

    async def __call__(self, effect: Any, context: EffectContext) -> Answer | None:
        """Carry out the effect, or continue with what an earlier process has begun. A cancel of this task does not stop
        the effect: only the conversation closes here."""
        ...


def with_abort_of(performer: Performer, around: Performer) -> Performer:
    """Return `around`, a function around this performer, as a performer that is `Abortable` if this one is."""
    return _AbortableAround(performer, around) if isinstance(performer, Abortable) else around


class _AbortableAround:
    """A function around an abortable performer."""

    def __init__(self, performer: Abortable, around: Performer) -> None:
        self._around = around
        self.abort = performer.abort

    async def __call__(self, effect: Any, context: EffectContext) -> Answer | None:
        return await self._around(effect, context)


class InProcessDispatcher:
    """Carries out effects as tasks of the running event loop.

    `answer(conversation_id, answer)` takes the answers of awaited effects. It is called from the event loop. If it
    raises `InvalidInput` for the answer of a performer, as `Engine.answer` does, the performer has failed.
    """

    def __init__(
        self,
        performers: Mapping[type[Effect], Performer],
        clock: Clock,
        answer: Callable[[str, Answer], None],
    ) -> None:
        self._performers = performers
        self._senders = senders_of(performers)
        self._answers = AnswerSender(clock, answer)
        self._conversations: dict[str, ConversationEffects] = {}

    async def perform(self, effect: Any, context: EffectContext) -> Answer | None:
        """Carry out one effect, and return its answer. Every effect that is started goes through here."""
        try:
            with redacting(context.redact):
                return await self._performers[type(effect)](effect, context)
        except (SystemExit, KeyboardInterrupt) as error:
            pass_on_interrupt(error)
            raise RuntimeError(ENDS_PROCESS) from error

    def aborting(self, effect: Any, context: EffectContext) -> Telling | None:
        """Return what tells the performer of this effect to stop it; None if the performer is to be cancelled."""
        performer = self._performers[type(effect)]
        return partial(_abort, performer, effect, context) if isinstance(performer, Abortable) else None

    def dispatch(self, effects: Sequence[Effect], context: EffectContext) -> None:
        """Start the effects of a committed step, in order. Effects that concern only the log are passed over."""
        for effect in effects:
            if isinstance(effect, OutgoingEffect):
                self._send(effect, context)
            elif isinstance(effect, AwaitedEffect):
                self._start(effect, context)
        if (conversation := self._conversations.get(context.conversation_id)) is not None:
            conversation.start_next()

    def _send(self, effect: OutgoingEffect, context: EffectContext) -> None:
        if type(effect) not in self._performers:
            logger.error("There is no performer for %s, so it is lost.", effect.type)
        elif (sender := self._senders.get(type(effect))) is None or sender.targets_of(effect):
            self._conversation(context.conversation_id).enqueue(effect, context)

    def _start(self, effect: AwaitedEffect, context: EffectContext) -> None:
        if type(effect) not in self._performers:
            self._answers.send_unavailable(effect, context)
        elif effect.AFTER_DELIVERIES:
            self._conversation(context.conversation_id).enqueue(effect, context)
        else:
            self._conversation(context.conversation_id).start(effect, context)

    def abort(self, conversation_id: str, effect_id: int) -> None:
        """Stop an effect. One that has not started yet is dropped; one that is unknown or has ended is passed over."""
        if (conversation := self._conversations.get(conversation_id)) is not None:
            conversation.abort(effect_id)
            self.forget_if_idle(conversation_id)

    async def wait_until_tried(self, conversation_id: str | None = None) -> None:
        """Return when every outgoing effect so far was tried once, of this conversation or of all."""
        if conversation_id is None:
            await asyncio.gather(*(conversation.wait_until_tried() for conversation in self._conversations.values()))
        elif (conversation := self._conversations.get(conversation_id)) is not None:
            await conversation.wait_until_tried()

    async def stop(self, conversation_id: str, *, answers: bool = True) -> None:
        """Tell the running effects of a conversation to stop, and drop those that have not started, except outgoing
        ones. Return when they have stopped, or after `CLOSING_GRACE`.

        An effect that finishes all the same is answered, unless `answers` is false; the others are left as in a crash.
        """
        if (conversation := self._conversations.get(conversation_id)) is not None:
            await conversation.stop(answers=answers)
            self.forget_if_idle(conversation_id)

    async def release(self, conversation_id: str, *, deliver: bool = True) -> None:
        """Stop sending for a conversation: once its outgoing effects so far were tried, or after `SENDING_GRACE`; at
        once unless `deliver`. To be called after `stop`."""
        if (conversation := self._conversations.get(conversation_id)) is not None:
            await conversation.release(deliver=deliver)
            self.forget_if_idle(conversation_id)

    def _conversation(self, conversation_id: str) -> ConversationEffects:
        conversation = self._conversations.get(conversation_id)
        if conversation is None:
            conversation = ConversationEffects(conversation_id, self, self._answers)
            self._conversations[conversation_id] = conversation
        return conversation

    def forget_if_idle(self, conversation_id: str) -> None:
        """Forget the effects of this conversation if none waits or runs."""
        conversation = self._conversations.get(conversation_id)
        if conversation is not None and conversation.is_idle:
            del self._conversations[conversation_id]


async def _abort(performer: Abortable, effect: Any, context: EffectContext) -> None:
    try:
        with redacting(context.redact):
            await performer.abort(effect, context)
    except (SystemExit, KeyboardInterrupt) as error:
        pass_on_interrupt(error)
        raise RuntimeError(ENDS_PROCESS) from error
