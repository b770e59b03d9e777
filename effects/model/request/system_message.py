"""Writes the system message of a request.

Its parts stand in a fixed order, from what never changes to what changes with each turn, and last the tools, so that
they stand nearest to the dialogue. Every text in it is a rule of the conversation, words of the application, or was
found for the turn; the titles here name no language and assume none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ....states.context import Context
from ....states.policy import Profile, Texts
from ....states.replies import TextRule, text_rule
from ....states.values.messages import escape_tags
from ....states.values.value import KNOWS_WHO_SPEAKS
from .agent_guidance import write_agent_guidance
from .explained_tools import NO_EXPLAINED_TOOLS, ExplainedTools

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


class SystemSource(NamedTuple):
    """What the system message of a request is written from.

    `profile` and `plain` are those of the request. `tools` are the tools to explain, and `listed_tools` is the list of
    the tools that are offered, written by `list_tools`. `holds_mail` says that the conversation holds a message of
    another agent.
    """

    context: Context
    profile: str = ""
    plain: bool = False
    recalled: Recalled = NOTHING_RECALLED
    tools: ExplainedTools = NO_EXPLAINED_TOOLS
    listed_tools: str = ""
    holds_mail: bool = False


def write_system_message(source: SystemSource) -> str:
    """The system message of a request; empty if there is nothing to say.

    In this order: the general instructions, those of the profile, that messages were spoken, how to reach the user by
    the tools for it, what concerns other agents, how to call tools, what was recalled, and the list of the tools that
    are offered. Empty parts are left out, and so is each part that no rule asks for. A plain request has only the
    instructions, the general ones and those of the profile. Only the general instructions and the texts of the policy
    stand there as they are; in everything else the tags of agents' messages are escaped. `Pure.`
    """
    policy, recalled = source.context.policy, source.recalled
    profiles = [profile for profile in policy.profiles if profile.name == source.profile]
    parts = [source.context.system, *(escape_tags(profile.prompt) for profile in profiles)]
    if not source.plain:
        parts += _explanations(source, profiles)
        parts += (_titled(MEMORY_TITLE, recalled.conversations), _titled(DOCUMENTS_TITLE, recalled.documents))
        if policy.describe_tools:
            parts += _tools(policy.texts, source.listed_tools)
    return "\n\n".join(part for part in parts if part.strip())


def _explanations(source: SystemSource, profiles: list[Profile]) -> Iterator[str]:
    """What the model is told about the messages that it reads and the ways in which it can act."""
    context, policy = source.context, source.context.policy
    if policy.transcription_note:
        yield policy.texts.transcription_note
    if all(profile.guidance for profile in profiles):
        yield from _guidance(source.tools, context)
    yield from write_agent_guidance(context, source.tools, holds_mail=source.holds_mail)
    if policy.describe_tools and source.listed_tools:
        yield policy.texts.tool_protocol


def _guidance(tools: ExplainedTools, context: Context) -> Iterator[str]:
    """How to use each of the speaking tools, and what becomes of plain text beside them. It is the same in all requests
    of a conversation, also where no tool may be called, because providers cache the common beginning of requests."""
    texts, plain_text = context.policy.texts, _plain_text_guidance(tools, context)
    for text, name in ((texts.how_to_respond, tools.respond), (texts.how_to_talk, tools.talk)):
        if name:
            yield text.replace("{plain_text}", plain_text).replace("{tool}", name)
    if tools.speakers and not (tools.respond or tools.talk) and context.revision >= KNOWS_WHO_SPEAKS:
        yield plain_text


def _plain_text_guidance(tools: ExplainedTools, context: Context) -> str:
    """What the model is told about its plain text, by the rule that also decides what is delivered."""
    texts = context.policy.texts
    sentences: dict[TextRule, str] = {
        "reply": texts.plain_text_reply,
        "fallback": texts.plain_text_fallback,
        "thought": texts.plain_text_thought,
    }
    sentence = sentences[text_rule(context, speaks=bool(tools.speakers))]
    return sentence.replace("{tool}", " or ".join(tools.speakers))


def _tools(texts: Texts, listed_tools: str) -> Iterator[str]:
    if listed_tools:
        yield f"{TOOLS_TITLE}\n{escape_tags(listed_tools)}"
        yield texts.tools_guidance


def _titled(title: str, text: str) -> str:
    return f"{title}\n{escape_tags(text)}" if text.strip() else ""
