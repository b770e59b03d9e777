"""Writes the system message of a request, and words the messages of a transcript for a model.

The parts of the system message stand in a fixed order, from what never changes to what changes with the profile, and
last the tools, so that they stand nearest to the dialogue. Every text in it is a text of the policy or words of the
application. What was found for a turn stands behind the dialogue.

Definitions of tools are sent beside the messages. The list in the system message tells a model at a glance what it can
do: one line for each tool. Descriptions may come from a server that nobody has checked, so each stays on its line and
is short.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ...states.context import Context
from ...states.events import MemoryRecalled
from ...states.policy import MAX_RESULT, Profile, Texts
from ...states.replies import TextRule, text_rule
from ...states.values.files import FileKind, FileReference
from ...states.values.messages import Matter, Message, escape_tags, escaped_message, text_for_model
from ...states.values.value import FailureKind
from ..shown_results import cleared_line, shown_part

RESPOND_PLACEHOLDER = "respond_to_user"
CLAIM_PLACEHOLDER = "mark_work_complete"
"""The names by which reminders refer to the tools for speaking to the user and for claiming that the work is complete.
A conversation may have them under other names, others that do the same, or none."""


@dataclass(frozen=True)
class ExplainedTools:
    """The names under which these tools are offered; a name is empty if the tool is not offered.

    `respond` and `talk` speak to the user, at the end of the turn and at once. `message_user` and `message_agent` send
    messages to the user, through the agent that talks with them, and to other agents. `transfer` hands the conversation
    over to another profile, and `spawn` starts sub-agents, each with a profile if its task names one.

    `speaking` and `claiming` are all tools that speak to the user or claim that the work is complete, also those of the
    application.
    """

    respond: str = ""
    talk: str = ""
    message_user: str = ""
    message_agent: str = ""
    transfer: str = ""
    spawn: str = ""
    speaking: tuple[str, ...] = ()
    claiming: tuple[str, ...] = ()

    @cached_property
    def speakers(self) -> tuple[str, ...]:
        """All tools that speak to the user, the built-in ones first."""
        return tuple(dict.fromkeys(name for name in (self.respond, self.talk, *self.speaking) if name))

    def named(self, placeholder: str) -> str:
        """The name of the tool that a reminder means by this name: the built-in tool of this name under the name under
        which it is offered, else the first one that does the same. Empty if none is offered."""
        if placeholder == CLAIM_PLACEHOLDER:
            return next(iter(self.claiming), "")
        return next(iter(self.speakers), "")


NO_EXPLAINED_TOOLS = ExplainedTools()

MEMORY_TITLE = "Relevant conversation history:"
"""The title above what was found in older conversations."""

DOCUMENTS_TITLE = "Relevant documents:"
"""The title above what the application's document source returned."""

TOOLS_TITLE = "Tools:"
"""The title above the list of the tools that are offered."""


class SystemSource(NamedTuple):
    """What the system message of a request is written from.

    `profile` and `plain` are those of the request.
    `tools` are the tools to explain, and `listed_tools` is the list of the tools that are offered, written by
    `list_tools`. `holds_mail` says that the conversation holds a message of another agent.
    """

    context: Context
    profile: str = ""
    plain: bool = False
    tools: ExplainedTools = NO_EXPLAINED_TOOLS
    listed_tools: str = ""
    holds_mail: bool = False


def write_system_message(source: SystemSource) -> str:
    """The system message of a request; empty if there is nothing to say.

    Empty parts are left out, and so is each part that no rule asks for. A plain request has only the instructions, the
    general ones and those of the profile. Only the general instructions and the texts of the policy stand there as they
    are; in everything else the tags of agents' messages are escaped. `Pure.`
    """
    policy = source.context.policy
    profile = policy.find_profile(source.profile)
    parts = [source.context.system]
    if profile is not None:
        parts.append(escape_tags(profile.prompt))
    if not source.plain:
        parts += _explanations(source, profile)
        if policy.describe_tools:
            parts += _tools(policy.texts, source.listed_tools)
    return "\n\n".join(part for part in parts if part.strip())


def write_recalled(found: MemoryRecalled) -> str:
    """What was found for the turn, each part under its title; empty if nothing was. It stands at the end of a request
    and not in the system message, which stays the same from turn to turn. `Pure.`"""
    parts = (_titled(MEMORY_TITLE, found.block), _titled(DOCUMENTS_TITLE, found.documents))
    return "\n\n".join(filter(None, parts))


def _explanations(source: SystemSource, profile: Profile | None) -> Iterator[str]:
    """What the model is told about the messages that it reads and the ways in which it can act."""
    context, policy = source.context, source.context.policy
    if policy.transcription_note:
        yield policy.texts.transcription_note
    if profile is None or profile.guidance:
        yield from _guidance(source.tools, context)
    yield from _write_agent_guidance(context, source.tools, holds_mail=source.holds_mail)
    if policy.describe_tools and source.listed_tools:
        yield policy.texts.tool_protocol


def _guidance(tools: ExplainedTools, context: Context) -> Iterator[str]:
    """How to use each of the speaking tools, and what becomes of plain text beside them. It is the same in all requests
    of a conversation, also where no tool may be called, because providers cache the common beginning of requests."""
    if not tools.speakers:
        return
    texts, plain_text = context.policy.texts, _plain_text_guidance(tools, context)
    for text, name in ((texts.how_to_respond, tools.respond), (texts.how_to_talk, tools.talk)):
        if name:
            yield text.replace("{plain_text}", plain_text).replace("{tool}", name)
    if not (tools.respond or tools.talk):
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


def _write_agent_guidance(context: Context, tools: ExplainedTools, *, holds_mail: bool) -> Iterator[str]:
    """Yield the parts about other agents and about profiles. Where the policy does not ask for them, an agent with a
    user is told all the same what the messages of other agents are as soon as the transcript `holds_mail`."""
    texts, describes = context.policy.texts, context.policy.describe_agents
    if context.role == "foreground" and (describes or holds_mail):
        yield texts.foreground_guidance
    if context.role == "background" and describes:
        yield texts.background_guidance
    if context.role == "sub_agent" and describes:
        yield texts.sub_agent_guidance
    if tools.message_user and describes:
        yield texts.user_message_guidance.replace("{tool}", tools.message_user)
    if tools.message_agent and describes:
        yield texts.agent_message_guidance.replace("{tool}", tools.message_agent)
    for tool, guidance in ((tools.transfer, texts.transfer_guidance), (tools.spawn, texts.spawn_guidance)):
        if tool and (listed := escape_tags(_list_profiles(context.policy.profiles))):
            yield guidance.replace("{tool}", tool).replace("{profiles}", listed)


def _list_profiles(profiles: Iterable[Profile]) -> str:
    """List the profiles: one line for each, with its name and its description."""
    lines = (": ".join(part for part in (one.name, " ".join(one.description.split())) if part) for one in profiles)
    return "\n".join(f"- {line}" for line in lines)


MAX_DESCRIPTION = 200
"""The most characters of a description in the list: one long sentence."""

_READ = 4 * MAX_DESCRIPTION
"""The most characters of a description that are looked at."""

_SENTENCE_END = re.compile(r"[\u3002\uff01\uff1f\u0964]|[.!?](?=\s)")
"""The end of a sentence in Chinese, Japanese and Hindi, and in languages that put a space behind it."""

_PARAGRAPH_END = re.compile(r"\n\s*\n")


def list_tools(definitions: Iterable[dict[str, Any]]) -> str:
    """The list of these tools, definitions in OpenAI's shape; empty if there are none. `Pure.`"""
    return "\n".join(_line(definition["function"]) for definition in definitions)


def _line(function: dict[str, Any]) -> str:
    description = _first_sentence(str(function.get("description") or ""))
    return f"- {function['name']}: {description}" if description else f"- {function['name']}"


def _first_sentence(description: str) -> str:
    """The first sentence on one line; the beginning of a long one. A full stop before a small letter ends none: it
    belongs to an abbreviation."""
    paragraph = _PARAGRAPH_END.split(description[:_READ].strip(), maxsplit=1)[0]
    text = " ".join("".join(one if one.isprintable() else " " for one in paragraph).split())
    for end in _SENTENCE_END.finditer(text):
        if not text[end.end() :].lstrip()[:1].islower():
            text = text[: end.end()]
            break
    return text if len(text) <= MAX_DESCRIPTION else f"{text[: MAX_DESCRIPTION - 1].rstrip()}…"


WITHHELD_MESSAGE = "[This message is not shown to you: the provider refused its content.]"
_WITHHELD_RESULT = "[The result of this tool is not shown to you: the provider refused its content.]"
"""What a model reads in place of a text that was refused."""

_PERCEIVED: Mapping[FileKind, str] = {
    "image": "an image that you cannot see",
    "document": "a document that you cannot read",
    "audio": "a recording that you cannot hear",
    "video": "a video that you cannot see",
    "text": "a text file that you cannot read",
}
_WHY_WITHHELD: Mapping[FailureKind, str] = {
    "unsupported_content": "you take none",
    "unreadable_content": "the file is broken",
}
_REFUSED = "the provider refused it"
"""What a model reads in place of a file: what it is, and by the kind of failure why it is withheld."""


@dataclass(frozen=True)
class Wording:
    """The words in which `model` reads messages. A message of another agent stands between tags, and nothing else can
    look like one; a result whose speech did not reach the user has the note `undelivered`; behind an answer that the
    user stopped stands the note `stopped`; and in place of what a provider has refused there is a note, so that the
    model neither misses it nor guesses at it. Of a result that was not cleared there are `max_result` characters,
    unless its tool says otherwise. A message that does not come from a step of the log, such as a summary of earlier
    ones, is made for the model and stays as it is."""

    undelivered: str
    model: str = ""
    stopped: str = ""
    max_result: int = MAX_RESULT
    cut: str = ""
    cleared: str = ""
    heard: str = ""
    unheard: str = ""

    @classmethod
    def of(cls, texts: Texts, model: str, max_result: int = MAX_RESULT) -> Wording:
        """The words of these texts, as this model reads them. `Pure.`"""
        cuts = texts.result_cut, texts.result_cleared
        return cls(texts.undelivered, model, texts.stopped, max_result, *cuts, texts.heard, texts.unheard)

    def note(self, message: Message) -> str:
        """What the model is told behind a message: of an answer that it was stopped. It is told in the user's role,
        since a model goes on to write what it finds in its own answers. `Pure.`"""
        return self.told(message) if message.role == "assistant" else ""

    def told(self, message: Message) -> str:
        """What a model is told of a text that the user has stopped or interrupted; empty for any other. `Pure.`"""
        heard, is_answer = message.heard, message.role == "assistant"
        if heard is None or (is_answer and heard == message.text != ""):
            return self.stopped if is_answer and (message.stopped or heard is not None) else ""
        return self.heard.replace("{heard}", escape_tags(heard)) if heard.strip() else self.unheard

    def read(self, message: Message) -> Message:
        """The message in the words that a model reads. `Pure.`"""
        if not message.seq:
            return message
        if message.withheld:
            message = _without_withheld(message, self.model)
        if message.role == "tool":
            message = self._shortened(message)
        read = escaped_message(message) if message.audience is None else message.replace(text=text_for_model(message))
        if message.heard is not None and message.role == "tool":
            read = read.replace(text=f"{read.text}\n\n{self.told(message)}".strip())
        if message.undelivered:
            read = read.replace(text=f"{read.text}\n\n{self.undelivered}".strip())
        return read

    def _shortened(self, result: Message) -> Message:
        """A result as far as it is shown, with what says how the rest of it is read."""
        text, call_id = result.text, result.tool_call_id or ""
        if result.cleared:
            return result.replace(text=cleared_line(self.cleared, text, call_id), files=(), parts=())
        limit = result.max_result or self.max_result
        return result if len(text) <= limit else result.replace(text=shown_part(self.cut, text, call_id, limit))


def _without_withheld(message: Message, model: str) -> Message:
    """The message with notes in place of what is withheld from this model; itself if nothing is. Without its text it is
    also without the arguments of its calls, and without its thinking. `Pure.`"""
    reasons: dict[Matter, FailureKind] = {one.what: one.kind for one in message.withheld if one.concerns(model)}
    if not reasons:
        return message
    shown = message
    if "text" in reasons:
        note = _WITHHELD_RESULT if message.role == "tool" else WITHHELD_MESSAGE
        calls = tuple(call.replace(raw_arguments="{}") for call in message.tool_calls)
        places = tuple(range(len(message.files))) if message.parts else ()
        parts = (note, *places) if message.parts else ()
        shown = message.replace(
            text=note, parts=parts, tool_calls=calls, edited_arguments="", thinking="", opaque=(), provider=None
        )
    if any(file.kind in reasons for file in message.files):
        shown = _without_files(shown, reasons)
    return shown


def text_shown(message: Message, model: str) -> str:
    """The text of a message as this model reads it, with a note in place of what is withheld. `Pure.`"""
    return _without_withheld(message, model).text if message.withheld else message.text


def text_in_record(message: Message) -> str:
    """The text of a message in a record of the dialogue, which any model may read. `Pure.`"""
    refusing = (one.model for one in message.withheld if one.what == "text")
    return next((text_shown(message, model) for model in refusing), message.text)


def _without_files(message: Message, reasons: Mapping[Matter, FailureKind]) -> Message:
    """The message with a note in place of each file of these kinds."""
    parts: list[str | int] = []
    kept: list[FileReference] = []
    for part in message.parts or (message.text, *range(len(message.files))):
        file = message.files[part] if isinstance(part, int) else None
        if file is None:
            parts.append(part)
        elif file.kind in reasons:
            parts.append(_note_for(file, reasons[file.kind]))
        else:
            parts.append(len(kept))
            kept.append(file)
    text = "\n\n".join(part for part in parts if isinstance(part, str) and part.strip())
    return message.replace(text=text, files=tuple(kept), parts=tuple(parts) if kept and message.parts else ())


def _note_for(file: FileReference, kind: FailureKind) -> str:
    named = f", {file.name}" if file.name else ""
    why = _WHY_WITHHELD.get(kind, _REFUSED)
    return f"[Here is {_PERCEIVED[file.kind]}{named}: {why}. Do not guess what is in it.]"
