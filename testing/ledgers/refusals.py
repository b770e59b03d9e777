"""What models refused of what people said."""

from __future__ import annotations

from ...states.effects import WithholdContent
from ...states.events import Event, LlmResponse
from ...states.step import Step


class RefusalLedger:
    """The turns in which what people said was refused, each with the step of the newest answer before: what was said
    since then is what was refused."""

    def __init__(self) -> None:
        self.refused: dict[int, int] = {}
        self._answered = 0

    def add(self, event: Event, step: Step) -> None:
        """Add a step."""
        if isinstance(event, LlmResponse):
            self._answered = step.state.book.seq
        for effect in step.effects:
            if isinstance(effect, WithholdContent) and effect.suspect == "words" and step.ended is not None:
                self.refused[step.ended.turn] = self._answered
