"""Work that is handed to sub-agents: each outcome reaches the model once, in whatever order they finish."""

import json
from itertools import permutations
from typing import Any

import pytest

from turnwise.states import (
    Abort,
    AwaitingSubAgents,
    Cancelling,
    CancelSubAgent,
    Closed,
    ExecuteTool,
    Idle,
    Limits,
    LlmRequesting,
    NotifyParent,
    PersistMessage,
    PersistToolResults,
    Refused,
    RequestLlm,
    SpawnSubAgent,
    Speech,
    StartTimer,
    SubAgentFinished,
    SubAgents,
    Texts,
    ToolCall,
    Usage,
    presets,
)
from turnwise.states.roles import Caller

from ..support.cases import holds_for
from ..support.conversation import Conversation, asking, call, completing, responding, spawning

TEXTS = Texts()


def spawned(*tasks: str, behind: tuple[str, ...] = (), **rules: Any) -> Conversation:
    """A conversation that waits for sub-agents with these tasks; the calls `behind` stand behind the spawning call."""
    conversation = Conversation(**rules)
    conversation.says("Look into it")
    conversation.model_calls(spawning(), *behind)
    conversation.tool_spawns("spawn", *tasks)
    conversation.rests_in(AwaitingSubAgents)
    return conversation


def parts(*outcomes: tuple[str, str]) -> str:
    """The result of a call whose sub-agents ended like this: the status and the text of each."""
    agents = [{"status": status, "result": text} for status, text in outcomes]
    return json.dumps({"agents": agents}, ensure_ascii=False)


class TestWaiting:
    """P24: sub-agents finish in any order, and each outcome reaches the model exactly once."""

    def test_each_task_is_a_sub_agent_of_its_own(self) -> None:
        """The effects are exactly one spawn for each task, each with its own id, and the deadline."""
        conversation = spawned("north", "south")

        assert conversation.wanted() == [SpawnSubAgent, SpawnSubAgent, StartTimer]
        assert conversation.children() == ["north", "south"]
        assert conversation.working("north") != conversation.working("south")
        assert conversation.results() == {}

    @pytest.mark.parametrize("order", list(permutations(["a", "b", "c"])))
    def test_they_finish_in_any_order(self, order: tuple[str, ...]) -> None:
        """P24: the result holds each outcome once, in the order of the tasks."""
        conversation = spawned("a", "b", "c")
        for task in order[:2]:
            conversation.child_finishes(task, f"of {task}")
            assert conversation.wanted() == []

        conversation.child_finishes(order[2], f"of {order[2]}")

        assert conversation.wanted() == [PersistToolResults, Abort, RequestLlm]
        assert conversation.results() == {"spawn": parts(*(("completed", f"of {task}") for task in "abc"))}
        assert conversation.errors() == []

    def test_what_runs_and_what_has_finished_is_what_was_spawned(self) -> None:
        """P24, law 14: in every step, the sub-agents that work and those that have finished are all that were
        spawned."""
        conversation = spawned("a", "b", "c")

        for task in ("b", "a"):
            conversation.child_finishes(task)
            round_ = conversation.rests_in(AwaitingSubAgents).round
            finished = [child for child in round_.children if child.outcome is not None]
            assert len(finished) + len(conversation.children()) == 3

    def test_one_that_finishes_twice_counts_once(self) -> None:
        """P24: the second outcome of a sub-agent is ignored, while others work and afterwards."""
        conversation = spawned("a", "b")
        first = conversation.working("a")
        conversation.child_finishes("a", "of a")

        assert conversation.happens(SubAgentFinished, effect_id=first, outcome="again").ignored
        conversation.child_finishes("b", "of b")
        assert conversation.happens(SubAgentFinished, effect_id=first, outcome="again").ignored

        assert conversation.results() == {"spawn": parts(("completed", "of a"), ("completed", "of b"))}

    @pytest.mark.parametrize("effect_id", [0, 1, 99])
    def test_one_that_nobody_spawned_is_ignored(self, effect_id: int) -> None:
        """P24: an outcome of an unknown sub-agent is ignored, also before the conversation waits for any."""
        conversation = Conversation()
        conversation.says()

        assert conversation.happens(SubAgentFinished, effect_id=effect_id, outcome="?").ignored

    def test_how_each_ended_is_told(self) -> None:
        """The result says how each sub-agent ended; it is an error if one of them failed."""
        conversation = spawned("a", "b", "c")
        conversation.child_finishes("a", "of a")
        conversation.child_finishes("b", "It broke off.", status="failed")

        conversation.child_finishes("c", "Half of it.", status="incomplete")

        outcomes = (("completed", "of a"), ("failed", "It broke off."), ("incomplete", "Half of it."))
        assert conversation.results() == {"spawn": parts(*outcomes)}
        assert conversation.errors() == ["spawn"]

    def test_one_that_cannot_be_started_failed(self) -> None:
        """The outcome of a sub-agent that could not be started is the reason; as the last outcome it ends the wait."""
        conversation = spawned("a")

        conversation.breaks(SpawnSubAgent, "unavailable", "Nobody is free.")

        conversation.rests_in(LlmRequesting)
        assert conversation.results() == {"spawn": parts(("failed", "Nobody is free."))}

    def test_what_they_cost_is_the_turns(self) -> None:
        """The cost of the sub-agents is part of the turn's and counts against its limits."""
        conversation = spawned("a", limits=Limits(tokens=10))

        conversation.child_finishes("a", usage=Usage(output_tokens=10))

        conversation.rests_in(Idle)
        assert conversation.words(conversation.ended.final_content) == [TEXTS.limit]
        assert conversation.ended.usage == Usage(output_tokens=10)

    def test_an_outcome_may_be_empty(self) -> None:
        """An empty outcome is part of the result."""
        conversation = spawned("a")

        conversation.child_finishes("a", "")

        assert conversation.results() == {"spawn": parts(("completed", ""))}

    def test_a_claim_beside_one_that_failed_does_not_count(self) -> None:
        """S9: a claim beside a sub-agent that failed does not count."""
        conversation = Conversation(presets.explicit_response())
        conversation.says()
        conversation.model_calls(responding(), spawning(), completing())
        conversation.tool_responds("respond", "A")
        conversation.tool_spawns("spawn", "a")
        conversation.child_finishes("a", "No.", status="failed")

        conversation.tool_claims()

        assert conversation.rests_in(LlmRequesting).turn.claim is None


class TestAmongOtherCalls:
    """P24: the spawning call may stand anywhere among other calls."""

    @pytest.mark.parametrize("parallel", [1, 3])
    def test_calls_behind_it_wait(self, parallel: int) -> None:
        """P24: the calls before it end first, and those behind it run when all sub-agents have finished."""
        conversation = Conversation(parallel=parallel)
        conversation.says()
        conversation.model_calls("before", spawning(), "behind")
        assert conversation.tools() == ["before"]
        conversation.tool_ends("before")
        conversation.tool_spawns("spawn", "a")
        assert conversation.tools() == []

        conversation.child_finishes("a", "of a")

        assert conversation.wanted() == [PersistToolResults, Abort, ExecuteTool]
        conversation.tool_ends("behind")
        assert list(conversation.results()) == ["before", "spawn", "behind"]
        conversation.rests_in(LlmRequesting)

    def test_two_spawns_in_one_response(self) -> None:
        """P24: two spawning calls run one after the other, each with its own outcomes in its own result."""
        conversation = Conversation(parallel=3)
        conversation.says()
        conversation.model_calls(spawning("one"), spawning("two"))
        conversation.tool_spawns("one", "a", "b")
        conversation.child_finishes("b", "of b")
        assert conversation.tools() == []
        conversation.child_finishes("a", "of a")
        assert conversation.tools() == ["two"]
        conversation.tool_spawns("two", "c")

        conversation.child_finishes("c", "of c")

        assert conversation.results() == {
            "one": parts(("completed", "of a"), ("completed", "of b")),
            "two": parts(("completed", "of c")),
        }
        assert len(conversation.requests()) == 2

    def test_the_deadline_of_the_first_does_not_end_the_second(self) -> None:
        """P26: each spawning call has a deadline of its own."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(spawning("one"), spawning("two"))
        conversation.tool_spawns("one", "a")
        first = conversation.flying(StartTimer)
        conversation.child_finishes("a")
        assert conversation.stopped() == [first]

        conversation.tool_spawns("two", "b")

        assert conversation.flying(StartTimer) != first
        assert conversation.children() == ["b"]

    def test_a_spawn_in_each_of_two_rounds(self) -> None:
        """The sub-agents of an earlier round are not part of the next round."""
        conversation = spawned("a")
        conversation.child_finishes("a", "of a")
        conversation.model_calls(spawning("again"))
        conversation.tool_spawns("again", "b")

        conversation.child_finishes("b", "of b")

        assert conversation.results()["again"] == parts(("completed", "of b"))

    def test_a_tool_that_may_not_spawn_does_not(self) -> None:
        """A tool that does not declare sub-agents, or is not exclusive, starts none and gets an error result."""
        undeclared, shared = Conversation(), Conversation()
        for conversation, made in (
            (undeclared, call("work", exclusive=True)),
            (shared, call("work", acts=("children",))),
        ):
            conversation.says()
            conversation.model_calls(made)
            conversation.tool_spawns("work", "a")

        assert undeclared.results() == {"work": TEXTS.act_not_declared}
        assert shared.results() == {"work": TEXTS.act_not_exclusive}
        assert undeclared.children() == shared.children() == []

    def test_a_tool_does_not_spawn_beside_another_act(self) -> None:
        """A result that spawns and carries another act is an error, since the outcomes would be its result."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("work", exclusive=True, acts=("children", "speech")))

        conversation.tool_ends("work", acts=[Speech(text="A"), SubAgents(tasks=("a",))])

        assert conversation.results() == {"work": TEXTS.act_not_exclusive}
        assert conversation.rests_in(LlmRequesting).turn.said == ()

    def test_a_spawn_that_failed_spawns_nothing(self) -> None:
        """An error result starts no sub-agents."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(spawning())

        conversation.tool_ends("spawn", "No.", error=True, acts=[SubAgents(tasks=("a",))])

        conversation.rests_in(LlmRequesting)
        assert conversation.results() == {"spawn": "No."}

    def test_a_person_who_speaks_meanwhile_waits(self) -> None:
        """P37: a message that is steered in meanwhile enters before the next request."""
        conversation = spawned("a", when_busy="steer")
        conversation.says("and quickly")

        conversation.child_finishes("a", "of a")

        assert conversation.wanted() == [PersistToolResults, PersistMessage, Abort, RequestLlm]
        assert conversation.roles() == ["user", "assistant", "tool", "user"]


class TestTime:
    """P26: a sub-agent never holds its parent beyond the deadline."""

    def test_at_the_deadline_the_turn_goes_on_without_the_rest(self) -> None:
        """P26: at the deadline the sub-agents that still work are stopped; the result says who came too late and keeps
        the other outcomes."""
        conversation = spawned("a", "b")
        conversation.child_finishes("a", "of a")
        late = conversation.working("b")

        conversation.timer_rings()

        assert conversation.wanted() == [PersistToolResults, CancelSubAgent, RequestLlm]
        assert conversation.stopped() == [late]
        assert conversation.results() == {"spawn": parts(("completed", "of a"), ("cancelled", TEXTS.child_late))}
        assert conversation.errors() == ["spawn"]

    def test_one_that_finishes_after_the_deadline_is_ignored(self) -> None:
        """P24: an outcome after the deadline is ignored."""
        conversation = spawned("a")
        late = conversation.working("a")
        conversation.timer_rings()

        assert conversation.happens(SubAgentFinished, effect_id=late, outcome="of a").ignored

    def test_the_deadline_is_a_setting(self) -> None:
        """P26: `sub_agent_deadline` is half an hour by default; None waits for ever."""
        patient, default = spawned("a", sub_agent_deadline=None), spawned("a")

        deadline = default.rests_in(AwaitingSubAgents).deadline
        assert deadline is not None and (deadline.due - default.now).total_seconds() == 1800
        assert patient.rests_in(AwaitingSubAgents).deadline is None
        assert patient.wanted() == [SpawnSubAgent]


class TestCancelling:
    """A person cancels a turn whose sub-agents work."""

    def test_all_that_work_are_told_to_stop(self) -> None:
        """P26: the effects are exactly a cancel of each sub-agent, an abort of the old deadline, and a short
        deadline."""
        conversation = spawned("a", "b", "c")
        conversation.child_finishes("b", "of b")
        working = [conversation.working(task) for task in ("a", "c")]
        deadline = conversation.flying(StartTimer)

        conversation.cancels()

        conversation.rests_in(Cancelling)
        assert conversation.wanted() == [CancelSubAgent, CancelSubAgent, Abort, StartTimer]
        assert conversation.stopped() == [*working, deadline]

    def test_what_they_came_to_until_then_is_kept(self) -> None:
        """P24: after the cancel each outcome is in the result once, of those that had finished and of those that
        stop."""
        conversation = spawned("a", "b", behind=("later",))
        conversation.child_finishes("a", "of a")
        conversation.cancels()

        conversation.child_finishes("b", "stopped half-way", status="cancelled")

        conversation.rests_in(Idle)
        outcomes = (("completed", "of a"), ("cancelled", "stopped half-way"))
        assert conversation.results() == {"spawn": parts(*outcomes), "later": TEXTS.skipped}
        assert conversation.ended.status == "cancelled"

    def test_the_turn_ends_with_the_last_that_stops(self) -> None:
        """P24: the turn ends when the last sub-agent has stopped, in any order; one that fails counts as stopped."""
        conversation = spawned("a", "b")
        conversation.cancels()
        conversation.child_finishes("b", "of b")
        conversation.rests_in(Cancelling)

        conversation.breaks(SpawnSubAgent, "internal", "It is gone.")

        conversation.rests_in(Idle)
        assert conversation.results() == {"spawn": parts(("failed", "It is gone."), ("completed", "of b"))}

    def test_one_that_ignores_the_cancel_is_not_waited_for(self) -> None:
        """P26: a sub-agent that ignores the cancel is not awaited beyond the deadline, and its late outcome is
        ignored."""
        conversation = spawned("a", cancel_deadline=5.0)
        late = conversation.working("a")
        conversation.cancels()
        assert (conversation.rests_in(Cancelling).deadline.due - conversation.now).total_seconds() == 5.0

        conversation.timer_rings()

        conversation.rests_in(Idle)
        assert conversation.results() == {"spawn": parts(("cancelled", TEXTS.child_cancelled))}
        assert conversation.happens(SubAgentFinished, effect_id=late, outcome="of a").ignored

    def test_a_tool_that_would_spawn_after_the_cancel_does_not(self) -> None:
        """A tool that returns sub-agents after the cancel starts none."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(spawning())
        conversation.cancels()

        conversation.tool_spawns("spawn", "a")

        conversation.rests_in(Idle)
        assert conversation.wanted() == [PersistToolResults, Abort]
        assert conversation.results() == {"spawn": TEXTS.cancelled}

    def test_the_second_of_two_spawns_is_skipped(self) -> None:
        """P24: a cancel during the first of two spawning calls skips the second."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(spawning("one"), spawning("two"))
        conversation.tool_spawns("one", "a")
        conversation.cancels()

        conversation.child_finishes("a", "of a")

        assert conversation.results() == {"one": parts(("completed", "of a")), "two": TEXTS.skipped}
        assert conversation.children() == []

    def test_the_first_of_two_spawns_keeps_its_outcomes(self) -> None:
        """P24: a cancel during the second of two spawning calls keeps the outcomes of the first."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(spawning("one"), spawning("two"))
        conversation.tool_spawns("one", "a")
        conversation.child_finishes("a", "of a")
        conversation.tool_spawns("two", "b")
        conversation.cancels()

        conversation.timer_rings()

        assert conversation.results() == {
            "one": parts(("completed", "of a")),
            "two": parts(("cancelled", TEXTS.child_cancelled)),
        }

    def test_a_close_stops_them_too(self) -> None:
        """A close stops the sub-agents like a cancel, and then the conversation ends."""
        conversation = spawned("a")
        conversation.closes()
        conversation.rests_in(Cancelling)

        conversation.child_finishes("a", "stopped", status="cancelled")

        conversation.rests_in(Closed)

    def test_a_close_while_they_stop_is_kept_in_mind(self) -> None:
        """A close after a cancel ends the conversation once the sub-agents have stopped."""
        conversation = spawned("a")
        conversation.cancels()
        conversation.closes()

        conversation.timer_rings()

        conversation.rests_in(Closed)


class TestBeingOne:
    """P25: a sub-agent reports to the turn that started it, once."""

    def child(self, **rules: Any) -> Conversation:
        """A sub-agent that works."""
        conversation = Conversation(presets.sub_agent(), role="sub_agent", **rules)
        conversation.says("Look north")
        return conversation

    def notice(self, conversation: Conversation) -> tuple[str, list[str]]:
        """The one report that the parent gets when the turn ends."""
        effects = [effect for entry in conversation.history.log for effect in entry.effects]
        (notice,) = (effect for effect in effects if isinstance(effect, NotifyParent))
        return notice.status, conversation.words(notice.said)

    def test_its_text_is_its_result(self) -> None:
        """P25: the effects are exactly the text and the report; nothing is delivered to a user."""
        conversation = self.child()

        conversation.model_says("Three houses.")

        assert conversation.wanted() == [PersistMessage, NotifyParent]
        assert self.notice(conversation) == ("completed", ["Three houses."])
        assert conversation.delivered() == []

    def test_the_last_request_of_n_goes_out_without_tools(self) -> None:
        """P25: at its limit a sub-agent has one last request without tools, and the text of the response is its
        result."""
        conversation = self.child(limits=Limits(requests=3))
        for _ in range(2):
            conversation.model_calls("look")
            conversation.tool_ends("look")
        assert [request.tool_choice for request in conversation.requests()] == ["auto", "auto", "none"]

        conversation.model_says("Three houses.")

        assert self.notice(conversation) == ("completed", ["Three houses."])

    def test_no_text_is_a_failure(self) -> None:
        """P25: a sub-agent without a text failed; the policy's sentence about the limit says why."""
        conversation = self.child(limits=Limits(requests=1))

        conversation.model_calls("look")

        assert conversation.ended.status == "incomplete"
        assert self.notice(conversation) == ("failed", [TEXTS.limit])

    def test_its_last_text_is_its_result_though_it_goes_on_calling(self) -> None:
        """P25: the result is the text that it wrote last, in whichever response."""
        conversation = self.child(limits=Limits(requests=2))
        conversation.model_calls("look", content="Two houses so far.")
        conversation.tool_ends("look")

        conversation.model_calls("look")

        assert self.notice(conversation) == ("incomplete", ["Two houses so far."])

    def test_an_empty_answer_is_a_failure(self) -> None:
        """P25, P30: a sub-agent that ends with an empty response failed."""
        conversation = self.child()

        conversation.model_says("")

        assert self.notice(conversation) == ("failed", [TEXTS.ending])

    def test_a_failure_is_told_with_its_reason(self) -> None:
        """P25, J16: a failed turn of a sub-agent reports its reason."""
        conversation = self.child()
        conversation.model_calls("look", content="I look.")
        conversation.tool_ends("look")

        conversation.model_fails("authentication")

        assert self.notice(conversation) == ("failed", [f"{TEXTS.error} The model is not well."])

    def test_a_failure_that_rests_is_told_too(self) -> None:
        """P25: a turn that rests in Failed is reported too."""
        conversation = self.child(on_failure="fail")

        conversation.model_fails("authentication")

        assert self.notice(conversation) == ("failed", [])

    def test_a_cancel_is_told(self) -> None:
        """P25: a cancelled turn is reported as cancelled, whatever it had written."""
        conversation = self.child()
        conversation.model_calls("look", content="I look.")
        conversation.cancels()

        conversation.tool_stops("look")

        assert conversation.wanted() == [PersistToolResults, Abort, NotifyParent]
        assert self.notice(conversation) == ("cancelled", [])

    def test_a_close_is_told(self) -> None:
        """P25: a turn that a close ends is reported as cancelled."""
        conversation = self.child()

        conversation.closes()

        assert self.notice(conversation) == ("cancelled", [])

    def test_a_claim_is_its_result_where_it_wrote_nothing(self) -> None:
        """The result of a sub-agent that wrote no text is the summary in its claim."""
        conversation = self.child(ends_on="work_complete")
        conversation.model_calls(completing())

        conversation.tool_claims(summary="Counted three.")

        assert self.notice(conversation) == ("completed", ["Counted three."])

    def test_a_summary_for_display_is_not_its_result(self) -> None:
        """S12: the result is what the sub-agent wrote and not the summary for display; the report is sent when the turn
        is left."""
        conversation = self.child(summarize=True)
        conversation.model_says("Three houses, one of them red.")
        assert NotifyParent not in conversation.wanted()

        conversation.summary_comes("Houses.")

        assert self.notice(conversation) == ("completed", ["Three houses, one of them red."])
        assert conversation.words(conversation.ended.final_content) == ["Houses."]

    @holds_for(
        "ends",
        [
            lambda child: child.model_says("Three houses."),
            lambda child: child.model_says(""),
            lambda child: child.model_fails("authentication"),
            lambda child: child.cancels(),
            lambda child: child.closes(),
        ],
    )
    @holds_for("on_failure", ["reply", "fail"])
    def test_it_closes_when_its_turn_has_ended(self, ends: Any, on_failure: str) -> None:
        """P25: however its turn ends, the same step closes it, and its outcome is recorded once."""
        conversation = self.child(on_failure=on_failure)

        ends(conversation)

        conversation.rests_in(Closed)
        assert conversation.wanted().count(NotifyParent) == 1

    def test_it_closes_when_too_many_processes_died(self) -> None:
        """P25: a sub-agent that is given up after several crashes closes, too, with its outcome."""
        conversation = self.child()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Closed)
        assert self.notice(conversation) == ("failed", [])

    def test_what_waits_is_withdrawn_when_it_closes(self) -> None:
        """P25: a message that waits for a sub-agent begins no second turn; its sender is told that it was withdrawn."""
        conversation = self.child()
        conversation.says("Look south, too", event_id="south")

        conversation.model_says("Three houses.")

        assert conversation.step.withdrawn == ("south",)
        with pytest.raises(Refused) as refused:
            conversation.says("And east")
        assert refused.value.code == "closed"

    def test_a_sub_agent_that_has_no_task_yet_stays_open(self) -> None:
        """Only the end of a turn closes a sub-agent, and nothing that happens before its task."""
        conversation = Conversation(presets.sub_agent(), role="sub_agent")
        conversation.wants_it_condensed()

        conversation.history_is_condensed()

        conversation.rests_in(Idle)

    @pytest.mark.parametrize("role", ["foreground", "background"])
    def test_nobody_else_tells_a_parent(self, role: str) -> None:
        """P25: agents of other roles report to nobody."""
        conversation = Conversation(role=role)
        conversation.says()

        conversation.model_says("Here.")

        assert NotifyParent not in conversation.wanted()


class TestWhatASubAgentMayCall:
    """P20: a call that its role does not allow gets an error result, and the sub-agent goes on."""

    @pytest.mark.parametrize(
        "made", [asking("ask_user_question"), spawning("spawn_agents")], ids=lambda made: made.name
    )
    def test_a_denied_call_is_an_error_result(self, made: ToolCall) -> None:
        """P20: "ask_user_question is not available to sub-agents", and likewise for `spawn_agents`."""
        conversation = Conversation(presets.sub_agent(), role="sub_agent")
        conversation.says("Look north")
        fault = Caller("sub_agent", depth=1).fault(made.name)

        conversation.model_calls(made.model_copy(update={"fault": fault}))

        conversation.rests_in(LlmRequesting)
        assert conversation.results() == {made.name: f"{made.name} is not available to sub-agents"}
        assert conversation.errors() == [made.name]
