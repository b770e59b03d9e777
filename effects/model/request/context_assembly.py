"""What of a conversation one request holds, and in which words.

The transcript says what was said; a request holds more and less than that. Less: under some rules only the last
minutes, or a summary in place of what no longer fits. More: what was found in older conversations, a reminder that the
model is given in passing, the tags around another agent's message. All of this is made anew for each request, from the
effect and the transcript, and none of it is stored, so nothing of it piles up (cases S10, J6).
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

MEMORY = "Relevant conversation history:"
"""The title above what was found in older conversations (case J4)."""

SUMMARY = "Summary of the conversation so far:"
"""The title above what stands for the messages that were condensed."""


@dataclass(frozen=True)
class Frame:
    """What a request holds: the system message, empty if there is none, and the messages as the model reads them."""

    system: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Speaking:
    """The names under which the tools are offered that reach the user: at the end of the turn, and at once. Empty for
    one that is not offered."""

    respond: str = ""
    talk: str = ""


NONE_SPEAKS = Speaking()

RESPOND = "respond_to_user"
"""How nudges name the tool for saying something at the end of the turn; it may be offered under another name."""


def frame(
    effect: RequestLlm, context: Context, transcript: Transcript, turn: int, speaking: Speaking = NONE_SPEAKS
) -> Frame:
    """What the request holds that `effect` asks for, in the turn under way.

    It says how to reach the user by the tools that are `speaking`. A plain request holds the system prompt and what was
    said to the model in this turn, nothing more (case J20); it is for the caller to send it without tools. `Pure.`
    """
    return Frame(
        system=_system(effect, context, transcript, speaking),
        messages=(*_past(effect, context, transcript, turn), *_told(effect, transcript, speaking)),
    )


def _system(effect: RequestLlm, context: Context, transcript: Transcript, speaking: Speaking) -> str:
    """General instructions, then the profile's, then how to reach the user (case S18), then what was found (case J5);
    what is empty is left out."""
    profiles = [profile for profile in context.policy.profiles if profile.name == effect.profile]
    is_guided = not effect.plain and all(profile.guidance for profile in profiles)
    guidance = _guidance(speaking, context.policy.texts) if is_guided else ()
    prompts = (profile.prompt for profile in profiles)
    found = "" if effect.memory is None or effect.plain else transcript.words(effect.memory)
    memory = f"{MEMORY}\n{found}" if found.strip() else ""
    return "\n\n".join(part for part in (context.system, *prompts, *guidance, memory) if part.strip())


def _guidance(speaking: Speaking, texts: Texts) -> Iterator[str]:
    """How to reach the user by each of the tools for it. The same in all requests of a conversation, also where none
    may be called: requests share their beginning."""
    for text, name in ((texts.how_to_respond, speaking.respond), (texts.how_to_talk, speaking.talk)):
        if name:
            yield text.replace("{tool}", name)


def _past(effect: RequestLlm, context: Context, transcript: Transcript, turn: int) -> Sequence[Message]:
    """What was said, as far as this request holds it."""
    first = transcript.first_try(turn)
    before: list[Message] = []
    if effect.plain:
        said = [message for message in of_turn(transcript.messages, first) if message.role == "user"]
    elif isinstance(context.policy.dialogue, Recent):
        before = [Message(role=one.role, text=one.text) for one in transcript.recent(effect.memory)]
        said = list(of_turn(transcript.messages, first))
    else:
        if transcript.condensed is not None:
            before = [Message(role="user", text=f"{SUMMARY}\n{transcript.condensed.summary}")]
        said = transcript.current
    if transcript.is_verbatim:  # to ask each message would cost more the longer the conversation is
        return (*before, *said)
    return (*before, *(_as_read(message, context) for message in said))


def _as_read(message: Message, context: Context) -> Message:
    """The message in the words that a model reads: another agent's between tags, and a result that was to speak to the
    user and did not reach them with a note that says so (case S21)."""
    if message.undelivered:
        return message.replace(text=f"{message.text}\n\n{context.policy.texts.undelivered}".strip())
    if message.audience is not None:
        return message.replace(text=text_for_model(message))
    return message


def _told(effect: RequestLlm, transcript: Transcript, speaking: Speaking) -> Iterator[Message]:
    """What the model is told in passing, as the last message. Words of the machine name the tool as it is offered."""
    if effect.nudge is not None:
        name = speaking.respond or speaking.talk or RESPOND
        parts = effect.nudge.parts if isinstance(effect.nudge, Joined) else (effect.nudge,)
        named = (Made(text=one.text.replace(RESPOND, name)) if isinstance(one, Made) else one for one in parts)
        yield Message(role="user", text=transcript.words(Joined(parts=tuple(named))))
