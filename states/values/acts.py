"""What a tool can do besides returning a text: speak to the user, claim completed work, send mail, start sub-agents,
hand over to another profile.

The machine knows no tool by its name. A tool's result may carry acts, and the machine carries them out, so an
application's own tool can do the same as the built-in ones. A tool declares the kinds of act that it may return. A tool
that speaks at once, asks, spawns or hands over must be exclusive: what people hear, which sub-agents start and which
profile goes on must not depend on which tool was faster.

Beside the acts stands what an application arranges for a conversation as a whole: its title and its metadata, the
search for what was said, and the schedule by which it begins turns of its own accord.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from .value import Block, FilledText, Seconds, Tagged, Text, Value

ActKind = Literal["speech", "work_complete", "question", "mail", "children", "transfer"]
"""The kinds of act that a tool may declare."""

MAX_TASKS = 100
"""The most sub-agents that one act may start. The policy of a conversation usually allows fewer."""

Audience = Literal["user", "agent"]
"""For whom an agent writes to another: for that agent's user, or for the agent alone."""


def check_message(text: str) -> str:
    """Return the text of a message if it is more than white space: the validator of such texts. `Pure.`"""
    if not text.strip():
        raise PydanticCustomError("message_empty", "a message must not be empty")
    return text


def _check_summary(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("summary_blank", "a summary must not be empty")
    return text


class _Act(Tagged):
    """Something that a tool does besides returning a text."""

    TEXTS: ClassVar[tuple[str, ...]] = ()
    """The fields that hold the texts of an act of this type, where each is a field of its own."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that this act brings. `Pure.`"""
        return tuple(getattr(self, name) for name in self.TEXTS)


class Speech(_Act):
    """A text for the user: delivered now, or at the end of the turn if the policy chooses it."""

    TEXTS: ClassVar[tuple[str, ...]] = ("text",)

    type: Literal["speech"] = "speech"
    text: Text
    when: Literal["turn_end", "now"] = "turn_end"


class WorkComplete(_Act):
    """The claim that the work is complete. `confidence` is between 0 and 1."""

    TEXTS: ClassVar[tuple[str, ...]] = ("summary",)

    type: Literal["work_complete"] = "work_complete"
    summary: Annotated[Text, AfterValidator(_check_summary)]
    confidence: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)


_MailText = Annotated[Text, AfterValidator(check_message)]


class AgentMail(_Act):
    """A message to the agent `target`. A silent message starts no turn: it is read by that agent's next one."""

    TEXTS: ClassVar[tuple[str, ...]] = ("text",)

    type: Literal["mail"] = "mail"
    target: Text = Field(min_length=1)
    text: _MailText
    audience: Audience = "agent"
    silent: bool = False


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


class SubAgents(_Act):
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
        return tuple(SubAgentTask(text=task) if isinstance(task, str) else task for task in self.tasks)


class Transfer(_Act):
    """The conversation is handed over to another profile of its policy, from its next model request on."""

    type: Literal["transfer"] = "transfer"
    profile: Text = Field(min_length=1)


Act = Annotated[Speech | WorkComplete | AgentMail | SubAgents | Transfer, Field(discriminator="type")]
"""Every act that a result can carry. A question is an event of its own (`AskUserQuestionPending`)."""


def with_indexes(acts: Iterable[Act]) -> Iterator[tuple[Act, int]]:
    """The acts of a result, each with the index of its first text among all texts of the result, of which 0 is the text
    of the result itself. `Pure.`"""
    index = 1
    for act in acts:
        yield act, index
        index += len(act.texts)


MARK = "turnwise."
"""With this begin the names in metadata by which a host finds the conversations that it made for itself. They are set
when such a conversation is created, by `marks`, and by nothing else: nobody else can make a conversation look like
one of a host."""

# What the application notes about a conversation is bounded, because it is read whenever a conversation is loaded or
# listed.
MAX_OWNER = 1_000
"""The longest owner, in characters: more than any id of a user, and short enough for an index."""

MAX_TITLE = 1_000
"""The longest title, in characters."""

MAX_ENTRIES = 100
"""The most entries of metadata at its top level."""

MAX_METADATA = 20_000
"""The longest metadata, in characters of JSON."""


def _bounded(metadata: dict[str, Any]) -> dict[str, Any]:
    if len(metadata) > MAX_ENTRIES:
        raise PydanticCustomError("metadata_too_long", "metadata may have at most 100 entries")
    if len(json.dumps(metadata, ensure_ascii=False)) > MAX_METADATA:
        raise PydanticCustomError("metadata_too_long", "metadata may be at most 20,000 characters of JSON long")
    return metadata


Owner = Annotated[str, Field(max_length=MAX_OWNER)]
"""Whom a conversation belongs to, as the application names its users."""

Title = Annotated[str, Field(max_length=MAX_TITLE)]
"""What a conversation is called in lists."""

Metadata = Annotated[Block, AfterValidator(_bounded)]
"""A JSON object of the application's own."""


def marks_of(metadata: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the entries of metadata by which a host has marked its conversation. `Pure.`"""
    return {name: value for name, value in metadata.items() if isinstance(name, str) and name.startswith(MARK)}


@dataclass(frozen=True)
class MemoryScope:
    """Whose texts may be found: those of all conversations of the `owner`, without the texts of this conversation from
    the turn `turn` on, because a request holds these anyway. Without an owner only this conversation is searched.

    It is, like the query and what it finds, the language between the effects, which ask, and the stores, which search.
    It is never stored.
    """

    conversation_id: str
    owner: str | None
    turn: int


@dataclass(frozen=True)
class MemoryQuery:
    """A search by keywords, of which a text need not hold all. `since` and `until` bound the moments at which the texts
    were said, both included; None is no bound. At most `limit` texts are found."""

    scope: MemoryScope
    keywords: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    limit: int


@dataclass(frozen=True)
class VectorQuery:
    """A search by meaning, for the texts whose vectors in this `space` have the smallest angle to `vector`. A space is
    the name of what makes the vectors. `since` and `until` bound the moments as in a `MemoryQuery`, and at most `limit`
    texts are found."""

    scope: MemoryScope
    space: str
    vector: Sequence[float]
    since: datetime | None
    until: datetime | None
    limit: int


@dataclass(frozen=True)
class FoundText:
    """A text that was said in a turn of a conversation, by the user or by the assistant."""

    conversation_id: str
    turn: int
    at: datetime
    role: Literal["user", "assistant"]
    text: str


MAX_CRON = 200
"""The longest cron expression, in characters: several times what an expression of five fields needs."""

MAX_ZONE = 100
"""The longest name of a time zone, in characters: more than three times the longest name that exists."""

LONGEST_INTERVAL = 315_360_000.0
"""The longest interval, in seconds: ten years. Chosen so that the next moment is always within the calendar."""


CronExpression = Annotated[str, Field(min_length=1, max_length=MAX_CRON)]
"""A cron expression, as people write it; where the next moment is computed, it is checked."""

ZoneName = Annotated[str, Field(min_length=1, max_length=MAX_ZONE)]
"""The name of a time zone, such as Europe/Berlin."""


class Schedule(Value):
    """When a conversation wakes up: after each interval of `every` seconds, or at the moments of a `cron` expression in
    the time zone `zone`. At each of these moments it reads `task` and begins a turn.

    Exactly one of `every`, at least a second, and `cron` is given. Whether the expression and the zone are valid is
    checked where the next moment is computed.
    """

    every: Annotated[Seconds, Field(ge=1, le=LONGEST_INTERVAL)] | None = None
    cron: CronExpression | None = None
    zone: ZoneName = "UTC"
    task: FilledText

    @model_validator(mode="after")
    def _has_one_rhythm(self) -> Self:
        if (self.every is None) == (self.cron is None):
            raise PydanticCustomError("schedule_unclear", "a schedule needs either an interval or a cron expression")
        return self
