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
from .lines import counted, one_line, with_images

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


def _wake_up(event: WakeUp) -> str:
    return event.text


def _mail(event: AgentMessage) -> str:
    return f"{event.origin}: {event.text}"


def _asked_by_child(event: SubAgentAsked) -> str:
    questions = "; ".join(question.question for question in event.questions or ()) or "no longer asks"
    return f"{event.effect_id}: {questions}"


def _outcome(event: SubAgentFinished) -> str:
    text = f": {event.outcome}" if event.outcome else ""
    return f"{event.effect_id} {event.status}{text}"


def _profile(event: ProfileTransferred) -> str:
    return event.profile


def _message(event: UserMessage) -> str:
    return with_images(event.text, len(event.images))


def _answers(event: UserQuestionResponse) -> str:
    written = {text: answer if isinstance(answer, str) else ", ".join(answer) for text, answer in event.answers.items()}
    return "; ".join(f"{text} {answer}" for text, answer in written.items())


def _approval(event: ToolApproval) -> str:
    decision = "allowed" if event.allowed else "denied"
    who = "" if event.by is None else f" by {event.by}"
    return f"{decision}{who}: {event.note}" if event.note and not event.allowed else f"{decision}{who}"


def _response(event: LlmResponse) -> str:
    calls = " ".join(f"{call.name}({call.raw_arguments})" for call in event.tool_calls)
    return " → ".join(part for part in (event.content, calls) if part)


def _questions(event: AskUserQuestionPending) -> str:
    return " ".join(question.question for question in event.questions)


def _result(event: ToolComplete) -> str:
    text = with_images(event.result.text, len(event.result.images))
    return f"failed: {text}" if event.result.error else text


def _interrupted(event: ToolInterrupted) -> str:
    return event.call_id


def _restricted(event: CallRestricted) -> str:
    by = " of the operator" if event.approval_by == "operator" else ""
    approval = f", needs approval{by}" if event.approval else ""
    return f"{event.call_id} {event.crash.replace('_', ' ')}{approval}"


def _reconciled(event: ToolReconciled) -> str:
    return event.verdict.replace("_", " ")


def _resolved(event: DoubtResolved) -> str:
    return f"{event.call_id} {event.verdict.replace('_', ' ')}"


def _checked(event: WorkVerified) -> str:
    verdict = "passed" if event.passed else "failed"
    return f"{verdict}: {text}" if (text := event.texts[0]) else verdict


def _summary(event: HistoryCompacted | TurnSummarized) -> str:
    return event.summary


def _failure(event: LlmFailed | EffectFailed) -> str:
    return event.sentence


_SUMMARIES: Mapping[type[Event], Callable[[Any], str]] = {
    DoubtResolved: _resolved,
    ToolInterrupted: _interrupted,
    CallRestricted: _restricted,
    ToolReconciled: _reconciled,
    Opened: _opened,
    ScheduleChanged: _schedule,
    WakeUp: _wake_up,
    AgentMessage: _mail,
    SubAgentAsked: _asked_by_child,
    SubAgentFinished: _outcome,
    ProfileTransferred: _profile,
    UserMessage: _message,
    UserQuestionResponse: _answers,
    ToolApproval: _approval,
    LlmResponse: _response,
    AskUserQuestionPending: _questions,
    ToolComplete: _result,
    WorkVerified: _checked,
    HistoryCompacted: _summary,
    TurnSummarized: _summary,
    LlmFailed: _failure,
    EffectFailed: _failure,
}
