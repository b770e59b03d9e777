"""The opening of a conversation: what an application chooses for a new one, and the first event that it becomes.

The conversation may begin with a history that was said elsewhere. What no provider would accept in it is repaired.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypedDict

from pydantic import BaseModel

from ..effects.files import PreparedFile
from ..effects.given_files import TakenFiles
from ..persistence.summaries import checked_id
from ..states.context import Context
from ..states.errors import ConfigurationError, InvalidInput, Refused
from ..states.events import Opened
from ..states.openai_reading import MAX_MESSAGES, RepairedHistory, repair_history
from ..states.policy import Policy
from ..states.roles import Role, background_policy
from ..states.states import Closed, State
from ..states.values.acts import MARK
from .choices import Choices, GivenTools
from .outputs import AnyOutput, admitted, named_output
from .requests import MODELS, PROFILES, RULES, Filled, checked_metadata, make
from .schedules import GivenInterval, first_moment, schedule_of

logger: logging.Logger = logging.getLogger("turnwise.engine")


class _WithId(Protocol):
    """A conversation, as far as its id is concerned: a handle, a blocking handle or a summary."""

    @property
    def id(self) -> str:
        """The id of the conversation."""
        ...


GivenConversation = str | _WithId
"""A conversation as an application gives it."""

GivenMessages = Iterable[Mapping[str, Any] | BaseModel]
"""Messages in OpenAI's chat format: dictionaries, or the objects that the libraries of providers return."""


class CreateOptions(TypedDict, total=False):
    """What `Engine.create` takes besides the form of the answers."""

    role: Role
    works_for: GivenConversation | None
    policy: Policy | None
    system: str
    model: str | None
    tools: GivenTools | None
    messages: GivenMessages | None
    owner: str | None
    title: str | None
    metadata: Mapping[str, Any] | None
    marks: Mapping[str, str] | None
    every: GivenInterval | None
    cron: str | None
    zone: str
    task: str | None
    conversation_id: str | None


@dataclass(frozen=True, kw_only=True)
class ChosenOpening:
    """What an application chooses for a new conversation. `Engine.create` says what each choice means. `header` are the
    fields of a `ChosenHeader` as they were given, so the conversation that is worked for may be a handle."""

    header: Mapping[str, Any]
    policy: Policy | None
    system: str
    model: str | None
    tools: GivenTools | None
    messages: GivenMessages | None
    marks: Mapping[str, str] | None = None
    every: GivenInterval | None = None
    cron: str | None = None
    zone: str = "UTC"
    task: str | None = None
    output: AnyOutput | None = None

    @property
    def filled(self) -> Filled:
        """The fields of the first event that the application leaves to the engine. They do not count where a
        conversation is asked for again under its id."""
        named = frozenset() if self.policy is None else self.policy.model_fields_set
        is_without = {
            RULES: self.policy is None,
            MODELS: self.model is None and "models" not in named,
            "chose_models": self.model is None and "models" not in named,
            PROFILES: "profiles" not in named,
            "chose_profiles": "profiles" not in named,
            "owner": self.header["owner"] is None and self.header["works_for"] is not None,
        }
        return frozenset(
            {"revision", "next_wake", "nonce", *(name for name, left_out in is_without.items() if left_out)}
        )


IsStored = Callable[[str], Awaitable[bool]]


class Opening(NamedTuple):
    """The first event of a conversation, and the files that are to be stored before it."""

    event: Opened
    files: tuple[PreparedFile, ...]


async def opening_of(
    conversation_id: str, at: datetime, choices: Choices, default: Policy, chosen: ChosenOpening, is_stored: IsStored
) -> Opening:
    """Return how a conversation begins in an engine whose policy is `default`. `is_stored` says whether its store has
    the file with a digest, to which a history may refer. Raises `ConfigurationError` for
    what the engine does not have or cannot carry out, and `InvalidInput` for what such an event cannot hold."""
    works_for: GivenConversation | None = chosen.header["works_for"]
    role = _role_of_new(chosen.header["role"], works_for)
    names = choices.tools(chosen.tools)
    policy = chosen.policy
    if policy is None:
        policy = background_policy(default) if role == "background" else default
    rules = choices.rules(policy, names, chosen.model, role)
    taken = TakenFiles(rules.policy.files)
    history = await _read_history(chosen.messages, chosen.system, taken, is_stored)
    schedule = schedule_of(chosen.every, chosen.cron, chosen.zone, chosen.task, rules.policy.texts.wake_up)
    opened = make(
        Opened,
        event_id=f"opened-{conversation_id}",
        at=at,
        **{
            **chosen.header,
            "works_for": None if works_for is None else id_of(works_for),
            "metadata": _metadata(chosen),
        },
        system=history.system,
        policy=rules.policy,
        chose_models=rules.chose_models,
        chose_profiles=rules.chose_profiles,
        tools=names,
        messages=history.messages,
        repairs=history.repairs,
        schedule=schedule,
        next_wake=None if schedule is None else first_moment(schedule, at),
        output=named_output(chosen.output),
    )
    admitted(choices.forms, opened.output)
    return Opening(opened, taken.files)


def _metadata(chosen: ChosenOpening) -> Any:
    """The metadata that the application gives, with the marks of a host."""
    marks = {f"{MARK}{name}": value for name, value in (chosen.marks or {}).items()}
    metadata = chosen.header["metadata"]
    return checked_metadata({} if metadata is None else metadata, marks)


_SUB_AGENT = "A sub-agent is started by a turn of another agent, by a tool such as spawn_agents, and not by `create`."

UNKNOWN = 'The role of a new conversation is "foreground" or "background".'

_WORKS_ALONE = 'Only a background agent works for another conversation: create it with role="background".'


def _role_of_new(role: Any, works_for: GivenConversation | None) -> Role:
    """Return the role of a conversation that an application creates. Raises `ConfigurationError`."""
    if role == "sub_agent":
        raise ConfigurationError(_SUB_AGENT)
    if role not in ("foreground", "background"):
        raise ConfigurationError(UNKNOWN)
    if role == "foreground" and works_for is not None:
        raise ConfigurationError(_WORKS_ALONE)
    chosen: Role = role
    return chosen


_NO_CONVERSATION = "The conversation that a background agent works for is given as a conversation, or by its id."


def id_of(works_for: GivenConversation) -> str:
    """Return the id of the conversation that is meant. Raises `InvalidInput`."""
    meant = works_for if isinstance(works_for, str) else getattr(works_for, "id", None)
    if not isinstance(meant, str):
        raise InvalidInput(_NO_CONVERSATION)
    return checked_id(meant)


CLOSED = "The conversation that the background agent is to work for is closed."

_OTHER_OWNER = "A background agent has the owner of the conversation that it works for."


def owner_for(owner: str | None, state: State, context: Context) -> str | None:
    """Return the owner of a background agent that works for a conversation in this state: that of the conversation.

    Raises `InvalidInput` if another owner is given, and `Refused` with `closed` if the conversation is closed.
    """
    if isinstance(state, Closed):
        raise Refused("closed", sentence=CLOSED)
    if owner not in (None, context.owner):
        raise InvalidInput(_OTHER_OWNER)
    return context.owner


async def _read_history(
    messages: GivenMessages | None, system: str, taken: TakenFiles, is_stored: IsStored
) -> RepairedHistory:
    """Return the history of these messages, checked and repaired, and the system prompt: `system`, if it is not empty,
    or that of the history. A long history takes a second, in which other conversations go on. Raises `InvalidInput`."""
    if messages is None:
        return RepairedHistory(system, (), ())
    if isinstance(messages, Iterator):
        messages = list(islice(messages, MAX_MESSAGES + 1))
    history = await asyncio.to_thread(repair_history, messages, system, taken.take)
    referred = {file.sha256 for message in history.messages for file in message.files}
    brought = {file.reference.sha256 for file in taken.files}
    lost = {sha256 for sha256 in referred - brought if not await is_stored(sha256)}
    return await asyncio.to_thread(repair_history, messages, system, taken.take, lost) if lost else history


_LOGGED = 10
"""How many repairs the log names."""


def log_repairs(conversation_id: str, repairs: tuple[str, ...]) -> None:
    """Write one warning that names the first repairs, if there are any."""
    if repairs:
        first = " ".join(repairs[:_LOGGED])
        rest = "" if len(repairs) <= _LOGGED else f" Conversation.repairs() names {len(repairs) - _LOGGED} more."
        logger.warning("The history of the conversation %s was repaired: %s%s", conversation_id, first, rest)
