"""A conversation that is resumed after a crash: what is requested again, what must not run twice, and what a person
decides (P27)."""

import json
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
    presets,
)

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
    suspended,
    verifying,
    waiting_for_children,
)
from ..support.cases import holds_for
from ..support.conversation import Conversation, asking, call, completing, responding, spawning, talking

TEXTS = Texts()


def refusal(act: Any, *args: Any) -> str:
    """The code of the refusal that this call raises."""
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
    suspended: (StartTimer,),
    approving: (StartTimer,),
    doubting: (),
}
"""Waits that outlive a process."""

each_at_work = holds_for("begun", list(AT_WORK))
each_for_a_person = holds_for("begun", list(FOR_A_PERSON))
each_busy = holds_for("begun", [*AT_WORK, *FOR_A_PERSON])


def without_moment(effect: Effect) -> Effect:
    """The effect without the time at which it was wanted, which differs when it is wanted again."""
    return effect.model_copy(update={"at": None}) if isinstance(effect, RequestLlm) else effect


class TestResumed:
    """Another process resumes a conversation whose process died."""

    @each_busy
    def test_the_same_is_wanted_again(self, begun: Moment) -> None:
        """P27: the same effects are wanted under the same ids, except tools; nothing enters the transcript."""
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
        """P27: the state is the same but for the number of steps and of resumes."""
        conversation = begun()
        before = conversation.state

        after = conversation.resumes().state

        book = before.book.replace(seq=before.book.seq + 1)
        assert after.model_copy(update={"resumes": 0}) == before.model_copy(update={"resumes": 0, "book": book})

    @each_at_work
    def test_an_answer_that_was_on_its_way_is_still_known(self, begun: Moment) -> None:
        """P27: an answer to an effect that the dead process started is still accepted."""
        conversation = begun()
        ids = set(conversation.in_flight())

        conversation.resumes()

        assert set(conversation.in_flight()) == ids

    def test_a_request_tells_the_time_at_which_it_is_made(self) -> None:
        """J6: the request has the same nudge and the time of the resume."""
        conversation = requesting()
        nudge = conversation.nudge()

        conversation.resumes()

        assert conversation.requests()[-1].at == conversation.now
        assert conversation.nudge() == nudge == TEXTS.nudge

    def test_a_request_taken_up_again_is_the_same_request(self) -> None:
        """P34: it is counted once."""
        conversation = requesting()

        conversation.resumes()

        assert conversation.rests_in(LlmRequesting).turn.requests == 2

    def test_timers_are_absolute(self) -> None:
        """A timer that is started again is due at the same time as before."""
        conversation = asked()
        due = conversation.asked().deadline

        conversation.resumes()

        (timer,) = conversation.step.effects
        assert isinstance(timer, StartTimer) and due is not None
        assert (timer.due, timer.effect_id) == (due.due, due.effect_id)

    def test_sub_agents_that_were_told_to_stop_are_told_again(self) -> None:
        """P26: a sub-agent does not acknowledge that it was told to stop, so that may have been lost in the crash."""
        conversation = stopping_children()
        working = [conversation.working(task) for task in ("north", "west")]

        conversation.resumes()

        assert conversation.wanted() == [SpawnSubAgent] * 2 + [CancelSubAgent] * 2 + [StartTimer]
        assert conversation.stopped() == working

    def cancelled_before_the_report(self) -> Conversation:
        """A process dies while a tool runs; a cancel comes before the resume is reported, and starts a timer."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a")
        left = tuple(conversation.in_flight())
        conversation.cancels()
        assert conversation.wanted() == [*[Abort] * len(left), StartTimer]
        conversation.happens(Resumed, open=left)
        return conversation

    def test_what_has_been_begun_since_is_not_begun_again(self) -> None:
        """P27: the report names what was left, which the timer is not. The process that died counts."""
        conversation = self.cancelled_before_the_report()

        assert conversation.wanted() == []
        assert conversation.rests_in(Cancelling).resumes == 1

    def test_a_report_comes_too_late(self) -> None:
        """P27: nothing is in flight that it names, so it does not count as a resume, however often it comes."""
        conversation = requesting()

        for _ in range(5):
            conversation.happens(Resumed, open=(1000,))

        assert conversation.wanted() == []
        assert conversation.rests_in(LlmRequesting).resumes == 0

    def test_a_report_that_names_nothing_is_about_everything(self) -> None:
        """P27: the same effects are wanted as if it had named them."""
        conversation = requesting()

        conversation.happens(Resumed)

        assert conversation.wanted() == [RequestLlm]

    @pytest.mark.parametrize("end", ["rest", "failure", "close"])
    def test_at_rest_there_is_nothing_to_take_up(self, end: str) -> None:
        """At rest, a report that the process died is ignored."""
        conversation = Conversation()
        if end == "failure":
            conversation.says()
            conversation.model_fails("authentication")
        elif end == "close":
            conversation.closes()

        assert conversation.happens(Resumed).ignored

    def test_a_turn_that_was_taken_up_goes_on_as_if_nothing_had_happened(self) -> None:
        """P27, P19: after the process was killed and another resumed the conversation, the question can be answered."""
        conversation = asked()
        conversation.resumes()

        conversation.answers({"When?": "Now"})
        conversation.tool_ends("next")
        conversation.model_says("Booked.")

        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["Booked."])


class TestOneDelivery:
    """Case S13, the pure part: a delivery is emitted once, and resuming does not emit it again."""

    def test_a_speech_before_the_crash_is_delivered_at_the_end_of_the_turn(self) -> None:
        """S13: the process dies after the tool recorded the speech and before the turn ends; the speech is delivered
        once."""
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
        """S13: the process dies while the turn is summarized, after the delivery; resuming delivers nothing."""
        conversation = summarizing()
        assert conversation.delivered() == ["A"]

        conversation.resumes()
        conversation.summary_comes()

        assert conversation.delivered() == ["A"]

    def test_a_talk_before_the_crash_is_not_repeated(self) -> None:
        """S13, B9: the speech was delivered at once, and the process died while the next tool ran."""
        conversation = Conversation(presets.talk())
        conversation.says()
        conversation.model_calls(talking(), call("bash", crash="pure"))
        conversation.tool_talks("talk", "I clean up now.")

        conversation.resumes()
        conversation.tool_was_interrupted("bash")

        assert conversation.wanted() == [ExecuteTool]
        assert conversation.delivered() == ["I clean up now."]

    def test_a_talk_that_was_interrupted_runs_again_and_is_heard_once(self) -> None:
        """B2: the tool had not answered, so nothing was delivered before it ran again."""
        conversation = Conversation(presets.talk())
        conversation.says()
        conversation.model_calls(talking(crash="pure"))
        conversation.tool_was_interrupted("talk")

        conversation.tool_talks("talk", "Hello")

        assert conversation.delivered() == ["Hello"]


class TestOverTheLimit:
    """If each process that resumes a turn dies, a person has to look at it."""

    @each_at_work
    def test_two_may_die_without_progress(self, begun: Moment) -> None:
        """`Recovery(resumes=2)`: the turn is resumed twice; the third time it ends."""
        conversation = begun()
        before = conversation.state.type
        for count in (1, 2):
            conversation.resumes()
            assert (conversation.state.type, conversation.state.resumes) == (before, count)

        conversation.resumes()

        assert conversation.state.type in ("idle", "failed")

    @each_for_a_person
    def test_a_wait_for_a_person_is_not_counted(self, begun: Moment) -> None:
        """While it waits for a person, only its timers are started again, however often the process dies."""
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
        """It fails in words for people; effects in flight are given up; nothing is delivered."""
        conversation = begun()
        in_flight = list(conversation.in_flight())
        for _ in range(3):
            conversation.resumes()

        failed = conversation.rests_in(Failed)
        assert (failed.kind, failed.sentence) == ("interrupted", TEXTS.died_too_often)
        assert conversation.stopped() == in_flight
        assert (conversation.ended.status, conversation.delivered()) == ("failed", [])

    def test_every_open_call_gets_a_result(self) -> None:
        """Law 4: the results say that running calls are in doubt and that waiting calls were interrupted."""
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
        agents = json.loads(conversation.results()["spawn"])["agents"]
        assert [agent["result"] for agent in agents] == [TEXTS.child_cancelled, "found", TEXTS.child_cancelled]
        assert [agent["status"] for agent in agents] == ["cancelled", "completed", "cancelled"]

    def test_a_call_that_is_asked_about_stays_in_doubt(self) -> None:
        """If its tool did not answer, it remains unknown whether the call ran."""
        conversation = asking_a_tool()
        for _ in range(3):
            conversation.resumes()

        assert conversation.results() == {"save": TEXTS.in_doubt, "next": TEXTS.interrupted}

    def test_doubtful_calls_stay_in_doubt(self) -> None:
        """A call in doubt and a call that was running get the same result text."""
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
        """Law 9: a person can retry it, and its history is valid."""
        conversation = executing()
        for _ in range(3):
            conversation.resumes()

        conversation.tries_again()

        assert conversation.roles() == ["user", "assistant", "tool", "tool", "tool"]
        assert conversation.rests_in(LlmRequesting).resumes == 0

    def test_what_waited_begins_the_next_turn(self) -> None:
        """Law 13: it is not lost, and is taken up as a message that comes a moment later is."""
        conversation = Conversation(when_busy="queue")
        conversation.says()
        conversation.says("later")
        for _ in range(3):
            conversation.resumes()

        begun = conversation.rests_in(LlmRequesting)
        assert (begun.turn.number, begun.inbox) == (2, ())

    def test_a_cancel_ends_as_cancelled(self) -> None:
        """A turn that was being cancelled ends as cancelled."""
        conversation = stopping()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Idle)
        assert conversation.ended.status == "cancelled"
        assert conversation.results() == {"a": TEXTS.cancelled, "b": TEXTS.cancelled, "c": TEXTS.skipped}
        assert conversation.wanted() == [PersistToolResults, Abort]

    def test_a_close_ends_closed(self) -> None:
        """A conversation that was being closed is closed."""
        conversation = executing()
        conversation.closes()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Closed)

    def test_a_summary_is_done_without(self) -> None:
        """A turn that was being summarized ends as completed, without a summary."""
        conversation = summarizing()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Idle)
        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["A"])
        assert conversation.wanted() == [Abort]

    def test_condensing_at_rest_is_done_without(self) -> None:
        """A compaction at rest ends; there is no turn that could end."""
        conversation = condensing_at_rest()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Idle)
        assert (conversation.wanted(), conversation.step.ended) == ([Abort], None)

    def test_a_failure_is_a_failure_whatever_the_policy_makes_of_others(self) -> None:
        """`on_failure="reply"` is for models that fail; a turn that kills its process rests in Failed."""
        conversation = Conversation(on_failure="reply")
        conversation.says()
        for _ in range(3):
            conversation.resumes()

        conversation.rests_in(Failed)
        assert conversation.delivered() == []

    def test_how_many_may_die_is_a_setting(self) -> None:
        """`Recovery(resumes=0)`: the first resume ends the turn."""
        conversation = Conversation(recovery=Recovery(resumes=0))
        conversation.says()

        conversation.resumes()

        conversation.rests_in(Failed)


class TestProgress:
    """An answer that moves the conversation resets the count of resumes."""

    def test_an_answer_resets_the_count(self) -> None:
        """After two resumes the model answers; two more are allowed."""
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
        """For example, one of several sub-agents or tools ends."""
        conversation = begun()
        conversation.resumes()
        conversation.resumes()

        if conversation.tools():
            conversation.tool_stops("a")
        else:
            conversation.child_finishes("north")

        assert conversation.state.resumes == 0

    def test_another_try_at_condensing_resets_it(self) -> None:
        """The compaction failed, which is an answer."""
        conversation = condensing()
        conversation.resumes()

        conversation.breaks(CompactHistory)

        assert conversation.rests_in(Compacting).resumes == 0

    def test_a_message_is_no_progress(self) -> None:
        """A turn that kills its process is not kept alive by a person who sends messages."""
        conversation = Conversation(when_busy="queue")
        conversation.says()
        conversation.resumes()
        conversation.says("Are you there?")

        assert conversation.rests_in(LlmRequesting).resumes == 1

    def test_a_report_is_no_progress(self) -> None:
        """The report of the resume and the reports of interrupted calls count as one attempt."""
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
        """The turn ended without its summary, and a message that waited began the next one: no effect has been
        answered, so the count goes on."""
        conversation = Conversation(summarize=True, when_busy="queue", models=(ModelSpec(name="small", window=1_000),))
        conversation.says()
        conversation.model_says("Here.", usage=Usage(input_tokens=tokens))
        conversation.says("later")
        for _ in range(3):
            conversation.resumes()

        assert conversation.rests_in(begun).resumes == 2

    def test_asking_a_tool_is_no_progress_until_it_answers(self) -> None:
        """Asking it may be what kills the process, and so may the run after it says that it did not run."""
        conversation = asking_a_tool()
        conversation.resumes()
        conversation.resumes()

        conversation.tool_reconciles("save", "did_not_run")
        assert conversation.rests_in(ToolExecuting).resumes == 2

        conversation.tool_ends("save", "saved")
        assert conversation.rests_in(ToolExecuting).resumes == 0


class TestInterrupted:
    """`ToolInterrupted`: the crash contract of a tool decides what becomes of a call that ran when the process died."""

    @pytest.mark.parametrize("crash", ["pure", "idempotent"])
    def test_a_call_that_may_run_again_runs_again(self, crash: str) -> None:
        """It runs under the same effect id, and so under the same idempotency key; it counts as one call."""
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
        """Its questions or sub-agents are taken once, when it ends."""
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
        """`ran` with a result: as if the tool had ended, with all its acts."""
        conversation = Conversation(presets.talk())
        conversation.says()
        conversation.model_calls(talking(crash="reconcile"), "next")
        conversation.tool_was_interrupted("talk")

        conversation.tool_reconciles("talk", "ran", "said", acts=[Speech(text="Hello", when="now")])

        assert conversation.wanted() == [PersistToolResults, DeliverToUser, ExecuteTool]
        assert conversation.results() == {"talk": "said"}
        assert conversation.delivered() == ["Hello"]

    def test_it_ran_and_nobody_knows_what_came_of_it(self) -> None:
        """`ran` without a result: the model is told so, and it is not an error."""
        conversation = asking_a_tool()

        conversation.tool_reconciles("save", "ran")

        assert conversation.results() == {"save": TEXTS.did_run}
        assert conversation.errors() == []
        assert conversation.tools() == ["next"]

    def test_it_ran_and_failed(self) -> None:
        """`ran` with an error: the result is an error."""
        conversation = asking_a_tool()

        conversation.tool_reconciles("save", "ran", "No space left.", error=True)

        assert (conversation.results(), conversation.errors()) == ({"save": "No space left."}, ["save"])

    def test_it_did_not_run(self) -> None:
        """`did_not_run`: its result is an error, and it does not run."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("save", crash="reconcile"))
        key = conversation.running("save")
        conversation.tool_was_interrupted("save")

        conversation.tool_reconciles("save", "did_not_run")

        assert conversation.wanted() == [ExecuteTool]
        assert conversation.running("save") == key

    def test_it_may_be_interrupted_once_more(self) -> None:
        """It did not run, is started, and the process dies again: its tool is asked again, under a new id."""
        conversation = asking_a_tool()
        first = conversation.asked_about("save")
        conversation.tool_reconciles("save", "did_not_run")

        conversation.tool_was_interrupted("save")

        assert conversation.asked_about("save") not in (first, None)
        conversation.tool_reconciles("save", "ran", "saved")
        assert conversation.results() == {"save": "saved"}

    @pytest.mark.parametrize("how", ["unknown", "failed", "aborted"])
    def test_the_tool_cannot_tell(self, how: str) -> None:
        """`unknown`, or the question itself failed: InDoubt. When it is cancelled, the model reads that it is unknown
        whether the call ran."""
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
        """`at_most_once`, the default of tools that declare nothing: a person has to decide."""
        conversation = doubting()

        doubt = conversation.rests_in(InDoubt)
        assert (doubt.call.name, doubt.round.doubtful) == ("pay", ("pay",))
        assert conversation.wanted() == []
        assert (conversation.results(), conversation.tools()) == ({}, [])

    def test_a_call_that_is_asked_about_is_not_interrupted(self) -> None:
        """It is not running, so the report is ignored, and the question is still open."""
        conversation = asking_a_tool()

        assert conversation.happens(ToolInterrupted, call_id="save").ignored

    @pytest.mark.parametrize("call_id", ["next", "gone", ""])
    def test_a_call_that_does_not_run_cannot_be_interrupted(self, call_id: str) -> None:
        """A report about a call that waits, or that does not exist, is ignored."""
        conversation = asking_a_tool()

        assert conversation.happens(ToolInterrupted, call_id=call_id).ignored

    def test_a_call_that_has_ended_cannot_be_interrupted(self) -> None:
        """Its result stays."""
        conversation = executing()
        conversation.tool_ends("a", "real")

        assert conversation.happens(ToolInterrupted, call_id="a").ignored
        assert conversation.results() == {"a": "real"}

    def test_calls_of_all_kinds_in_one_round(self) -> None:
        """Each follows its own contract; a call in doubt holds up the calls that wait, and nothing else."""
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
    """A person decides what became of a call."""

    def two_doubts(self) -> Conversation:
        """Two calls are in doubt, and a third waits."""
        conversation = Conversation(parallel=2)
        conversation.says()
        conversation.model_calls("pay", "post", "next")
        conversation.tool_was_interrupted("post")
        conversation.tool_was_interrupted("pay")
        return conversation

    def test_it_ran(self) -> None:
        """`ran`: its result says so and is not an error, and the round goes on."""
        conversation = doubting()

        conversation.resolves("pay", "ran")

        assert conversation.wanted() == [PersistToolResults, ExecuteTool]
        assert (conversation.results(), conversation.errors()) == ({"pay": TEXTS.did_run}, [])

    def test_it_did_not_run(self) -> None:
        """`did_not_run`: its result is an error, and it does not run."""
        conversation = doubting()

        conversation.resolves("pay", "did_not_run")

        assert conversation.tools() == ["next"]
        assert (conversation.results(), conversation.errors()) == ({"pay": TEXTS.did_not_run}, ["pay"])

    def test_it_shall_run_again(self) -> None:
        """`again`: it is started as a new effect, at its place in the round."""
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
        """P36: "again" does not ask for approval a second time."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("pay", approval=True))
        conversation.allows("pay")
        conversation.tool_was_interrupted("pay")

        conversation.resolves("pay", "again")

        assert conversation.tools() == ["pay"]

    def test_one_that_runs_again_may_be_in_doubt_again(self) -> None:
        """If the process dies once more."""
        conversation = doubting()
        conversation.resolves("pay", "again")

        conversation.tool_was_interrupted("pay")

        assert conversation.rests_in(InDoubt).round.doubtful == ("pay",)

    def test_a_person_who_decides_begins_the_limits_anew(self) -> None:
        """P34: a decision is a human input, like any other."""
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
        """P40: a wrong call id is refused with `wrong_state`; the call is still in doubt."""
        conversation = doubting()

        assert refusal(conversation.resolves, call_id, "ran") == "wrong_state"
        conversation.rests_in(InDoubt)

    def test_what_is_settled_cannot_be_resolved_again(self) -> None:
        """P18: the second of two decisions is refused."""
        conversation = doubting()
        conversation.resolves("pay", "ran")

        assert refusal(conversation.resolves, "pay", "again") == "wrong_state"

    def test_where_nothing_is_in_doubt_nothing_is_resolved(self) -> None:
        """At rest and at work it is refused with `wrong_state`."""
        assert refusal(Conversation().resolves, "pay", "ran") == "wrong_state"
        assert refusal(executing().resolves, "a", "ran") == "wrong_state"

    def test_several_are_resolved_in_the_order_in_which_they_came(self) -> None:
        """The state names the call that has waited longest; nothing starts before the last is resolved."""
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
        """Each decision names its call."""
        conversation = self.two_doubts()

        conversation.resolves("pay", "again")
        assert conversation.rests_in(InDoubt).round.doubtful == ("post",)
        assert conversation.tools() == []
        conversation.resolves("post", "ran")

        assert conversation.tools() == ["pay", "next"]

    def test_a_tool_that_ends_meanwhile_has_its_result(self) -> None:
        """Other tools of the round go on; nothing new starts."""
        conversation = doubting_while_another_runs()

        conversation.tool_ends("read", "real")
        assert conversation.rests_in(InDoubt).round.doubtful == ("pay",)
        assert conversation.tools() == []
        conversation.resolves("pay", "ran")

        assert conversation.results() == {"pay": TEXTS.did_run, "read": "real"}
        assert conversation.tools() == ["next"]

    @pytest.mark.parametrize("how", ["breaks", "stops", "asks", "speaks"])
    def test_whatever_comes_of_a_tool_meanwhile_is_taken(self, how: str) -> None:
        """A failure, an abort, a question that cannot be asked now, or a speech."""
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
        """Each report is taken by itself: a second call is then in doubt too."""
        conversation = doubting_while_another_runs()

        conversation.tool_was_interrupted("read")

        assert conversation.rests_in(InDoubt).round.doubtful == ("pay", "read")

    @pytest.mark.parametrize(("verdict", "doubtful"), [("unknown", ("pay", "save")), ("did_not_run", ("pay",))])
    def test_a_verdict_of_a_tool_meanwhile_is_taken(self, verdict: str, doubtful: tuple[str, ...]) -> None:
        """`unknown` adds a second call in doubt; after `did_not_run` the call runs beside the one in doubt."""
        conversation = Conversation(parallel=2)
        conversation.says()
        conversation.model_calls("pay", call("save", crash="reconcile"))
        conversation.tool_was_interrupted("save")
        conversation.tool_was_interrupted("pay")

        conversation.tool_reconciles("save", verdict)

        assert conversation.rests_in(InDoubt).round.doubtful == doubtful
        assert conversation.tools() == (["save"] if verdict == "did_not_run" else [])

    def test_messages_wait_for_the_verdict(self) -> None:
        """By policy they are refused with a code of their own, or wait in the inbox."""
        strict = doubting()
        patient = Conversation(when_busy="queue")
        patient.says()
        patient.model_calls("pay")
        patient.tool_was_interrupted("pay")

        patient.says("later")

        assert refusal(strict.says) == "in_doubt"
        assert len(patient.rests_in(InDoubt).inbox) == 1

    def test_answers_to_other_waits_are_refused(self) -> None:
        """No question was asked, and no approval is awaited."""
        conversation = doubting()

        assert refusal(conversation.answers, {"When?": "Now"}) == "wrong_state"
        assert refusal(conversation.allows, "pay") == "wrong_state"

    def test_a_cancel_ends_the_turn(self) -> None:
        """The result says that it is unknown whether the call ran; the other calls are skipped."""
        conversation = doubting()

        conversation.cancels()

        conversation.rests_in(Idle)
        assert conversation.results() == {"pay": TEXTS.in_doubt, "next": TEXTS.skipped}
        assert (conversation.ended.status, conversation.wanted()) == ("cancelled", [PersistToolResults])

    def test_a_cancel_stops_what_runs_first(self) -> None:
        """The other tool acknowledges the cancel; then every call has its result."""
        conversation = doubting_while_another_runs()
        conversation.cancels()
        conversation.rests_in(Cancelling)
        assert conversation.wanted() == [Abort, StartTimer]

        conversation.tool_ends("read", "real")

        conversation.rests_in(Idle)
        assert conversation.results() == {"pay": TEXTS.in_doubt, "read": "real", "next": TEXTS.skipped}

    def test_a_late_cancel_changes_nothing(self) -> None:
        """P40: a cancel that names an earlier turn is ignored."""
        assert doubting().cancels(turn=0).ignored

    @pytest.mark.parametrize("begun", [doubting, doubting_while_another_runs], ids=lambda begun: begun.__name__)
    def test_a_close_ends_the_conversation(self, begun: Moment) -> None:
        """It is closed when the running tools have stopped."""
        conversation = begun()
        conversation.closes()

        if conversation.tools():
            conversation.tool_stops("read")

        conversation.rests_in(Closed)
        assert conversation.results()["pay"] == TEXTS.in_doubt

    def test_a_claim_beside_a_call_that_did_not_run_does_not_count(self) -> None:
        """S9: the call failed, so the claim is not accepted; beside a call that ran it is."""
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
    """The process dies while a turn is being cancelled."""

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
        """Nothing runs again; for a call that must not run twice, the result says that it is unknown whether it ran."""
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
        """P7: whatever its tool answers, and also if the question fails."""
        conversation = asking_a_tool()
        conversation.cancels()

        if verdict is None:
            conversation.breaks(ReconcileTool)
        else:
            conversation.tool_reconciles("save", verdict)

        conversation.rests_in(Idle)
        assert conversation.errors() == ["save", "next"]

    def test_a_call_that_a_crash_interrupted_is_an_error(self) -> None:
        """The model must not believe that it was carried out."""
        conversation = executing()
        conversation.cancels()

        conversation.tool_was_interrupted("a")

        assert {"a"} <= set(conversation.errors())

    def test_the_others_are_waited_for(self) -> None:
        """One call was interrupted, and the other has not stopped yet."""
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
        """A real result is kept; a call that did not run stays so; otherwise it is unknown."""
        conversation = asking_a_tool()
        conversation.cancels()

        conversation.tool_reconciles("save", verdict, result)

        conversation.rests_in(Idle)
        assert conversation.results() == {"save": expected, "next": TEXTS.skipped}

    @pytest.mark.parametrize("how", ["failed", "aborted", "too late"])
    def test_a_tool_that_was_asked_and_cannot_tell(self, how: str) -> None:
        """It remains unknown whether the call ran."""
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
        """During a cancel too: its answer is awaited until the deadline of the cancel."""
        conversation = asking_a_tool()
        conversation.cancels()
        conversation.resumes()
        assert conversation.wanted() == [ReconcileTool, StartTimer]

        conversation.timer_rings()

        conversation.rests_in(Idle)

    def test_a_result_under_the_old_id_is_too_late(self) -> None:
        """After the tool was asked about the call, a result of the run that was interrupted is ignored."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("save", crash="reconcile"))
        old = conversation.running("save")
        conversation.tool_was_interrupted("save")

        step = conversation.happens(ToolComplete, effect_id=old, result=ToolResult(text="late"))

        assert step.ignored


def test_a_wait_for_a_person_is_no_wait_of_the_world() -> None:
    """`works` is false where only a person can move the state; recovery reports nothing there."""
    assert [begun().state.works for begun in (asked, approving, doubting)] == [False] * 3
    assert all(begun().state.works for begun in AT_WORK)


def test_an_approval_works_after_a_restart() -> None:
    """P36, P27: the same call still waits, and a person can approve it."""
    conversation = approving()
    conversation.resumes()
    assert conversation.rests_in(AwaitingApproval).call.name == "pay"

    conversation.allows("pay")

    assert conversation.wanted() == [Abort, ExecuteTool]


def test_a_question_survives_its_process() -> None:
    """P19: the process is killed while it waits; the next one shows the same questions and takes the answer."""
    conversation = asked()
    questions = conversation.asked().questions

    conversation.resumes()

    assert conversation.rests_in(AwaitingUserResponse).questions == questions
    conversation.answers({"When?": "Now"})
    assert conversation.wanted() == [PersistToolResults, Abort, ExecuteTool]


def test_messages_of_the_crashed_turn_begin_the_next_one() -> None:
    """Law 13: a message that came before the crash is answered when the turn has ended."""
    conversation = Conversation(when_busy="queue")
    conversation.says()
    conversation.says("later")
    conversation.resumes()

    conversation.model_says("Here.")

    assert conversation.wanted() == [PersistMessage, PersistMessage, DeliverToUser, RequestLlm]
    assert conversation.rests_in(LlmRequesting).turn.number == 2


def test_summarizing_is_taken_up_within_its_turn() -> None:
    """S12: the turn ends once, when the summary is there."""
    conversation = summarizing()

    conversation.resumes()

    assert conversation.rests_in(Summarizing).turn.number == 1
    assert conversation.step.ended is None
