"""Sub-agents: one asks the user of the agent that started it (what is shown, what is passed on, what happens
meanwhile), and all have bounds (what they may use up, how many may be started, what becomes of calls that want more).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.states import (
    Abort,
    AnswerSubAgent,
    AwaitingSubAgents,
    Cancelling,
    CancelSubAgent,
    Closed,
    Idle,
    Limits,
    LlmRequesting,
    Made,
    PersistToolResults,
    Profile,
    Questions,
    Refused,
    RequestLlm,
    Resumed,
    SpawnSubAgent,
    StartTimer,
    SubAgentAsked,
    SubAgentRules,
    SubAgentTask,
    Texts,
    Usage,
    UserCancel,
    presets,
)

from ...support.cases import holds_for
from ...support.conversation import Conversation, asking, call, question, spawning

TEXTS = Texts()
ASK_USER = SubAgentRules(questions="ask_user")


def working(*tasks: str, **rules: Any) -> Conversation:
    """A conversation that waits for sub-agents with these tasks, which may ask the user."""
    conversation = Conversation(**{"sub_agents": ASK_USER, **rules})
    conversation.says("Look into it")
    conversation.model_calls(spawning())
    conversation.tool_spawns("spawn", *(tasks or ("north",)))
    return conversation


def asked(*tasks: str, **rules: Any) -> Conversation:
    """The same, in which each of them has asked when it shall begin."""
    conversation = working(*tasks, **rules)
    for task in tasks or ("north",):
        conversation.child_asks(task, question(f"When {task}?"))
    return conversation


def shown(conversation: Conversation) -> list[str]:
    """The questions that a person can answer now."""
    open_question = conversation.rests_in(AwaitingSubAgents).open_question
    return [] if open_question is None else [one.question for one in open_question.questions]


def passed_on(conversation: Conversation) -> list[tuple[int, str, list[str]]]:
    """What the last step passes on to sub-agents: to which one, for which of its calls, and the answers."""
    effects = [effect for effect in conversation.step.effects if isinstance(effect, AnswerSubAgent)]
    return [(effect.child, effect.call_id, conversation.words(effect.said)) for effect in effects]


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


STATUSES = st.sampled_from(["completed", "incomplete", "failed", "cancelled"])


class TestAsking:
    """P20: a question of a sub-agent reaches the user where the policy allows it."""

    def test_it_is_shown_and_the_others_go_on(self) -> None:
        """The question rests in the state, under an id of its own; nothing else happens."""
        conversation = working("north", "south")

        conversation.child_asks("north", question("When?"))

        state = conversation.rests_in(AwaitingSubAgents)
        assert shown(conversation) == ["When?"]
        assert state.waiting_call_id == f"{conversation.working('north')}.ask"
        assert conversation.wanted() == []
        assert conversation.children() == ["north", "south"]

    def test_the_answer_is_passed_on(self) -> None:
        """The effects are exactly one answer, which names the sub-agent, its call and what was said."""
        conversation = asked()
        child = conversation.working("north")

        conversation.answers({"When north?": "Now"}, call_id=f"{child}.ask")

        assert conversation.wanted() == [AnswerSubAgent]
        assert passed_on(conversation) == [(child, "ask", ['{"answers": {"When north?": "Now"}}'])]
        assert shown(conversation) == []
        assert conversation.children() == ["north"]

    def test_an_answer_needs_no_id(self) -> None:
        """An answer without the id of a call is for what is shown."""
        conversation = asked()

        conversation.answers({"When north?": "Now"})

        assert [call_id for _, call_id, _ in passed_on(conversation)] == ["ask"]

    @pytest.mark.parametrize(
        ("answers", "fields", "code"),
        [
            ({"When north?": "Now"}, {"call_id": "ask"}, "wrong_state"),
            ({"When north?": "Now"}, {"call_id": "99.ask"}, "wrong_state"),
            ({"Where?": "Here"}, {}, "unknown_question"),
            ({}, {}, "missing_answer"),
            ({"When north?": ("Now", "Later")}, {}, "invalid_answer"),
        ],
    )
    def test_a_wrong_answer_is_refused(self, answers: Any, fields: Any, code: str) -> None:
        """An answer is checked as for any other question; the question stays open."""
        conversation = asked()

        with pytest.raises(Refused) as refused:
            conversation.answers(answers, **fields)

        assert refused.value.code == code
        assert shown(conversation) == ["When north?"]

    def test_where_nothing_is_asked_an_answer_is_refused(self) -> None:
        """Without a question there is nothing to answer, and after an answer nothing any longer."""
        conversation = asked()
        conversation.answers({"When north?": "Now"})

        with pytest.raises(Refused) as refused:
            conversation.answers({"When north?": "Later"})

        assert refused.value.code == "wrong_state"

    @pytest.mark.parametrize("asks", [True, False])
    def test_a_message_is_refused_for_what_the_user_sees(self, asks: bool) -> None:
        """A message that may not wait is refused because of the open question, or because the sub-agents work."""
        conversation = asked() if asks else working()

        with pytest.raises(Refused) as refused:
            conversation.says("And quickly")

        assert refused.value.code == ("awaiting_user_response" if asks else "busy")

    def test_a_person_may_decline(self) -> None:
        """Under `cancel="resume"`, a cancel that names the question declines it. The sub-agent gets no answer and goes
        on."""
        conversation = asked("north", "south", questions=Questions(cancel="resume"))
        child = conversation.working("north")

        conversation.happens(UserCancel, call_id=f"{child}.ask")

        assert passed_on(conversation) == [(child, "ask", [])]
        assert shown(conversation) == ["When south?"]

    @pytest.mark.parametrize("names", [True, False])
    def test_another_cancel_stops_the_turn(self, names: bool) -> None:
        """A cancel without the question stops the turn, and so does one that names it where the policy says so."""
        conversation = asked(questions=Questions(cancel="idle" if names else "resume"))
        call_id = f"{conversation.working('north')}.ask" if names else None

        conversation.happens(UserCancel, call_id=call_id)

        conversation.rests_in(Cancelling)
        assert conversation.wanted() == [CancelSubAgent, Abort, StartTimer]

    def test_a_late_click_stops_nothing(self) -> None:
        """A cancel that names a question that is no longer shown does nothing."""
        conversation = asked(questions=Questions(cancel="resume"))
        call_id = f"{conversation.working('north')}.ask"
        conversation.happens(UserCancel, call_id=call_id)

        assert conversation.happens(UserCancel, call_id=call_id).ignored


class TestWhoMayAsk:
    """P20: the user is asked only if the policy allows it and there is a user."""

    @pytest.mark.parametrize(
        ("role", "rules"),
        [
            ("foreground", SubAgentRules()),
            ("background", ASK_USER),
            ("sub_agent", SubAgentRules(depth=2)),
        ],
    )
    def test_otherwise_the_sub_agent_is_told_at_once(self, role: str, rules: SubAgentRules) -> None:
        """A question that may not be put to a user is declined in the same step, so nobody waits for ever."""
        conversation = working(role=role, sub_agents=rules)

        conversation.child_asks("north")

        assert passed_on(conversation) == [(conversation.working("north"), "ask", [])]
        assert shown(conversation) == []

    def test_a_refused_question_that_is_reported_again_is_ignored(self) -> None:
        """The sub-agent gets one answer, also if the process that reports its question dies and reports it again."""
        conversation = working(sub_agents=SubAgentRules())
        conversation.child_asks("north", since=conversation.now)
        since = conversation.rests_in(AwaitingSubAgents).asked[0].since

        assert conversation.child_asks("north", since=since).ignored

    def test_a_sub_agent_hands_the_question_of_its_own_on(self) -> None:
        """A sub-agent that may ask rests with the question of its own sub-agent, so that its parent can show it."""
        conversation = working(role="sub_agent", depth=1, sub_agents=SubAgentRules(depth=2, questions="ask_user"))

        conversation.child_asks("north", question("When?"))

        assert shown(conversation) == ["When?"]

    @holds_for(
        ("role", "rules", "may"),
        [
            ("foreground", SubAgentRules(), True),
            ("sub_agent", ASK_USER, True),
            ("sub_agent", SubAgentRules(), False),
            ("background", ASK_USER, False),
        ],
    )
    @holds_for("suspends", [True, False])
    def test_a_tool_of_the_application_asks_only_a_user(
        self, role: str, rules: SubAgentRules, may: bool, suspends: bool
    ) -> None:
        """P20: what the role does not allow to the built-in tool, it does not allow to any other tool: the call goes on
        without an answer, or has an error result that says so."""
        conversation = Conversation(role=role, sub_agents=rules)
        conversation.says()
        conversation.model_calls(asking())

        conversation.tool_asks("ask", suspends=suspends)

        if may:
            conversation.asked()
        elif suspends:
            assert [getattr(effect, "reply", None) for effect in conversation.step.effects] == ["declined"]
        else:
            assert conversation.results() == {"ask": TEXTS.question_not_for_role}
            conversation.rests_in(LlmRequesting)


class TestSeveral:
    """Several sub-agents ask at once."""

    def test_one_question_is_shown_after_the_other(self) -> None:
        """The first that asked is shown; the next follows when it has its answer."""
        conversation = asked("north", "south")
        north, south = conversation.working("north"), conversation.working("south")
        assert shown(conversation) == ["When north?"]

        conversation.answers({"When north?": "Now"})
        assert shown(conversation) == ["When south?"]
        conversation.answers({"When south?": "Later"})

        assert shown(conversation) == []
        log = [effect for entry in conversation.history.log for effect in entry.effects]
        assert [effect.child for effect in log if isinstance(effect, AnswerSubAgent)] == [north, south]

    def test_an_answer_to_one_that_is_not_shown_is_refused(self) -> None:
        """Only what is shown can be answered."""
        conversation = asked("north", "south")

        with pytest.raises(Refused):
            conversation.answers({"When south?": "Now"}, call_id=f"{conversation.working('south')}.ask")

    def test_calls_of_the_same_id_are_told_apart(self) -> None:
        """The ids that are shown differ although both sub-agents ask by a call of the same id."""
        conversation = asked("north", "south")
        asking_now = conversation.rests_in(AwaitingSubAgents).asked

        assert len({one.shown_call_id for one in asking_now}) == 2
        assert {one.call_id for one in asking_now} == {"ask"}

    def test_a_sub_agent_asks_one_thing_after_the_other(self) -> None:
        """A new question of a sub-agent takes the place of its old one, behind the questions of the others."""
        conversation = asked("north", "south")

        conversation.child_asks("north", question("And where?"), call_id="ask-2")

        assert shown(conversation) == ["When south?"]
        conversation.answers({"When south?": "Now"})
        assert shown(conversation) == ["And where?"]

    def test_a_call_that_asks_again_is_shown_again(self) -> None:
        """A call that goes on after its answer may ask once more; it is another moment, so it is another question."""
        conversation = asked()
        conversation.answers({"When north?": "Now"})

        conversation.child_asks("north", question("When north?"))

        assert shown(conversation) == ["When north?"]


class TestMeanwhile:
    """What happens to an open question when something else happens."""

    def test_the_same_report_again_is_ignored(self) -> None:
        """A question that is known is not shown twice, and after its answer not again."""
        conversation = asked()
        since = conversation.rests_in(AwaitingSubAgents).asked[0].since

        assert conversation.child_asks("north", since=since).ignored
        conversation.answers({"When north?": "Now"})
        assert conversation.child_asks("north", since=since).ignored
        assert shown(conversation) == []

    def test_a_question_that_is_withdrawn_is_no_longer_shown(self) -> None:
        """A sub-agent that does not wait any longer asks nothing; a late answer is refused."""
        conversation = asked("north", "south")

        conversation.child_no_longer_asks("north")

        assert shown(conversation) == ["When south?"]
        with pytest.raises(Refused):
            conversation.answers({"When north?": "Now"})

    def test_that_something_else_is_no_longer_asked_is_ignored(self) -> None:
        """A report that comes after the next question does not remove that question."""
        conversation = asked()
        conversation.child_asks("north", question("And where?"), call_id="ask-2")

        assert conversation.child_no_longer_asks("north", "ask").ignored
        assert shown(conversation) == ["And where?"]

    @pytest.mark.parametrize("effect_id", [0, 1, 99])
    def test_a_question_of_nobody_is_ignored(self, effect_id: int) -> None:
        """A report about a sub-agent that this conversation does not wait for changes nothing."""
        conversation = working()
        fields: dict[str, Any] = {"call_id": "ask", "questions": (question(),)}

        assert conversation.happens(SubAgentAsked, effect_id=effect_id, **fields).ignored

    def test_the_sub_agent_ends(self) -> None:
        """P24: the question of a sub-agent that has ended is gone, and a report that comes later is ignored."""
        conversation = asked("north", "south")
        child = conversation.working("north")

        conversation.child_finishes("north")

        assert shown(conversation) == ["When south?"]
        late: dict[str, Any] = {"effect_id": child, "call_id": "ask", "questions": (question(),)}
        assert conversation.happens(SubAgentAsked, **late).ignored

    def test_the_last_sub_agent_ends(self) -> None:
        """P24: when the last one ends although it asks, the turn goes on with its outcome."""
        conversation = asked()

        conversation.child_finishes("north", "Never mind.")

        conversation.rests_in(LlmRequesting)
        assert "Never mind." in conversation.results()["spawn"]

    def test_the_deadline_passes(self) -> None:
        """P26: an open question does not hold the turn beyond the deadline."""
        conversation = asked()

        conversation.timer_rings()

        conversation.rests_in(LlmRequesting)
        assert conversation.wanted() == [PersistToolResults, CancelSubAgent, RequestLlm]

    def test_a_crash_changes_nothing(self) -> None:
        """P27: after a crash the question is still shown, the sub-agents are asked for again, and the report of the
        question, which comes again, is ignored."""
        conversation = asked()
        since = conversation.rests_in(AwaitingSubAgents).asked[0].since

        conversation.resumes()

        assert conversation.wanted() == [SpawnSubAgent, StartTimer]
        assert shown(conversation) == ["When north?"]
        assert conversation.child_asks("north", since=since).ignored

    def test_a_wait_for_a_person_is_no_resume(self) -> None:
        """P27: while everything waits for a person, any number of processes may die."""
        conversation = asked()

        for _ in range(5):
            conversation.resumes()

        assert shown(conversation) == ["When north?"]
        assert conversation.rests_in(AwaitingSubAgents).ends_with_process

    def test_work_beside_the_question_counts_as_a_resume(self) -> None:
        """P27: while a sub-agent works, processes that die are counted, although another one asks."""
        conversation = working("north", "south")
        conversation.child_asks("north")

        conversation.happens(Resumed)

        assert conversation.rests_in(AwaitingSubAgents).resumes == 1

    def test_a_close_ends_it(self) -> None:
        """A close stops the sub-agents, and the question is gone with them."""
        conversation = asked()
        conversation.closes()

        conversation.child_finishes("north", status="cancelled")

        conversation.rests_in(Closed)

    def test_a_question_after_the_cancel_is_ignored(self) -> None:
        """A turn that is stopping shows no question."""
        conversation = working()
        child = conversation.working("north")
        conversation.cancels()

        late: dict[str, Any] = {"effect_id": child, "call_id": "ask", "questions": (question(),)}

        assert conversation.happens(SubAgentAsked, **late).ignored


class TestTime:
    """The time in which a person is waited for does not count against the turn's limit."""

    def test_until_the_question_is_gone(self) -> None:
        """The wait until the sub-agent no longer asks is left out."""
        conversation = asked(limits=Limits(seconds=60.0))
        conversation.passes(3_600)

        conversation.child_no_longer_asks("north")
        conversation.child_finishes("north")

        conversation.rests_in(LlmRequesting)

    def test_until_the_sub_agent_ends(self) -> None:
        """The wait until the sub-agent ends is left out."""
        conversation = asked("north", "south", limits=Limits(seconds=60.0))
        conversation.passes(3_600)
        conversation.child_finishes("north")

        conversation.child_finishes("south")

        conversation.rests_in(LlmRequesting)

    def test_an_answer_counts_the_limits_anew(self) -> None:
        """As after any answer of a person, the limits of the turn begin again."""
        conversation = asked(limits=Limits(seconds=60.0))
        conversation.passes(3_600)

        conversation.answers({"When north?": "Now"})

        assert conversation.rests_in(AwaitingSubAgents).turn.since == conversation.now

    def test_the_wait_after_the_first_of_two_answers_is_left_out_too(self) -> None:
        """While another question is open, the person is still waited for."""
        conversation = asked("north", "south", limits=Limits(seconds=60.0))
        conversation.answers({"When north?": "Now"})
        conversation.passes(3_600)
        conversation.child_no_longer_asks("south")
        conversation.child_finishes("north")

        conversation.child_finishes("south")

        conversation.rests_in(LlmRequesting)

    def test_without_a_question_time_counts(self) -> None:
        """A turn whose sub-agents work for longer than its limit ends there."""
        conversation = working(limits=Limits(seconds=60.0))
        conversation.passes(3_600)

        conversation.child_finishes("north")

        conversation.rests_in(Idle)
        assert conversation.ended.final_content == Made(text=TEXTS.limit)


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
        """Other agents count their limits anew after an answer."""
        conversation = Conversation()
        conversation.says("Look north")
        conversation.model_calls(call("ask", exclusive=True, acts=("question",)), usage=Usage(input_tokens=30))
        conversation.tool_asks("ask", question("When?"))

        conversation.answers({"When?": "Now"})

        turn = conversation.rests_in(LlmRequesting).turn
        assert (turn.requests, turn.spent, turn.since) == (1, Usage(), conversation.now)


@pytest.mark.slow
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
