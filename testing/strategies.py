"""Made-up policies, states and events, for tests that try thousands of conversations nobody thought of.

Each function gives a Hypothesis strategy. The small and the ordinary come first, since a counterexample shrinks
towards them: one model, no limits, a text that says "a". Beside them stand the extremes that break programs: a limit
of one, no time at all, the last moment of the calendar, half a page of quotes and line breaks.

The strategies are written by hand. Hypothesis could derive them from the types, at eight times the cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
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
    MessageWithdrawn,
    Opened,
    PolicyChanged,
    Request,
    RetryDue,
    RetryRequested,
    ToolAborted,
    ToolApproval,
    ToolComplete,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ..states.failures import TRANSIENT, FailureKind
from ..states.inbox import Waiting
from ..states.messages import ActKind, CrashContract, Heard, Made, ToolCall, ToolResult, Usage
from ..states.policy import Limits, ModelSpec, Policy, Questions, Retry, Texts
from ..states.questions import MAX_HEADER, Annotation, Answers, QuestionOption, UserQuestion
from ..states.round import Round, RoundCall, Running
from ..states.states import (
    STATES,
    AwaitingApproval,
    AwaitingPerson,
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
E = TypeVar("E", bound=Event)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""The moment around which most made-up events happen."""

TRICKY = (
    "a",
    "b",
    "",
    " ",
    "{0} {x} %s",
    'say "yes"',
    "one\ntwo\r\n\tthree",
    "back\\slash",
    "日本語 مرحبا 👩‍👩‍👧",
    "\u2028\u0000",
)


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
    """Moments around `NOON`, some of them the same, and the ends of the calendar."""
    near = [NOON + timedelta(seconds=seconds) for seconds in (0, 0, 0.000_001, 1, 1, 60, 3_600, -1, -86_400)]
    return st.sampled_from([*near, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])


@cache
def seconds() -> SearchStrategy[float]:
    """Lengths of time, from none to longer than the calendar."""
    return st.sampled_from([1.0, 5.0, 600.0, 0.0, 0.25, 1e12, 1e308])


def pick(draw: st.DrawFn, things: Sequence[T]) -> T:
    """One of these: as `sampled_from`, but cheap where the things are others each time."""
    return things[draw(st.integers(0, len(things) - 1))]


def mostly(usual: SearchStrategy[T], rare: SearchStrategy[T]) -> SearchStrategy[T]:
    """Nine times out of ten the usual."""
    return st.sampled_from([usual] * 9 + [rare]).flatmap(lambda strategy: strategy)


def perhaps(value: SearchStrategy[T]) -> SearchStrategy[T | None]:
    """None, three times out of four."""
    return st.sampled_from([st.none()] * 3 + [value]).flatmap(lambda strategy: strategy)


# --- policies


@cache
def policies(**rules: SearchStrategy[Any]) -> SearchStrategy[Policy]:
    """Rules of every kind, but for those given: 1 to 3 models, up to 4 tools at once, limits down to nothing."""
    questions = st.builds(
        Questions,
        alongside=st.sampled_from(["in_order", "alone"]),
        answer=st.sampled_from(["json", "readable"]),
        cancel=st.sampled_from(["idle", "resume"]),
        partial=st.booleans(),
        deadline=st.none() | seconds(),
    )
    retry = st.builds(
        Retry,
        attempts=st.integers(1, 3),
        base=seconds(),
        factor=st.sampled_from([2.0, 1.0, 1e200]),
        cap=seconds(),
    )
    other: dict[str, SearchStrategy[Any]] = {
        "models": _models(),
        "questions": questions,
        "parallel": st.integers(1, 4),
        "limits": limits(),
        "approval_deadline": st.none() | seconds(),
        "when_busy": st.sampled_from(["refuse", "queue", "steer"]),
        "retry": retry,
        "cancel_deadline": seconds(),
        "texts": mostly(st.just(Texts()), st.builds(Texts, cancelled=texts(), not_run=texts(), limit=texts())),
    }
    return st.builds(Policy, **{**other, **rules})


@cache
def limits() -> SearchStrategy[Limits]:
    """No limits, or tight ones."""
    return st.booleans().flatmap(lambda tight: tight_limits() if tight else st.just(Limits()))


@cache
def tight_limits() -> SearchStrategy[Limits]:
    """Limits of one kind, most often of requests, or of all kinds, that a conversation soon meets."""
    kinds: dict[str, SearchStrategy[Any]] = {
        "requests": st.sampled_from([2, 1, 3, 8]),
        "tool_calls": st.sampled_from([3, 2, 1, 0]),
        "tokens": st.sampled_from([5_000, 100, 1]),
        "cost": st.sampled_from([1.0, 0.01]),
        "seconds": st.sampled_from([60.0, 5.0, 1.0, 1e-9, 1e308]),
    }
    last = st.sampled_from(["answer_now", "plain"])
    single = [st.builds(Limits, last=last, **{kind: value}) for kind, value in kinds.items()]
    together = st.builds(Limits, last=last, **kinds)
    return st.sampled_from([*single, single[0], together]).flatmap(lambda chosen: chosen)


@cache
def _models(at_least: int = 1) -> SearchStrategy[tuple[ModelSpec, ...]]:
    return st.integers(at_least, 3).map(lambda count: tuple(ModelSpec(name=f"model-{n}") for n in range(count)))


def contexts_for(state: State) -> SearchStrategy[Context]:
    """Contexts in which this state can rest: the model of its turn is one of the policy's."""
    count = state.turn.model + 1 if isinstance(state, Busy) else 1
    return st.builds(Context, system=texts(), policy=policies(models=_models(count)))


# --- what is said and asked


@cache
def usages() -> SearchStrategy[Usage]:
    """What requests cost, from nothing to all the money that a number can hold."""
    tokens = ((0, 0), (1, 0), (40, 60), (4_000, 1))
    costs = (None, None, 0.0, 0.004, 2.5, 1e308)
    return st.sampled_from(
        [Usage(input_tokens=sent, output_tokens=made, cost=cost) for cost in costs for sent, made in tokens]
    )


@st.composite
def tool_calls(draw: st.DrawFn) -> tuple[ToolCall, ...]:
    """The calls of one response: none, or up to five."""
    size = pick(draw, (0, 0, 0, 1, 1, 2, 2, 3, 3, 5))
    return numbered(draw(_calls()) for _ in range(size))


@cache
def _calls() -> SearchStrategy[ToolCall]:
    """Calls of every kind, under one id: four in five are plain."""
    acts: tuple[tuple[ActKind, ...], ...] = ((), ("question",))
    kinds = product((False, True), acts, (None, "", "There is no such tool"), get_args(CrashContract))
    odd = [
        ToolCall(
            call_id="call",
            name="odd",
            arguments="not JSON",
            exclusive=alone,
            acts=may,
            fault=fault,
            crash=crash,
            approval=crash == "at_most_once",
        )
        for alone, may, fault, crash in kinds
    ]
    guarded = ToolCall(call_id="call", name="pay", arguments='{"sum": 5}', approval=True)
    plain = ToolCall(call_id="call", name="read", arguments='{"path": "a"}', provider_id="call_0")
    question = ToolCall(call_id="call", name="ask", exclusive=True, acts=("question",))
    return st.sampled_from([*[plain] * 2 * len(odd), *[question] * len(odd), *[guarded] * len(odd), *odd])


def numbered(calls: Iterable[ToolCall], prefix: str = "call") -> tuple[ToolCall, ...]:
    """These calls, their ids made from `prefix`: `call.0`, `call.1` and so on. `Pure.`"""
    return tuple(call.model_copy(update={"call_id": f"{prefix}.{n}"}) for n, call in enumerate(calls))


@cache
def questions() -> SearchStrategy[tuple[UserQuestion, ...]]:
    """One to four questions that may be asked together."""
    return st.lists(_one_question(), min_size=1, max_size=4, unique_by=lambda asked: asked.question).map(tuple)


@cache
def _one_question() -> SearchStrategy[UserQuestion]:
    labels = words().filter(lambda label: label.strip().casefold() != "other")
    plain = st.builds(QuestionOption, label=labels)
    shown = st.builds(QuestionOption, label=labels, description=perhaps(words()), preview=perhaps(words()))
    header = perhaps(words().filter(lambda text: len(text) <= MAX_HEADER))
    return st.builds(
        UserQuestion, question=words(), header=header, options=_options(plain), multi_select=st.just(True)
    ) | st.builds(UserQuestion, question=words(), header=header, options=_options(shown))


def _options(option: SearchStrategy[QuestionOption]) -> SearchStrategy[tuple[QuestionOption, ...]]:
    return st.lists(option, min_size=2, max_size=4, unique_by=lambda offered: offered.label).map(tuple)


@cache
def any_answers() -> SearchStrategy[Answers]:
    """Answers to whatever was asked: unknown texts, empty ones, lists where one label belongs."""
    return st.dictionaries(texts(), texts() | st.lists(texts(), max_size=3).map(tuple), max_size=3)


# --- events


@cache
def _kinds() -> SearchStrategy[FailureKind]:
    return st.sampled_from([*sorted(TRANSIENT), *sorted(set(get_args(FailureKind)) - TRANSIENT)])


def _fields(kind: type[Event]) -> dict[str, SearchStrategy[Any]]:
    """What events of a type say, but for the model's responses."""
    failure = {"kind": _kinds(), "sentence": texts()}
    fields: Mapping[type[Event], dict[str, SearchStrategy[Any]]] = {
        Opened: {"system": texts(), "policy": policies()},
        UserMessage: {"text": words(), "when_busy": st.sampled_from([None, None, "refuse", "queue", "steer"])},
        MessageWithdrawn: {"message_id": texts()},
        ToolApproval: {
            "call_id": texts(),
            "allowed": st.booleans(),
            "note": texts(),
            "arguments": perhaps(st.dictionaries(texts(), texts() | st.integers() | st.none(), max_size=2)),
        },
        UserQuestionResponse: {
            "answers": any_answers(),
            "annotations": st.dictionaries(texts(), st.builds(Annotation, notes=texts()), max_size=2),
            "call_id": perhaps(texts()),
        },
        UserCancel: {"turn": perhaps(st.integers(-1, 9)), "call_id": perhaps(texts())},
        RetryRequested: {},
        PolicyChanged: {"policy": policies()},
        CloseRequested: {},
        LlmFailed: {**failure, "retry_after": perhaps(seconds())},
        RetryDue: {},
        DeadlineReached: {},
        AskUserQuestionPending: {"questions": questions()},
        ToolComplete: {"result": st.builds(ToolResult, text=texts(), error=st.booleans())},
        ToolAborted: {},
        EffectFailed: failure,
    }
    return fields[kind]


@cache
def _responses() -> SearchStrategy[LlmResponse]:
    """What a model can say. The words are combined beforehand: this is drawn more often than anything else."""
    thoughts = ("", "", "", "Hm", " ")
    endings = ("stop", "stop", "tool_calls", "tool_calls", "", "length")
    seals: tuple[tuple[dict[str, Any], ...], ...] = ((), (), ({"signature": "x", "parts": [1, 2.5, None, {"a": "…"}]},))
    said = [
        LlmResponse(
            effect_id=0, at=NOON, content=content, thinking=thinking, finish_reason=ending, opaque=seal, model=model
        )
        for content, thinking, ending in product(("Here you are", "", "", " \n", *TRICKY), thoughts, endings)
        for seal, model in zip(seals, ("", "model-0", "another"), strict=True)
    ]
    responses = st.tuples(st.sampled_from(said), tool_calls(), usages())
    return responses.map(lambda parts: changed(parts[0], tool_calls=parts[1], usage=parts[2]))


@cache
def _said(kind: type[Event]) -> SearchStrategy[Any]:
    """Events of one type, for those who change when they happened and whom they name."""
    named: dict[str, Any] = {"event_id": "request"} if issubclass(kind, Request) else {"effect_id": 0}
    return _responses() if kind is LlmResponse else st.builds(kind, at=st.just(NOON), **_just(named), **_fields(kind))


def _just(values: Mapping[str, Any]) -> dict[str, SearchStrategy[Any]]:
    return {name: st.just(value) for name, value in values.items()}


@cache
def _named(kind: type[Event]) -> SearchStrategy[Any]:
    numbers = st.integers(-1, 30)
    named = numbers.map(lambda n: {"event_id": f"request-{n}"} if issubclass(kind, Request) else {"effect_id": n})
    return st.tuples(_said(kind), instants(), named).map(lambda parts: changed(parts[0], at=parts[1], **parts[2]))


def events_of(kind: type[E]) -> SearchStrategy[E]:
    """Events of one type, everything about them made up."""
    return _named(kind)


@cache
def events() -> SearchStrategy[Event]:
    """Every event, whatever the state it meets."""
    return st.sampled_from(EVENTS).flatmap(events_of)


@cache
def requests() -> SearchStrategy[Request]:
    """Everything that people and programs can want."""
    return st.sampled_from(REQUESTS).flatmap(events_of)


def changed(event: E, **changes: object) -> E:
    """This event, but for what is changed. `Pure.`"""
    return event.model_copy(update=changes)


def _answer(draw: st.DrawFn, state: State) -> Answer:
    awaited = [(effect_id, kind) for effect_id, kinds in state.awaited().items() for kind in kinds]
    effect_id, kind = pick(draw, [each for each in awaited for _ in range(_likely(state, *each))])
    answer: Answer = draw(_said(kind))
    if isinstance(answer, LlmResponse):
        return changed(answer, effect_id=effect_id, tool_calls=numbered(answer.tool_calls, f"call-{effect_id}"))
    return changed(answer, effect_id=effect_id)


def _likely(state: State, effect_id: int, kind: type[Answer]) -> int:
    """How likely an answer is, beside one that is rare: models respond, tools end, and tools that may ask do ask."""
    if kind is AskUserQuestionPending and isinstance(state, ToolExecuting):
        return 9 if "question" in state.round.call(effect_id).acts else 1
    return {LlmResponse: 12, ToolComplete: 4, DeadlineReached: 4}.get(kind, 1)


def _late_answer(draw: st.DrawFn, state: State) -> Answer:
    effect_id = draw(st.integers(0, state.book.next_effect + 1))
    kinds = state.awaited().get(effect_id, ())
    answer: Answer = draw(_said(pick(draw, [kind for kind in ANSWERS if kind not in kinds])))
    return changed(answer, effect_id=effect_id)


def _response(draw: st.DrawFn, state: AwaitingPerson) -> Request:
    call_id = state.call.call_id
    if not isinstance(state, AwaitingUserResponse):
        approval: ToolApproval = draw(_said(ToolApproval))
        return changed(approval, call_id=call_id)
    answers = {question.question: _answer_to(draw, question) for question in state.questions}
    response: UserQuestionResponse = draw(_said(UserQuestionResponse))
    return changed(response, answers=answers, call_id=pick(draw, (None, call_id)))


def _answer_to(draw: st.DrawFn, question: UserQuestion) -> str | tuple[str, ...]:
    labels = tuple(option.label for option in question.options)
    own_words = draw(words())
    return pick(draw, (labels[0], labels[-1], own_words, labels if question.multi_select else labels[0]))


def _cancel(draw: st.DrawFn, state: State) -> UserCancel:
    cancel: UserCancel = draw(_said(UserCancel))
    call_id = state.call.call_id if isinstance(state, AwaitingPerson) else "an earlier call"
    turn = pick(draw, (None, state.book.turn, state.book.turn - 1))
    return changed(cancel, turn=turn, call_id=pick(draw, (None, None, call_id)))


def _withdrawal(draw: st.DrawFn, state: State) -> MessageWithdrawn:
    withdrawal: MessageWithdrawn = draw(_said(MessageWithdrawn))
    waiting: tuple[Waiting, ...] = getattr(state, "inbox", ())
    return changed(withdrawal, message_id=pick(draw, [*(message.event_id for message in waiting), "request-0"]))


def _way_on(draw: st.DrawFn, state: State) -> Event:
    """What moves this state on: what it waits for, or at rest a message."""
    if isinstance(state, AwaitingPerson) and (not state.awaited() or draw(st.booleans())):
        return _response(draw, state)
    return _answer(draw, state) if state.awaited() else _message(draw, state)


def _message(draw: st.DrawFn, state: State) -> UserMessage:
    message: UserMessage = draw(_said(UserMessage))
    return message


def _request(draw: st.DrawFn, state: State) -> Request:
    request: Request = draw(_said(pick(draw, REQUESTS)))
    return request


_MENU = (*[_way_on] * 20, *[_message] * 3, *[_cancel] * 3, _withdrawal, _late_answer, _request)


def _event(draw: st.DrawFn, state: State) -> Event:
    return pick(draw, _MENU)(draw, state)


def answers_for(state: State) -> SearchStrategy[Answer]:
    """Answers that this state waits for, more of those that lead somewhere. It must wait for some."""
    return st.composite(_answer)(state)


def late_answers_for(state: State) -> SearchStrategy[Answer]:
    """Answers that this state does not wait for: stale, doubled, unknown, or of a type that the effect cannot have."""
    return st.composite(_late_answer)(state)


def responses_for(state: AwaitingPerson) -> SearchStrategy[Request]:
    """What a person can do about what this state asks for: complete answers, or an approval, given or not."""
    return st.composite(_response)(state)


def cancels_for(state: State) -> SearchStrategy[UserCancel]:
    """Cancels of the turn that this state is in, or of one that is over."""
    return st.composite(_cancel)(state)


def withdrawals_for(state: State) -> SearchStrategy[MessageWithdrawn]:
    """Withdrawals of the messages that wait in this state, or of one that never did."""
    return st.composite(_withdrawal)(state)


def events_for(state: State) -> SearchStrategy[Event]:
    """Every event, above all those that this state waits for; answers of the model, tools and people fit it."""
    return st.composite(_event)(state)


# --- effects


@cache
def effects() -> SearchStrategy[Effect]:
    """Every effect, whatever the step it is part of."""
    ids = st.integers(1, 30)
    said = st.builds(Heard, seq=ids, index=st.integers(0, 3)) | st.builds(Made, text=texts())
    settled = st.builds(SettledCall, call_id=texts(), said=said, error=st.booleans())
    calls = _calls().map(lambda call: RoundCall.of(call, 1))
    return st.one_of(
        st.builds(PersistMessage, said=said),
        st.builds(PersistToolResults, results=st.lists(settled, max_size=3).map(tuple)),
        st.builds(RequestLlm, effect_id=ids, model=texts(), tool_choice=st.sampled_from(["auto", "none"])),
        st.builds(ExecuteTool, effect_id=ids, call=calls),
        st.builds(StartTimer, effect_id=ids, due=instants(), wakes=st.sampled_from(["retry_due", "deadline_reached"])),
        st.builds(Abort, effect_id=ids),
    )


# --- states


@cache
def states(*kinds: type[State]) -> SearchStrategy[State]:
    """States of these types, or of any, made directly and not by a conversation: most are found by no trace.

    Each is consistent in itself: ids of effects differ and were given out before, what runs has no result yet, and a
    busy state has something to wait for.
    """
    return st.sampled_from(kinds or STATES).flatmap(_states_of)


def _books() -> SearchStrategy[Book]:
    return st.builds(
        Book,
        seq=st.integers(3, 50),
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
def _inboxes(draw: st.DrawFn, book: Book) -> tuple[Waiting, ...]:
    """Messages that wait: mostly none."""
    size = pick(draw, (0, 0, 0, 1, 3))
    steered = [draw(st.booleans()) for _ in range(size)]
    return tuple(
        Waiting(event_id=f"request-{n}", seq=book.seq - size + 1 + n, steer=steer) for n, steer in enumerate(steered)
    )


@st.composite
def _llm_requesting(draw: st.DrawFn) -> State:
    book = draw(_books())
    return LlmRequesting(
        book=book,
        turn=draw(_turns(book)),
        inbox=draw(_inboxes(book)),
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
        inbox=draw(_inboxes(book)),
        timer=draw(_timers()),
        attempt=draw(st.integers(2, 4)),
        tools_off=draw(st.booleans()),
    )


@st.composite
def _tool_executing(draw: st.DrawFn) -> State:
    book = draw(_books())
    return ToolExecuting(
        book=book,
        turn=draw(_turns(book)),
        inbox=draw(_inboxes(book)),
        round=draw(_rounds(book, min_running=1, max_running=4)),
    )


@st.composite
def _awaiting_user_response(draw: st.DrawFn) -> State:
    book = draw(_books())
    before = draw(_rounds(book, min_running=0, max_running=0))
    call = draw(st.sampled_from(before.calls))
    return AwaitingUserResponse(
        book=book,
        turn=draw(_turns(book)),
        inbox=draw(_inboxes(book)),
        questions=draw(questions()),
        call=call,
        round=before.settle(call.call_id),
        since=draw(instants()),
        deadline=draw(perhaps(_timers())),
    )


@st.composite
def _awaiting_approval(draw: st.DrawFn) -> State:
    book = draw(_books())
    before = draw(_rounds(book, min_running=0, max_running=0).filter(lambda round_: bool(round_.queued)))
    first = before.queued[0].model_copy(update={"approval": True})
    calls = tuple(first if call.call_id == first.call_id else call for call in before.calls)
    return AwaitingApproval(
        book=book,
        turn=draw(_turns(book)),
        inbox=draw(_inboxes(book)),
        call=first,
        round=before.model_copy(update={"calls": calls}),
        since=draw(instants()),
        deadline=draw(perhaps(_timers())),
    )


@st.composite
def _failed(draw: st.DrawFn) -> State:
    book = draw(_books())
    return Failed(book=book, kind=draw(_kinds()), sentence=draw(texts()), turn=book.turn, inbox=draw(_inboxes(book)))


@st.composite
def _cancelling(draw: st.DrawFn) -> State:
    book = draw(_books())
    return Cancelling(
        book=book,
        turn=draw(_turns(book)),
        inbox=draw(_inboxes(book)),
        round=draw(_rounds(book, min_running=1, max_running=4)),
        deadline=draw(_timers()),
        closing=draw(st.booleans()),
    )


def _states_of(kind: type[State]) -> SearchStrategy[State]:
    made: dict[type[State], SearchStrategy[State]] = {
        Idle: st.builds(Idle, book=_books()),
        LlmRequesting: _llm_requesting(),
        RetryWaiting: _retry_waiting(),
        ToolExecuting: _tool_executing(),
        AwaitingUserResponse: _awaiting_user_response(),
        AwaitingApproval: _awaiting_approval(),
        Cancelling: _cancelling(),
        Failed: _failed(),
        Closed: st.builds(Closed, book=_books()),
    }
    return made[kind]


# --- traces


@st.composite
def traces(
    draw: st.DrawFn, rules: SearchStrategy[Policy] | None = None, *, max_size: int = 30
) -> tuple[Observation, ...]:
    """Conversations from their first event on, under the rules given or under any, up to `max_size` events long."""
    history = History()
    now = NOON
    history.take(Opened(event_id="opened", at=now, policy=draw(policies() if rules is None else rules)))
    sizes = st.sampled_from([*range(max_size), *[max_size - 1] * max_size])
    for number in range(draw(sizes)):
        now += timedelta(seconds=draw(st.sampled_from([1.0, 0.0, 30.0, -1.0])))
        event = _event(draw, history.state)
        changes: dict[str, Any] = {"at": now}
        if isinstance(event, Request):
            changes["event_id"] = f"request-{number}"
        history.take(changed(event, **changes))
    return tuple(history.observations)
