"""Writes the system message of a request.

Its parts stand in a fixed order, from what never changes to what changes with each turn, and last the tools, so that
they stand nearest to the dialogue. Every text in it is a rule of the conversation, words of the application, or was
found for the turn; the titles here name no language and assume none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from ....states.context import Context
from ....states.effects import RequestLlm
from ....states.policy.policy import Profile
from ....states.policy.texts import Texts
from .agent_guidance import write_agent_guidance
from .explained_tools import ExplainedTools

MEMORY_TITLE = "Relevant conversation history:"
"""The title above what was found in older conversations."""

DOCUMENTS_TITLE = "Relevant documents:"
"""The title above what the application's document source returned."""

TOOLS_TITLE = "Tools:"
"""The title above the list of the tools that are offered."""


@dataclass(frozen=True)
class Recalled:
    """What was found for the turn: texts of older `conversations`, and of `documents`."""

    conversations: str = ""
    documents: str = ""


NOTHING_RECALLED = Recalled()


def write_system_message(
    effect: RequestLlm,
    context: Context,
    recalled: Recalled,
    tools: ExplainedTools,
    listed_tools: str,
    *,
    holds_mail: bool = False,
) -> str:
    """The system message of a request; empty if there is nothing to say.

    In this order: the general instructions, those of the profile, that messages were spoken, how to reach the user by
    the `tools` for it, what concerns other agents, how to call tools, what was recalled, and the list of the tools that
    are offered, written by `list_tools`. Empty parts are left out, and so is each part that no rule asks for.
    `holds_mail` says that the conversation holds a message of another agent. A plain request has only the
    instructions, the general ones and those of the profile. `Pure.`
    """
    profiles = [profile for profile in context.policy.profiles if profile.name == effect.profile]
    parts = [context.system, *(profile.prompt for profile in profiles)]
    if not effect.plain:
        parts += _explanations(context, profiles, tools, listed_tools, holds_mail=holds_mail)
        parts += (_titled(MEMORY_TITLE, recalled.conversations), _titled(DOCUMENTS_TITLE, recalled.documents))
        if context.policy.describe_tools:
            parts += _tools(context.policy.texts, listed_tools)
    return "\n\n".join(part for part in parts if part.strip())


class WriteSystem(Protocol):
    """Writes system messages as `write_system_message` does."""

    def __call__(
        self,
        effect: RequestLlm,
        context: Context,
        recalled: Recalled,
        tools: ExplainedTools,
        listed_tools: str,
        *,
        holds_mail: bool = False,
    ) -> str:
        """Return the system message."""
        ...


class KeptSystemMessage:
    """Writes the system messages of one conversation. The one before is returned while nothing has changed that it was
    written from, which is mostly so within a turn."""

    def __init__(self) -> None:
        self._written_from: tuple[object, ...] = ()
        self._text = ""

    def __call__(
        self,
        effect: RequestLlm,
        context: Context,
        recalled: Recalled,
        tools: ExplainedTools,
        listed_tools: str,
        *,
        holds_mail: bool = False,
    ) -> str:
        """Return what `write_system_message` returns."""
        # Tuples are compared by the identity of their items first, and most of these are the same objects.
        written_from = (context, effect.profile, effect.plain, recalled, tools, listed_tools, holds_mail)
        if written_from != self._written_from:
            self._text = write_system_message(effect, context, recalled, tools, listed_tools, holds_mail=holds_mail)
            self._written_from = written_from
        return self._text


def _explanations(
    context: Context, profiles: list[Profile], tools: ExplainedTools, listed_tools: str, *, holds_mail: bool
) -> Iterator[str]:
    """What the model is told about the messages that it reads and the ways in which it can act."""
    policy = context.policy
    if policy.transcription_note:
        yield policy.texts.transcription_note
    if all(profile.guidance for profile in profiles):
        yield from _guidance(tools, policy.texts)
    yield from write_agent_guidance(context, tools, holds_mail=holds_mail)
    if policy.describe_tools and listed_tools:
        yield policy.texts.tool_protocol


def _guidance(tools: ExplainedTools, texts: Texts) -> Iterator[str]:
    """How to use each of the speaking tools. It is the same in all requests of a conversation, also where no tool may
    be called, because providers cache the common beginning of requests."""
    for text, name in ((texts.how_to_respond, tools.respond), (texts.how_to_talk, tools.talk)):
        if name:
            yield text.replace("{tool}", name)


def _tools(texts: Texts, listed_tools: str) -> Iterator[str]:
    if listed_tools:
        yield f"{TOOLS_TITLE}\n{listed_tools}"
        yield texts.tools_guidance


def _titled(title: str, text: str) -> str:
    return f"{title}\n{text}" if text.strip() else ""
