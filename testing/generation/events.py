"""Generated events that fit a state, and those that only look as if they did.

A message under a stale id, an answer of the wrong type, a click on the turn before: an event that misses by little
finds more faults than one that misses by far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from ...states.events import (
    ANSWERS,
    REPORTS,
    REQUESTS,
    AgentMessage,
    Answer,
    AskUserQuestionPending,
    CallRestricted,
    CloseRequested,
    CompactionRequested,
    DeadlineReached,
    DetailsChanged,
    DoubtResolved,
    EffectFailed,
    Event,
    LlmFailed,
    LlmResponse,
    MessageWithdrawn,
    PolicyChanged,
    ProfileTransferred,
    Report,
    Request,
    Resumed,
    RetryRequested,
    ScheduleChanged,
    SubAgentAsked,
    SubAgentFinished,
    ToolApproval,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    ToolsChanged,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    WakeUp,
)
from ...states.states import AwaitingSubAgents, Busy, State
from ...states.values.messages import CrashContract
from ...states.values.questions import OpenQuestion
from ...states.values.round import Round, RoundCall
from .answers import answer
from .chance import Chance
from .from_types import from_type
from .requests import ANOTHER, person_request, request
from .values import NOON, changed
from .vocabulary import Vocabulary

EVENT_ID = "request-0"
"""The id of a generated request. Change it where ids must differ."""

LIKELY: dict[type[Answer], int] = {
    LlmResponse: 12,
    ToolComplete: 6,
    ToolReconciled: 6,
    SubAgentFinished: 6,
    DeadlineReached: 3,
    LlmFailed: 2,
    EffectFailed: 1,
}
"""How likely answers of these types are; those of other types have the weight 2, questions see `weight_of`."""

SETTINGS: tuple[type[Request], ...] = (ToolsChanged, DetailsChanged, ScheduleChanged, ProfileTransferred)
"""The requests that change nothing but settings of the conversation."""

SELDOM = 0.02
"""How often closing is a candidate: nothing happens after it."""

# --- answers


def answer_to(
    chance: Chance, vocabulary: Vocabulary, state: State, effect_id: int, kind: type[Answer], at: datetime = NOON
) -> Answer:
    """An answer of this type to an effect that this state awaits, as a performer could give it."""
    return answer(chance, vocabulary, kind, effect_id, at, call_of(state, effect_id))


def awaited_answer(chance: Chance, vocabulary: Vocabulary, state: State) -> Answer:
    """An answer that this state awaits, more likely one that leads somewhere. It must await some."""
    weights = {
        (effect_id, kind): weight_of(kind, call_of(state, effect_id))
        for effect_id, kinds in state.awaited().items()
        for kind in kinds
    }
    return answer_to(chance, vocabulary, state, *chance.weighted(weights))


def late_answer(chance: Chance, vocabulary: Vocabulary, state: State) -> Answer:
    """An answer that this state does not await: stale, doubled, unknown, or of a type that its effect never has."""
    effect_id = chance.below(state.book.next_effect + 2)
    kinds = state.awaited().get(effect_id, ())
    return answer(chance, vocabulary, chance.pick([kind for kind in ANSWERS if kind not in kinds]), effect_id, NOON)


def weight_of(kind: type[Answer], call: RoundCall | None) -> int:
    """How likely an answer of this type is, to an effect that runs this call, if it runs one."""
    if kind is AskUserQuestionPending:
        return 9 if call is not None and "question" in call.acts else 1
    return LIKELY.get(kind, 2)


def call_of(state: State, effect_id: int) -> RoundCall | None:
    """The call that this effect runs or asks about, if it does. `Pure.`"""
    round_ = _round(state)
    running = () if round_ is None else round_.running
    return next((round_.named(one.call_id) for one in running if round_ and one.awaited == effect_id), None)


def _round(state: State) -> Round | None:
    # Among the fields, because pydantic's models take many times as long to find that they have no such attribute.
    return vars(state).get("round")


# --- requests


def response_to(chance: Chance, vocabulary: Vocabulary, state: State) -> Request:
    """What this state waits for a person to do; a retry where it waits for no person."""
    return request(chance, vocabulary, person_request(state) or RetryRequested, EVENT_ID, NOON, state)


def near_miss(chance: Chance, vocabulary: Vocabulary, state: State) -> Request:
    """Almost what a state asks of a person: a wrong answer, or a decision about another call."""
    kinds: tuple[type[Request], ...] = (UserQuestionResponse, ToolApproval, DoubtResolved)
    wrong = request(chance, vocabulary, chance.pick(kinds), EVENT_ID, NOON)
    if state.open_question is not None and isinstance(wrong, UserQuestionResponse):
        return _wrong_answers(chance, vocabulary, state, state.open_question)
    round_ = _round(state)
    return wrong if round_ is None else changed(wrong, call_id=chance.pick(round_.calls).call_id)


def _wrong_answers(chance: Chance, vocabulary: Vocabulary, state: State, asked: OpenQuestion) -> UserQuestionResponse:
    """Answers with one too few, one too many, one of the wrong shape, or to another call."""
    right = request(chance, vocabulary, UserQuestionResponse, EVENT_ID, NOON, state)
    answers, first = dict(right.answers), asked.questions[0]
    match chance.below(4):
        case 0:
            answers[first.question] = ""
        case 1:
            answers[first.question] = (first.options[0].label if first.options else ANOTHER,)
        case 2:
            answers["Was this asked?"] = "No"
        case _:
            return changed(right, call_id=ANOTHER)
    return changed(right, answers=answers, call_id=None)


def cancel_in(chance: Chance, vocabulary: Vocabulary, state: State) -> UserCancel:
    """A cancel of the turn that this state is in, or of one that is over."""
    return request(chance, vocabulary, UserCancel, EVENT_ID, NOON, state)


def withdrawal_in(chance: Chance, vocabulary: Vocabulary, state: State) -> MessageWithdrawn:
    """The withdrawal of a message that waits in this state, or of one that does not."""
    return request(chance, vocabulary, MessageWithdrawn, EVENT_ID, NOON, state)


def wake_up_in(chance: Chance, vocabulary: Vocabulary, state: State) -> WakeUp:
    """A wake-up that this state waits for, or one that is over."""
    return request(chance, vocabulary, WakeUp, EVENT_ID, NOON, state)


def settings_in(chance: Chance, vocabulary: Vocabulary, state: State) -> Request:
    """A change of the tools, the details, the schedule or the profile of a conversation that is in this state."""
    return request(chance, vocabulary, chance.pick(SETTINGS), EVENT_ID, NOON, state)


# --- reports


def report_in(chance: Chance, vocabulary: Vocabulary, state: State) -> Report:
    """That a process resumes the conversation, that one of its calls was interrupted or is restricted, or that it was
    imported."""
    kind: type[Report] = Resumed if _round(state) is None or chance.rarely(4) else ToolInterrupted
    if (rare := tuple(_rare_reports(state, NOON))) and chance.rarely(6):
        return chance.pick(rare)
    if isinstance(state, AwaitingSubAgents) and chance.often():
        kind = SubAgentAsked
    return report(chance, vocabulary, state, kind)


def report(chance: Chance, vocabulary: Vocabulary, state: State, kind: type[Report]) -> Report:
    """A report of this type that fits this state; an interruption concerns a call that runs, if there is one."""
    if kind is Resumed:
        return Resumed(at=NOON, open=tuple(state.awaited()))
    if kind is SubAgentAsked and isinstance(state, AwaitingSubAgents):
        return _question_of_child(chance, vocabulary, state)
    round_ = _round(state)
    if kind is not ToolInterrupted or round_ is None:
        return from_type(kind, chance, at=NOON)
    calls = [call.call_id for call in round_.calls] if vocabulary.odd(chance) else []
    running = [one.call_id for one in round_.running]
    return ToolInterrupted(at=NOON, call_id=chance.pick(calls or running or [ANOTHER]))


_STRICTER: tuple[tuple[CrashContract, bool], ...] = (("at_most_once", False), ("reconcile", True), ("pure", True))
"""Declarations under which a call may come, and whether a person must approve it then."""


def _rare_reports(state: State, at: datetime) -> Iterator[Report]:
    """That the conversation was imported in this state, and that one of its calls is restricted. No choice is made, so
    walks that were kept before there were these reports are still possible. `Pure.`"""
    if isinstance(state, Busy):
        yield Resumed(at=at, imported=True)
    round_ = _round(state)
    for call in () if round_ is None or CallRestricted not in state.REPORTS else round_.calls:
        for crash, approval in _STRICTER:
            restricted = CallRestricted(at=at, call_id=call.call_id, crash=crash, approval=approval)
            if state.concerned_by(restricted):
                yield restricted


def _question_of_child(chance: Chance, vocabulary: Vocabulary, state: AwaitingSubAgents) -> SubAgentAsked:
    """A sub-agent asks, asks something else, or no longer asks."""
    child = chance.pick(state.round.unfinished or state.round.children)
    known = state.question_of(child.effect_id)
    ends = known is not None and chance.often()
    call_id = known.call_id if known is not None and chance.often() else f"call-{chance.below(3)}"
    return SubAgentAsked(
        at=NOON,
        effect_id=chance.below(state.book.next_effect) if vocabulary.odd(chance) else child.effect_id,
        call_id=known.call_id if known is not None and ends else call_id,
        questions=None if ends else vocabulary.questions(chance),
        since=chance.pick((None, NOON)),
    )


# --- any event


def any_event(chance: Chance, vocabulary: Vocabulary, kind: type[Event]) -> Event:
    """An event of this type that fits no state in particular."""
    if issubclass(kind, Request):
        return request(chance, vocabulary, kind, f"request-{chance.below(32)}", NOON)
    if issubclass(kind, Answer):
        return answer(chance, vocabulary, kind, chance.below(32) - 1, NOON)
    return from_type(kind, chance, at=NOON)


def event_in(chance: Chance, vocabulary: Vocabulary, state: State) -> Event:
    """Any event, above all one that moves this state on."""
    return chance.pick(_MENU)(chance, vocabulary, state)


def _way_on(chance: Chance, vocabulary: Vocabulary, state: State) -> Event:
    if person_request(state) is not None and (not state.awaited() or chance.often()):
        return response_to(chance, vocabulary, state)
    if state.awaited():
        return awaited_answer(chance, vocabulary, state)
    return request(chance, vocabulary, UserMessage, EVENT_ID, NOON)


def _message(chance: Chance, vocabulary: Vocabulary, state: State) -> Event:
    kinds: tuple[type[Request], ...] = (UserMessage, UserMessage, AgentMessage, WakeUp)
    return request(chance, vocabulary, chance.pick(kinds), EVENT_ID, NOON, state)


def _any_request(chance: Chance, vocabulary: Vocabulary, state: State) -> Event:
    return request(chance, vocabulary, chance.pick(REQUESTS), EVENT_ID, NOON)


_MENU: tuple[Callable[[Chance, Vocabulary, State], Event], ...] = (
    *[_way_on] * 22,
    *[_message] * 3,
    *[cancel_in] * 2,
    *[report_in] * 2,
    withdrawal_in,
    settings_in,
    late_answer,
    near_miss,
    _any_request,
)

# --- everything that may happen


_WISHES: tuple[type[Request] | None, ...] = (
    UserMessage,
    AgentMessage,
    WakeUp,
    MessageWithdrawn,
    None,
    UserCancel,
    PolicyChanged,
    CompactionRequested,
)
"""What people and hosts may want at any time; None is what the state waits for a person to do."""


def candidates(chance: Chance, vocabulary: Vocabulary, state: State, at: datetime) -> list[Event]:
    """What may happen to this state: each answer that it awaits, reports and some requests, in any order; at the end
    changes of settings, which are always possible, and what seldom happens."""
    answers: list[Event] = [
        answer_to(chance, vocabulary, state, effect_id, kind, at)
        for effect_id, kinds in state.awaited().items()
        for kind in kinds
        for _ in range(3 if kind in (LlmResponse, ToolComplete) else 1)
    ]
    closes: list[type[Request] | None] = [CloseRequested] if chance.probably(SELDOM) else []
    wishes = [kind or person_request(state) or RetryRequested for kind in (*closes, *chance.sample(_WISHES, 5))]
    requests = [
        request(chance, vocabulary, kind, f"{state.book.seq}-{place}", at, state) for place, kind in enumerate(wishes)
    ]
    reports = [changed(report(chance, vocabulary, state, kind), at=at) for kind in reports_in(state)]
    settings = [request(chance, vocabulary, kind, f"{state.book.seq}-{kind.__name__}", at, state) for kind in SETTINGS]
    return [*chance.shuffled([*answers, *requests, *reports]), *settings, *_rare_reports(state, at)]


def reports_in(state: State) -> Iterator[type[Report]]:
    """The types of reports that concern this state, apart from those that are rare. `Pure.`"""
    round_ = _round(state)
    absent = {CallRestricted} if round_ and round_.running else {CallRestricted, ToolInterrupted}
    for kind in REPORTS:
        if kind in state.REPORTS and kind not in absent:
            yield kind


def every_request(chance: Chance, vocabulary: Vocabulary, state: State, at: datetime) -> Iterator[Request]:
    """Requests of every type, with and without regard to the state; it refuses most of them."""
    for kind in REQUESTS:
        for met in (state, None):
            yield request(chance, vocabulary, kind, f"{kind.__name__} {met is None}", at, met)
    yield UserMessage(event_id="refuse", at=at, text="Hello", when_busy="refuse")
    yield UserCancel(event_id="late", at=at, turn=state.book.turn + 1)
