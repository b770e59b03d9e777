"""Made-up events that fit a state: what it waits for, what a person would do there, and what only looks right.

A message under a stale id, an answer of the wrong type, a click on the turn before: what misses by little finds more
faults than what misses by far.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis.strategies import SearchStrategy

from ...states.events import (
    ANSWERS,
    REQUESTS,
    AgentMessage,
    Answer,
    AskUserQuestionPending,
    DeadlineReached,
    DoubtResolved,
    EffectFailed,
    Event,
    LlmResponse,
    MessageWithdrawn,
    Report,
    Request,
    Resumed,
    SubAgentFinished,
    ToolApproval,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ...states.states import AwaitingPerson, AwaitingUserResponse, InDoubt, State
from ...states.values.inbox import Waiting
from ...states.values.round import Round, RoundCall
from .calls import answers_to, numbered, result_of
from .chance import Chance, by_chance
from .events import said
from .values import changed

LIKELY: dict[type[Answer], int] = {
    LlmResponse: 12,
    ToolComplete: 6,
    ToolReconciled: 6,
    SubAgentFinished: 6,
    DeadlineReached: 3,
    EffectFailed: 1,
}
"""How likely an answer is, beside one that is as rare as can be: models respond, tools end, and sub-agents finish."""


# --- answers


def awaited_answer(chance: Chance, state: State) -> Answer:
    """An answer that this state waits for, sooner one that leads somewhere. It must wait for some."""
    awaited = [(effect_id, kind) for effect_id, kinds in state.awaited().items() for kind in kinds]
    chosen = [each for each in awaited for _ in range(_likely(state, *each))]
    return answer_to(chance, state, *chance.pick(chosen))


def answer_to(chance: Chance, state: State, effect_id: int, kind: type[Answer]) -> Answer:
    """An answer of this type to an effect that this state waits for, as whoever carries it out could give it."""
    answer = changed(said(chance, kind), effect_id=effect_id)
    call = _call_of(state, effect_id)
    match answer:
        case LlmResponse():
            return changed(answer, tool_calls=numbered(answer.tool_calls, f"call-{effect_id}"))
        case ToolComplete() if call is not None:
            return changed(answer, result=result_of(chance, call))
        case ToolReconciled(verdict="ran", result=result) if call is not None and result is not None:
            return changed(answer, result=result_of(chance, call))
        case ToolReconciled(verdict="did_not_run" | "unknown"):
            return changed(answer, result=None)
        case _:
            return answer


def late_answer(chance: Chance, state: State) -> Answer:
    """An answer that this state does not wait for: stale, doubled, unknown, or of a type that its effect never has."""
    effect_id = chance.below(state.book.next_effect + 2)
    kinds = state.awaited().get(effect_id, ())
    answer: Answer = said(chance, chance.pick([kind for kind in ANSWERS if kind not in kinds]))
    return changed(answer, effect_id=effect_id)


def _likely(state: State, effect_id: int, kind: type[Answer]) -> int:
    if kind is AskUserQuestionPending:
        call = _call_of(state, effect_id)
        return 9 if call is not None and "question" in call.acts else 1
    return LIKELY.get(kind, 2)


def _call_of(state: State, effect_id: int) -> RoundCall | None:
    """The call that this effect runs or asks about, if it does."""
    round_ = _round(state)
    running = () if round_ is None else round_.running
    return next((round_.named(one.call_id) for one in running if round_ and one.awaited == effect_id), None)


def _round(state: State) -> Round | None:
    return getattr(state, "round", None)


# --- what people do


def response_to(chance: Chance, state: AwaitingPerson | InDoubt) -> Request:
    """What a person can do about what this state asks for: complete answers, an approval given or not, a verdict."""
    match state:
        case AwaitingUserResponse(questions=questions, call=call):
            response = said(chance, UserQuestionResponse)
            answers, named = answers_to(chance, questions), chance.pick((None, call.call_id))
            return changed(response, answers=answers, annotations={}, call_id=named)
        case AwaitingPerson(call=call):
            return changed(said(chance, ToolApproval), call_id=call.call_id)
        case InDoubt(round=round_):
            return changed(said(chance, DoubtResolved), call_id=chance.pick(round_.doubtful))


def near_miss(chance: Chance, state: State) -> Request:
    """Almost what this state asks for: an answer too few, one too many, about another call, or to another question."""
    kinds: tuple[type[Request], ...] = (UserQuestionResponse, ToolApproval, DoubtResolved)
    wrong = said(chance, chance.pick(kinds))
    if isinstance(state, AwaitingUserResponse) and isinstance(wrong, UserQuestionResponse):
        return _wrong_answers(chance, state, wrong)
    round_ = _round(state)
    return wrong if round_ is None else changed(wrong, call_id=chance.pick(round_.calls).call_id)


def _wrong_answers(chance: Chance, state: AwaitingUserResponse, wrong: UserQuestionResponse) -> UserQuestionResponse:
    answers = answers_to(chance, state.questions)
    first = state.questions[0].question
    match chance.below(4):
        case 0:
            answers[first] = ""
        case 1:
            answers[first] = (state.questions[0].options[0].label,)
        case 2:
            answers["Was this asked?"] = "No"
        case _:
            return changed(wrong, answers=answers, annotations={}, call_id="an earlier call")
    return changed(wrong, answers=answers, annotations={}, call_id=None)


def cancel_in(chance: Chance, state: State) -> UserCancel:
    """A cancel of the turn that this state is in, or of one that is over."""
    call_id = state.call.call_id if isinstance(state, AwaitingPerson) else "an earlier call"
    turn = chance.pick((None, state.book.turn, state.book.turn, state.book.turn - 1))
    return changed(said(chance, UserCancel), turn=turn, call_id=chance.pick((None, None, None, call_id, "another")))


def withdrawal_in(chance: Chance, state: State) -> MessageWithdrawn:
    """The withdrawal of a message that waits in this state, or of one that never did."""
    waiting: tuple[Waiting, ...] = getattr(state, "inbox", ())
    waits = [message.event_id for message in waiting]
    return changed(said(chance, MessageWithdrawn), message_id=chance.pick([*waits, *waits, "request-0"]))


def fitting_request(chance: Chance, state: State, kind: type[Request]) -> Request:
    """A request of this type, which as often as not is one that fits this state."""
    if kind is UserCancel:
        return cancel_in(chance, state)
    if kind is MessageWithdrawn:
        return withdrawal_in(chance, state)
    if isinstance(state, AwaitingPerson | InDoubt) and chance.often():
        response = response_to(chance, state)
        if type(response) is kind:
            return response
    for _ in range(3):
        wrong = near_miss(chance, state)
        if type(wrong) is kind:
            return wrong
    return said(chance, kind)


# --- what is reported after a crash


def report_in(chance: Chance, state: State) -> Report:
    """That a process takes it up again, or that a call was interrupted: one that runs, one that does not, or none."""
    round_ = _round(state)
    if round_ is None or chance.rarely(4):
        return changed(said(chance, Resumed), open=tuple(state.awaited()))
    return interruption_in(chance, round_)


def interruption_in(chance: Chance, round_: Round) -> ToolInterrupted:
    """That a call of this round was interrupted, sooner one that runs."""
    calls = [*(one.call_id for one in round_.running)] * 4 + [call.call_id for call in round_.calls]
    return changed(said(chance, ToolInterrupted), call_id=chance.pick([*calls, "another"]))


def fitting_report(chance: Chance, state: State, kind: type[Report]) -> Report:
    """A report of this type that fits this state."""
    round_ = _round(state)
    return said(chance, kind) if kind is Resumed or round_ is None else interruption_in(chance, round_)


# --- anything at all


def fitting(chance: Chance, state: State, kind: type[Event]) -> Event:
    """An event of this type that fits this state, if that is possible; an answer must be one that is waited for."""
    if issubclass(kind, Answer):
        awaited = [effect_id for effect_id, kinds in state.awaited().items() if kind in kinds]
        return answer_to(chance, state, chance.pick(awaited), kind)
    if issubclass(kind, Report):
        return fitting_report(chance, state, kind)
    assert issubclass(kind, Request)
    return fitting_request(chance, state, kind)


def _way_on(chance: Chance, state: State) -> Event:
    """What moves this state on: what it waits for, or at rest a message."""
    if isinstance(state, AwaitingPerson | InDoubt) and (not state.awaited() or chance.often()):
        return response_to(chance, state)
    return awaited_answer(chance, state) if state.awaited() else said(chance, UserMessage)


def _message(chance: Chance, state: State) -> Request:
    kinds: tuple[type[Request], ...] = (UserMessage, UserMessage, AgentMessage)
    return said(chance, chance.pick(kinds))


def _request(chance: Chance, state: State) -> Request:
    return said(chance, chance.pick(REQUESTS))


_MENU: tuple[Callable[[Chance, State], Event], ...] = (
    *[_way_on] * 22,
    *[_message] * 3,
    *[cancel_in] * 2,
    *[report_in] * 2,
    withdrawal_in,
    late_answer,
    near_miss,
    _request,
)


def event_in(chance: Chance, state: State) -> Event:
    """Every event, above all what this state waits for; answers of the model, tools and people fit it."""
    return chance.pick(_MENU)(chance, state)


events_for: Callable[[State], SearchStrategy[Event]] = by_chance(event_in)
answers_for: Callable[[State], SearchStrategy[Answer]] = by_chance(awaited_answer)
late_answers_for: Callable[[State], SearchStrategy[Answer]] = by_chance(late_answer)
responses_for: Callable[[AwaitingPerson | InDoubt], SearchStrategy[Request]] = by_chance(response_to)
cancels_for: Callable[[State], SearchStrategy[UserCancel]] = by_chance(cancel_in)
withdrawals_for: Callable[[State], SearchStrategy[MessageWithdrawn]] = by_chance(withdrawal_in)
reports_for: Callable[[State], SearchStrategy[Report]] = by_chance(report_in)
near_misses_for: Callable[[State], SearchStrategy[Request]] = by_chance(near_miss)
