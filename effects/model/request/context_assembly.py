"""Assembles the context of one request: which messages of a conversation it holds, and in which words.

The transcript says what was said; a request holds both less and more. Less: under some policies only the last minutes,
or a summary in place of messages that no longer fit. More: results of a search in older conversations, a reminder to
the model, tags around the message of another agent. All of this is assembled anew for each request, from the effect and
the transcript. None of it is stored, so it does not accumulate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....states.context import Context
from ....states.effects import RequestLlm
from ....states.policy.policy import Recent
from ....states.policy.texts import Texts
from ....states.projections.recent_dialogue import of_turn
from ....states.projections.transcript import Transcript
from ....states.values.mail import text_for_model
from ....states.values.messages import Joined, Made, Message

MEMORY_TITLE = "Relevant conversation history:"
"""The title above what was found in older conversations."""

SUMMARY_TITLE = "Summary of the conversation so far:"
"""The title above the summary that stands in place of condensed messages."""


@dataclass(frozen=True)
class AssembledContext:
    """The content of a request: the system message, empty if there is none, and the messages as the model reads
    them."""

    system: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class SpeakingTools:
    """The names of the tools for speaking to the user, at the end of the turn (`respond`) and at once (`talk`). A name
    is empty if the tool is not offered."""

    respond: str = ""
    talk: str = ""


NO_SPEAKING_TOOLS = SpeakingTools()

RESPOND_PLACEHOLDER = "respond_to_user"
"""The name by which nudges refer to the tool for speaking at the end of the turn, which may have another name."""


def assemble_context(
    effect: RequestLlm,
    context: Context,
    transcript: Transcript,
    turn: int,
    speaking: SpeakingTools = NO_SPEAKING_TOOLS,
) -> AssembledContext:
    """The content of the request that `effect` asks for, in the turn under way.

    The system message says how to use the `speaking` tools. A plain request holds the system prompt and the user's
    messages of this turn, and nothing else; the caller sends it without tools. `Pure.`
    """
    return AssembledContext(
        system=_system_message(effect, context, transcript, speaking),
        messages=(*_history(effect, context, transcript, turn), *_nudge(effect, transcript, speaking)),
    )


def _system_message(effect: RequestLlm, context: Context, transcript: Transcript, speaking: SpeakingTools) -> str:
    """The general instructions, those of the profile, how to reach the user, and what was found in older conversations;
    empty parts are left out."""
    profiles = [profile for profile in context.policy.profiles if profile.name == effect.profile]
    is_guided = not effect.plain and all(profile.guidance for profile in profiles)
    guidance = _guidance(speaking, context.policy.texts) if is_guided else ()
    prompts = (profile.prompt for profile in profiles)
    found = "" if effect.memory is None or effect.plain else transcript.words(effect.memory)
    memory = f"{MEMORY_TITLE}\n{found}" if found.strip() else ""
    return "\n\n".join(part for part in (context.system, *prompts, *guidance, memory) if part.strip())


def _guidance(speaking: SpeakingTools, texts: Texts) -> Iterator[str]:
    """How to use each of the speaking tools. It is the same in all requests of a conversation, also where no tool may
    be called, because providers cache the common beginning of requests."""
    for text, name in ((texts.how_to_respond, speaking.respond), (texts.how_to_talk, speaking.talk)):
        if name:
            yield text.replace("{tool}", name)


def _history(effect: RequestLlm, context: Context, transcript: Transcript, turn: int) -> Sequence[Message]:
    """The messages so far that belong into this request."""
    first = transcript.first_try(turn)
    preface: list[Message] = []
    if effect.plain:
        messages = [message for message in of_turn(transcript.messages, first) if message.role == "user"]
    elif isinstance(context.policy.dialogue, Recent):
        preface = [Message(role=text.role, text=text.text) for text in transcript.recent(effect.memory)]
        messages = list(of_turn(transcript.messages, first))
    else:
        if transcript.condensed is not None:
            preface = [Message(role="user", text=f"{SUMMARY_TITLE}\n{transcript.condensed.summary}")]
        messages = transcript.current
    if transcript.is_verbatim:  # no message needs rewriting, so none is looked at: the cost must not grow
        return (*preface, *messages)
    return (*preface, *(_as_read(message, context) for message in messages))


def _as_read(message: Message, context: Context) -> Message:
    """The message in the words that a model reads. A message of another agent stands between tags; a result whose
    speech did not reach the user has a note that says so."""
    if message.undelivered:
        return message.replace(text=f"{message.text}\n\n{context.policy.texts.undelivered}".strip())
    if message.audience is not None:
        return message.replace(text=text_for_model(message))
    return message


def _nudge(effect: RequestLlm, transcript: Transcript, speaking: SpeakingTools) -> Iterator[Message]:
    """The reminder to the model, as the last message. Texts of the machine name the tool as it is offered."""
    if effect.nudge is not None:
        name = speaking.respond or speaking.talk or RESPOND_PLACEHOLDER
        parts = effect.nudge.parts if isinstance(effect.nudge, Joined) else (effect.nudge,)
        named = (
            Made(text=part.text.replace(RESPOND_PLACEHOLDER, name)) if isinstance(part, Made) else part
            for part in parts
        )
        yield Message(role="user", text=transcript.words(Joined(parts=tuple(named))))
