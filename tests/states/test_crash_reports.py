"""Taken up after a crash: what is asked for again, what must not run twice, and what a person has to say (P27)."""

from typing import Any

import pytest

from turnwise.states import (
    Abort,
    AwaitingApproval,
    AwaitingUserResponse,
    Cancelling,
    CancelSubAgent,
    Closed,
    CompactHistory,
    Compacting,
    DeliverToUser,
    Effect,
    ExecuteTool,
    Failed,
    Idle,
    InDoubt,
    Limits,
    LlmRequesting,
    ModelSpec,
    PersistMessage,
    PersistToolResults,
    RecallMemory,
    ReconcileTool,
    Recovery,
    Refused,
    RequestLlm,
    Resumed,
    SelectProfile,
    SpawnSubAgent,
    Speech,
    StartTimer,
    SummarizeTurn,
    Summarizing,
    Texts,
    ToolAborted,
    ToolComplete,
    ToolExecuting,
    ToolInterrupted,
    ToolResult,
    Usage,
    Verifying,
    VerifyWork,
)
from turnwise.states.policy import presets

from ..support.busy_states import (
    Moment,
    approving,
    asked,
    asking_a_tool,
    backing_off,
    condensing,
    condensing_at_rest,
    doubting,
    doubting_while_another_runs,
    executing,
    recalling,
    requesting,
    selecting,
    stopping,
    stopping_children,
    summarizing,
    verifying,
    waiting_for_children,
)
from ..support.conversation import Conversation, asking, call, completing, responding, spawning, talking

TEXTS = Texts()


def refusal(act: Any, *args: Any) -> str:
    """The code of the refusal that this comes to."""
    with pytest.raises(Refused) as refused:
        act(*args)
    return refused.value.code


AT_WORK: dict[Moment, tuple[type[Effect], ...]] = {
    selecting: (SelectProfile,),
    recalling: (RecallMemory,),
    requesting: (RequestLlm,),
    backing_off: (StartTimer,),
    executing: (),
    waiting_for_children: (SpawnSubAgent, SpawnSubAgent, StartTimer),
    verifying: (VerifyWork,),
    summarizing: (SummarizeTurn,),
    condensing: (CompactHistory,),
    condensing_at_rest: (CompactHistory,),
    stopping: (StartTimer,),
    asking_a_tool: (ReconcileTool,),
    doubting_while_another_runs: (),
}
"""Each state that a process can die in, and what is wanted again."""

FOR_A_PERSON: dict[Moment, tuple[type[Effect], ...]] = {
    asked: (StartTimer,),
    approving: (StartTimer,),
    doubting: (),
}
"""Waits that outlive a process."""

each_at_work = pytest.mark.parametrize("begun", list(AT_WORK), ids=lambda begun: begun.__name__)
each_for_a_person = pytest.mark.parametrize("begun", list(FOR_A_PERSON), ids=lambda begun: begun.__name__)
each_busy = pytest.mark.parametrize("begun", [*AT_WORK, *FOR_A_PERSON], ids=lambda begun: begun.__name__)


def without_moment(effect: Effect) -> Effect:
    """The effect, whenever it is wanted: a request tells the time at which it is made."""
    return effect.model_copy(update={"at": None}) if isinstance(effect, RequestLlm) else effect


class TestResumed:
    """A process takes a conversation up after another has died over it."""

    @each_busy
    def test_the_same_is_wanted_again(self, begun: Moment) -> None:
        """P27: the same effects under the same ids, tools excepted; nothing enters the transcript."""
        conversation = begun()
        before = {
            each: effect for each, effect in conversation.in_flight().items() if not isinstance(effect, ExecuteTool)
        }
        said = conversation.transcript

        conversation.resumes()

        again = {effect.effect_id: without_moment(effect) for effect in conversation.step.effects}
        assert again == {each: without_moment(effect) for each, effect in before.items()}
        assert sorted(map(repr, conversation.wanted())) == sorted(map(repr, {**AT_WORK, **FOR_A_PERSON}[begun]))
        assert conversation.transcript == said

    @each_busy
    def test_it_rests_where_it_rested(self, begun: Moment) -> None:
        """P27: nothing is lost: only the steps and the count of those who took it up differ."""
        conversation = begun()
        before = conversation.state

        after = conversation.resumes().state

        book = before.book.model_copy(update={"seq": before.book.seq + 1})
        assert after.model_copy(update={"resumes": 0}) == before.model_copy(update={"resumes": 0, "book": book})

    @each_at_work
    def test_an_answer_that_was_on_its_way_is_still_known(self, begun: Moment) -> None:
        """P27: an answer to the effect that the dead process started is taken after the restart."""
        conversation = begun()
        ids = set(conversation.in_flight())

        conversation.resumes()

        assert set(conversation.in_flight()) == ids

    def test_a_request_tells_the_time_at_which_it_is_made(self) -> None:
        """J6: its nudge is the same, its moment is now."""
        conversation = requesting()
        nudge = conversation.nudge()

        conversation.resumes()

        assert conversation.requests()[-1].at == conversation.now
        assert conversation.nudge() == nudge == TEXTS.nudge

    def test_a_request_taken_up_again_is_the_same_request(self) -> None:
        """P34: it counts once."""
        conversation = requesting()

        conversation.resumes()

        assert conversation.rests_in(LlmRequesting).turn.requests == 2

    def test_timers_are_absolute(self) -> None:
        """What is armed again is due when it was due."""
        conversation = asked()
        due = conversation.asked().deadline

        conversation.resumes()

        (timer,) = conversation.step.effects
        assert isinstance(timer, StartTimer) and due is not None
        assert (timer.due, timer.effect_id) == (due.due, due.effect_id)

    def test_sub_agents_that_were_told_to_stop_are_told_again(self) -> None:
        """P26: nobody answers for being told to stop, so that may have been lost in the crash."""
        conversation = stopping_children()
        working = [conversation.working(task) for task in ("north", "west")]

        conversation.resumes()

        assert conversation.wanted() == [SpawnSubAgent] * 2 + [CancelSubAgent] * 2 + [StartTimer]
        assert conversation.stopped() == working

    @pytest.mark.parametrize("end", ["rest", "failure", "close"])
    def test_at_rest_there_is_nothing_to_take_up(self, end: str) -> None:
        """A report about nothing that goes on is ignored."""
        conversation = Conversation()
        if end == "failure":
            conversation.says()
            conversation.model_fails("authentication")
        elif end == "close":
            conversation.closes()

        assert conversation.happens(Resumed).ignored

    def test_a_turn_that_was_taken_up_goes_on_as_if_nothing_had_happened(self) -> None:
        """P27: kill, restart, and the answer to the question works (P19)."""
        conversation = asked()
        conversation.resumes()

        conversation.answers({"When?": "Now"})
        conversation.tool_ends("next")
        conversation.model_says("Booked.")

        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["Booked."])


class TestOneDelivery:
    """Case S13, the pure part: a delivery is emitted once, and taking up does not emit it again."""

    def test_a_speech_before_the_crash_is_delivered_at_the_end_of_the_turn(self) -> None:
        """S13: crash after the tool recorded the speech, before the end of the turn → delivered once."""
        conversation = Conversation(presets.explicit_response())
        conversation.says()
        conversation.model_calls(responding())
        conversation.tool_responds("respond", "A")

        conversation.resumes()
        assert conversation.delivered() == []
        conversation.model_calls(completing())
        conversation.tool_claims()
        conversation.resumes()
        conversation.verifier_says(True)

        assert conversation.delivered() == ["A"]

    def test_a_delivery_before_the_crash_is_not_repeated(self) -> None:
        """S13: delivered, then summarized: who takes the summary up delivers nothing."""
        conversation = summarizing()
        assert conversation.delivered() == ["A"]

        conversation.resumes()
        conversation.summary_comes()

        assert conversation.delivered() == ["A"]

    def test_a_talk_before_the_crash_is_not_repeated(self) -> None:
        """S13, B9: said at once, and the process died over the tool behind it."""
        conversation = Conversation(presets.talk())
        conversation.says()
        conversation.model_calls(talking(), call("bash", crash="pure"))
        conversation.tool_talks("talk", "I clean up now.")

        conversation.resumes()
        conversation.tool_was_interrupted("bash")

        assert conversation.wanted() == [ExecuteTool]
        assert conversation.delivered() == ["I clean up now."]

    def test_a_talk_that_was_interrupted_runs_again_and_is_heard_once(self) -> None:
        """B2: its tool had not answered yet, so nothing was handed over."""
        conversation = Conversation(presets.talk())
        conversation.says()
        conversation.model_calls(talking(crash="pure"))
        conversation.tool_was_interrupted("talk")

        conversation.tool_talks("talk", "Hello")

        assert conversation.delivered() == ["Hello"]


class TestOverTheLimit:
    """Each process that took it up died over it: a person has to look."""

    @each_at_work
    def test_two_may_die_without_progress(self, begun: Moment) -> None:
        """`Recovery(resumes=2)`: twice it is taken up as it was; the third time it ends."""
        conversation = begun()
        before = conversation.state.type
        for count in (1, 2):
            conversation.resumes()
            assert (conversation.state.type, conversation.state.resumes) == (before, count)

        conversation.resumes()

        assert conversation.state.type in ("idle", "failed")

    @each_for_a_person
    def test_a_wait_for_a_person_is_not_counted(self, begun: Moment) -> None:
        """Persons' waits only get their timers, however often the process dies."""
        conversation = begun()
        before = conversation.state.type

        for _ in range(5):
            conversation.resumes()

        assert conversation.state.type == before
        assert conversation.state.resumes == 0

    @pytest.mark.parametrize(
        "begun",
        [selecting, recalling, requesting, backing_off, verifying, condensing],
        ids=lambda begun: begun.__name__,
    )
    def test_a_turn_fails_with_a_sentence(self, begun: Moment) -> None:
        """→ Failed, in words for people; what was in flight is not wanted any more; nothing is delivered."""
        conversation = begun()
        in_flight = list(conversation.in_flight())
        for _ in range(3):
            conversation.resumes()

        failed = conversation.rests_in(Failed)
        assert (failed.kind, failed.sentence) == ("interrupted", TEXTS.died_too_often)
        assert conversation.stopped() == in_flight
        assert (conversation.ended.status, conversation.delivered()) == ("failed", [])

    def test_every_open_call_gets_a_result(self) -> None:
        """Law 4: what ran is in doubt, what waited was interrupted."""
        conversation = executing()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Failed)
        assert conversation.results() == {"a": TEXTS.in_doubt, "b": TEXTS.in_doubt, "c": TEXTS.interrupted}

    def test_sub_agents_are_stopped_and_what_they_found_is_kept(self) -> None:
        """P24: each outcome reaches the model once, through a failure too."""
        conversation = waiting_for_children()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Failed)
        assert conversation.wanted() == [PersistToolResults, CancelSubAgent, CancelSubAgent, Abort]
        result = conversation.results()["spawn"]
        assert result.count(TEXTS.child_cancelled) == 2
        assert "Sub-agent 2 (completed):\n\nfound" in result

    def test_a_call_that_is_asked_about_stays_in_doubt(self) -> None:
        """Its tool never answered: it is unknown whether it ran."""
        conversation = asking_a_tool()
        for _ in range(3):
            conversation.resumes()

        assert conversation.results() == {"save": TEXTS.in_doubt, "next": TEXTS.interrupted}

    def test_doubtful_calls_stay_in_doubt(self) -> None:
        """A call in doubt beside one that runs: both get the same words."""
        conversation = doubting_while_another_runs()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Failed)
        assert conversation.results() == {
            "pay": TEXTS.in_doubt,
            "read": TEXTS.in_doubt,
            "next": TEXTS.interrupted,
        }

    def test_a_failed_turn_can_be_tried_again(self) -> None:
        """Law 9: a person finds a way out, and the history is valid."""
        conversation = executing()
        for _ in range(3):
            conversation.resumes()

        conversation.tries_again()

        assert conversation.roles() == ["user", "assistant", "tool", "tool", "tool"]
        assert conversation.rests_in(LlmRequesting).resumes == 0

    def test_what_waited_still_waits(self) -> None:
        """Law 13: the inbox is kept."""
        conversation = Conversation(when_busy="queue")
        conversation.says()
        conversation.says("later")
        for _ in range(3):
            conversation.resumes()

        assert len(conversation.rests_in(Failed).inbox) == 1

    def test_a_cancel_ends_as_cancelled(self) -> None:
        """Cancelling: the turn is over, as the person wanted."""
        conversation = stopping()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Idle)
        assert conversation.ended.status == "cancelled"
        assert conversation.results() == {"a": TEXTS.cancelled, "b": TEXTS.cancelled, "c": TEXTS.skipped}
        assert conversation.wanted() == [PersistToolResults, Abort]

    def test_a_close_ends_closed(self) -> None:
        """Cancelling, closing: the conversation ends with the turn."""
        conversation = executing()
        conversation.closes()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Closed)

    def test_a_summary_is_done_without(self) -> None:
        """Summarizing: the turn had come to its end, and ends as completed."""
        conversation = summarizing()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Idle)
        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["A"])
        assert conversation.wanted() == [Abort]

    def test_condensing_at_rest_is_done_without(self) -> None:
        """Compacting at rest: no turn, and none ends."""
        conversation = condensing_at_rest()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Idle)
        assert (conversation.wanted(), conversation.step.ended) == ([Abort], None)

    def test_a_failure_is_a_failure_whatever_the_policy_makes_of_others(self) -> None:
        """`on_failure="reply"` answers a model that fails; a turn that kills its process rests in Failed."""
        conversation = Conversation(on_failure="reply")
        conversation.says()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Failed)
        assert conversation.delivered() == []

    def test_how_many_may_die_is_a_setting(self) -> None:
        """`Recovery(resumes=0)`: the first that takes it up gives it up."""
        conversation = Conversation(recovery=Recovery(resumes=0))
        conversation.says()

        conversation.resumes()

        conversation.rests_in(Failed)


class TestProgress:
    """Whatever moves the conversation begins the count anew."""

    def test_an_answer_resets_the_count(self) -> None:
        """Taken up twice, then the model answers: two more may die."""
        conversation = Conversation()
        conversation.says()
        for name in "abc":
            conversation.resumes()
            conversation.resumes()
            conversation.model_calls(name)
            assert conversation.rests_in(ToolExecuting).resumes == 0
            conversation.tool_ends(name)

        conversation.resumes()
        conversation.resumes()

        conversation.rests_in(LlmRequesting)

    @pytest.mark.parametrize("begun", [waiting_for_children, stopping_children, stopping], ids=lambda b: b.__name__)
    def test_an_answer_that_does_not_move_the_state_resets_it_too(self, begun: Moment) -> None:
        """One of several sub-agents or tools ended."""
        conversation = begun()
        conversation.resumes()
        conversation.resumes()

        if conversation.tools():
            conversation.tool_stops("a")
        else:
            conversation.child_finishes("north")

        assert conversation.state.resumes == 0

    def test_another_try_at_condensing_resets_it(self) -> None:
        """The condensing failed, that is, it answered."""
        conversation = condensing()
        conversation.resumes()

        conversation.breaks(CompactHistory)

        assert conversation.rests_in(Compacting).resumes == 0

    def test_a_message_is_no_progress(self) -> None:
        """A person who sends messages does not keep a deadly turn alive."""
        conversation = Conversation(when_busy="queue")
        conversation.says()
        conversation.resumes()
        conversation.says("Are you there?")

        assert conversation.rests_in(LlmRequesting).resumes == 1

    def test_a_report_is_no_progress(self) -> None:
        """Taken up, and told which call was interrupted: that is one try, not none."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("read", crash="pure"))
        for count in (1, 2):
            conversation.resumes()
            conversation.tool_was_interrupted("read")
            assert conversation.rests_in(ToolExecuting).resumes == count

        conversation.resumes()

        conversation.rests_in(Failed)

    @pytest.mark.parametrize(("tokens", "begun"), [(0, LlmRequesting), (1_000, Compacting)])
    def test_the_next_turn_is_no_progress(self, tokens: int, begun: type[Compacting | LlmRequesting]) -> None:
        """The one before was left without its summary, and a message waited: nothing has answered yet, whatever the
        next turn begins with."""
        conversation = Conversation(summarize=True, when_busy="queue", models=(ModelSpec(name="small", window=1_000),))
        conversation.says()
        conversation.model_says("Here.", usage=Usage(input_tokens=tokens))
        conversation.says("later")
        for _ in range(3):
            conversation.resumes()

        assert conversation.rests_in(begun).resumes == 2

    def test_asking_a_tool_is_no_progress_until_it_answers(self) -> None:
        """The tool that is asked may be what kills the process."""
        conversation = asking_a_tool()
        conversation.resumes()
        conversation.resumes()

        conversation.tool_reconciles("save", "did_not_run")

        assert conversation.rests_in(ToolExecuting).resumes == 0


class TestInterrupted:
    """`ToolInterrupted`: what becomes of a call that ran when the process died is the tool's promise."""

    @pytest.mark.parametrize("crash", ["pure", "idempotent"])
    def test_a_call_that_may_run_again_runs_again(self, crash: str) -> None:
        """Under the same effect id, so under the same key; it counts as one call."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("read", crash=crash), "next")
        key = conversation.running("read")

        conversation.tool_was_interrupted("read")

        assert conversation.wanted() == [ExecuteTool]
        assert conversation.running("read") == key
        assert conversation.rests_in(ToolExecuting).turn.tool_calls == 1
        conversation.tool_ends("read", "again")
        assert conversation.results() == {"read": "again"}

    def test_a_tool_that_asks_or_spawns_does_so_when_it_runs_again(self) -> None:
        """What a call does besides being read it does once, whenever it comes to its end."""
        asks, spawns = Conversation(), Conversation()
        for conversation, made in ((asks, asking(crash="pure")), (spawns, spawning(crash="pure"))):
            conversation.says()
            conversation.model_calls(made)
            conversation.resumes()
            conversation.tool_was_interrupted(made.name)

        asks.tool_asks()
        spawns.tool_spawns("spawn", "north")

        assert [each.question for each in asks.asked().questions] == ["When?"]
        assert spawns.children() == ["north"]

    def test_a_tool_that_can_tell_is_asked(self) -> None:
        """`reconcile`: the question names the effect that had started the call, and has an id of its own."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("save", crash="reconcile"), "next")
        started_as = conversation.running("save")

        conversation.tool_was_interrupted("save")

        (asks,) = conversation.step.effects
        assert isinstance(asks, ReconcileTool)
        assert (asks.call.name, asks.started_as) == ("save", started_as)
        assert asks.effect_id != started_as
        assert conversation.tools() == []

    def test_it_ran_and_this_came_of_it(self) -> None:
        """`ran` with a result: as if the tool had ended, with all that it did."""
        conversation = Conversation(presets.talk())
        conversation.says()
        conversation.model_calls(talking(crash="reconcile"), "next")
        conversation.tool_was_interrupted("talk")

        conversation.tool_reconciles("talk", "ran", "said", acts=[Speech(text="Hello", when="now")])

        assert conversation.wanted() == [PersistToolResults, DeliverToUser, ExecuteTool]
        assert conversation.results() == {"talk": "said"}
        assert conversation.delivered() == ["Hello"]

    def test_it_ran_and_nobody_knows_what_came_of_it(self) -> None:
        """`ran` without a result: the model is told so; that is no error."""
        conversation = asking_a_tool()

        conversation.tool_reconciles("save", "ran")

        assert conversation.results() == {"save": TEXTS.did_run}
        assert conversation.errors() == []
        assert conversation.tools() == ["next"]

    def test_it_ran_and_failed(self) -> None:
        """`ran` with an error: an error result."""
        conversation = asking_a_tool()

        conversation.tool_reconciles("save", "ran", "No space left.", error=True)

        assert (conversation.results(), conversation.errors()) == ({"save": "No space left."}, ["save"])

    def test_it_did_not_run(self) -> None:
        """`did_not_run`: it runs now, under the id that it had."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("save", crash="reconcile"))
        key = conversation.running("save")
        conversation.tool_was_interrupted("save")

        conversation.tool_reconciles("save", "did_not_run")

        assert conversation.wanted() == [ExecuteTool]
        assert conversation.running("save") == key

    def test_it_may_be_interrupted_once_more(self) -> None:
        """It did not run, runs, and the process dies again: its tool is asked again, under a new id."""
        conversation = asking_a_tool()
        first = conversation.asked_about("save")
        conversation.tool_reconciles("save", "did_not_run")

        conversation.tool_was_interrupted("save")

        assert conversation.asked_about("save") not in (first, None)
        conversation.tool_reconciles("save", "ran", "saved")
        assert conversation.results() == {"save": "saved"}

    @pytest.mark.parametrize("how", ["unknown", "failed", "aborted"])
    def test_the_tool_cannot_tell(self, how: str) -> None:
        """`unknown`, or the question itself failed → InDoubt; stopped, the model reads that it is unknown."""
        conversation = asking_a_tool()

        if how == "unknown":
            conversation.tool_reconciles("save", "unknown")
        elif how == "failed":
            conversation.breaks(ReconcileTool)
        else:
            conversation.happens(ToolAborted, effect_id=conversation.asked_about("save"))

        if how == "aborted":
            assert conversation.results() == {"save": TEXTS.in_doubt}
        else:
            assert conversation.rests_in(InDoubt).call.name == "save"

    def test_a_call_that_must_not_run_twice_is_in_doubt(self) -> None:
        """`at_most_once`, which is what a tool promises that promises nothing: a person has to say."""
        conversation = doubting()

        doubt = conversation.rests_in(InDoubt)
        assert (doubt.call.name, doubt.round.doubtful) == ("pay", ("pay",))
        assert conversation.wanted() == []
        assert (conversation.results(), conversation.tools()) == ({}, [])

    def test_a_call_that_is_asked_about_is_not_interrupted(self) -> None:
        """It does not run; the report is ignored, and the question goes on."""
        conversation = asking_a_tool()

        assert conversation.happens(ToolInterrupted, call_id="save").ignored

    @pytest.mark.parametrize("call_id", ["next", "gone", ""])
    def test_a_call_that_does_not_run_cannot_be_interrupted(self, call_id: str) -> None:
        """One that waits, one that there is not: a report about a call that is not running is ignored."""
        conversation = asking_a_tool()

        assert conversation.happens(ToolInterrupted, call_id=call_id).ignored

    def test_a_call_that_has_ended_cannot_be_interrupted(self) -> None:
        """Its result stands, and stays."""
        conversation = executing()
        conversation.tool_ends("a", "real")

        assert conversation.happens(ToolInterrupted, call_id="a").ignored
        assert conversation.results() == {"a": "real"}

    def test_calls_of_all_kinds_in_one_round(self) -> None:
        """Each by its own promise; what is in doubt holds up what waits, and nothing else."""
        conversation = Conversation(parallel=3)
        conversation.says()
        conversation.model_calls(call("read", crash="pure"), call("save", crash="reconcile"), "pay", "next")
        conversation.resumes()
        for name in ("read", "save", "pay"):
            conversation.tool_was_interrupted(name)

        conversation.rests_in(InDoubt)
        conversation.tool_ends("read", "again")
        conversation.tool_reconciles("save", "ran", "saved")
        assert conversation.tools() == []
        conversation.resolves("pay", "ran")

        assert conversation.tools() == ["next"]
        conversation.tool_ends("next")
        assert list(conversation.results()) == ["read", "save", "pay", "next"]
        conversation.rests_in(LlmRequesting)


class TestInDoubt:
    """A person says what became of a call."""

    def two_doubts(self) -> Conversation:
        """Two calls are in doubt, and a third waits."""
        conversation = Conversation(parallel=2)
        conversation.says()
        conversation.model_calls("pay", "post", "next")
        conversation.tool_was_interrupted("post")
        conversation.tool_was_interrupted("pay")
        return conversation

    def test_it_ran(self) -> None:
        """`ran`: its result says so, the round goes on, and it is no error."""
        conversation = doubting()

        conversation.resolves("pay", "ran")

        assert conversation.wanted() == [PersistToolResults, ExecuteTool]
        assert (conversation.results(), conversation.errors()) == ({"pay": TEXTS.did_run}, [])

    def test_it_did_not_run(self) -> None:
        """`did_not_run`: an error result, and it does not run after all."""
        conversation = doubting()

        conversation.resolves("pay", "did_not_run")

        assert conversation.tools() == ["next"]
        assert (conversation.results(), conversation.errors()) == ({"pay": TEXTS.did_not_run}, ["pay"])

    def test_it_shall_run_again(self) -> None:
        """`again`: it is started as a new effect, in its place, because a person said so."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("pay", "next")
        key = conversation.running("pay")
        conversation.tool_was_interrupted("pay")

        conversation.resolves("pay", "again")

        assert conversation.wanted() == [ExecuteTool]
        assert conversation.running("pay") != key
        conversation.tool_ends("pay", "paid")
        assert conversation.tools() == ["next"]

    def test_a_call_that_was_allowed_stays_allowed(self) -> None:
        """P36: "again" does not ask for leave a second time."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("pay", approval=True))
        conversation.allows("pay")
        conversation.tool_was_interrupted("pay")

        conversation.resolves("pay", "again")

        assert conversation.tools() == ["pay"]

    def test_one_that_runs_again_may_be_in_doubt_again(self) -> None:
        """The process dies once more."""
        conversation = doubting()
        conversation.resolves("pay", "again")

        conversation.tool_was_interrupted("pay")

        assert conversation.rests_in(InDoubt).round.doubtful == ("pay",)

    def test_a_person_who_decides_begins_the_limits_anew(self) -> None:
        """P34: every kind of human input."""
        conversation = Conversation(limits=Limits(requests=1, tool_calls=1))
        conversation.says()
        conversation.model_fails()
        conversation.timer_rings()
        conversation.cancels()
        conversation.changes_rules(limits=Limits(requests=2, tool_calls=1))
        conversation.says()
        conversation.model_calls("pay")
        conversation.tool_was_interrupted("pay")

        conversation.resolves("pay", "again")

        assert conversation.tools() == ["pay"]
        assert conversation.rests_in(ToolExecuting).turn.requests == 0

    @pytest.mark.parametrize("call_id", ["next", "gone", ""])
    def test_another_call_is_not_in_doubt(self, call_id: str) -> None:
        """P40: a wrong call id → `Refused` `wrong_state`; still in doubt."""
        conversation = doubting()

        assert refusal(conversation.resolves, call_id, "ran") == "wrong_state"
        conversation.rests_in(InDoubt)

    def test_what_is_settled_cannot_be_resolved_again(self) -> None:
        """P18: the second of two verdicts learns that it lost."""
        conversation = doubting()
        conversation.resolves("pay", "ran")

        assert refusal(conversation.resolves, "pay", "again") == "wrong_state"

    def test_where_nothing_is_in_doubt_nothing_is_resolved(self) -> None:
        """At rest and at work: refused, `wrong_state`."""
        assert refusal(Conversation().resolves, "pay", "ran") == "wrong_state"
        assert refusal(executing().resolves, "a", "ran") == "wrong_state"

    def test_several_are_resolved_in_the_order_in_which_they_came(self) -> None:
        """The state names the one that waits for longest; nothing starts before the last is settled."""
        conversation = self.two_doubts()
        since = conversation.rests_in(InDoubt).since
        assert conversation.rests_in(InDoubt).call.name == "post"

        conversation.resolves("post", "ran")
        doubt = conversation.rests_in(InDoubt)
        assert (doubt.call.name, doubt.since) == ("pay", since)
        assert conversation.tools() == []
        conversation.resolves("pay", "did_not_run")

        assert conversation.tools() == ["next"]
        assert list(conversation.results()) == ["pay", "post"]

    def test_several_may_be_resolved_in_any_order(self) -> None:
        """Each verdict names its call."""
        conversation = self.two_doubts()

        conversation.resolves("pay", "again")
        assert conversation.rests_in(InDoubt).round.doubtful == ("post",)
        assert conversation.tools() == []
        conversation.resolves("post", "ran")

        assert conversation.tools() == ["pay", "next"]

    def test_a_tool_that_ends_meanwhile_has_its_result(self) -> None:
        """The other tools of the round go on; nothing new starts."""
        conversation = doubting_while_another_runs()

        conversation.tool_ends("read", "real")
        assert conversation.rests_in(InDoubt).round.doubtful == ("pay",)
        assert conversation.tools() == []
        conversation.resolves("pay", "ran")

        assert conversation.results() == {"pay": TEXTS.did_run, "read": "real"}
        assert conversation.tools() == ["next"]

    @pytest.mark.parametrize("how", ["breaks", "stops", "asks", "speaks"])
    def test_whatever_comes_of_a_tool_meanwhile_is_taken(self, how: str) -> None:
        """A failure, a stop, a question that nobody can put now, a speech."""
        conversation = Conversation(presets.explicit_response(), parallel=2)
        conversation.says()
        conversation.model_calls("pay", responding("read"))
        conversation.tool_was_interrupted("pay")

        if how == "breaks":
            conversation.tool_breaks("read", "It took too long.")
        elif how == "stops":
            conversation.tool_stops("read")
        elif how == "asks":
            conversation.tool_asks("read")
        else:
            conversation.tool_responds("read", "A")

        expected = {
            "breaks": "It took too long.",
            "stops": TEXTS.cancelled,
            "asks": TEXTS.question_not_exclusive,
            "speaks": "done",
        }
        assert conversation.results() == {"read": expected[how]}
        assert [spoken.said for spoken in conversation.rests_in(InDoubt).turn.said] != [] or how != "speaks"

    def test_the_other_tool_may_be_interrupted_as_well(self) -> None:
        """Each report by itself: a second doubt joins the first."""
        conversation = doubting_while_another_runs()

        conversation.tool_was_interrupted("read")

        assert conversation.rests_in(InDoubt).round.doubtful == ("pay", "read")

    @pytest.mark.parametrize(("verdict", "doubtful"), [("unknown", ("pay", "save")), ("did_not_run", ("pay",))])
    def test_a_verdict_of_a_tool_meanwhile_is_taken(self, verdict: str, doubtful: tuple[str, ...]) -> None:
        """Unknown → a second doubt; it did not run → it runs again, beside the doubt."""
        conversation = Conversation(parallel=2)
        conversation.says()
        conversation.model_calls("pay", call("save", crash="reconcile"))
        conversation.tool_was_interrupted("save")
        conversation.tool_was_interrupted("pay")

        conversation.tool_reconciles("save", verdict)

        assert conversation.rests_in(InDoubt).round.doubtful == doubtful
        assert conversation.tools() == (["save"] if verdict == "did_not_run" else [])

    def test_messages_wait_for_the_verdict(self) -> None:
        """Refused by its own code, or in the inbox, by policy."""
        strict = doubting()
        patient = Conversation(when_busy="queue")
        patient.says()
        patient.model_calls("pay")
        patient.tool_was_interrupted("pay")

        patient.says("later")

        assert refusal(strict.says) == "in_doubt"
        assert len(patient.rests_in(InDoubt).inbox) == 1

    def test_answers_to_other_waits_are_refused(self) -> None:
        """Nobody asked, and nothing waits to be allowed."""
        conversation = doubting()

        assert refusal(conversation.answers, {"When?": "Now"}) == "wrong_state"
        assert refusal(conversation.allows, "pay") == "wrong_state"

    def test_a_cancel_ends_the_turn(self) -> None:
        """Nobody will ever know: the call says so, the rest is skipped."""
        conversation = doubting()

        conversation.cancels()

        conversation.rests_in(Idle)
        assert conversation.results() == {"pay": TEXTS.in_doubt, "next": TEXTS.skipped}
        assert (conversation.ended.status, conversation.wanted()) == ("cancelled", [PersistToolResults])

    def test_a_cancel_stops_what_runs_first(self) -> None:
        """The other tool acknowledges; then every call has its result."""
        conversation = doubting_while_another_runs()
        conversation.cancels()
        conversation.rests_in(Cancelling)
        assert conversation.wanted() == [Abort, StartTimer]

        conversation.tool_ends("read", "real")

        conversation.rests_in(Idle)
        assert conversation.results() == {"pay": TEXTS.in_doubt, "read": "real", "next": TEXTS.skipped}

    def test_a_late_cancel_changes_nothing(self) -> None:
        """P40: it names an earlier turn."""
        assert doubting().cancels(turn=0).ignored

    @pytest.mark.parametrize("begun", [doubting, doubting_while_another_runs], ids=lambda begun: begun.__name__)
    def test_a_close_ends_the_conversation(self, begun: Moment) -> None:
        """Closed, once what runs has stopped."""
        conversation = begun()
        conversation.closes()

        if conversation.tools():
            conversation.tool_stops("read")

        conversation.rests_in(Closed)
        assert conversation.results()["pay"] == TEXTS.in_doubt

    def test_a_claim_beside_a_call_that_did_not_run_does_not_count(self) -> None:
        """S9: a call that came to no good; one that ran did."""
        for verdict, state in (("did_not_run", LlmRequesting), ("ran", Verifying)):
            conversation = Conversation(presets.explicit_response(), parallel=2)
            conversation.says()
            conversation.model_calls(responding(), completing(), "pay")
            conversation.tool_responds("respond", "A")
            conversation.tool_claims()
            conversation.tool_was_interrupted("pay")
            conversation.resolves("pay", verdict)
            conversation.rests_in(state)


class TestWhileCancelling:
    """A crash in the middle of a cancel."""

    @pytest.mark.parametrize(
        ("crash", "text"),
        [
            ("pure", TEXTS.cancelled),
            ("idempotent", TEXTS.cancelled),
            ("reconcile", TEXTS.in_doubt),
            ("at_most_once", TEXTS.in_doubt),
        ],
    )
    def test_an_interruption_counts_as_an_acknowledgement(self, crash: str, text: str) -> None:
        """Nothing runs again; what must not run twice says that it is unknown whether it ran."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("work", crash=crash), "next")
        conversation.cancels()
        conversation.resumes()

        conversation.tool_was_interrupted("work")

        conversation.rests_in(Idle)
        assert conversation.results() == {"work": text, "next": TEXTS.skipped}
        assert conversation.wanted() == [PersistToolResults, Abort]

    @pytest.mark.parametrize("verdict", ["did_not_run", "unknown", None])
    def test_a_call_that_was_asked_about_is_an_error_unless_it_ran(self, verdict: str | None) -> None:
        """P7: whatever its tool says, and if the question itself fails."""
        conversation = asking_a_tool()
        conversation.cancels()

        if verdict is None:
            conversation.breaks(ReconcileTool)
        else:
            conversation.tool_reconciles("save", verdict)

        conversation.rests_in(Idle)
        assert conversation.errors() == ["save", "next"]

    def test_a_call_that_a_crash_interrupted_is_an_error(self) -> None:
        """The model must not take it for done."""
        conversation = executing()
        conversation.cancels()

        conversation.tool_was_interrupted("a")

        assert {"a"} <= set(conversation.errors())

    def test_the_others_are_waited_for(self) -> None:
        """One was interrupted, the other has not stopped yet."""
        conversation = stopping()

        conversation.tool_was_interrupted("a")
        conversation.rests_in(Cancelling)
        conversation.tool_stops("b")

        conversation.rests_in(Idle)
        assert conversation.results() == {"a": TEXTS.in_doubt, "b": TEXTS.cancelled, "c": TEXTS.skipped}

    @pytest.mark.parametrize(
        ("verdict", "result", "expected"),
        [
            ("ran", "saved", "saved"),
            ("ran", None, TEXTS.did_run),
            ("did_not_run", None, TEXTS.did_not_run),
            ("unknown", None, TEXTS.in_doubt),
        ],
    )
    def test_a_verdict_that_comes_after_the_cancel_is_told(
        self, verdict: str, result: str | None, expected: str
    ) -> None:
        """A real result is kept; what did not run never will; the rest is unknown."""
        conversation = asking_a_tool()
        conversation.cancels()

        conversation.tool_reconciles("save", verdict, result)

        conversation.rests_in(Idle)
        assert conversation.results() == {"save": expected, "next": TEXTS.skipped}

    @pytest.mark.parametrize("how", ["failed", "aborted", "too late"])
    def test_a_tool_that_was_asked_and_cannot_tell(self, how: str) -> None:
        """It stays unknown whether the call ran."""
        conversation = asking_a_tool()
        conversation.cancels()

        if how == "failed":
            conversation.breaks(ReconcileTool)
        elif how == "aborted":
            conversation.happens(ToolAborted, effect_id=conversation.asked_about("save"))
        else:
            conversation.timer_rings()

        conversation.rests_in(Idle)
        assert conversation.results() == {"save": TEXTS.in_doubt, "next": TEXTS.skipped}

    def test_a_question_about_a_call_is_asked_again_after_a_crash(self) -> None:
        """Stopped, taken up: it is still waited for, and no longer than the deadline."""
        conversation = asking_a_tool()
        conversation.cancels()
        conversation.resumes()
        assert conversation.wanted() == [ReconcileTool, StartTimer]

        conversation.timer_rings()

        conversation.rests_in(Idle)

    def test_a_result_under_the_old_id_is_too_late(self) -> None:
        """A call that is asked about is no longer run: what its dead process would have said is ignored."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("save", crash="reconcile"))
        old = conversation.running("save")
        conversation.tool_was_interrupted("save")

        step = conversation.happens(ToolComplete, effect_id=old, result=ToolResult(text="late"))

        assert step.ignored


def test_a_wait_for_a_person_is_no_wait_of_the_world() -> None:
    """What moves it next is a person: `works` says so, and the reports go by it."""
    assert [begun().state.works for begun in (asked, approving, doubting)] == [False] * 3
    assert all(begun().state.works for begun in AT_WORK)


def test_an_approval_works_after_a_restart() -> None:
    """P36, P27: the same call, and the person's word counts."""
    conversation = approving()
    conversation.resumes()
    assert conversation.rests_in(AwaitingApproval).call.name == "pay"

    conversation.allows("pay")

    assert conversation.wanted() == [Abort, ExecuteTool]


def test_a_question_survives_its_process() -> None:
    """P19: kill while waiting, restart → the same questions, the answer works."""
    conversation = asked()
    questions = conversation.asked().questions

    conversation.resumes()

    assert conversation.rests_in(AwaitingUserResponse).questions == questions
    conversation.answers({"When?": "Now"})
    assert conversation.wanted() == [PersistToolResults, Abort, ExecuteTool]


def test_messages_of_the_crashed_turn_begin_the_next_one() -> None:
    """Law 13: what was said while the process was dying is answered when the turn ends."""
    conversation = Conversation(when_busy="queue")
    conversation.says()
    conversation.says("later")
    conversation.resumes()

    conversation.model_says("Here.")

    assert conversation.wanted() == [PersistMessage, PersistMessage, DeliverToUser, RequestLlm]
    assert conversation.rests_in(LlmRequesting).turn.number == 2


def test_summarizing_is_taken_up_within_its_turn() -> None:
    """S12: the turn is left once, when the summary is there."""
    conversation = summarizing()

    conversation.resumes()

    assert conversation.rests_in(Summarizing).turn.number == 1
    assert conversation.step.ended is None
