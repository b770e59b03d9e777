"""The three families of events: requests, answers and reports."""

from __future__ import annotations

from typing import TypeAlias

from pydantic import Field

from ..values.value import Instant, Tagged, Text


class Event(Tagged):
    """Something that happened, `at` a moment."""

    at: Instant

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that it brings, in the order in which `Heard` counts them. `Pure.`"""
        return ()


class Request(Event):
    """Something that a person or a program wants. The same `event_id` twice is the same request."""

    event_id: Text = Field(min_length=1, max_length=200)


class Answer(Event):
    """What came of an effect."""

    effect_id: int


AnswerTypes: TypeAlias = tuple[type[Answer], ...]
"""The types of answer that something can have."""


class Report(Event):
    """What became of a conversation whose process died. One about something that does not run is ignored."""
