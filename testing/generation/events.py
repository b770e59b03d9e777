"""Generated events that fit a state, and those that only look as if they did.

A message under a stale id, an answer of the wrong type, a click on the turn before: an event that misses by little
finds more faults than one that misses by far.

An answer is what models, tools, timers, sub-agents and checks may answer to an effect, a request what people, hosts and
other agents may want. With a state, a request fits it as far as one of its type can: it answers what is asked,
withdraws a message that waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias, TypeVar, get_args

from ...states.branches import messages_of
from ...states.events import (
    ANSWERS,
    REPORTS,
    REQUESTS,
    AgentMessage,
    Answer,
    AskUserQuestionPending,
    BranchSwitched,
    CallRestricted,
    CloseRequested,
    CompactionRequested,
    DeadlineReached,
    DetailsChanged,
    DoubtResolved,
    EffectFailed,
    Event,
    HistoryCompacted,
    LlmFailed,
    LlmResponse,
    LlmStopped,
    MemoryRecalled,
    MessageEdited,
    MessageWithdrawn,
    Opened,
    PolicyChanged,
    ProfileSelected,
    ProfileTransferred,
    RecentText,
    Report,
    Request,
    Resumed,
    RetryRequested,
    Rewound,
    ScheduleChanged,
    SubAgentAsked,
    SubAgentFinished,
    ToolApproval,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    ToolsChanged,
    TurnSummarized,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    WakeUp,
    WorkVerified,
)
from ...states.guards import ORDER_OF_SUSPICION
from ...states.states import AwaitingPerson, AwaitingSubAgents, Busy, InDoubt, State
from ...states.step import LogEntry
from ...states.values.messages import CrashContract, Suspect
from ...states.values.questions import Annotation, OpenQuestion
from ...states.values.round import Round, RoundCall
from ...states.values.turn import Waiting
from ...states.values.value import later
from .chance import INSTANTS, NOON, Chance, changed, files_beside, from_type
from .states import numbered, result_of, some_calls
from .vocabulary import Vocabulary


def event_in(chance: Chance, vocabulary: Vocabulary, state: State) -> Event:
    """Any event, above all one that moves this state on."""
    return chance.pick(_MENU)(chance, vocabulary, state)


def late_answer(chance: Chance, vocabulary: Vocabulary, state: State) -> Answer:
    """An answer that this state does not await: stale, doubled, unknown, or of a type that its effect never has."""
    effect_id = chance.below(state.book.next_effect + 2)
    kinds = state.awaited().get(effect_id, ())
    return answer(chance, vocabulary, chance.pick([kind for kind in ANSWERS if kind not in kinds]), effect_id, NOON)


EVENT_ID = "request-0"
"""The id of a generated request. Change it where ids must differ."""


def near_miss(chance: Chance, vocabulary: Vocabulary, state: State) -> Request:
    """Almost what a state asks of a person: a wrong answer, or a decision about another call."""
    kinds: tuple[type[Request], ...] = (UserQuestionResponse, ToolApproval, DoubtResolved)
    wrong = request(chance, vocabulary, chance.pick(kinds), EVENT_ID, NOON)
    if state.open_question is not None and isinstance(wrong, UserQuestionResponse):
        return _wrong_answers(chance, vocabulary, state, state.open_question)
    round_ = _round(state)
    return wrong if round_ is None else changed(wrong, call_id=chance.pick(round_.calls).call_id)


ANOTHER = "another"
"""The id of a call or a message that no conversation has."""


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


def _round(state: State) -> Round | None:
    """The round of calls of this state, if it has one."""
    # Among the fields, because pydantic's models take many times as long to find that they have no such attribute.
    round_: Round | None = vars(state).get("round")
    return round_ if round_ is not None and round_.calls else None


def cancel_in(chance: Chance, vocabulary: Vocabulary, state: State) -> UserCancel:
    """A cancel of the turn that this state is in, or of one that is over."""
    return request(chance, vocabulary, UserCancel, EVENT_ID, NOON, state)


def withdrawal_in(chance: Chance, vocabulary: Vocabulary, state: State) -> MessageWithdrawn:
    """The withdrawal of a message that waits in this state, or of one that does not."""
    return request(chance, vocabulary, MessageWithdrawn, EVENT_ID, NOON, state)


SETTINGS: tuple[type[Request], ...] = (ToolsChanged, DetailsChanged, ScheduleChanged, ProfileTransferred)
"""The requests that change nothing but settings of the conversation."""


def settings_in(chance: Chance, vocabulary: Vocabulary, state: State) -> Request:
    """A change of the tools, the details, the schedule or the profile of a conversation that is in this state."""
    return request(chance, vocabulary, chance.pick(SETTINGS), EVENT_ID, NOON, state)


def branching_in(chance: Chance, vocabulary: Vocabulary, state: State) -> Request:
    """A conversation that is in this state goes back to an earlier turn, or to another branch. `with_messages` adds
    the messages that are answered again."""
    return request(chance, vocabulary, chance.pick(_BRANCHING), EVENT_ID, NOON, state)


_BRANCHING: tuple[type[Request], ...] = (Rewound, MessageEdited, Rewound, BranchSwitched)


def with_messages(chance: Chance, event: Event, log: Sequence[LogEntry]) -> Event:
    """The event, with messages of the turn that it hides if it is one that hides a turn: they are to be answered
    again."""
    if not isinstance(event, Rewound | MessageEdited):
        return event
    taken = messages_of(log, event.before)
    return changed(event, again=taken[: chance.below(len(taken) + 1)] if chance.often() else ())


def report_in(chance: Chance, vocabulary: Vocabulary, state: State) -> Report:
    """That a process resumes the conversation, that one of its calls was interrupted or is restricted, or that it was
    imported."""
    kind: type[Report] = Resumed if _round(state) is None or chance.rarely(4) else ToolInterrupted
    if (rare := tuple(_rare_reports(state, NOON))) and chance.rarely(6):
        return chance.pick(rare)
    if isinstance(state, AwaitingSubAgents) and chance.often():
        kind = SubAgentAsked
    return report(chance, vocabulary, state, kind)


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
    branching_in,
    late_answer,
    near_miss,
    _any_request,
)


def any_event(chance: Chance, vocabulary: Vocabulary, kind: type[Event]) -> Event:
    """An event of this type that fits no state in particular."""
    if issubclass(kind, Request):
        return request(chance, vocabulary, kind, f"request-{chance.below(32)}", NOON)
    if issubclass(kind, Answer):
        return answer(chance, vocabulary, kind, chance.below(32) - 1, NOON)
    return from_type(kind, chance, at=NOON)


SELDOM = 0.02
"""How often closing is a candidate: nothing happens after it."""

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
    what is always possible, changes of settings and of the branch, and what seldom happens."""
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
    others = (*_rare_reports(state, at), *_branchings(state, at))
    return [*chance.shuffled([*answers, *requests, *reports]), *settings, *others]


def _branchings(state: State, at: datetime) -> Iterator[Request]:
    """That the newest turn is hidden or edited, and that the one before returns. No choice is made, so walks that were
    kept before there were these requests are still possible. `Pure.`"""
    turn, branch, name = state.book.turn, state.book.branch, f"{state.book.seq}-branch"
    if turn:
        yield Rewound(event_id=f"{name}-1", at=at, before=turn, branch=branch)
        yield MessageEdited(event_id=f"{name}-2", at=at, before=turn, branch=branch, message_id="m", text="Rather this")
        yield BranchSwitched(event_id=f"{name}-3", at=at, turn=turn - 1, branch=branch)


def every_request(chance: Chance, vocabulary: Vocabulary, state: State, at: datetime) -> Iterator[Request]:
    """Requests of every type, with and without regard to the state; it refuses most of them."""
    for kind in REQUESTS:
        for met in (state, None):
            yield request(chance, vocabulary, kind, f"{kind.__name__} {met is None}", at, met)
    yield UserMessage(event_id="refuse", at=at, text="Hello", when_busy="refuse")
    yield UserCancel(event_id="late", at=at, turn=state.book.turn + 1)


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


A = TypeVar("A", bound=Answer)


def answer(
    chance: Chance,
    vocabulary: Vocabulary,
    kind: type[A],
    effect_id: int,
    at: datetime,
    call: RoundCall | None = None,
) -> A:
    """An answer of this type to this effect; `call` is the one that the effect runs or asks about, if it does.

    A type that `GENERATORS` does not hold is generated from what it declares.
    """
    generator = ANSWER_GENERATORS.get(kind)
    if generator is None:
        return from_type(kind, chance, effect_id=effect_id, at=at)
    return kind(effect_id=effect_id, at=at, **generator(chance, vocabulary, effect_id, call))


Fields: TypeAlias = dict[str, Any]

AnswerGenerator: TypeAlias = Callable[[Chance, Vocabulary, int, RoundCall | None], Fields]
"""Makes the fields of an answer to the effect of this id, which runs this call if it runs one."""


def _model_response(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    said = vocabulary.response(chance)
    usage = vocabulary.usage(chance)
    makes_calls = said.calls == 1.0 or (said.calls > 0.0 and chance.probably(said.calls))
    calls = some_calls(chance, vocabulary, f"call-{effect_id}") if makes_calls else ()
    attempt = vocabulary.attempt(chance, calls)
    return {
        "content": said.content,
        "thinking": said.thinking,
        "opaque": said.opaque,
        "finish_reason": said.finish_reason,
        "usage": usage,
        "tool_calls": calls if attempt is None else numbered(attempt.calls, f"call-{effect_id}"),
        "output": None if attempt is None else attempt.output,
        "model": vocabulary.model(chance),
        "speaks": effect_id % 2 == 1,
        "clearable": usage.tokens * (effect_id % 3) // 2,
        **vocabulary.provided(chance, f"call-{effect_id}"),
    }


_HELD: tuple[tuple[Suspect, ...], ...] = (
    get_args(Suspect),
    ("words",),
    ("hearing", "reading", "sight", "new_files", "files", "additions", "words"),
    ("answers", "memory", "earlier", "words"),
    ("earlier", "instructions"),
    (),
)
"""What a request may hold that is refused for its content: the last is what events say that older versions stored."""


def _stopped_response(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    said = vocabulary.response(chance)
    return {
        "content": said.content,
        "thinking": said.thinking,
        "usage": vocabulary.usage(chance),
        "model": vocabulary.model(chance),
        "speaks": effect_id % 2 == 1,
        "spoken": effect_id % 4 == 1 and bool(said.content.strip()),
    }


def _model_failure(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    kind = vocabulary.model_failure(chance)
    return {
        "kind": kind,
        "sentence": vocabulary.text(chance, "It failed."),
        "retry_after": vocabulary.retry_after(chance),
        "held": _HELD[effect_id % len(_HELD)] if kind in ORDER_OF_SUSPICION else (),
        "clearable": 10 * (effect_id % 2) if kind == "context_window" else 0,
    }


def _failure(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    return {"kind": vocabulary.failure(chance), "sentence": vocabulary.text(chance, "It broke.")}


def _reconciliation(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    verdict = chance.pick(("ran", "did_not_run", "unknown"))
    knows = (verdict == "ran") != vocabulary.odd(chance)
    return {"verdict": verdict, "result": result_of(chance, vocabulary, call) if knows else None}


def _memory(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    recent = tuple(
        RecentText(role=chance.pick(("user", "assistant")), text=vocabulary.text(chance, "Hello"))
        for _ in range(vocabulary.recent_texts(chance))
    )
    block, documents = vocabulary.text(chance, "Once upon a time"), vocabulary.text(chance, "")
    left_out = ("Recalled without documents: no answer within 30 s.",) if effect_id % 5 == 0 else ()
    return {
        "block": block,
        "recent": recent,
        "documents": documents,
        "usage": vocabulary.cost(chance),
        "left_out": left_out,
    }


def _verification(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    passed = chance.probably(0.5)
    missing = tuple(vocabulary.text(chance, "This.") for _ in range(vocabulary.missing(chance)))
    reason = vocabulary.text(chance, "Look again.")
    return {"passed": passed, "reason": reason, "missing": missing, "usage": vocabulary.cost(chance)}


def _question(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    """A question. A call that is not exclusive may not wait for the answer, and seldom tries to."""
    may_wait = call is None or call.exclusive
    suspends = chance.often() and may_wait != vocabulary.odd(chance)
    return {"questions": vocabulary.questions(chance), "suspends": suspends}


def _outcome(chance: Chance, vocabulary: Vocabulary, effect_id: int, call: RoundCall | None) -> Fields:
    outcome, status = vocabulary.text(chance, "Found it."), vocabulary.status(chance)
    return {"outcome": outcome, "status": status, "usage": vocabulary.cost(chance)}


ANSWER_GENERATORS: dict[type[Answer], AnswerGenerator] = {
    LlmResponse: _model_response,
    LlmFailed: _model_failure,
    LlmStopped: _stopped_response,
    EffectFailed: _failure,
    ToolComplete: lambda chance, words, effect_id, call: {"result": result_of(chance, words, call)},
    ToolReconciled: _reconciliation,
    WorkVerified: _verification,
    MemoryRecalled: _memory,
    SubAgentFinished: _outcome,
    ProfileSelected: lambda chance, words, *_: {"profile": words.profile(chance), "usage": words.cost(chance)},
    AskUserQuestionPending: _question,
    TurnSummarized: lambda chance, words, *_: {
        "summary": words.text(chance, "In short."),
        "usage": words.cost(chance),
    },
    HistoryCompacted: lambda chance, words, *_: {
        "summary": words.words(chance, "So far."),
        "usage": words.cost(chance),
    },
}
"""How an answer of each type is generated that is more than its id and its moment."""


def response_to(chance: Chance, vocabulary: Vocabulary, state: State) -> Request:
    """What this state waits for a person to do; a retry where it waits for no person."""
    return request(chance, vocabulary, person_request(state) or RetryRequested, EVENT_ID, NOON, state)


def person_request(state: State) -> type[Request] | None:
    """What this state waits for a person to do; None if it waits for no person. `Pure.`"""
    if state.open_question is not None:
        return UserQuestionResponse
    if isinstance(state, AwaitingPerson):
        return ToolApproval
    return DoubtResolved if isinstance(state, InDoubt) else None


R = TypeVar("R", bound=Request)


def request(
    chance: Chance, vocabulary: Vocabulary, kind: type[R], event_id: str, at: datetime, state: State | None = None
) -> R:
    """A request of this type, which fits the state if one is given.

    A type that `GENERATORS` does not hold is generated from what it declares.
    """
    generator = REQUEST_GENERATORS.get(kind)
    if generator is None:
        return from_type(kind, chance, event_id=event_id, at=at)
    return kind(event_id=event_id, at=at, **generator(chance, vocabulary, state))


RequestGenerator: TypeAlias = Callable[[Chance, Vocabulary, State | None], Fields]
"""Makes the fields of a request that meets this state, or any."""


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
        "output": vocabulary.output(chance),
        **schedule,
    }


def _schedule(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    schedule = vocabulary.schedule(chance)
    is_over = schedule is None or vocabulary.odd(chance)
    return {"schedule": schedule, "next_wake": None if is_over else later(NOON, vocabulary.wait(chance))}


def _user_message(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    text = vocabulary.words(chance, "Hello")
    when_busy = vocabulary.when_busy(chance)
    return {
        "text": text,
        "files": files_beside(text),
        "when_busy": when_busy,
        "heard": _heard(chance, vocabulary) if when_busy == "interrupt" else None,
        "settings": vocabulary.settings(chance),
        "output": vocabulary.output(chance),
    }


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


def _heard(chance: Chance, vocabulary: Vocabulary) -> str | None:
    """What the user has heard: nothing is told, nothing was heard, or a word that may have been said."""
    return chance.pick((None, "", vocabulary.words(chance, "Hello")))


def _cancel(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    turn = 1 if state is None else state.book.turn
    call_id = None if state is None else state.waiting_call_id
    names_call = isinstance(state, AwaitingSubAgents) and call_id is not None and chance.often()
    return {
        "turn": vocabulary.named(chance, (turn, turn, turn - 1)),
        "call_id": call_id if names_call else vocabulary.named(chance, (call_id or ANOTHER,)),
        "heard": _heard(chance, vocabulary),
    }


def _branch(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    """What every request to go to another branch says of the conversation; seldom something that is over."""
    turn, branch = (2, 0) if state is None else (state.book.turn, state.book.branch)
    used = vocabulary.usage(chance).tokens
    fields: Fields = {"branch": branch, "window_used": used, "clearable": used * (turn % 2)}
    match chance.below(8):
        case 6:
            return {**fields, "newest": turn, "usage": vocabulary.cost(chance)}
        case 7:
            return {**fields, "newest": turn - 1, "branch": branch + chance.below(2)}
        case _:
            return fields


def _point(chance: Chance, state: State | None) -> int:
    """A turn, mostly one of the newest."""
    turn = 2 if state is None else state.book.turn
    return max(1, turn - chance.below(min(turn, 4) + 1) + chance.below(2))


def _rewound(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    return {"before": _point(chance, state), **_branch(chance, vocabulary, state)}


def _edited(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    edited = {"message_id": "request-0", "text": vocabulary.words(chance, "Rather this")}
    return {"before": _point(chance, state), **edited, **_branch(chance, vocabulary, state)}


def _switched(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    return {"turn": _point(chance, state), **_branch(chance, vocabulary, state)}


def _tools(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    newest = 0 if state is None else state.book.turn
    from_turn = 1 + newest + (chance.below(2) if vocabulary.odd(chance) else 0)
    tools = vocabulary.tools(chance)
    return {"tools": tools, "from_turn": from_turn, "narrows": bool(tools) and vocabulary.odd(chance)}


def _details(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    return {
        "title": vocabulary.title(chance),
        "metadata": vocabulary.metadata(chance),
        "system": vocabulary.title(chance),
    }


def _wake_up(chance: Chance, vocabulary: Vocabulary, state: State | None) -> Fields:
    wake = None if state is None or vocabulary.odd(chance) else state.book.wake
    due = wake or chance.pick(INSTANTS)
    following = later(due, vocabulary.wait(chance))
    is_last = vocabulary.odd(chance) or following <= due
    return {"due": due, "next_wake": None if is_last else following, "text": vocabulary.words(chance, "Look around.")}


REQUEST_GENERATORS: dict[type[Request], RequestGenerator] = {
    Opened: _opening,
    UserMessage: _user_message,
    AgentMessage: _agent_message,
    MessageWithdrawn: _withdrawal,
    UserQuestionResponse: _response,
    ToolApproval: _approval,
    UserCancel: _cancel,
    Rewound: _rewound,
    MessageEdited: _edited,
    BranchSwitched: _switched,
    PolicyChanged: lambda chance, vocabulary, state: {"policy": vocabulary.policy(chance)},
    ToolsChanged: _tools,
    DetailsChanged: _details,
    ScheduleChanged: _schedule,
    WakeUp: _wake_up,
    ProfileTransferred: lambda chance, vocabulary, state: {"profile": vocabulary.profile(chance)},
    DoubtResolved: _resolution,
}
"""How a request of each type is generated that is more than its id and its moment."""


def wake_up_in(chance: Chance, vocabulary: Vocabulary, state: State) -> WakeUp:
    """A wake-up that this state waits for, or one that is over."""
    return request(chance, vocabulary, WakeUp, EVENT_ID, NOON, state)


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


def reports_in(state: State) -> Iterator[type[Report]]:
    """The types of reports that concern this state, apart from those that are rare. `Pure.`"""
    round_ = _round(state)
    absent = {CallRestricted} if round_ and round_.running else {CallRestricted, ToolInterrupted}
    for kind in REPORTS:
        if kind in state.REPORTS and kind not in absent:
            yield kind


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
