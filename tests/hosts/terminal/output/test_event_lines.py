"""The lines of `turnwise show --events`: what each event says in short."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from turnwise import Schedule
from turnwise.hosts.terminal.output.event_lines import MAX_SUMMARY, summary
from turnwise.states import (
    AgentMessage,
    CallRestricted,
    ChoiceQuestion,
    Event,
    Opened,
    ProfileTransferred,
    QuestionOption,
    ScheduleChanged,
    SubAgentAsked,
    SubAgentFinished,
    WakeUp,
)

from ....support.walks import NOON

HOURLY = Schedule(every=3600, task="Look around.")
DAILY = Schedule(cron="30 8 * * MON-FRI", zone="Europe/Berlin", task="Read the news.")


def of(kind: type[Event], **fields: Any) -> Event:
    """An event of this type."""
    return kind.model_validate({"type": kind.model_fields["type"].default, "event_id": "1", "at": NOON, **fields})


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (of(Opened, schedule=HOURLY), "model default, every 3600 s"),
        (of(ScheduleChanged, schedule=DAILY), "cron 30 8 * * MON-FRI Europe/Berlin: Read the news."),
        (of(ScheduleChanged), "none"),
        (of(WakeUp, due=NOON, next_wake=NOON + timedelta(hours=1), text="Look around."), "Look around."),
        (of(ProfileTransferred, profile="cook"), "cook"),
    ],
    ids=lambda value: value.type if isinstance(value, Event) else "",
)
def test_events_of_schedules_and_profiles(event: Event, line: str) -> None:
    """When a conversation wakes up, what it then does, and to which profile it was handed over."""
    assert summary(event) == line
    assert len(line) < MAX_SUMMARY


WHEN = ChoiceQuestion(
    question="When?",
    header="Time",
    options=(QuestionOption(label="6 PM", description="early"), QuestionOption(label="8 PM", description="late")),
)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (AgentMessage(event_id="1", at=NOON, origin="scout", text="Rain."), "scout: Rain."),
        (SubAgentAsked(at=NOON, effect_id=7, call_id="call_1_0", questions=(WHEN,)), "7: When?"),
        (SubAgentAsked(at=NOON, effect_id=7, call_id="call_1_0"), "7: no longer asks"),
        (SubAgentFinished(at=NOON, effect_id=7, outcome="Found.", status="completed"), "7 completed: Found."),
        (SubAgentFinished(at=NOON, effect_id=7, outcome="", status="failed"), "7 failed"),
        (CallRestricted(at=NOON, call_id="call_1_0", crash="at_most_once"), "call_1_0 at most once"),
        (CallRestricted(at=NOON, call_id="call_1_0", crash="pure", approval=True), "call_1_0 pure, needs approval"),
    ],
    ids=lambda value: value.type if isinstance(value, Event) else "",
)
def test_events_of_other_agents(event: Event, line: str) -> None:
    """Who writes, what becomes of the sub-agents that each effect started, and under what another process takes a call
    over."""
    assert summary(event) == line
