"""What sub-agents may use up, how many may be started, and what becomes of calls that want more."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.states import (
    AwaitingSubAgents,
    Idle,
    Limits,
    LlmRequesting,
    Profile,
    RequestLlm,
    SpawnSubAgent,
    SubAgentRules,
    SubAgentTask,
    Texts,
    Usage,
    presets,
)
from turnwise.states.values.value import NAMES_PROFILES

from ...support.conversation import Conversation, call, question, spawning

TEXTS = Texts()


def calling(used: Usage | None = None, **rules: Any) -> Conversation:
    """A conversation whose model has called the tool that starts sub-agents, for this cost."""
    conversation = Conversation(**rules)
    conversation.says("Look into it")
    conversation.model_calls(spawning(), usage=used or Usage())
    return conversation


def started(conversation: Conversation) -> list[SpawnSubAgent]:
    """The sub-agents that the last step starts."""
    return [effect for effect in conversation.step.effects if isinstance(effect, SpawnSubAgent)]


def fault(conversation: Conversation, *tasks: str | SubAgentTask) -> str:
    """The result of the call, which must start none of these sub-agents and let the model go on."""
    conversation.tool_spawns("spawn", *tasks)
    conversation.rests_in(LlmRequesting)
    assert started(conversation) == []
    assert conversation.errors() == ["spawn"]
    return conversation.results()["spawn"]


class TestShares:
    """What is left of the limits of the turn is shared among the sub-agents of a call."""

    def test_tokens_and_money_are_shared_equally(self) -> None:
        """Each sub-agent gets the same part of the tokens and the money that the turn has left."""
        conversation = calling(Usage(input_tokens=10, cost=0.2), limits=Limits(tokens=100, cost=1.0))

        conversation.tool_spawns("spawn", "a", "b", "c")

        assert [child.limits.tokens for child in started(conversation)] == [30, 30, 30]
        assert [child.limits.cost for child in started(conversation)] == [pytest.approx(0.8 / 3)] * 3

    def test_the_time_that_is_left_is_not_divided(self) -> None:
        """Sub-agents work side by side, so each may take all the time that the turn has left."""
        conversation = calling(limits=Limits(seconds=60.0))

        conversation.tool_spawns("spawn", "a", "b")

        assert [child.limits.seconds for child in started(conversation)] == [58.0, 58.0]

    def test_without_limits_there_is_nothing_to_share(self) -> None:
        """Where the turn has no such limits, a sub-agent has none: only its requests are limited by the rules."""
        conversation = calling(sub_agents=SubAgentRules(requests=7))

        conversation.tool_spawns("spawn", "a")

        assert started(conversation)[0].limits == Limits(requests=7)

    def test_a_task_may_ask_for_less_and_not_for_more(self) -> None:
        """A limit of the task holds where it is lower than the share, never where it is higher."""
        low = SubAgentTask(text="low", requests=2, tokens=5, cost=0.01)
        high = SubAgentTask(text="high", requests=99, tokens=10_000, cost=99.0)
        conversation = calling(limits=Limits(tokens=100, cost=1.0))

        conversation.tool_spawns("spawn", low, high)

        assert [child.limits for child in started(conversation)] == [
            Limits(requests=2, tokens=5, cost=0.01),
            Limits(requests=20, tokens=50, cost=0.5),
        ]

    def test_a_task_may_limit_what_its_parent_does_not(self) -> None:
        """A limit of the task holds also where the turn has none."""
        conversation = calling()

        conversation.tool_spawns("spawn", SubAgentTask(text="a", tokens=5, cost=0.01))

        assert started(conversation)[0].limits == Limits(requests=20, tokens=5, cost=0.01)

    def test_the_last_request_of_a_sub_agent_is_without_tools(self) -> None:
        """P25: also if the parent's own last request is plain, a sub-agent has one last request without tools."""
        conversation = calling(limits=Limits(last="plain"))

        conversation.tool_spawns("spawn", "a")

        assert started(conversation)[0].limits.last == "answer_now"

    def test_a_deadline_is_a_moment(self) -> None:
        """P26: the seconds of a task become the moment at which this sub-agent is due; the others have none."""
        conversation = calling()

        conversation.tool_spawns("spawn", SubAgentTask(text="a", seconds=9.0), "b")

        first, second = started(conversation)
        assert first.due is not None and (first.due - conversation.now).total_seconds() == 9.0
        assert second.due is None

    def test_profile_and_tools_are_passed_on(self) -> None:
        """A sub-agent has the profile and the tools that its task names, and otherwise the profile of the turn."""
        conversation = calling(profiles=(Profile(name="cook"), Profile(name="guide")))

        conversation.tool_spawns("spawn", SubAgentTask(text="a", profile="guide", tools=("look",)), "b")

        assert [(child.profile, child.tools) for child in started(conversation)] == [
            ("guide", ("look",)),
            ("cook", None),
        ]

    def test_they_are_asked_for_again_as_they_were(self) -> None:
        """P24: after a crash each sub-agent is asked for again with the same task, limits and deadline."""
        conversation = calling(limits=Limits(tokens=100, cost=1.0), profiles=(Profile(name="cook"),))
        conversation.tool_spawns("spawn", SubAgentTask(text="a", seconds=9.0, tools=("look",)), "b")
        before = started(conversation)

        conversation.resumes()

        assert started(conversation) == before

    def test_what_they_used_is_not_shared_again(self) -> None:
        """The next call shares what is left after the first sub-agents reported what they used."""
        conversation = calling(limits=Limits(tokens=100))
        conversation.tool_spawns("spawn", "a", "b")
        conversation.child_finishes("a", usage=Usage(input_tokens=40))
        conversation.child_finishes("b", usage=Usage(input_tokens=20))
        conversation.model_calls(spawning("again"))

        conversation.tool_spawns("again", "c", "d")

        assert [child.limits.tokens for child in started(conversation)] == [20, 20]

    def test_one_that_is_given_up_counts_with_its_whole_share(self) -> None:
        """P26: a sub-agent that came too late counts with its share, since nobody knows what it has used. The record of
        the turn holds only what is known."""
        conversation = calling(limits=Limits(tokens=100, cost=1.0))
        conversation.tool_spawns("spawn", "a", "b")
        conversation.child_finishes("a", usage=Usage(input_tokens=10))

        conversation.timer_rings()

        turn = conversation.rests_in(LlmRequesting).turn
        assert turn.spent == Usage(input_tokens=60, cost=0.5)
        assert turn.usage == Usage(input_tokens=10)

    def test_a_share_that_is_everything_ends_the_turn_at_the_deadline(self) -> None:
        """P26: if the sub-agents that are given up may have used everything, the turn ends at its limit."""
        conversation = calling(limits=Limits(tokens=100))
        conversation.tool_spawns("spawn", "a")

        conversation.timer_rings()

        conversation.rests_in(Idle)
        assert (conversation.ended.status, conversation.ended.limit) == ("incomplete", "tokens")
        assert RequestLlm not in conversation.wanted()

    def test_an_earlier_revision_shares_nothing(self) -> None:
        """A log of an earlier revision starts its sub-agents as it did: without limits, as many as there are tasks."""
        conversation = calling(limits=Limits(tokens=100), revision=NAMES_PROFILES)

        conversation.tool_spawns("spawn", *"abcdefghijkl")

        assert {child.limits for child in started(conversation)} == {Limits()}
        assert len(started(conversation)) == 12


class TestWhatIsRefused:
    """P20: a call that wants more than the rules allow gets an error result, and the model goes on."""

    def test_too_many_in_one_call(self) -> None:
        """P20: a call that wants more sub-agents than a turn may start starts none."""
        conversation = calling(sub_agents=SubAgentRules(number=2))

        assert fault(conversation, "a", "b", "c") == TEXTS.too_many_children.replace("{number}", "2")

    def test_too_many_in_one_turn(self) -> None:
        """P20: the sub-agents of all calls of a turn count together."""
        conversation = calling(sub_agents=SubAgentRules(number=2))
        conversation.tool_spawns("spawn", "a", "b")
        conversation.child_finishes("a")
        conversation.child_finishes("b")
        conversation.model_calls(spawning("again"))

        conversation.tool_spawns("again", "c")

        assert conversation.results()["again"] == TEXTS.too_many_children.replace("{number}", "2")

    def test_the_next_turn_may_start_as_many_again(self) -> None:
        """The number counts for each turn."""
        conversation = calling(sub_agents=SubAgentRules(number=1))
        conversation.tool_spawns("spawn", "a")
        conversation.child_finishes("a")
        conversation.model_says("Done.")
        conversation.says("Once more")
        conversation.model_calls(spawning("again"))

        conversation.tool_spawns("again", "b")

        conversation.rests_in(AwaitingSubAgents)

    @pytest.mark.parametrize(
        ("role", "depth", "allowed", "may"),
        [
            ("foreground", 0, 1, True),
            ("background", 0, 1, True),
            ("foreground", 0, 0, False),
            ("sub_agent", 0, 1, False),
            ("sub_agent", 1, 1, False),
            ("sub_agent", 1, 2, True),
            ("sub_agent", 2, 2, False),
        ],
    )
    def test_nested_too_deep(self, role: str, depth: int, allowed: int, may: bool) -> None:
        """P20: sub-agents may be nested as deep as the rules say; a sub-agent is at least one deep."""
        conversation = calling(role=role, depth=depth, sub_agents=SubAgentRules(depth=allowed))

        if may:
            conversation.tool_spawns("spawn", "a")
            conversation.rests_in(AwaitingSubAgents)
        else:
            assert fault(conversation, "a") == TEXTS.too_deep

    def test_an_unknown_profile(self) -> None:
        """A task with a profile that does not exist starts none of the sub-agents."""
        conversation = calling(profiles=(Profile(name="cook"),))

        assert fault(conversation, "a", SubAgentTask(text="b", profile="pilot")) == TEXTS.unknown_profile

    @pytest.mark.parametrize("blank", ["", " \n"])
    def test_a_task_without_text(self, blank: str) -> None:
        """A blank task starts none of the sub-agents."""
        assert fault(calling(), "a", blank) == TEXTS.nothing_said

    @pytest.mark.parametrize(("left", "tasks"), [(1, "ab"), (2, "abc")])
    def test_less_than_one_token_for_each(self, left: int, tasks: str) -> None:
        """With fewer tokens left than there are tasks, no sub-agent is started."""
        conversation = calling(Usage(input_tokens=100 - left), limits=Limits(tokens=100))

        assert fault(conversation, *tasks) == TEXTS.nothing_left

    def test_money_that_is_too_little_to_divide(self) -> None:
        """A share that is too small for a number counts as nothing."""
        assert fault(calling(limits=Limits(cost=5e-324)), "a", "b", "c") == TEXTS.nothing_left

    def test_refused_sub_agents_do_not_count(self) -> None:
        """After a refused call the turn may still start as many as before."""
        conversation = calling(sub_agents=SubAgentRules(number=1))
        fault(conversation, "a", "b")
        conversation.model_calls(spawning("again"))

        conversation.tool_spawns("again", "a")

        conversation.rests_in(AwaitingSubAgents)


class TestLimitsOfASubAgent:
    """The limits of a sub-agent are its share of its parent's, so nothing counts them anew."""

    def child(self, **rules: Any) -> Conversation:
        """A sub-agent that has sent its first request."""
        rules = {"sub_agents": SubAgentRules(questions="ask_user"), **rules}
        conversation = Conversation(presets.sub_agent(), role="sub_agent", **rules)
        conversation.says("Look north")
        return conversation

    def test_a_steered_message_does_not_count_them_anew(self) -> None:
        """A message that is steered in enters before the next request, which counts as the second."""
        conversation = self.child(limits=Limits(requests=2), when_busy="steer")
        conversation.model_calls("look")
        conversation.says("and quickly")

        conversation.tool_ends("look")

        assert conversation.requests()[-1].tool_choice == "none"
        assert conversation.rests_in(LlmRequesting).turn.requests == 2

    def test_an_answer_does_not_count_them_anew(self) -> None:
        """After the answer of a person, the requests and tokens of before still count."""
        conversation = self.child(limits=Limits(requests=2, tokens=100))
        conversation.model_calls(call("ask", exclusive=True, acts=("question",)), usage=Usage(input_tokens=30))
        conversation.tool_asks("ask", question("When?"))

        conversation.answers({"When?": "Now"})

        turn = conversation.rests_in(LlmRequesting).turn
        assert (turn.requests, turn.spent) == (2, Usage(input_tokens=30))

    def test_the_wait_for_a_person_does_not_count(self) -> None:
        """The time in which a sub-agent waits for the answer is left out of its seconds."""
        conversation = self.child(limits=Limits(seconds=60.0))
        conversation.model_calls(call("ask", exclusive=True, acts=("question",)))
        conversation.tool_asks("ask", question("When?"))
        asked, since = conversation.now, conversation.asked().turn.since

        conversation.passes(3_600)
        conversation.answers({"When?": "Now"})

        turn = conversation.rests_in(LlmRequesting).turn
        assert turn.since - since == conversation.now - asked

    def test_of_anybody_else_they_count_anew(self) -> None:
        """Other agents, and sub-agents of earlier revisions, count their limits anew after an answer."""
        for role, revision in (("foreground", 4), ("sub_agent", NAMES_PROFILES)):
            conversation = Conversation(role=role, revision=revision)
            conversation.says("Look north")
            conversation.model_calls(call("ask", exclusive=True, acts=("question",)), usage=Usage(input_tokens=30))
            conversation.tool_asks("ask", question("When?"))

            conversation.answers({"When?": "Now"})

            turn = conversation.rests_in(LlmRequesting).turn
            assert (turn.requests, turn.spent, turn.since) == (1, Usage(), conversation.now)


STATUSES = st.sampled_from(["completed", "incomplete", "failed", "cancelled"])


@given(st.lists(st.tuples(STATUSES, st.text(st.characters(exclude_categories=["Cs"]))), min_size=1, max_size=4))
def test_any_outcomes_read_back_equal_from_the_result(outcomes: list[tuple[str, str]]) -> None:
    """P24: whatever sub-agents say, in any script, their call has a result that is valid JSON and reads back equal, in
    the order of the tasks."""
    conversation = calling()
    conversation.tool_spawns("spawn", *(f"task {number}" for number, _ in enumerate(outcomes)))

    for number, (status, text) in reversed(list(enumerate(outcomes))):
        conversation.child_finishes(f"task {number}", text, status=status)

    agents = [{"status": status, "result": text} for status, text in outcomes]
    assert json.loads(conversation.results()["spawn"]) == {"agents": agents}
