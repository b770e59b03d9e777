"""What a tool can do beside giving a result to read: speak to the user, claim completed work, write, spawn.

The machine knows no tool by its name. A tool's result may carry acts, and the machine carries those out, so a host's
own tool speaks, asks or spawns in the same way as the built-in ones do. A tool declares the kinds of act that it may
return; one that speaks at once, asks or spawns is declared exclusive, since the order in which people hear and children
start must not hang on which tool was faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from .value import Tagged, Text

ActKind = Literal["speech", "work_complete", "question", "mail", "children"]
"""The kinds of act that a tool may declare."""

Audience = Literal["user", "agent"]
"""For whom an agent writes to another: for that agent's user, or for the agent alone."""


class Speech(Tagged):
    """Something said to the user: now, or once the turn has ended and the policy chose it."""

    type: Literal["speech"] = "speech"
    text: Text
    when: Literal["turn_end", "now"] = "turn_end"

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that this act brings."""
        return (self.text,)


class WorkComplete(Tagged):
    """The claim that the work is done. `confidence` lies between 0 and 1."""

    type: Literal["work_complete"] = "work_complete"
    summary: Text
    confidence: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)

    @field_validator("summary")
    @classmethod
    def _says_something(cls, summary: str) -> str:
        if not summary.strip():
            raise PydanticCustomError("summary_blank", "a summary must not be empty")
        return summary

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that this act brings."""
        return (self.summary,)


class AgentMail(Tagged):
    """A message to the agent `target`. A silent one is read when that agent next works, and wakes nobody."""

    type: Literal["mail"] = "mail"
    target: Text = Field(min_length=1)
    text: Text
    audience: Audience = "agent"
    silent: bool = False

    @field_validator("text")
    @classmethod
    def _says_something(cls, text: str) -> str:
        if not text.strip():
            raise PydanticCustomError("message_empty", "a message must not be empty")
        return text

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that this act brings."""
        return (self.text,)


class SubAgents(Tagged):
    """Work handed to sub-agents, one for each task; the turn goes on when all of them have finished."""

    type: Literal["children"] = "children"
    tasks: tuple[Text, ...] = Field(min_length=1, max_length=100)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that this act brings, one for each child."""
        return self.tasks


Act = Annotated[Speech | WorkComplete | AgentMail | SubAgents, Field(discriminator="type")]
"""Every act that a result carries. A question is an event of its own (`AskUserQuestionPending`)."""


def with_indexes(acts: Iterable[Act]) -> Iterator[tuple[Act, int]]:
    """The acts of a result, each with the index of its first text among all texts of the result; 0 is what is read.
    `Pure.`"""
    index = 1
    for act in acts:
        yield act, index
        index += len(act.texts)
