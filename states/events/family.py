"""The three families of events: requests, answers and reports."""

from __future__ import annotations

from typing import TypeAlias

from pydantic import Field

from ..values.value import Instant, Tagged, Text


class Event(Tagged):
    """Something that happened, at the moment `at`."""

    at: Instant

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that this event brings, in the order in which `Heard.index` counts them. `Pure.`"""
        return ()


class Request(Event):
    """Something that a person or a program wants. Two requests with the same `event_id` are the same request."""

    event_id: Text = Field(min_length=1, max_length=200)


class Answer(Event):
    """The outcome of the effect `effect_id`."""

    effect_id: int


AnswerTypes: TypeAlias = tuple[type[Answer], ...]
"""Types of answer, such as those that an effect can have."""


class Report(Event):
    """News of something that is under way: what a crash interrupted, or what a sub-agent asks. A report about anything
    else is ignored."""
