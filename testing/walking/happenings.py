"""What can happen to a state, made up at random by hand: fast, and fitting more often than not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from random import Random
from typing import Any

from ...states.events import (
    AgentMessage,
    Answer,
    AskUserQuestionPending,
    CloseRequested,
    CompactionRequested,
    DeadlineReached,
    DoubtResolved,
    EffectFailed,
    Event,
    HistoryCompacted,
    LlmFailed,
    LlmResponse,
    MemoryRecalled,
    MessageWithdrawn,
    Opened,
    PolicyChanged,
    ProfileSelected,
    Resumed,
    RetryDue,
    RetryRequested,
    SubAgentFinished,
    ToolAborted,
    ToolApproval,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    TurnSummarized,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    WorkVerified,
)
from ...states.states import AwaitingApproval, AwaitingUserResponse, InDoubt, State
from ...states.values.acts import Act, AgentMail, Speech, SubAgents, WorkComplete
from ...states.values.messages import ToolCall, ToolResult, Usage
from ...states.values.questions import QuestionOption, UserQuestion
from ...states.values.round import RoundCall
from .rules import WINDOW, some_policy, theme_of

SELDOM = 0.02
"""How often closing is tried: nothing happens after it."""

_QUESTION = UserQuestion(question="Which?", options=(QuestionOption(label="This"), QuestionOption(label="That")))
_SMALL, _LARGE = Usage(input_tokens=8, output_tokens=2), Usage(input_tokens=WINDOW)

_TOOLS: tuple[dict[str, Any], ...] = (
    {"name": "look", "crash": "pure"},
    {"name": "pay"},
    {"name": "book", "crash": "reconcile"},
    {"name": "save", "crash": "idempotent"},
    {"name": "break", "fault": "There is no such tool."},
    {"name": "order", "approval": True, "crash": "reconcile"},
    {"name": "ask", "exclusive": True, "acts": ("question",), "crash": "pure"},
    {"name": "ask_beside", "acts": ("question",)},
    {"name": "talk", "exclusive": True, "acts": ("speech",)},
    {"name": "respond", "acts": ("speech", "mail")},
    {"name": "finish", "acts": ("work_complete",)},
    {"name": "spawn", "exclusive": True, "acts": ("children",), "crash": "pure"},
)


class Happenings:
    """Makes events for the states of one walk. The same seed gives the same events for the same states."""

    def __init__(self, seed: int) -> None:
        self._chance = chance = Random(seed)
        self._theme = theme_of(seed)
        self._made = 0
        few = chance.sample(_TOOLS, k=chance.choice((1, 2, 3, 6)))  # so that the same meet again
        self._tools = [tool for tool in _TOOLS if tool["name"] in self._theme.tools] or few

    def candidates(self, state: State, at: datetime) -> list[Event]:
        """Events that may happen now: each answer that is awaited, in two ways, a report, and some requests."""
        answers = [
            self._answer(kind, effect_id, state, at)
            for effect_id, kinds in state.awaited().items()
            for kind in kinds
            for _ in range(3 if kind in (LlmResponse, ToolComplete) else 1)
        ]
        closes = [self._close(state, at)] if self._chance.random() < SELDOM else []
        requests = [*closes, *(make(self, state, at) for make in self._chance.sample(_REQUESTS, k=4))]
        found = [*answers, *requests, *self._reports(state, at)]
        self._chance.shuffle(found)
        return found

    def requests(self, state: State, at: datetime) -> list[Event]:
        """A request of every kind, most of which are refused here."""
        event_id = self._id("try")
        return [
            *(make(self, state, at) for make in _REQUESTS),
            self._close(state, at),
            Opened(event_id=event_id, at=at),
            RetryRequested(event_id=event_id, at=at),
            UserMessage(event_id=event_id, at=at, text="Hello", when_busy="refuse"),
            UserCancel(event_id=event_id, at=at, turn=state.book.turn + 1),
            MessageWithdrawn(event_id=event_id, at=at, message_id="nobody"),
            UserQuestionResponse(event_id=event_id, at=at, answers={}),
            ToolApproval(event_id=event_id, at=at, call_id="nobody", allowed=True),
            DoubtResolved(event_id=event_id, at=at, call_id="nobody", verdict="ran"),
        ]

    # --- reports

    def _reports(self, state: State, at: datetime) -> Iterator[Event]:
        if Resumed in state.HEEDS:
            yield Resumed(at=at)
        if ToolInterrupted in state.HEEDS and (running := state.round.running):  # type: ignore[attr-defined]
            yield ToolInterrupted(at=at, call_id=self._chance.choice(running).call_id)

    # --- answers

    def _answer(self, kind: type[Answer], effect_id: int, state: State, at: datetime) -> Answer:
        return _ANSWERS[kind](self, state, {"effect_id": effect_id, "at": at})

    def _response(self, state: State, common: dict[str, Any]) -> Answer:
        style = self._chance.choice(("text", "calls", "calls", "calls", "empty", "thinking", "cut off"))
        usage = _LARGE if self._chance.random() < 0.2 else _SMALL
        calls = self._calls() if style == "calls" or (style == "cut off" and self._chance.random() < 0.5) else ()
        return LlmResponse(
            **common,
            content="Well." if style in ("text", "cut off") else "",
            thinking="Hm." if style == "thinking" else "",
            tool_calls=calls,
            finish_reason="length" if style == "cut off" else "stop",
            usage=usage,
        )

    def _calls(self) -> tuple[ToolCall, ...]:
        several = self._chance.choice((1, 1, 2, 3))
        return tuple(ToolCall(call_id=self._id("call"), **self._chance.choice(self._tools)) for _ in range(several))

    def _result(self, state: State, common: dict[str, Any]) -> ToolResult:
        call: RoundCall = state.round.call(common["effect_id"])  # type: ignore[attr-defined]
        if self._chance.random() < 0.1:
            return ToolResult(text="Error", error=True)
        return ToolResult(text="Done", acts=tuple(self._act(kind, call) for kind in call.acts if kind != "question"))

    def _act(self, kind: str, call: RoundCall) -> Act:
        match kind:
            case "speech":
                return Speech(
                    text=self._chance.choice(("Hello", "Hello", "")), when="now" if call.exclusive else "turn_end"
                )
            case "work_complete":
                return WorkComplete(summary="It is done.")
            case "mail":
                return AgentMail(target="other", text="Listen.")
            case _:
                return SubAgents(tasks=("one", "two")[: self._chance.choice((1, 2))])

    def _complete(self, state: State, common: dict[str, Any]) -> Answer:
        return ToolComplete(**common, result=self._result(state, common))

    def _reconciled(self, state: State, common: dict[str, Any]) -> Answer:
        verdict: Any = self._chance.choice(("ran", "did_not_run", "unknown"))
        return ToolReconciled(
            **common, verdict=verdict, result=self._result(state, common) if verdict == "ran" else None
        )

    def _failed(self, state: State, common: dict[str, Any]) -> Answer:
        kind: Any = self._chance.choice(("timeout", "timeout", "authentication", "context_window"))
        return LlmFailed(**common, kind=kind, sentence="It failed.")

    def _broke(self, state: State, common: dict[str, Any]) -> Answer:
        kind: Any = self._chance.choice(("timeout", "timeout", "internal", "context_window"))
        return EffectFailed(**common, kind=kind, sentence="It broke.")

    def _verdict(self, state: State, common: dict[str, Any]) -> Answer:
        return WorkVerified(**common, passed=self._chance.random() < 0.5, reason="Look again.")

    # --- requests

    def _message(self, state: State, at: datetime) -> Event:
        when: Any = self._chance.choice((None, "queue", "steer"))
        return UserMessage(event_id=self._id("say"), at=at, text="Hello", when_busy=when)

    def _agent_message(self, state: State, at: datetime) -> Event:
        audience: Any = self._chance.choice(("user", "agent"))
        silent = self._chance.random() < 0.4
        return AgentMessage(
            event_id=self._id("mail"), at=at, origin="other", text="News", audience=audience, silent=silent
        )

    def _withdrawal(self, state: State, at: datetime) -> Event:
        waiting = [one.event_id for one in getattr(state, "inbox", ())] or ["nobody"]
        return MessageWithdrawn(event_id=self._id("take back"), at=at, message_id=self._chance.choice(waiting))

    def _person(self, state: State, at: datetime) -> Event:
        """What the state waits for a person to do, or a cancel."""
        event_id = self._id("do")
        if isinstance(state, AwaitingUserResponse):
            answers: Any = {question.question: "This" for question in state.questions}
            return UserQuestionResponse(event_id=event_id, at=at, answers=answers)
        if isinstance(state, AwaitingApproval):
            allowed = self._chance.random() < 0.7
            return ToolApproval(event_id=event_id, at=at, call_id=state.call.call_id, allowed=allowed)
        if isinstance(state, InDoubt):
            verdict: Any = self._chance.choice(("ran", "did_not_run", "again"))
            return DoubtResolved(event_id=event_id, at=at, call_id=state.call.call_id, verdict=verdict)
        return RetryRequested(event_id=event_id, at=at)

    def _cancel(self, state: State, at: datetime) -> Event:
        return UserCancel(event_id=self._id("stop"), at=at)

    def _rules(self, state: State, at: datetime) -> Event:
        return PolicyChanged(event_id=self._id("rules"), at=at, policy=some_policy(self._chance, self._theme))

    def _condense(self, state: State, at: datetime) -> Event:
        return CompactionRequested(event_id=self._id("condense"), at=at)

    def _close(self, state: State, at: datetime) -> Event:
        return CloseRequested(event_id=self._id("close"), at=at)

    def _id(self, what: str) -> str:
        self._made += 1
        return f"{what} {self._made}"


_REQUESTS: tuple[Callable[[Happenings, State, datetime], Event], ...] = (
    Happenings._message,
    Happenings._agent_message,
    Happenings._withdrawal,
    Happenings._person,
    Happenings._cancel,
    Happenings._rules,
    Happenings._condense,
)

_ANSWERS: dict[type[Answer], Callable[[Happenings, State, dict[str, Any]], Answer]] = {
    LlmResponse: Happenings._response,
    LlmFailed: Happenings._failed,
    EffectFailed: Happenings._broke,
    ToolComplete: Happenings._complete,
    ToolReconciled: Happenings._reconciled,
    WorkVerified: Happenings._verdict,
    ProfileSelected: lambda self, state, common: ProfileSelected(**common, profile="two"),
    MemoryRecalled: lambda self, state, common: MemoryRecalled(**common, block="Once upon a time"),
    AskUserQuestionPending: lambda self, state, common: AskUserQuestionPending(**common, questions=(_QUESTION,)),
    ToolAborted: lambda self, state, common: ToolAborted(**common),
    SubAgentFinished: lambda self, state, common: SubAgentFinished(**common, outcome="Found it."),
    TurnSummarized: lambda self, state, common: TurnSummarized(**common, summary="In short."),
    HistoryCompacted: lambda self, state, common: HistoryCompacted(**common, summary="So far."),
    RetryDue: lambda self, state, common: RetryDue(**common),
    DeadlineReached: lambda self, state, common: DeadlineReached(**common),
}
