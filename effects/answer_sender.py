"""Sends the answers of performers, and the answers that stand for a missing or failed performer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..states.effects import AwaitedEffect
from ..states.errors import StoreError
from ..states.events import Answer, EffectFailed, exact
from ..states.values.failures import FailureKind
from .clock import Clock
from .context import EffectContext
from .logs import performer_logger, redacting

logger = performer_logger("turnwise.dispatcher")

BROKEN = "Something broke inside the program that runs this conversation."
"""The failure of an effect whose performer raised an error that is not for people."""


class AnswerSender:
    """Sends the answers of performers, and the answers that stand for a missing or failed performer."""

    def __init__(self, clock: Clock, answer: Callable[[str, Answer], None]) -> None:
        self._clock = clock
        self._answer = answer

    def send_result(self, effect: Any, context: EffectContext, answer: Answer | None) -> None:
        """Send what a performer has returned. If no log can hold it, the performer has failed."""
        try:
            if answer is None:
                raise ValueError("an awaited effect was left without an answer")
            stored = exact(answer)
            if not isinstance(stored, effect.answers) or stored.effect_id != effect.effect_id:
                raise ValueError(f"{effect.type} cannot be answered with this {stored.type}")
        except ValueError as error:
            self.send_failure(effect, context, error)
        else:
            self._answer(context.conversation_id, stored)

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
