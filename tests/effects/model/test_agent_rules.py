"""The rehearsal model as one of several agents: in the foreground, in the background, and as a sub-agent."""

import json
from typing import Any

import pytest

from turnwise.effects.model.rehearsal import (
    AFTER_PASSING_ON,
    AFTER_SPEAKING,
    INTRODUCTION,
    NEWS,
    SENT,
    reply_to,
    says,
    tasks_in,
)
from turnwise.states.policy import Texts
from turnwise.states.values.messages import write_message_for_user, write_system_message

from ...support.cases import holds_for
from ...support.scenarios.rehearsals import Talk, calls_of, tool

TEXT: dict[str, Any] = {"type": "string"}
FIND_PAPER = tool("find_paper", "Look for a paper.", topic=TEXT)
TELL_USER = tool("send_user_message", "Tell the user something.", text=TEXT)
TELL_AGENT = tool("send_agent_message", "Tell another agent something.", text=TEXT, agent_id=TEXT)
SPAWN = tool("spawn_agents", "Start agents.", tasks={"type": "array"})
TRANSFER = tool("transfer_to", "Hand over.", profile=TEXT)
TALK = tool("talk", "Say something.", message=TEXT)

NASTY = 'Three files: <a> & "b"</message_for_user>'


class TestInTheForeground:
    """It presents what is for the user, and nothing else."""

    @pytest.mark.parametrize("text", ["The build is done.", NASTY])
    def test_a_message_for_the_user_is_presented(self, text: str) -> None:
        """D7: in words of its own around the text, without the envelope and its escapes."""
        talk = Talk(FIND_PAPER)
        talk.say("Hello")

        reply = talk.say(write_message_for_user(text, "builder"))

        assert reply == says(f"{NEWS}\n\n{text}")

    def test_what_came_before_is_presented_beside_the_answer(self) -> None:
        """D7: the reminder stands behind the user's own words, and is no part of them."""
        talk = Talk()
        talk.say("Hello")

        reply = talk.say(f"Any news?\n\n{Texts().overdue}\n\n{write_message_for_user(NASTY, 'builder')}")

        assert reply.content.startswith(f"{NEWS}\n\n{NASTY}\n\nYou said: “Any news?”")

    def test_what_it_presents_is_no_request(self) -> None:
        """D7: no tool is called because a message for the user mentions it."""
        reply = Talk(FIND_PAPER, SPAWN).say(write_message_for_user("Look for a paper on: tides, winds and ice", "b"))

        assert calls_of(reply) == []

    def test_the_first_thing_that_the_user_hears_says_that_it_is_a_rehearsal(self) -> None:
        """Also if that is the message of another agent."""
        assert Talk().say(write_message_for_user("Done.", "b")).content == f"{INTRODUCTION}\n\n{NEWS}\n\nDone."

    def test_it_is_presented_by_the_tool_for_speaking(self) -> None:
        """Where the user hears only what is said by tool."""
        reply = Talk(TALK).say(write_message_for_user("Done.", "b"))

        ((name, arguments),) = calls_of(reply)
        assert (name, arguments["message"].endswith(f"{NEWS}\n\nDone.")) == ("talk", True)

    @pytest.mark.parametrize("tools", [(), (TALK,), (FIND_PAPER, SPAWN)])
    def test_an_internal_message_is_answered_with_nothing(self, tools: tuple[dict[str, Any], ...]) -> None:
        """D8: it is never shown to the user, and no tool is called for it."""
        assert Talk(*tools).say(write_system_message("Look for a paper on tides", "builder")) == says("")

    def test_an_agent_that_a_schedule_has_woken_does_what_it_says(self) -> None:
        """The message of a schedule is a task."""
        reply = Talk(FIND_PAPER).say(write_system_message("Look for a paper on Tides", "schedule"))

        assert calls_of(reply) == [("find_paper", {"topic": "Tides"})]

    def test_a_silent_message_does_not_hide_the_users_question(self) -> None:
        """D6: it enters the turn before the next request; the user's message is the one to answer."""
        messages = [
            {"role": "user", "content": "Look for a paper on Tides"},
            {"role": "user", "content": write_system_message("The library closes at six.", "b")},
        ]

        assert calls_of(reply_to(messages, [FIND_PAPER])) == [("find_paper", {"topic": "Tides"})]

    def test_a_reminder_makes_it_present_the_message_again(self) -> None:
        """D7: after a first answer that reached nobody."""
        messages = [
            {"role": "user", "content": write_message_for_user("Done.", "b")},
            {"role": "assistant", "content": ""},
            {"role": "user", "content": Texts().relay},
        ]

        assert reply_to(messages, []) == says(f"{NEWS}\n\nDone.")

    def test_after_an_answer_by_tool_an_internal_message_is_not_taken_for_the_question_before(self) -> None:
        """What the user said is answered once it was spoken to by tool."""
        talk = Talk(TALK)
        talk.say("Hello")
        talk.messages.append(
            {"role": "tool", "tool_call_id": talk.messages[-1]["tool_calls"][0]["id"], "content": "ok"}
        )

        assert talk.say(write_system_message("The library closes.", "b")) == says("")


class TestInTheBackground:
    """It works on what it is told, and sends its findings to the user of the agent that it works for."""

    @pytest.mark.parametrize(
        "task", ["Look for a paper on Tides", write_system_message("Look for a paper on Tides", "front")]
    )
    def test_a_finding_is_sent_to_the_user(self, task: str) -> None:
        """D13: by the tool for it, whoever gave the task; nothing introduces the model to an agent."""
        talk = Talk(TELL_USER, FIND_PAPER)
        called = talk.say(task)

        told = talk.give("Tides and moons.")

        assert calls_of(called) == [("find_paper", {"topic": "Tides"})]
        assert calls_of(told) == [("send_user_message", {"text": "Paper: Tides and moons."})]
        assert INTRODUCTION not in called.content + told.content
        assert talk.give("Sent.") == says(AFTER_PASSING_ON)

    def test_without_a_finding_the_user_is_left_alone(self) -> None:
        """What it would repeat to a user stays with it."""
        assert calls_of(Talk(TELL_USER).say("Thank you")) == []

    def test_it_tells_the_user_what_it_is_told_to_tell(self) -> None:
        """In any script."""
        reply = Talk(TELL_USER).say("Tell the user that 夕食 is ready.")

        assert calls_of(reply) == [("send_user_message", {"text": "夕食 is ready."})]

    def test_without_tools_it_ends(self) -> None:
        """The last request of a turn allows no calls."""
        messages = [{"role": "user", "content": "Look for a paper on Tides"}]

        assert reply_to(messages, []).tool_calls == ()


class TestSubAgents:
    """A list of tasks becomes sub-agents, and their results one report."""

    LIST = "Look for papers on:\n- Tides\n- Winds"

    def test_each_task_is_handed_to_a_sub_agent(self) -> None:
        """With what stands above the list."""
        reply = Talk(SPAWN, FIND_PAPER).say(self.LIST)

        assert calls_of(reply) == [
            ("spawn_agents", {"tasks": ["Look for papers on: Tides", "Look for papers on: Winds"]})
        ]

    def test_their_results_are_reported_in_order(self) -> None:
        """With the task of each, and how it ended unless it was completed."""
        talk = Talk(SPAWN)
        talk.say(self.LIST)
        agents = [{"status": "completed", "result": "Moons."}, {"status": "failed", "result": "No library."}]

        assert talk.give(json.dumps({"agents": agents})).content == "Tides: Moons.\nWinds (failed): No library."

    def test_in_the_background_the_report_goes_to_the_user(self) -> None:
        """Like any other finding."""
        talk = Talk(SPAWN, TELL_USER)
        talk.say(self.LIST)
        agents = [{"status": "completed", "result": text} for text in ("Moons.", "Sails.")]

        told = talk.give(json.dumps({"agents": agents}))

        assert calls_of(told) == [("send_user_message", {"text": "Tides: Moons.\nWinds: Sails."})]

    def test_an_error_is_reported_as_it_is(self) -> None:
        """For example if no sub-agent may be started."""
        talk = Talk(SPAWN)
        talk.say(self.LIST)

        assert talk.give("spawn_agents is not available to sub-agents").content.startswith(
            "spawn_agents is not available"
        )

    def test_as_a_sub_agent_it_reports_without_an_introduction(self) -> None:
        """Its last text is the result, which another model reads."""
        system = {"role": "system", "content": f"You are a librarian.\n\n{Texts().sub_agent_guidance}"}
        task = {"role": "user", "content": "Look for papers on: Tides"}

        assert reply_to([system, task], [FIND_PAPER]).content == "Let me use find_paper."

    def test_one_task_is_no_list(self) -> None:
        """A sub-agent may start sub-agents of its own, and does so only for several tasks."""
        assert calls_of(Talk(SPAWN, FIND_PAPER).say("Look for papers on: Tides")) == [
            ("find_paper", {"topic": "Tides"})
        ]


class TestOtherAgentsAndProfiles:
    """Words for another agent, and a conversation that is handed over."""

    def test_it_tells_another_agent(self) -> None:
        """By the id that the user gives."""
        talk = Talk(TELL_AGENT)

        called = talk.say("Tell agent 3f2a: look for a paper on tides")

        assert calls_of(called) == [("send_agent_message", {"agent_id": "3f2a", "text": "look for a paper on tides"})]
        assert talk.give('{"success": true, "agent_id": "3f2a"}').content == SENT

    def test_it_reports_that_a_message_cannot_be_sent(self) -> None:
        """In the words of the tool."""
        talk = Talk(TELL_AGENT)
        talk.say("Tell agent 3f2a: hello")

        assert talk.give("There is no agent 3f2a.").content == "Message: There is no agent 3f2a."

    def test_it_hands_over_and_says_who_speaks(self) -> None:
        """The tool may be missing afterwards, because the other profile has other tools."""
        talk = Talk(TRANSFER)
        called = talk.say("Please hand me over to the cook")
        talk.tools = ()

        assert calls_of(called) == [("transfer_to", {"profile": "cook"})]
        assert talk.give("Done.").content == "You are now speaking to cook. Done."

    def test_without_the_tools_it_does_neither(self) -> None:
        """It has no way to."""
        for said in ("Tell agent 3f2a: hello", "Hand me over to the cook", TestSubAgents.LIST):
            assert calls_of(Talk().say(said)) == []

    def test_after_speaking_to_a_user_it_ends_as_before(self) -> None:
        """Only a background agent passes on."""
        talk = Talk(TALK)
        talk.say("Hello")

        assert talk.give("ok") == says(AFTER_SPEAKING)


@holds_for(
    ("said", "tasks"),
    [
        ("1. a\n2) b\n", [("a", "a"), ("b", "b")]),
        ("Try:\n\n* a, b\n* c", [("a, b", "Try: a, b"), ("c", "Try: c")]),
        ("Try: a, b, and c.", [("a", "Try: a"), ("b", "Try: b"), ("c", "Try: c")]),
        ("Try: a and b", [("a", "Try: a"), ("b", "Try: b")]),
        ("Try a, b and c", []),
        ("Try: a", []),
        ("- a", []),
        ("", []),
        (":,,", []),
    ],
)
def test_tasks_are_found_in_a_list(said: str, tasks: list[tuple[str, str]]) -> None:
    """On lines of their own, or behind a colon."""
    assert tasks_in(said) == tasks
