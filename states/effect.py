"""What all effects have in common, by the five kinds of effect. The effects themselves are in `effects`."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from .events import Answer, AnswerTypes
from .values.part import TaggedPart


class Effect(TaggedPart):
    """Something the machine wants done."""


class PersistingEffect(Effect):
    """An effect that is carried out by the commit of its step: something enters the transcript, or is read differently
    in it from then on."""


class AwaitedEffect(Effect):
    """An effect that is started after the commit. The conversation waits for its one answer."""

    ANSWERS: ClassVar[AnswerTypes] = ()
    """The answers that an effect of this type can have."""

    ACKNOWLEDGES: ClassVar[type[Answer] | None] = None
    """The answer that confirms that an effect of this type was stopped. With None, an effect that is told to stop is no
    longer awaited."""

    AFTER_DELIVERIES: ClassVar[bool] = False
    """Whether an effect of this type starts only after the deliveries in front of it were attempted. This holds for
    effects that users can notice: a text that was said before a tool runs arrives before it runs."""

    effect_id: int

    @property
    def answers(self) -> AnswerTypes:
        """The answers that this effect can have. `Pure.`"""
        return self.ANSWERS

    @classmethod
    def acknowledgement(cls, effect_id: int, at: datetime) -> Answer | None:
        """The answer that confirms that the effect `effect_id` of this type was stopped, or None if such an effect
        confirms nothing. `Pure.`"""
        answer = cls.ACKNOWLEDGES
        return None if answer is None else answer.model_validate({"effect_id": effect_id, "at": at})


class OutgoingEffect(Effect):
    """An effect that hands something over to a user or to another agent. Nobody waits for it, but it must arrive."""

    effect_id: int


class RecordedEffect(Effect):
    """An effect that is carried out by the commit of its step: whoever needs what it says reads it in the log."""

    effect_id: int


class ControlEffect(Effect):
    """An effect that stops the awaited effect `effect_id`."""

    effect_id: int
