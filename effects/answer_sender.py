"""Sends the answers of performers, and the answers that stand for a missing or failed performer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..states.effects import AwaitedEffect
from ..states.errors import InvalidInput, StoreError
from ..states.events import Answer, EffectFailed
from ..states.values.value import FailureKind
from .clock import Clock
from .context import EffectContext
from .logs import performer_logger, redacting

logger = performer_logger("turnwise.dispatcher")

BROKEN = "Something broke inside the program that runs this conversation."
"""The failure of an effect whose performer raised an error that is not for people."""


class AnswerSender:
    """Sends the answers of performers, and the answers that stand for a missing or failed performer. `answer` takes
    them, and raises `InvalidInput` for one that no log can hold."""

    def __init__(self, clock: Clock, answer: Callable[[str, Answer], None]) -> None:
        self._clock = clock
        self._answer = answer

    def send_result(self, effect: Any, context: EffectContext, answer: Answer | None) -> None:
        """Send what a performer has returned. If it is no answer to its effect, or no log can hold it, the performer
        has failed."""
        if answer is None:
            self.send_failure(effect, context, ValueError("an awaited effect was left without an answer"))
        elif not _fits(effect, answer):
            fault = ValueError(f"{effect.type} cannot be answered with this {type(answer).__name__}")
            self.send_failure(effect, context, fault)
        else:
            try:
                self._answer(context.conversation_id, answer)
            except InvalidInput as error:
                self.send_failure(effect, context, error)

    def send_failure(self, effect: Any, context: EffectContext, error: BaseException | None) -> None:
        """Send the failure of a performer, or of a log that it could not read."""
        with redacting(context.redact):
            logger.error("A performer failed on %s.", effect.type, exc_info=error)
        sentence = error.sentence if isinstance(error, StoreError) else BROKEN
        self._fail(effect, context, "internal", sentence)

    def send_unavailable(self, effect: Any, context: EffectContext) -> None:
        """Send the failure of an effect that has no performer."""
        wanted = effect.type.replace("_", " ")
        sentence = f"The program that runs this conversation has nothing for this: {wanted}."
        self._fail(effect, context, "unavailable", sentence)

    def send_acknowledgement(self, effect: AwaitedEffect, context: EffectContext) -> None:
        """Send the acknowledgement of an effect that was stopped, if its conversation waits for one."""
        acknowledgement = effect.acknowledgement(effect.effect_id, self._clock.now())
        if acknowledgement is not None:
            self._answer(context.conversation_id, acknowledgement)

    def _fail(self, effect: Any, context: EffectContext, kind: FailureKind, sentence: str) -> None:
        failed = EffectFailed(effect_id=effect.effect_id, at=self._clock.now(), kind=kind, sentence=sentence)
        self._answer(context.conversation_id, failed)


def _fits(effect: Any, answer: Answer) -> bool:
    """Whether this answers the effect. It is not validated yet, so its id may be anything, or missing."""
    if type(answer) not in effect.answers:
        return False
    effect_id = getattr(answer, "effect_id", None)
    return type(effect_id) is int and effect_id == effect.effect_id
