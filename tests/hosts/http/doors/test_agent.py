"""Runs of the HttpAgent of the npm package @ag-ui/client, which verifies the order of events itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ....support.http.live_server import LiveServer
from ....support.npm.node_packages import NodePackages

pytestmark = pytest.mark.slow

AGENT = Path(__file__).with_name("agent.mjs")


@pytest.fixture(scope="module")
def reports(server: LiveServer, npm: NodePackages) -> dict[str, Any]:
    """What the agent received in each scenario."""
    reports: dict[str, Any] = json.loads(npm.program(AGENT, f"{server.url}/agui"))
    return reports


def types(run: dict[str, Any]) -> list[str]:
    """The types of the events of a run, without those of the state."""
    return [event["type"] for event in run["events"] if not event["type"].startswith("STATE_")]


def contents(report: dict[str, Any]) -> list[tuple[str, Any]]:
    """The messages that the agent holds at the end."""
    return [(message["role"], message.get("content")) for message in report["messages"]]


def test_a_message_is_answered(reports: dict[str, Any]) -> None:
    """The text arrives as one message, and the thread goes on with the next one."""
    report = reports["says"]
    first, second = report["runs"]

    assert types(first)[:2] == ["RUN_STARTED", "TEXT_MESSAGE_START"]
    assert types(first)[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert first["result"]["reply"] == "Hello"
    assert first["events"][-1]["usage"][0]["totalTokens"] == 10
    assert contents(report)[1] == ("assistant", "Hello")
    assert json.loads(second["result"]["reply"])[-3:] == ["user", "assistant", "user"]


def test_the_state_of_the_client_is_kept(reports: dict[str, Any]) -> None:
    """The conversation stands beside it, under `turnwise`, as it is at the end of the run."""
    state = reports["says"]["state"]

    assert state["page"] == 3
    assert state["turnwise"]["state"] == {"type": "idle", "data": {"turn": 2}}
    assert state["turnwise"]["conversation"].startswith("says-")


def test_a_tool_is_shown(reports: dict[str, Any]) -> None:
    """The call, its arguments and its result, between the texts before and after."""
    (run,) = reports["looks"]["runs"]
    shown = [name for name in types(run) if name != "TEXT_MESSAGE_CONTENT"]
    arguments = next(event["delta"] for event in run["events"] if event["type"] == "TOOL_CALL_ARGS")

    assert shown == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert json.loads(arguments) == {"place": "Kyoto"}
    assert ("tool", "found Kyoto") in contents(reports["looks"])


def test_thoughts_are_reasoning(reports: dict[str, Any]) -> None:
    """What the model thinks is apart from what it says."""
    assert contents(reports["thinks"])[1:] == [("reasoning", "Hmm."), ("assistant", "Well")]


def test_a_question_is_an_interrupt(reports: dict[str, Any]) -> None:
    """It can be shown with its text alone, or built from the questions and the schema; the resume answers it."""
    asked, answered = reports["asks"]["runs"]
    (interrupt,) = asked["interrupts"]

    assert (interrupt["reason"], interrupt["message"]) == (
        "input_required",
        "Which airport?\n1. Haneda\n2. Narita: far",
    )
    assert interrupt["responseSchema"]["properties"]["answers"]["required"] == ["Which airport?"]
    assert interrupt["metadata"]["turnwise"]["questions"][0]["options"][0] == {"label": "Haneda"}
    assert interrupt["toolCallId"] in {event.get("toolCallId") for event in asked["events"]}
    assert "TOOL_CALL_START" not in types(answered)
    assert "Narita" in answered["result"]["reply"]
    assert answered["interrupts"] == []


def test_a_cancelled_interrupt_declines(reports: dict[str, Any]) -> None:
    """The rules say what follows; here the turn is cancelled."""
    _, declined = reports["declines"]["runs"]

    assert declined["events"][-1]["outcome"] == {"type": "cancelled"}


def test_an_approval_is_an_interrupt(reports: dict[str, Any]) -> None:
    """It is bound to the call, whose arguments may be replaced."""
    asked, approved = reports["approves"]["runs"]
    (interrupt,) = asked["interrupts"]

    assert interrupt["reason"] == "tool_call"
    assert "TOOL_CALL_START" in types(asked)
    assert "TOOL_CALL_START" not in types(approved)
    assert "booked Kobe" in approved["result"]["reply"]
    assert "editedArgs" in interrupt["responseSchema"]["properties"]


def test_a_failed_turn_is_an_error(reports: dict[str, Any]) -> None:
    """With the sentence of the failure."""
    (run,) = reports["fails"]["runs"]

    assert run["error"] == {"code": "turn_failed", "message": "The provider refused."}


def test_tools_of_the_client_are_refused(reports: dict[str, Any]) -> None:
    """The engine runs tools of its own only, and says so."""
    (run,) = reports["offers"]["runs"]

    assert run["error"]["code"] == "unsupported_tools"
