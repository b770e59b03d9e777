"""The events of a log as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ....states.events import (
    AgentMessage,
    AskUserQuestionPending,
    CallRestricted,
    DoubtResolved,
    EffectFailed,
    Event,
    HistoryCompacted,
    LlmFailed,
    LlmResponse,
    Opened,
    ProfileTransferred,
    ScheduleChanged,
    SubAgentAsked,
    SubAgentFinished,
    ToolApproval,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    TurnSummarized,
    UserMessage,
    UserQuestionResponse,
    WakeUp,
    WorkVerified,
)
from ....states.step import LogEntry
from ....states.values.acts import Schedule
from .lines import counted, one_line, with_files

MAX_SUMMARY = 100
"""The most characters of an event's summary."""


def event_lines(entries: Iterable[LogEntry]) -> Iterator[str]:
    """Yield a line for each entry: its number, the type of its event, and the event's summary. `Pure.`"""
    for entry in entries:
        yield f"{entry.seq:>4}  {entry.event.type:<25}  {one_line(summary(entry.event), MAX_SUMMARY)}".rstrip()


def summary(event: Event) -> str:
    """Return what an event says in short, or an empty text if its type says everything. `Pure.`"""
    summarize = _SUMMARIES.get(type(event))
    return summarize(event) if summarize is not None else ""


def _opened(event: Opened) -> str:
    history = f", begins with {counted(len(event.messages), 'message')}" if event.messages else ""
    schedule = f", {_rhythm(event.schedule)}" if event.schedule is not None else ""
    return f"model {event.policy.models[0].name}{schedule}{history}"


def _rhythm(schedule: Schedule) -> str:
    if schedule.every is not None:
        return f"every {schedule.every:g} s"
    return f"cron {schedule.cron} {schedule.zone}"


def _schedule(event: ScheduleChanged) -> str:
    return "none" if event.schedule is None else f"{_rhythm(event.schedule)}: {event.schedule.task}"


def _asked_by_child(event: SubAgentAsked) -> str:
    return f"{event.effect_id}: {'; '.join(one.question for one in event.questions or ()) or 'no longer asks'}"


def _answers(event: UserQuestionResponse) -> str:
    written = {text: answer if isinstance(answer, str) else ", ".join(answer) for text, answer in event.answers.items()}
    return "; ".join(f"{text} {answer}" for text, answer in written.items())


def _approval(event: ToolApproval) -> str:
    decision = "allowed" if event.allowed else "denied"
    who = "" if event.by is None else f" by {event.by}"
    return _with_reason(f"{decision}{who}", event.note if not event.allowed else None)


def _response(event: LlmResponse) -> str:
    calls = " ".join(f"{call.name}({call.raw_arguments})" for call in event.tool_calls)
    return " → ".join(part for part in (event.content, calls) if part)


def _result(event: ToolComplete) -> str:
    text = with_files(event.result.text, event.result.files)
    return f"failed: {text}" if event.result.error else text


def _restricted(event: CallRestricted) -> str:
    by = " of the operator" if event.approval_by == "operator" else ""
    approval = f", needs approval{by}" if event.approval else ""
    return f"{event.call_id} {_words(event.crash)}{approval}"


def _with_reason(outcome: str, reason: str | None) -> str:
    return f"{outcome}: {reason}" if reason else outcome


def _words(name: str) -> str:
    return name.replace("_", " ")


_SUMMARIES: Mapping[type[Event], Callable[[Any], str]] = {
    DoubtResolved: lambda event: f"{event.call_id} {_words(event.verdict)}",
    ToolInterrupted: lambda event: event.call_id,
    CallRestricted: _restricted,
    ToolReconciled: lambda event: _words(event.verdict),
    Opened: _opened,
    ScheduleChanged: _schedule,
    WakeUp: lambda event: event.text,
    AgentMessage: lambda event: f"{event.origin}: {event.text}",
    SubAgentAsked: _asked_by_child,
    SubAgentFinished: lambda event: _with_reason(f"{event.effect_id} {event.status}", event.outcome),
    ProfileTransferred: lambda event: event.profile,
    UserMessage: lambda event: with_files(event.text, event.files),
    UserQuestionResponse: _answers,
    ToolApproval: _approval,
    LlmResponse: _response,
    AskUserQuestionPending: lambda event: " ".join(question.question for question in event.questions),
    ToolComplete: _result,
    WorkVerified: lambda event: _with_reason("passed" if event.passed else "failed", event.texts[0]),
    HistoryCompacted: lambda event: event.summary,
    TurnSummarized: lambda event: event.summary,
    LlmFailed: lambda event: event.sentence,
    EffectFailed: lambda event: event.sentence,
}
