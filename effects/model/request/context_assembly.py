"""Assembles the context of one request: which messages of a conversation it holds, and in which words.

The transcript says what was said; a request holds both less and more. Less: under some policies only the last minutes,
or a summary in place of messages that no longer fit. More: results of a search in older conversations, a reminder to
the model, tags around the message of another agent. All of this is assembled anew for each request, from the effect and
the transcript. None of it is stored, so it does not accumulate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, get_args

from ....states.context import Context
from ....states.dialogue import of_turn
from ....states.effects import RequestLlm
from ....states.events import MemoryRecalled
from ....states.policy import Recent
from ....states.transcript import Transcript
from ....states.values.acts import Audience
from ....states.values.messages import Heard, Joined, Made, Message, Suspect, escape_tags, text_for_model
from ....states.values.value import KNOWS_WHO_SPEAKS, UNEXPLAINED, FailureKind
from .explained_tools import CLAIM_PLACEHOLDER, NO_EXPLAINED_TOOLS, RESPOND_PLACEHOLDER, ExplainedTools
from .system_message import NOTHING_RECALLED, Recalled, SystemSource, write_system_message
from .wording import WITHHELD_MESSAGE, Wording, text_shown

SUMMARY_TITLE = "Summary of the conversation so far:"
"""The title above the summary that stands in place of condensed messages."""


class AssembledContext(NamedTuple):
    """The content of a request: the system message, empty if there is none, the messages so far, and the `closing` ones
    that only this request holds.

    `history` has the messages as they were said; it may be a list of the transcript, so do not change it. `wording`
    words them for the model; None stands for a history that needs no other words.
    """

    system: str
    history: Sequence[Message]
    closing: tuple[Message, ...] = ()
    wording: Wording | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages as the model reads them. `Pure.`"""
        history = self.history if self.wording is None else map(self.wording.read, self.history)
        return (*history, *self.closing)


def assemble_context(
    effect: RequestLlm,
    context: Context,
    transcript: Transcript,
    turn: int,
    tools: ExplainedTools = NO_EXPLAINED_TOOLS,
    listed_tools: str = "",
    write_system: Callable[[SystemSource], str] = write_system_message,
) -> AssembledContext:
    """The content of the request that `effect` asks for, in the turn under way.

    The system message explains `tools` and, by the rules, says which tools there are (`listed_tools`, written by
    `list_tools`); `write_system` writes it, or returns what was written from an equal source. A plain request holds
    the system prompt and the user's messages of this turn, and nothing else; the caller sends it without tools.
    `Pure.`
    """
    found = transcript.found(effect.memory)
    recalled = NOTHING_RECALLED if found is None else Recalled(found.block, found.documents)
    source = SystemSource(
        context, effect.profile, effect.plain, recalled, tools, listed_tools, holds_mail=transcript.holds_mail
    )
    return AssembledContext(
        system=write_system(source),
        history=_history(effect, context, transcript, turn, found),
        closing=tuple(_nudge(effect, context, transcript, tools)),
        # Where no message needs other words, none is looked at.
        wording=None if transcript.is_verbatim else Wording(context.policy.texts.undelivered, effect.model),
    )


def held_content(
    effect: RequestLlm, context: Context, transcript: Transcript, turn: int, kind: FailureKind
) -> tuple[Suspect, ...]:
    """What the request that `effect` asks for holds of what may be the reason of a failure of this kind, in the order
    of `Suspect`.

    A failure whose reason nobody knows makes only new images suspicious, and if the provider reported an error of its
    own, nothing at all; until the next turn fails like that. `Pure.`
    """
    found = transcript.found(effect.memory)
    said = [message for message in _history(effect, context, transcript, turn, found) if message.seq]
    held = {*transcript.held(effect.model, turn, said)}
    if found is not None and not effect.plain and (found.block.strip() or found.documents.strip() or found.recent):
        held.add("memory")
    if kind in UNEXPLAINED and not transcript.is_refused_again(turn):
        held &= {"new_images"} if kind == "invalid_request" else set()
    return tuple(one for one in get_args(Suspect) if one in held)


def _history(
    effect: RequestLlm, context: Context, transcript: Transcript, turn: int, found: MemoryRecalled | None
) -> Sequence[Message]:
    """The messages so far that belong into this request."""
    if effect.plain:
        said = of_turn(transcript.messages, transcript.first_try(turn))
        return [message for message in said if message.role == "user"]
    if isinstance(context.policy.dialogue, Recent):
        recent = (Message(role=text.role, text=text.text) for text in (found.recent if found else ()))
        worded = (message.replace(text=text_for_model(message)) for message in recent)
        return [*worded, *of_turn(transcript.messages, transcript.first_try(turn))]
    if transcript.condensed is not None:
        summary = escape_tags(text_shown(transcript.condensed.message, effect.model))
        return [Message(role="user", text=f"{SUMMARY_TITLE}\n{summary}"), *transcript.current]
    return transcript.messages


def _nudge(effect: RequestLlm, context: Context, transcript: Transcript, tools: ExplainedTools) -> Iterator[Message]:
    """The reminder to the model, as the last message. Texts of the machine name the tools that are offered, and a
    message of another agent stands between its tags."""
    if effect.nudge is not None:
        parts = effect.nudge.parts if isinstance(effect.nudge, Joined) else (effect.nudge,)
        texts = (_reminder(part, effect.model, context, transcript, tools) for part in parts)
        yield Message(role="user", text=Joined.text_of(texts))


def _reminder(part: Heard | Made, model: str, context: Context, transcript: Transcript, tools: ExplainedTools) -> str:
    if isinstance(part, Made):
        return name_tools(part.text, context, tools)
    if transcript.is_withheld(part, model):
        return WITHHELD_MESSAGE
    origin = transcript.origin(part)
    audience: Audience | None = "user" if origin else None
    return text_for_model(Message(role="user", text=transcript.words(part), origin=origin, audience=audience))


def name_tools(text: str, context: Context, tools: ExplainedTools) -> str:
    """The reminder with the tools that it names under the names under which they are offered.

    One that names a tool of which none is offered gives way to one that asks for less: for the claim alone, or for a
    plain text. In a conversation that began before that, every reminder keeps its words. `Pure.`
    """
    if context.revision < KNOWS_WHO_SPEAKS:
        return text.replace(RESPOND_PLACEHOLDER, tools.named(RESPOND_PLACEHOLDER) or RESPOND_PLACEHOLDER)
    texts = context.policy.texts
    plain = texts.fallback if context.role == "foreground" else texts.fallback_result
    for wording in (text, *((texts.claim_missing,) if CLAIM_PLACEHOLDER in text else ()), plain):
        names = {one: tools.named(one) for one in (RESPOND_PLACEHOLDER, CLAIM_PLACEHOLDER) if one in wording}
        if all(names.values()):
            return _replaced(wording, names)
    return plain


def _replaced(text: str, names: dict[str, str]) -> str:
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text
