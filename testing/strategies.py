"""Made-up policies, states and events, for tests that try thousands of conversations nobody thought of.

Each function gives a Hypothesis strategy. The small and the ordinary come first, since a counterexample shrinks
towards them: one model, no limits, a text that says "a". Beside them stand the extremes that break programs: a limit
of one, no time at all, the last moment of the calendar, half a page of quotes and line breaks.

The strategies are written by hand. Hypothesis could derive them from the types, at eight times the cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar, get_args

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..states.context import Context
from ..states.effects import (
    Abort,
    Effect,
    ExecuteTool,
    PersistMessage,
    PersistToolResults,
    RequestLlm,
    SettledCall,
    StartTimer,
)
from ..states.events import (
    ANSWERS,
    EVENTS,
    REQUESTS,
    Answer,
    AskUserQuestionPending,
    CloseRequested,
    DeadlineReached,
    EffectFailed,
    Event,
    LlmFailed,
    LlmResponse,
    Opened,
    PolicyChanged,
    Request,
    RetryDue,
    RetryRequested,
    ToolAborted,
    ToolComplete,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ..states.failures import TRANSIENT, FailureKind
from ..states.messages import Heard, Made, ToolCall, ToolResult, Usage
from ..states.policy import Limits, ModelSpec, Policy, Questions, Retry, Texts
from ..states.questions import Annotation, Answers, QuestionOption, UserQuestion
from ..states.round import Round, RoundCall, Running
from ..states.states import (
    STATES,
    AwaitingUserResponse,
    Book,
    Busy,
    Cancelling,
    Closed,
    Failed,
    Idle,
    LlmRequesting,
    RetryWaiting,
    State,
    Timer,
    ToolExecuting,
)
from ..states.turn import TurnRecord
from .history import History, Observation

T = TypeVar("T")

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""The moment around which most made-up events happen."""

TRICKY = ("a", "b", "", " ", "{0} {x} %s", 'say "yes"', "one\ntwo\r\n\tthree", "back\\slash", "日本語 مرحبا 👩‍👩‍👧", "\u2028\u0000")


# --- words and numbers


@cache
def texts() -> SearchStrategy[str]:
    """Any text that can be written as UTF-8."""
    return st.sampled_from(TRICKY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@cache
def words() -> SearchStrategy[str]:
    """Texts that say something."""
    return texts().filter(str.strip)


@cache
def instants() -> SearchStrategy[datetime]:
    """Moments within a day of `NOON`, and now and then an end of the calendar."""
    ends = st.sampled_from([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
    usual = st.integers(0, 86_400_000).map(lambda milliseconds: NOON + timedelta(milliseconds=milliseconds))
    return mostly(usual, ends)


@cache
def seconds() -> SearchStrategy[float]:
    """Lengths of time, from none to longer than the calendar."""
    return st.sampled_from([1.0, 0.0, 0.25, 5.0, 600.0, 1e12, 1e308])


def mostly(usual: SearchStrategy[T], rare: SearchStrategy[T]) -> SearchStrategy[T]:
    """Nine times out of ten the usual."""
    return st.integers(0, 9).flatmap(lambda tenth: rare if tenth == 9 else usual)


def perhaps(value: SearchStrategy[T]) -> SearchStrategy[T | None]:
    """None, three times out of four."""
    return st.integers(0, 3).flatmap(lambda quarter: value if quarter == 3 else st.none())


# --- policies


@cache
def policies() -> SearchStrategy[Policy]:
    """Rules of every kind: 1 to 3 models, up to 4 tools at once, limits down to nothing at all."""
    return st.builds(
        Policy,
        models=st.integers(1, 3).map(lambda count: tuple(ModelSpec(name=f"model-{n}") for n in range(count))),
        questions=st.builds(
            Questions,
            alongside=st.sampled_from(["in_order", "alone"]),
            answer=st.sampled_from(["json", "readable"]),
            cancel=st.sampled_from(["idle", "resume"]),
            partial=st.booleans(),
            deadline=perhaps(seconds()),
        ),
        parallel=st.integers(1, 4),
        limits=limits(),
        retry=st.builds(
            Retry,
            attempts=st.integers(1, 3),
            base=seconds(),
            factor=st.sampled_from([2.0, 1.0, 1e200]),
            cap=seconds(),
        ),
        cancel_deadline=seconds(),
        texts=mostly(st.just(Texts()), st.builds(Texts, cancelled=texts(), not_run=texts(), limit=texts())),
    )


@cache
def limits() -> SearchStrategy[Limits]:
    """Limits of every kind, most of them absent or far away."""
    return st.builds(
        Limits,
        requests=st.sampled_from([50, 1, 2, 3, 8]),
        last=st.sampled_from(["answer_now", "plain"]),
        tool_calls=perhaps(st.integers(0, 4)),
        tokens=perhaps(st.sampled_from([1, 100, 5_000])),
        cost=perhaps(st.sampled_from([0.01, 1.0])),
        seconds=perhaps(seconds()),
    )


@cache
def contexts() -> SearchStrategy[Context]:
    """Contexts of every policy."""
    return st.builds(Context, system=texts(), policy=policies())


def contexts_for(state: State) -> SearchStrategy[Context]:
    """Contexts in which this state can rest: the model of its turn is one of the policy's."""
    model = state.turn.model if isinstance(state, Busy) else 0
    return contexts().filter(lambda context: len(context.policy.models) > model)


# --- what is said and asked


@cache
def usages() -> SearchStrategy[Usage]:
    """What requests cost, from nothing to all the money that a number can hold."""
    return st.builds(
        Usage,
        input_tokens=st.sampled_from([0, 1, 40, 4_000]),
        output_tokens=st.sampled_from([0, 1, 60]),
        cost=st.sampled_from([None, 0.0, 0.004, 2.5, 1e308]),
    )


@cache
def _calls() -> SearchStrategy[ToolCall]:
    return st.builds(
        ToolCall,
        call_id=st.just("call"),
        name=st.sampled_from(["read", "write", "ask"]),
        arguments=st.sampled_from(["{}", '{"path": "a"}', "not JSON", ""]),
        provider_id=st.sampled_from(["call_0", ""]),
        fault=perhaps(texts()),
        exclusive=st.booleans(),
        crash=st.sampled_from(["at_most_once", "pure", "idempotent", "reconcile"]),
        acts=st.sampled_from([(), ("question",)]),
    )


def tool_calls(prefix: str = "call", *, max_size: int = 5) -> SearchStrategy[tuple[ToolCall, ...]]:
    """The calls of one response, their ids made from `prefix`: `call.0`, `call.1` and so on."""

    def numbered(calls: list[ToolCall]) -> tuple[ToolCall, ...]:
        return tuple(call.model_copy(update={"call_id": f"{prefix}.{n}"}) for n, call in enumerate(calls))

    return st.lists(_calls(), max_size=max_size).map(numbered)


@cache
def questions() -> SearchStrategy[tuple[UserQuestion, ...]]:
    """One to four questions that may be asked together."""
    return st.lists(_one_question(), min_size=1, max_size=4, unique_by=lambda asked: asked.question).map(tuple)


@cache
def _one_question() -> SearchStrategy[UserQuestion]:
    labels = words().filter(lambda label: label.strip().casefold() != "other")
    plain = st.builds(QuestionOption, label=labels)
    shown = st.builds(QuestionOption, label=labels, description=perhaps(words()), preview=perhaps(words()))
    header = perhaps(words())
    return st.builds(
        UserQuestion, question=words(), header=header, options=_options(plain), multi_select=st.just(True)
    ) | st.builds(UserQuestion, question=words(), header=header, options=_options(shown))


def _options(option: SearchStrategy[QuestionOption]) -> SearchStrategy[tuple[QuestionOption, ...]]:
    return st.lists(option, min_size=2, max_size=4, unique_by=lambda offered: offered.label).map(tuple)


@cache
def any_answers() -> SearchStrategy[Answers]:
    """Answers to whatever was asked: unknown texts, empty ones, lists where one label belongs."""
    return st.dictionaries(texts(), texts() | st.lists(texts(), max_size=3).map(tuple), max_size=3)


def answers_to(asked: tuple[UserQuestion, ...]) -> SearchStrategy[Answers]:
    """Complete answers to these questions: labels offered, several of them, or words of one's own."""
    return st.fixed_dictionaries({question.question: _answer_to(question) for question in asked})


def _answer_to(question: UserQuestion) -> SearchStrategy[Any]:
    labels = st.sampled_from([option.label for option in question.options])
    if question.multi_select:
        return labels | words() | st.lists(labels, min_size=1, unique=True).map(tuple)
    return labels | words()


# --- events


@cache
def _kinds() -> SearchStrategy[FailureKind]:
    return st.sampled_from([*sorted(TRANSIENT), *sorted(set(get_args(FailureKind)) - TRANSIENT)])


@cache
def _fields() -> Mapping[type[Event], dict[str, SearchStrategy[Any]]]:
    """What each type of event says, beside when it happened and whom it names."""
    sealed = st.sampled_from([(), ({"signature": "x", "parts": [1, 2.5, None, {"text": "…"}]},)])
    failure = {"kind": _kinds(), "sentence": texts()}
    return {
        Opened: {"system": texts(), "policy": policies()},
        UserMessage: {"text": words()},
        UserQuestionResponse: {
            "answers": any_answers(),
            "annotations": st.dictionaries(texts(), st.builds(Annotation, notes=texts()), max_size=2),
            "call_id": perhaps(texts()),
        },
        UserCancel: {"turn": perhaps(st.integers(-1, 9))},
        RetryRequested: {},
        PolicyChanged: {"policy": policies()},
        CloseRequested: {},
        LlmResponse: {
            "content": texts(),
            "thinking": mostly(st.just(""), texts()),
            "opaque": sealed,
            "tool_calls": tool_calls(),
            "finish_reason": mostly(st.just("stop"), st.sampled_from(["length", "tool_calls", ""])),
            "usage": usages(),
            "model": texts(),
            "digest": texts(),
        },
        LlmFailed: {**failure, "retry_after": perhaps(seconds())},
        RetryDue: {},
        DeadlineReached: {},
        AskUserQuestionPending: {"questions": questions()},
        ToolComplete: {"result": st.builds(ToolResult, text=texts(), error=st.booleans())},
        ToolAborted: {},
        EffectFailed: failure,
    }


def request(kind: type[Request], **fields: SearchStrategy[Any]) -> SearchStrategy[Request]:
    """Requests of one type. A field that is not given is made up."""
    ids = st.integers(0, 99).map(lambda number: f"request-{number}")
    return st.builds(kind, **{"at": instants(), "event_id": ids, **_fields()[kind], **fields})


def answer(kind: type[Answer], **fields: SearchStrategy[Any]) -> SearchStrategy[Answer]:
    """Answers of one type. A field that is not given is made up."""
    return st.builds(kind, **{"at": instants(), "effect_id": st.integers(-1, 30), **_fields()[kind], **fields})


@cache
def events() -> SearchStrategy[Event]:
    """Every event, whatever the state it meets."""
    requests = [request(kind) for kind in REQUESTS]
    return st.one_of(*requests, *(answer(kind) for kind in ANSWERS))


def answers_for(state: State) -> SearchStrategy[Answer]:
    """Answers that this state waits for. It must wait for some."""
    return st.one_of(*(_proper(kind, effect_id) for effect_id, kinds in state.awaited().items() for kind in kinds))


def _proper(kind: type[Answer], effect_id: int) -> SearchStrategy[Answer]:
    if kind is LlmResponse:
        return answer(kind, effect_id=st.just(effect_id), tool_calls=tool_calls(f"call.{effect_id}"))
    return answer(kind, effect_id=st.just(effect_id))


def late_answers_for(state: State) -> SearchStrategy[Answer]:
    """Answers that this state does not wait for: stale, doubled, unknown, or of a type that the effect cannot have."""
    awaited = state.awaited()
    strangers = [effect_id for effect_id in range(-1, state.book.next_effect + 2) if effect_id not in awaited]
    late = st.sampled_from(ANSWERS).flatmap(lambda kind: answer(kind, effect_id=st.sampled_from(strangers)))
    misfits = (_misfits(effect_id, kinds) for effect_id, kinds in awaited.items())
    return st.one_of(late, *misfits)


def _misfits(effect_id: int, kinds: tuple[type[Answer], ...]) -> SearchStrategy[Answer]:
    others = [kind for kind in ANSWERS if kind not in kinds]
    return st.sampled_from(others).flatmap(lambda kind: answer(kind, effect_id=st.just(effect_id)))


def responses_for(state: AwaitingUserResponse) -> SearchStrategy[Request]:
    """Complete answers of a person to what this state asks."""
    named = st.sampled_from([None, state.call.call_id])
    return request(UserQuestionResponse, answers=answers_to(state.questions), call_id=named)


def events_for(state: State) -> SearchStrategy[Event]:
    """Every event, above all those that this state waits for; answers of the model, tools and timers fit it."""
    turn = st.sampled_from([None, state.book.turn, state.book.turn - 1])
    menu: list[SearchStrategy[Event]] = []
    if state.awaited():
        menu += [answers_for(state)] * 8
    if isinstance(state, AwaitingUserResponse):
        menu += [responses_for(state)] * 4
    menu += [request(UserMessage)] * (8 if isinstance(state, Idle | Failed) else 1)
    menu += [request(UserCancel, turn=turn), late_answers_for(state), request(UserQuestionResponse)]
    rare = [request(kind) for kind in (RetryRequested, PolicyChanged, CloseRequested, Opened)]
    menu.append(st.one_of(*rare))
    return st.integers(0, len(menu) - 1).flatmap(menu.__getitem__)


# --- effects


@cache
def effects() -> SearchStrategy[Effect]:
    """Every effect, whatever the step it is part of."""
    ids = st.integers(1, 30)
    said = st.builds(Heard, seq=ids, index=st.integers(0, 3)) | st.builds(Made, text=texts())
    settled = st.builds(SettledCall, call_id=texts(), said=said, error=st.booleans())
    calls = tool_calls(max_size=1).filter(bool).map(lambda made: RoundCall.of(made[0], 1))
    return st.one_of(
        st.builds(PersistMessage, said=said),
        st.builds(PersistToolResults, results=st.lists(settled, max_size=3).map(tuple)),
        st.builds(RequestLlm, effect_id=ids, model=texts(), tool_choice=st.sampled_from(["auto", "none"])),
        st.builds(ExecuteTool, effect_id=ids, call=calls),
        st.builds(
            StartTimer, effect_id=ids, due=instants(), wakes=st.sampled_from(["retry_due", "deadline_reached"])
        ),
        st.builds(Abort, effect_id=ids),
    )


# --- states


@cache
def states() -> SearchStrategy[State]:
    """States as they could rest, made directly and not by a conversation: most are found by no trace.

    Each is consistent in itself: ids of effects differ and were given out before, what runs has no result yet, and a
    busy state has something to wait for.
    """
    return st.sampled_from(STATES).flatmap(lambda kind: _STATES[kind]())


def _books() -> SearchStrategy[Book]:
    return st.builds(
        Book,
        seq=st.integers(1, 50),
        turn=st.integers(1, 9),
        next_effect=st.just(20),
        window_used=st.integers(0, 5_000),
    )


@st.composite
def _turns(draw: st.DrawFn, book: Book) -> TurnRecord:
    spent = draw(usages())
    return TurnRecord(
        number=book.turn,
        since=draw(instants()),
        model=draw(st.integers(0, 2)),
        requests=draw(st.integers(1, 9)),
        tool_calls=draw(st.integers(0, 5)),
        spent=spent,
        usage=spent + draw(usages()),
    )


def _timers(effect_id: int = 19) -> SearchStrategy[Timer]:
    return st.builds(Timer, effect_id=st.just(effect_id), due=instants())


@st.composite
def _rounds(draw: st.DrawFn, book: Book, *, min_running: int, max_running: int) -> Round:
    """A round in the middle: some calls have ended, some run, some wait, whatever the policy would say of it."""
    entered = draw(st.integers(1, book.seq))
    asked = draw(tool_calls().filter(bool))
    calls = tuple(RoundCall.of(call, entered) for call in asked)
    order = draw(st.permutations([call.call_id for call in calls]))
    running = draw(st.integers(min_running, min(len(order), max_running)))
    settled = draw(st.integers(0, len(order) - running))
    return Round(
        calls=calls,
        running=tuple(Running(effect_id=n, call_id=call_id) for n, call_id in enumerate(order[:running], start=1)),
        settled=tuple(order[running : running + settled]),
    )


@st.composite
def _llm_requesting(draw: st.DrawFn) -> State:
    book = draw(_books())
    return LlmRequesting(
        book=book,
        turn=draw(_turns(book)),
        effect_id=draw(st.integers(1, 19)),
        attempt=draw(st.integers(1, 4)),
        tools_off=draw(st.booleans()),
    )


@st.composite
def _retry_waiting(draw: st.DrawFn) -> State:
    book = draw(_books())
    return RetryWaiting(
        book=book,
        turn=draw(_turns(book)),
        timer=draw(_timers()),
        attempt=draw(st.integers(2, 4)),
        tools_off=draw(st.booleans()),
    )


@st.composite
def _tool_executing(draw: st.DrawFn) -> State:
    book = draw(_books())
    return ToolExecuting(
        book=book, turn=draw(_turns(book)), round=draw(_rounds(book, min_running=1, max_running=4))
    )


@st.composite
def _awaiting_user_response(draw: st.DrawFn) -> State:
    book = draw(_books())
    before = draw(_rounds(book, min_running=0, max_running=0))
    call = draw(st.sampled_from(before.calls))
    return AwaitingUserResponse(
        book=book,
        turn=draw(_turns(book)),
        questions=draw(questions()),
        call=call,
        round=before.settle(call.call_id),
        since=draw(instants()),
        deadline=draw(perhaps(_timers())),
    )


@st.composite
def _cancelling(draw: st.DrawFn) -> State:
    book = draw(_books())
    return Cancelling(
        book=book,
        turn=draw(_turns(book)),
        round=draw(_rounds(book, min_running=1, max_running=4)),
        deadline=draw(_timers()),
        closing=draw(st.booleans()),
    )


_STATES = {
    Idle: lambda: st.builds(Idle, book=_books()),
    LlmRequesting: _llm_requesting,
    RetryWaiting: _retry_waiting,
    ToolExecuting: _tool_executing,
    AwaitingUserResponse: _awaiting_user_response,
    Cancelling: _cancelling,
    Failed: lambda: st.builds(Failed, book=_books(), kind=_kinds(), sentence=texts(), turn=st.integers(1, 9)),
    Closed: lambda: st.builds(Closed, book=_books()),
}


# --- traces


@st.composite
def traces(
    draw: st.DrawFn, rules: SearchStrategy[Policy] | None = None, *, max_size: int = 40
) -> tuple[Observation, ...]:
    """Conversations from their first event on, under the rules given or under any, up to `max_size` events long."""
    history = History()
    now = NOON
    history.take(Opened(event_id="opened", at=now, policy=draw(policies() if rules is None else rules)))
    for number in range(draw(st.integers(1, max_size - 1))):
        now += timedelta(seconds=draw(st.sampled_from([1.0, 0.0, 30.0, -1.0])))
        event = draw(events_for(history.state))
        changes: dict[str, Any] = {"at": now}
        if isinstance(event, Request):
            changes["event_id"] = f"request-{number}"
        history.take(event.model_copy(update=changes))
    return tuple(history.observations)
