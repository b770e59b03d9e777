"""Generated requests of each type: what people, hosts and other agents may want.

With a state, a request fits it as far as one of its type can: it answers what is asked, withdraws a message that waits.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from ...states.events import (
    AgentMessage,
    DetailsChanged,
    DoubtResolved,
    MessageWithdrawn,
    Opened,
    PolicyChanged,
    ProfileTransferred,
    Request,
    ScheduleChanged,
    ToolApproval,
    ToolsChanged,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    WakeUp,
)
from ...states.states import AwaitingPerson, AwaitingSubAgents, InDoubt, State
from ...states.values.questions import Annotation
from ...states.values.turn import Waiting
from ...states.values.value import later
from .chance import Chance
from .from_types import from_type
from .values import INSTANTS, NOON
from .vocabulary import Vocabulary

R = TypeVar("R", bound=Request)

Fields: TypeAlias = dict[str, Any]

Generator: TypeAlias = Callable[[Chance, Vocabulary, State | None], Fields]
"""Makes the fields of a request that meets this state, or any."""

ANOTHER = "another"
"""The id of a call or a message that no conversation has."""


def request(
    chance: Chance, vocabulary: Vocabulary, kind: type[R], event_id: str, at: datetime, state: State | None = None
) -> R:
    """A request of this type, which fits the state if one is given.

    A type that `GENERATORS` does not hold is generated from what it declares.
    """
    generator = GENERATORS.get(kind)
    if generator is None:
        return from_type(kind, chance, event_id=event_id, at=at)
    return kind(event_id=event_id, at=at, **generator(chance, vocabulary, state))


def _opening(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    role = vocabulary.role(chance)
    schedule: Fields = {} if role == "sub_agent" else _schedule(chance, vocabulary, state)
    return {
        "role": role,
        "policy": vocabulary.policy(chance),
        "system": vocabulary.text(chance, ""),
        "works_for": "foreground" if role == "background" else None,
        "parent": "parent" if role == "sub_agent" else None,
        "chose_models": vocabulary.odd(chance),
        "chose_profiles": vocabulary.odd(chance),
        "owner": vocabulary.title(chance),
        "tools": vocabulary.tools(chance),
        "title": vocabulary.title(chance),
        "metadata": vocabulary.metadata(chance) or {},
        "messages": vocabulary.history(chance),
        "revision": vocabulary.revision(chance),
        **schedule,
    }


def _message(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    return {"text": vocabulary.words(chance, "Hello"), "when_busy": vocabulary.when_busy(chance)}


def _agent_message(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    audience, silent = chance.pick(("user", "agent")), chance.probably(0.4)
    text, origin = vocabulary.words(chance, "News"), vocabulary.words(chance, "other")
    return {"origin": origin, "text": text, "audience": audience, "silent": silent}


def _withdrawal(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    inbox: tuple[Waiting, ...] = getattr(state, "inbox", ())
    waiting = [] if vocabulary.odd(chance) else [message.event_id for message in inbox]
    return {"message_id": chance.pick(waiting or ["request-0"])}


def _response(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    asked = None if state is None else state.open_question
    if asked is not None:
        answers = {question.question: vocabulary.answer(chance, question) for question in asked.questions}
        return {"answers": answers, "call_id": vocabulary.named(chance, (asked.call_id,))}
    annotations = {}
    if vocabulary.odd(chance):
        annotations[vocabulary.text(chance, "Which?")] = Annotation(notes=vocabulary.text(chance, "Soon."))
    call_id = vocabulary.named(chance, (ANOTHER,))
    return {"answers": vocabulary.any_answers(chance), "annotations": annotations, "call_id": call_id}


def _approval(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    return {
        "call_id": state.call.call_id if isinstance(state, AwaitingPerson) else ANOTHER,
        "allowed": chance.probably(0.7),
        "note": vocabulary.text(chance, ""),
        "arguments": vocabulary.arguments(chance),
        "by": vocabulary.title(chance),
    }


def _resolution(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    verdict = chance.pick(("ran", "did_not_run", "again"))
    if not isinstance(state, InDoubt):
        return {"call_id": ANOTHER, "verdict": verdict}
    odd = vocabulary.odd(chance)
    return {"call_id": chance.pick(state.round.doubtful) if odd else state.call.call_id, "verdict": verdict}


def _cancel(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    turn = 1 if state is None else state.book.turn
    call_id = None if state is None else state.waiting_call_id
    names_call = isinstance(state, AwaitingSubAgents) and call_id is not None and chance.often()
    return {
        "turn": vocabulary.named(chance, (turn, turn, turn - 1)),
        "call_id": call_id if names_call else vocabulary.named(chance, (call_id or ANOTHER,)),
    }


def _tools(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    newest = 0 if state is None else state.book.turn
    from_turn = 1 + newest + (chance.below(2) if vocabulary.odd(chance) else 0)
    tools = vocabulary.tools(chance)
    return {"tools": tools, "from_turn": from_turn, "narrows": bool(tools) and vocabulary.odd(chance)}


def _details(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    return {"title": vocabulary.title(chance), "metadata": vocabulary.metadata(chance)}


def _schedule(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    schedule = vocabulary.schedule(chance)
    is_over = schedule is None or vocabulary.odd(chance)
    return {"schedule": schedule, "next_wake": None if is_over else later(NOON, vocabulary.wait(chance))}


def _wake_up(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    wake = None if state is None or vocabulary.odd(chance) else state.book.wake
    due = wake or chance.pick(INSTANTS)
    following = later(due, vocabulary.wait(chance))
    is_last = vocabulary.odd(chance) or following <= due
    return {"due": due, "next_wake": None if is_last else following, "text": vocabulary.words(chance, "Look around.")}


GENERATORS: dict[type[Request], Generator] = {
    Opened: _opening,
    UserMessage: _message,
    AgentMessage: _agent_message,
    MessageWithdrawn: _withdrawal,
    UserQuestionResponse: _response,
    ToolApproval: _approval,
    UserCancel: _cancel,
    PolicyChanged: lambda chance, vocabulary, state: {"policy": vocabulary.policy(chance)},
    ToolsChanged: _tools,
    DetailsChanged: _details,
    ScheduleChanged: _schedule,
    WakeUp: _wake_up,
    ProfileTransferred: lambda chance, vocabulary, state: {"profile": vocabulary.profile(chance)},
    DoubtResolved: _resolution,
}
"""How a request of each type is generated that is more than its id and its moment."""


def person_request(state: State) -> type[Request] | None:
    """What this state waits for a person to do; None if it waits for no person. `Pure.`"""
    if state.open_question is not None:
        return UserQuestionResponse
    if isinstance(state, AwaitingPerson):
        return ToolApproval
    return DoubtResolved if isinstance(state, InDoubt) else None
