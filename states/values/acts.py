"""What a tool can do besides returning a text: speak to the user, claim completed work, send mail, start sub-agents,
hand over to another profile.

The machine knows no tool by its name. A tool's result may carry acts, and the machine carries them out, so an
application's own tool can do the same as the built-in ones. A tool declares the kinds of act that it may return. A tool
that speaks at once, asks, spawns or hands over must be exclusive: what people hear, which sub-agents start and which
profile goes on must not depend on which tool was faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from .value import FilledText, Seconds, Tagged, Text, Value

ActKind = Literal["speech", "work_complete", "question", "mail", "children", "transfer"]
"""The kinds of act that a tool may declare."""

MAX_TASKS = 100
"""The most sub-agents that one act may start. The policy of a conversation usually allows fewer."""

Audience = Literal["user", "agent"]
"""For whom an agent writes to another: for that agent's user, or for the agent alone."""


class Speech(Tagged):
    """A text for the user: delivered now, or at the end of the turn if the policy chooses it."""

    type: Literal["speech"] = "speech"
    text: Text
    when: Literal["turn_end", "now"] = "turn_end"

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that this act brings."""
        return (self.text,)


class WorkComplete(Tagged):
    """The claim that the work is complete. `confidence` is between 0 and 1."""

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
    """A message to the agent `target`. A silent message starts no turn: it is read by that agent's next one."""

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


class SubAgentTask(Value):
    """The task of a sub-agent, and how it is to work: by one of its parent's profiles, with some of its parent's tools,
    and within limits of its own. An empty text stands for the profile of the turn that starts it; None stands for all
    tools, and leaves a limit to the policy."""

    text: FilledText = Field(description="Everything that the sub-agent has to know: it sees nothing else")
    profile: Text = Field(default="", description="The name of the profile by which it works")
    tools: tuple[Text, ...] | None = Field(
        default=None, description="The names of those of its parent's tools that it may use; without it, all"
    )
    requests: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None, description="How often it may ask its model"
    )
    tokens: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None, description="How many tokens it may use"
    )
    cost: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="What it may cost, in US dollars"
    )
    seconds: Annotated[Seconds, Field(gt=0)] | None = Field(
        default=None, description="It is stopped after this time, in seconds"
    )


class SubAgents(Tagged):
    """Tasks for sub-agents, one each; a text stands for a task with nothing but that text. The turn goes on when all
    sub-agents have finished."""

    type: Literal["children"] = "children"
    tasks: tuple[Text | SubAgentTask, ...] = Field(min_length=1, max_length=MAX_TASKS)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that this act brings, one for each sub-agent."""
        return tuple(task if isinstance(task, str) else task.text for task in self.tasks)

    @property
    def full_tasks(self) -> tuple[SubAgentTask, ...]:
        """The tasks, each as an object, also where it is given as a text. `Pure.`"""
        return tuple(SubAgentTask.model_construct(text=task) if isinstance(task, str) else task for task in self.tasks)


class Transfer(Tagged):
    """The conversation is handed over to another profile of its policy, from its next model request on."""

    type: Literal["transfer"] = "transfer"
    profile: Text = Field(min_length=1)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that this act brings: none, since a profile is a name."""
        return ()


Act = Annotated[Speech | WorkComplete | AgentMail | SubAgents | Transfer, Field(discriminator="type")]
"""Every act that a result can carry. A question is an event of its own (`AskUserQuestionPending`)."""


def with_indexes(acts: Iterable[Act]) -> Iterator[tuple[Act, int]]:
    """The acts of a result, each with the index of its first text among all texts of the result, of which 0 is the text
    of the result itself. `Pure.`"""
    index = 1
    for act in acts:
        yield act, index
        index += len(act.texts)
