"""Turns, tools and questions as the pure machine plays them: no engine, no clock, no store."""

import json
from typing import Any

import pytest

from turnwise.states import (
    Abort,
    AgentMessage,
    AwaitingApproval,
    AwaitingUserResponse,
    CallRestricted,
    Cancelling,
    Closed,
    CloseRequested,
    CompactionRequested,
    Context,
    DeadlineReached,
    DeliverToUser,
    DetailsChanged,
    ExecuteTool,
    Failed,
    Failure,
    Idle,
    InDoubt,
    Limits,
    LlmRequesting,
    LlmResponse,
    Made,
    MessageWithdrawn,
    ModelSpec,
    Opened,
    PersistMessage,
    PersistToolResults,
    Policy,
    PolicyChanged,
    ProfileTransferred,
    QuestionOption,
    Questions,
    Refused,
    RequestLlm,
    Resumed,
    Retry,
    RetryDue,
    RetryRequested,
    RetryWaiting,
    ScheduleChanged,
    StartTimer,
    Summarizing,
    Texts,
    ToolComplete,
    ToolExecuting,
    ToolResult,
    ToolsChanged,
    Usage,
    UserCancel,
    UserMessage,
    UserQuestion,
    UserQuestionResponse,
    WakeUp,
    next_events,
    presets,
    transition,
)
from turnwise.states.events import BRANCHING
from turnwise.testing.strategies import NOON

from ..support.busy_states import IN_TURN, Moment, stopping_children
from ..support.conversation import Conversation, asking, call, question

TEXTS = Texts()
SETTINGS = {ToolsChanged, DetailsChanged, ScheduleChanged, ProfileTransferred}
TWO_MODELS = (ModelSpec(name="first"), ModelSpec(name="second"))


def refusal(act: Any, *args: Any, **fields: Any) -> Refused:
    """The refusal that this call raises."""
    with pytest.raises(Refused) as refused:
        act(*args, **fields)
    return refused.value


@pytest.fixture(params=IN_TURN, ids=lambda moment: moment.__name__)
def busy(request: pytest.FixtureRequest) -> Conversation:
    """A conversation in each state within a turn."""
    moment: Moment = request.param
    return moment()


def asked(*questions: UserQuestion, **rules: Any) -> Conversation:
    """A conversation that waits for an answer to these questions, or to "When?"."""
    conversation = Conversation(questions=Questions(**rules))
    conversation.says()
    conversation.model_calls(asking())
    conversation.tool_asks("ask", *questions)
    return conversation


class TestAMessage:
    """From a person's message to the answer of the model."""

    def test_a_message_is_kept_and_the_model_is_asked(self) -> None:
        """P1: Idle + UserMessage → LlmRequesting; effects exactly: PersistMessage, RequestLlm."""
        conversation = Conversation()

        conversation.says("Hello")

        assert conversation.rests_in(LlmRequesting).attempt == 1
        assert conversation.wanted() == [PersistMessage, RequestLlm]

    def test_the_same_arguments_give_the_same_step(self) -> None:
        """P1: same arguments twice → equal steps."""
        message = UserMessage(event_id="1", at=NOON, text="Hello")

        once, again = (transition(Idle(), message, Context()) for _ in range(2))

        assert once == again

    def test_the_text_of_the_model_ends_the_turn(self) -> None:
        """Text without calls is the answer."""
        conversation = Conversation()
        conversation.says("Hello")

        step = conversation.model_says("Good evening")

        conversation.rests_in(Idle)
        assert conversation.wanted() == [PersistMessage, DeliverToUser]
        assert step.ended is not None and step.ended.status == "completed"
        assert [message.text for message in conversation.transcript] == ["Hello", "Good evening"]

    def test_a_message_while_busy_is_refused(self) -> None:
        """P2: `Refused` with the code `busy`; the state is equal, nothing is persisted, and the caller learns it at
        once."""
        conversation = Conversation()
        before = conversation.says("Hello").state

        refused = refusal(conversation.says, "Are you there?")

        assert refused.code == "busy"
        assert conversation.state == before
        assert len(conversation.transcript) == 1

    def test_every_busy_state_refuses_a_message(self, busy: Conversation) -> None:
        """P2, P19: the code says which answer of a person is awaited; otherwise it is `busy`."""
        waits = {
            AwaitingUserResponse: "awaiting_user_response",
            AwaitingApproval: "awaiting_approval",
            InDoubt: "in_doubt",
        }

        refused = refusal(busy.says)

        assert refused.code == waits.get(type(busy.state), "busy")

    def test_a_conversation_opens_once(self) -> None:
        """A second `Opened` is refused: the first event of a log sets the rules of the conversation."""
        conversation = Conversation()

        assert refusal(conversation.happens, Opened).code == "already_open"

    def test_rules_change_at_rest_only(self) -> None:
        """`PolicyChanged` is refused during a turn, so that a turn ends under the rules that it began with."""
        conversation = Conversation()
        conversation.changes_rules(models=TWO_MODELS)
        conversation.says()

        assert refusal(conversation.changes_rules).code == "busy"
        assert conversation.requests()[-1].model == "first"


class TestTools:
    """A round of tools, one after the other or several at once."""

    def test_tools_run_one_at_a_time_and_in_order(self) -> None:
        """P4: calls [a, b, c], serial → run in order, one at a time; after c the model is asked once."""
        conversation = Conversation()
        conversation.says()

        ran = []
        conversation.model_calls("a", "b", "c")
        while conversation.tools():
            ran.append(conversation.tools())
            conversation.tool_ends(ran[-1][0])

        assert ran == [["a"], ["b"], ["c"]]
        assert conversation.wanted() == [PersistToolResults, RequestLlm]
        assert conversation.roles() == ["user", "assistant", "tool", "tool", "tool"]

    def test_results_stand_in_call_order_whatever_ends_first(self) -> None:
        """P4: results stand in call order, ids paired."""
        conversation = Conversation(parallel=3)
        conversation.says()
        conversation.model_calls("a", "b", "c")

        for name in "cab":
            conversation.tool_ends(name, f"of {name}")

        assert list(conversation.results().items()) == [("a", "of a"), ("b", "of b"), ("c", "of c")]
        assert len(conversation.requests()) == 2

    def test_no_more_tools_run_than_the_policy_allows(self) -> None:
        """When a running call ends, the next one starts."""
        conversation = Conversation(parallel=2)
        conversation.says()

        conversation.model_calls("a", "b", "c", "d")
        conversation.tool_ends("b")

        assert conversation.tools() == ["a", "c"]

    def test_an_exclusive_call_runs_alone(self) -> None:
        """It waits for the calls before it, and the calls behind it wait for its end."""
        conversation = Conversation(parallel=3)
        conversation.says()

        conversation.model_calls("a", call("b", exclusive=True), "c")
        alone = [conversation.tools()]
        for name in "ab":
            conversation.tool_ends(name)
            alone.append(conversation.tools())

        assert alone == [["a"], ["b"], ["c"]]

    def test_a_tool_that_fails_gives_an_error_result(self) -> None:
        """P5: b raises → an error result that names the fault, c still runs, the model is asked once."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("b", "c")

        conversation.tool_ends("b", "No such file: plan.txt", error=True)
        conversation.tool_ends("c")

        errors = {message.tool_call_id: message.error for message in conversation.transcript if message.role == "tool"}
        assert errors == {"b": True, "c": False}
        assert len(conversation.requests()) == 2

    def test_a_tool_that_cannot_be_run_gives_an_error_result(self) -> None:
        """P5: b exceeds its timeout → an error result for b that names the fault, c still runs."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("b", "c")

        conversation.tool_breaks("b", "It took longer than 10 s.")

        assert conversation.results() == {"b": "It took longer than 10 s."}
        assert conversation.tools() == ["c"]

    def test_a_call_with_a_fault_never_runs(self) -> None:
        """P5: b does not exist or gets malformed arguments → its fault is its result, a and c run."""
        conversation = Conversation(parallel=3)
        conversation.says()

        conversation.model_calls("a", call("b", fault="There is no tool called b."), "c")

        assert conversation.tools() == ["a", "c"]
        assert conversation.results() == {"b": "There is no tool called b."}

    def test_when_every_call_has_a_fault_the_model_is_asked_again(self) -> None:
        """P5: nothing runs, the model is asked once."""
        conversation = Conversation()
        conversation.says()

        conversation.model_calls(call("a", fault="No."), call("b", fault="Neither."))

        conversation.rests_in(LlmRequesting)
        assert conversation.wanted() == [PersistMessage, PersistToolResults, RequestLlm]


class TestCancel:
    """A person stops the turn."""

    def test_a_cancel_stops_what_runs_and_skips_the_rest(self) -> None:
        """P6: results a = real, b = "Cancelled by user", c = "Skipped: the turn was cancelled"; Idle."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a", "b", "c")
        conversation.tool_ends("a", "real")
        running = conversation.running("b")

        conversation.cancels()
        assert conversation.stopped() == [running]
        step = conversation.tool_stops("b")

        conversation.rests_in(Idle)
        assert conversation.results() == {"a": "real", "b": TEXTS.cancelled, "c": TEXTS.skipped}
        assert step.ended is not None and step.ended.status == "cancelled"

    def test_after_a_cancel_the_next_message_sends_a_valid_history(self) -> None:
        """P6: the next message sends a valid history (law 4 holds in its request)."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a", "b")
        conversation.cancels()
        conversation.tool_stops("a")

        conversation.says("Something else, then")

        assert conversation.roles() == ["user", "assistant", "tool", "tool", "user"]

    def test_a_tool_that_ignores_the_cancel_is_not_waited_for(self) -> None:
        """P6: a b that ignores cancellation delays the end by no more than the deadline."""
        conversation = Conversation(cancel_deadline=5.0)
        conversation.says()
        conversation.model_calls("b")
        conversation.cancels()
        patience = conversation.rests_in(Cancelling).deadline.due - conversation.now

        conversation.timer_rings()

        assert patience.total_seconds() == 5.0
        conversation.rests_in(Idle)
        assert conversation.results() == {"b": TEXTS.cancelled}

    def test_all_that_run_are_stopped_and_waited_for(self) -> None:
        """P6, in parallel: the turn ends with the last acknowledgement, and the timer of the deadline is stopped."""
        conversation = Conversation(parallel=2)
        conversation.says()
        conversation.model_calls("a", "b", "c")
        conversation.cancels()
        conversation.tool_stops("b")
        deadline = conversation.rests_in(Cancelling).deadline

        conversation.tool_stops("a")

        conversation.rests_in(Idle)
        assert conversation.stopped() == [deadline.effect_id]

    def test_a_tool_that_finishes_as_it_is_cancelled_keeps_its_result(self) -> None:
        """P7: b finishes in the same instant as the cancel → one result for b, never two."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("b")
        conversation.cancels()

        conversation.tool_ends("b", "real")

        conversation.rests_in(Idle)
        assert conversation.results() == {"b": "real"}

    def test_a_tool_that_ends_after_the_turn_changes_nothing(self) -> None:
        """P7: a ToolComplete after Idle changes nothing."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("b")
        late = conversation.running("b")
        conversation.cancels()
        conversation.timer_rings()

        step = conversation.happens(ToolComplete, effect_id=late, result=ToolResult(text="late"))

        assert step.ignored
        assert conversation.results() == {"b": TEXTS.cancelled}

    def test_a_question_that_comes_after_the_cancel_is_not_asked(self) -> None:
        """The person has already cancelled the turn."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(asking())
        conversation.cancels()

        conversation.tool_asks()

        conversation.rests_in(Idle)
        assert conversation.results() == {"ask": TEXTS.cancelled}

    def test_a_cancel_while_the_model_answers_stops_the_request(self) -> None:
        """P8: the request is aborted, and the turn is over as soon as the model has said what it had written."""
        conversation = Conversation()
        conversation.says()
        in_flight = conversation.flying(RequestLlm)

        conversation.happens(UserCancel)

        assert conversation.rests_in(Cancelling).answering == in_flight
        assert conversation.stopped() == [in_flight]
        conversation.model_stops("A table for")
        conversation.rests_in(Idle)
        assert conversation.roles() == ["user", "assistant"]

    def test_a_late_response_is_ignored_even_after_a_new_request_began(self) -> None:
        """P8: the late response is ignored even after a new request began."""
        conversation = Conversation()
        conversation.says()
        late = conversation.flying(RequestLlm)
        conversation.cancels()
        conversation.says("Something else")

        step = conversation.happens(LlmResponse, effect_id=late, content="About the first")

        assert step.ignored
        assert conversation.roles() == ["user", "user"]

    def test_a_cancel_in_backoff_stops_the_timer(self) -> None:
        """P9: cancel in backoff, new message, one more failure → never two requests; the old timer changes nothing."""
        conversation = Conversation()
        conversation.says()
        conversation.model_fails()
        old_timer = conversation.flying(StartTimer)
        conversation.cancels()
        assert conversation.stopped() == [old_timer]
        conversation.says()
        conversation.model_fails()

        assert conversation.happens(RetryDue, effect_id=old_timer).ignored
        conversation.rests_in(RetryWaiting)

    def test_a_cancel_where_nothing_runs_does_nothing(self) -> None:
        """P10: cancel in Idle, Failed, Closed, Cancelling → no-op, no error."""
        idle, failed, closed, cancelling = (Conversation() for _ in range(4))
        failed.says()
        failed.model_fails("authentication")
        closed.closes()
        cancelling.says()
        cancelling.model_calls("a")
        cancelling.cancels()

        steps = [conversation.cancels() for conversation in (idle, failed, closed, cancelling)]

        assert [type(step.state) for step in steps] == [Idle, Failed, Closed, Cancelling]
        assert all(step.ignored for step in steps)

    def test_a_cancel_of_an_earlier_turn_does_nothing(self, busy: Conversation) -> None:
        """P40: a cancel that names an earlier turn (a late click) changes nothing: no-op."""
        assert busy.cancels(turn=busy.state.book.turn - 1).ignored

    def test_a_cancel_that_names_the_question_reaches_it(self) -> None:
        """P40: a page names the call that it shows; while that question waits, it is cancelled."""
        conversation = asked()

        conversation.happens(UserCancel, call_id="ask")

        conversation.rests_in(Idle)
        assert conversation.results() == {"ask": TEXTS.question_cancelled}

    def test_a_cancel_of_an_earlier_question_does_nothing(self) -> None:
        """P40: it cancels neither the question that is asked now nor the turn."""
        conversation = asked()

        assert conversation.happens(UserCancel, call_id="earlier").ignored
        conversation.answers({"When?": "Now"})
        assert conversation.happens(UserCancel, call_id="ask").ignored

    def test_a_cancel_that_names_the_turn_reaches_it(self) -> None:
        """P40: a handle names the turn that it last saw; while that turn runs, it is cancelled."""
        conversation = Conversation()
        conversation.says()

        conversation.cancels(turn=1)

        conversation.rests_in(Idle)


class TestClosing:
    """A closed conversation stays closed."""

    def test_a_close_stops_the_turn_first(self, busy: Conversation) -> None:
        """What runs is aborted as by a cancel, every call gets its result, and then the conversation is closed. A turn
        that had already come to its end keeps its status."""
        status = "completed" if isinstance(busy.state, Summarizing) else "cancelled"
        busy.closes()
        for name in busy.tools():
            busy.tool_stops(name)
        if isinstance(busy.state, Cancelling):
            busy.timer_rings()

        busy.rests_in(Closed)
        assert busy.ended.status == status

    def test_a_close_never_lets_a_question_go_on(self) -> None:
        """Closing a question under `cancel="resume"` still ends the turn."""
        conversation = Conversation(questions=Questions(cancel="resume"))
        conversation.says()
        conversation.model_calls(asking())
        conversation.tool_asks()

        conversation.closes()

        conversation.rests_in(Closed)
        assert conversation.results() == {"ask": TEXTS.question_cancelled}

    @pytest.mark.parametrize("kind", [UserMessage, RetryRequested, PolicyChanged, Opened])
    def test_a_closed_conversation_refuses_requests(self, kind: type[Any]) -> None:
        """Every request is refused with the code `closed`."""
        conversation = Conversation()
        conversation.closes()
        fields = {UserMessage: {"text": "Hello?"}, PolicyChanged: {"policy": Policy()}}.get(kind, {})

        assert refusal(conversation.happens, kind, **fields).code == "closed"

    def test_a_second_close_does_nothing(self) -> None:
        """It is a no-op."""
        conversation = Conversation()
        conversation.closes()

        assert conversation.closes().ignored


class TestFailures:
    """Model requests that fail are retried, then sent to the next model; then the turn fails."""

    def test_a_passing_failure_is_tried_again(self) -> None:
        """P11: retryable failure once, then success → one answer."""
        conversation = Conversation()
        conversation.says()

        conversation.model_fails("server_error")
        conversation.timer_rings()
        step = conversation.model_says("Here I am")

        assert step.ended is not None and step.ended.status == "completed"
        assert conversation.roles() == ["user", "assistant"]

    def test_each_wait_is_longer_than_the_one_before(self) -> None:
        """1 s, then 2 s: `base` times `factor` for each further attempt."""
        conversation = Conversation(retry=Retry(attempts=3, base=1.0, factor=2.0))
        conversation.says()

        waits = []
        for _ in range(2):
            conversation.model_fails()
            waits.append((conversation.rests_in(RetryWaiting).timer.due - conversation.now).total_seconds())
            conversation.timer_rings()

        assert waits == [1.0, 2.0]
        assert conversation.rests_in(LlmRequesting).attempt == 3

    def test_a_wait_is_not_shorter_than_the_provider_asks(self) -> None:
        """Retry-After is used where it is longer than the wait that the policy asks for."""
        conversation = Conversation()
        conversation.says()

        conversation.model_fails("rate_limit", retry_after=30.0)

        assert (conversation.rests_in(RetryWaiting).timer.due - conversation.now).total_seconds() == 30.0

    def test_with_one_model_three_failures_end_the_turn(self) -> None:
        """P11: three times, no next model → Failed, "Failed after 3 attempts: …"."""
        conversation = Conversation()
        conversation.says()

        for _ in range(2):
            conversation.model_fails("timeout")
            conversation.timer_rings()
        step = conversation.model_fails("timeout")

        failed = conversation.rests_in(Failed)
        assert (failed.kind, failed.sentence) == ("timeout", "Failed after 3 attempts: The model is not well.")
        assert step.ended is not None and step.ended.status == "failed"

    def test_with_two_models_the_second_is_asked_next(self) -> None:
        """P11: three times → the next model of the policy, with attempts of its own, kept to the end of the turn."""
        conversation = Conversation(models=TWO_MODELS, retry=Retry(attempts=2))
        conversation.says()
        conversation.model_fails()
        conversation.timer_rings()

        conversation.model_fails()
        assert conversation.rests_in(LlmRequesting).attempt == 1
        conversation.model_calls("a")
        conversation.tool_ends("a")

        assert [request.model for request in conversation.requests()] == ["first", "first", "second", "second"]

    def test_when_the_last_model_fails_the_turn_fails(self) -> None:
        """P11: none left → Failed."""
        conversation = Conversation(models=TWO_MODELS, retry=Retry(attempts=1))
        conversation.says()

        conversation.model_fails()
        conversation.model_fails()

        assert conversation.rests_in(Failed).sentence == "The model is not well."

    @pytest.mark.parametrize("kind", ["authentication", "invalid_request", "content_filter"])
    def test_a_failure_that_would_come_again_ends_the_turn_at_once(self, kind: str) -> None:
        """P11: authentication, invalid request, content filter → Failed at once, though a second model is there."""
        conversation = Conversation(models=TWO_MODELS)
        conversation.says()

        conversation.model_fails(kind)

        assert conversation.rests_in(Failed).kind == kind
        assert conversation.wanted() == []

    def test_a_provider_that_asks_for_too_long_is_not_waited_for(self) -> None:
        """P11: retry_after longer than `cap` → the next model at once."""
        conversation = Conversation(models=TWO_MODELS)
        conversation.says()

        conversation.model_fails("rate_limit", retry_after=61.0)

        conversation.rests_in(LlmRequesting)
        assert conversation.requests()[-1].model == "second"

    def test_after_a_failure_a_message_goes_on(self) -> None:
        """P11: Failed + UserMessage → LlmRequesting, attempt 1, and the first model again."""
        conversation = Conversation(models=TWO_MODELS, retry=Retry(attempts=1))
        conversation.says()
        conversation.model_fails()
        conversation.model_fails()

        conversation.says("And now?")

        assert conversation.rests_in(LlmRequesting).attempt == 1
        assert conversation.requests()[-1].model == "first"

    def test_a_failed_turn_can_be_tried_again(self) -> None:
        """`RetryRequested` begins a turn of its own that sends the request again; no message is added."""
        conversation = Conversation()
        conversation.says("Hello")
        conversation.model_fails("authentication")

        conversation.tries_again()

        assert conversation.rests_in(LlmRequesting).turn.number == 2
        assert conversation.wanted() == [RequestLlm]
        assert conversation.roles() == ["user"]

    def test_where_nothing_failed_nothing_is_tried_again(self) -> None:
        """A retry in Idle is refused with `wrong_state`."""
        assert refusal(Conversation().tries_again).code == "wrong_state"


class TestQuestions:
    """The model asks its user."""

    def in_the_middle(self, **rules: Any) -> Conversation:
        """A conversation whose model has called [read, ask, write]."""
        conversation = Conversation(parallel=3, questions=Questions(**rules))
        conversation.says()
        conversation.model_calls("read", asking(), "write")
        return conversation

    def test_a_question_is_put_to_the_person(self) -> None:
        """P12: → AwaitingUserResponse with the questions in the state; no other tool ran."""
        conversation = asked(question("When?", "6:30 PM", "8:15 PM"))

        assert [asked.question for asked in conversation.asked().questions] == ["When?"]
        assert conversation.tools() == []

    def test_a_question_state_is_written_with_its_questions(self) -> None:
        """P38, the pure part: the state is published with its type and its questions, under the names of the seed."""
        conversation = asked(question("When?", multi_select=True))

        written = json.loads(conversation.state.to_json())

        assert written["type"] == "awaiting_user_response"
        assert written["questions"][0]["question"] == "When?"
        assert written["questions"][0]["multiSelect"] is True

    def test_a_cancelled_question_rests_idle_and_ends_the_turn(self) -> None:
        """P38, the pure part: after a cancel the conversation rests in `idle`, and the same step says that the turn
        ended."""
        step = asked().cancels()

        assert step.state.type == "idle"
        assert step.ended is not None and step.ended.status == "cancelled"

    def test_a_pending_question_wants_nothing_from_the_world(self) -> None:
        """P39: pending → AwaitingUserResponse with no outside effect (default: no deadline)."""
        conversation = asked()

        assert conversation.wanted() == []
        assert conversation.asked().deadline is None

    def test_a_deadline_is_a_timer(self) -> None:
        """P39: a timer only if a deadline is set."""
        conversation = asked(deadline=60)

        assert conversation.wanted() == [StartTimer]

    def test_an_answer_with_nothing_queued_asks_the_model(self) -> None:
        """P39: → LlmRequesting, attempt 1; effects exactly: persist the tool result, request the model."""
        conversation = asked()

        conversation.answers({"When?": "Now"})

        assert conversation.rests_in(LlmRequesting).attempt == 1
        assert conversation.wanted() == [PersistToolResults, RequestLlm]

    def test_an_answer_with_calls_queued_runs_the_first_of_them(self) -> None:
        """P39: → ToolExecuting with the first of them; effects exactly: persist the result, execute that call."""
        conversation = self.in_the_middle()
        conversation.tool_ends("read")
        conversation.tool_asks()

        conversation.answers({"When?": "Now"})

        conversation.rests_in(ToolExecuting)
        assert conversation.wanted() == [PersistToolResults, ExecuteTool]
        assert conversation.tools() == ["write"]

    def test_a_question_keeps_its_place_among_the_calls(self) -> None:
        """P13: [read, ask, write]: read runs, the question waits, write runs after the answer, one paired round."""
        conversation = self.in_the_middle()

        assert conversation.tools() == ["read"]
        conversation.tool_ends("read")
        assert conversation.tools() == ["ask"]
        conversation.tool_asks()
        assert conversation.tools() == []
        conversation.answers({"When?": "Now"})
        conversation.tool_ends("write")

        assert list(conversation.results()) == ["read", "ask", "write"]
        assert len(conversation.requests()) == 2

    def test_a_question_that_must_stand_alone_is_not_asked_beside_others(self) -> None:
        """P13, `alone`: every call gets an error result, the model is asked again, and the user sees nothing."""
        conversation = self.in_the_middle(alongside="alone")

        conversation.rests_in(LlmRequesting)
        assert set(conversation.results().values()) == {TEXTS.question_not_alone}
        assert conversation.wanted() == [PersistMessage, PersistToolResults, RequestLlm]

    def test_a_question_alone_is_asked_where_it_must_stand_alone(self) -> None:
        """P13, `alone`: a response with nothing but the question is accepted."""
        assert len(asked(alongside="alone").asked().questions) == 1

    def test_a_tool_that_may_not_pause_the_others_cannot_ask(self) -> None:
        """A question of a tool that is not exclusive, while others run, gets an error result."""
        conversation = Conversation(parallel=2)
        conversation.says()
        conversation.model_calls("read", "ask")

        conversation.tool_asks("ask")

        assert conversation.results() == {"ask": TEXTS.question_not_exclusive}
        assert conversation.tools() == ["read"]

    def test_a_message_does_not_answer_a_question(self) -> None:
        """P19: a UserMessage while a question waits is `Refused` with `awaiting_user_response`."""
        assert refusal(asked().says).code == "awaiting_user_response"


class TestAnswers:
    """A person answers, and the model reads the answers."""

    DINNER = (
        question("When?", "6:30 PM", "8:15 PM"),
        question("Where?", "Inside", "Outside", multi_select=True),
    )

    def test_the_model_reads_the_answers_as_json(self) -> None:
        """P14: the tool result is `{"answers": {question text: label}}`, in the shape that was sent."""
        conversation = asked(*self.DINNER)

        conversation.answers({"When?": "8:15 PM", "Where?": ["Inside", "Outside"]})

        read = json.loads(conversation.results()["ask"])
        assert read == {"answers": {"When?": "8:15 PM", "Where?": ["Inside", "Outside"]}}

    def test_the_model_reads_the_answers_as_text(self) -> None:
        """P14, readable: question, label, preview of the chosen option, notes, in question order."""
        table = QuestionOption(label="A table", preview="[ ]--[ ]")
        which = question().model_copy(
            update={"question": "Which?", "options": (table, QuestionOption(label="A bench"))}
        )
        conversation = asked(question("When?"), which, answer="readable")

        conversation.answers({"Which?": "A table", "When?": "Now"}, annotations={"When?": {"notes": "or soon"}})

        assert conversation.results()["ask"] == (
            "Question: When?\nAnswer: Now\nNotes: or soon\n\nQuestion: Which?\nAnswer: A table\nPreview: [ ]--[ ]"
        )

    @pytest.mark.parametrize(
        ("answers", "code", "subject"),
        [
            ({"When?": "Now", "Why?": "Because"}, "unknown_question", "Why?"),
            ({}, "missing_answer", "When?"),
            ({"When?": ""}, "missing_answer", "When?"),
            ({"When?": []}, "missing_answer", "When?"),
            ({"When?": ["Now", "Later"]}, "invalid_answer", "When?"),
        ],
    )
    def test_answers_that_do_not_fit_are_refused(self, answers: dict[str, Any], code: str, subject: str) -> None:
        """P14: an unknown question, a missing answer, a list for a single choice → a typed refusal, still waiting."""
        conversation = asked(question("When?"))

        refused = refusal(conversation.answers, answers)

        assert (refused.code, refused.subject) == (code, subject)
        assert subject in refused.sentence
        conversation.rests_in(AwaitingUserResponse)

    @pytest.mark.parametrize("answers", [{}, {"Why?": "Because"}, {"When?": ["Now", "Later"]}])
    def test_partial_answers_are_taken_as_given(self, answers: dict[str, Any]) -> None:
        """P14, `partial`: missing answers are accepted."""
        conversation = asked(question("When?"), partial=True)

        conversation.answers(answers)

        assert json.loads(conversation.results()["ask"]) == {"answers": answers}

    @pytest.mark.parametrize("given", ["a, b", ["a", "b, c"], 'He said "no"\nand left', "それでいい 👍", "{}"])
    def test_answers_arrive_verbatim(self, given: Any) -> None:
        """P15: several choices arrive unambiguously; free text verbatim: quotes, newlines, any script."""
        conversation = asked(question("Which?", "a", "b, c", multi_select=True))

        conversation.answers({"Which?": given})

        assert json.loads(conversation.results()["ask"])["answers"] == {"Which?": given}

    def test_four_questions_of_both_kinds_are_answered_together(self) -> None:
        """P15: four questions in one call, single and multi-select mixed."""
        conversation = asked(*(question(f"{n}?", multi_select=n % 2 == 0) for n in range(4)))
        answers = {"0?": ["Now", "Later"], "1?": "Now", "2?": "Now", "3?": "When it rains"}

        conversation.answers(answers)

        assert json.loads(conversation.results()["ask"])["answers"] == answers

    def test_a_second_answer_comes_too_late(self) -> None:
        """P18: second answer after the first → `Refused` `wrong_state`, nothing doubled."""
        conversation = asked()
        conversation.answers({"When?": "Now"})

        assert refusal(conversation.answers, {"When?": "Later"}).code == "wrong_state"
        assert json.loads(conversation.results()["ask"])["answers"] == {"When?": "Now"}

    @pytest.mark.parametrize("partial", [False, True])
    def test_an_answer_to_an_earlier_question_is_refused(self, partial: bool) -> None:
        """P40: an answer that names an earlier question (a late click) → `Refused` `wrong_state`."""
        conversation = asked(partial=partial)

        assert refusal(conversation.answers, {"When?": "Now"}, call_id="an earlier one").code == "wrong_state"

    def test_an_answer_that_names_its_question_is_taken(self) -> None:
        """P40: a handle names the question that it last saw."""
        conversation = asked()

        conversation.answers({"When?": "Now"}, call_id="ask")

        conversation.rests_in(LlmRequesting)

    def test_where_nothing_was_asked_nothing_is_answered(self) -> None:
        """An answer in Idle is refused with `wrong_state`."""
        assert refusal(Conversation().answers, {"When?": "Now"}).code == "wrong_state"

    def test_a_late_answer_is_told_what_is_wrong(self) -> None:
        """The sentence of the refusal says that no question waits, whether another one does or none."""
        late = refusal(asked().answers, {"When?": "Now"}, call_id="an earlier one")

        assert late.sentence == "No question waits for this answer."
        assert refusal(Conversation().answers, {"When?": "Now"}).sentence == late.sentence

    def test_when_nobody_answers_in_time_the_model_goes_on(self) -> None:
        """At the deadline the model is told so, and the round goes on."""
        conversation = asked(deadline=60)

        conversation.timer_rings()

        conversation.rests_in(LlmRequesting)
        assert conversation.results() == {"ask": TEXTS.unanswered}

    def test_an_answer_takes_the_deadline_back(self) -> None:
        """The timer of a question that was answered is stopped."""
        conversation = asked(deadline=60)
        timer = conversation.flying(StartTimer)

        conversation.answers({"When?": "Now"})

        assert conversation.stopped() == [timer]


class TestACancelledQuestion:
    """Case P17: `idle` ends the turn, `resume` lets the model go on."""

    def waiting(self, cancel: str) -> Conversation:
        """A conversation that waits for an answer, with a call queued behind the question."""
        conversation = Conversation(questions=Questions(cancel=cancel, deadline=60))
        conversation.says()
        conversation.model_calls(asking(), "write")
        conversation.tool_asks()
        return conversation

    def test_idle_ends_the_turn(self) -> None:
        """P17: → Idle, result "User cancelled the question", queued calls "Skipped: the turn was cancelled"."""
        conversation = self.waiting("idle")

        step = conversation.cancels()

        conversation.rests_in(Idle)
        assert conversation.results() == {"ask": TEXTS.question_cancelled, "write": TEXTS.skipped}
        assert conversation.wanted() == [PersistToolResults, Abort]
        assert step.ended is not None and step.ended.final_content is None

    def test_resume_lets_the_model_go_on(self) -> None:
        """P17: the model reads that the user declined, and goes on; both calls are paired."""
        conversation = self.waiting("resume")

        conversation.cancels()

        assert conversation.tools() == ["write"]
        conversation.tool_ends("write")
        conversation.rests_in(LlmRequesting)
        assert conversation.results() == {"ask": TEXTS.declined, "write": "done"}


class TestEndings:
    """Responses without an answer, and limits."""

    def test_an_empty_response_ends_the_turn_with_a_sentence(self) -> None:
        """P30: an empty response has a defined ending."""
        conversation = Conversation()
        conversation.says()

        step = conversation.model_says("")

        conversation.rests_in(Idle)
        assert step.ended is not None
        assert (step.ended.status, step.ended.final_content) == ("incomplete", Made(text=TEXTS.ending))
        assert conversation.transcript[-1].text == TEXTS.ending

    def test_an_empty_response_after_tools_is_asked_for_in_other_words(self) -> None:
        """P30, J11: an empty response after tools leads to the fallback prompt, once; a second one has a defined
        ending."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a")
        conversation.tool_ends("a")

        conversation.model_says("")
        assert conversation.nudge() == TEXTS.fallback
        step = conversation.model_says("")

        conversation.rests_in(Idle)
        assert step.ended is not None and step.ended.final_content == Made(text=TEXTS.ending)
        assert conversation.delivered() == [TEXTS.ending]

    def test_who_ends_by_a_claim_is_not_asked_for_plain_words(self) -> None:
        """S10, P30: with explicit responses the nudge asks for the tools, since a plain text would not be delivered."""
        conversation = Conversation(presets.explicit_response())
        conversation.says()
        conversation.model_calls("a")
        conversation.tool_ends("a")

        for _ in range(2):
            conversation.model_says("")
            assert conversation.nudge() == TEXTS.nudge
        conversation.model_says("")

        assert (conversation.ended.status, conversation.delivered()) == ("incomplete", [TEXTS.ending])

    def test_an_answer_to_the_fallback_prompt_is_an_answer(self) -> None:
        """P30: the prompt is in no later request and not in the transcript."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a")
        conversation.tool_ends("a")
        conversation.model_says(" ")

        step = conversation.model_says("Here.")

        assert step.ended is not None and step.ended.status == "completed"
        assert conversation.roles() == ["user", "assistant", "tool", "assistant", "assistant"]

    def test_an_empty_response_may_be_silence_by_policy(self) -> None:
        """P30: the turn is incomplete, its status says that it is silent, and nothing is delivered."""
        conversation = Conversation(texts=Texts(ending=""))
        conversation.says()

        step = conversation.model_says("")

        assert step.ended is not None
        assert (step.ended.status, step.ended.silent, step.ended.final_content) == ("incomplete", True, None)

    def test_a_malformed_response_is_a_failure(self) -> None:
        """P30: it is retried, and then the turn fails."""
        conversation = Conversation(retry=Retry(attempts=2))
        conversation.says()
        conversation.model_fails("malformed_response")
        conversation.timer_rings()

        conversation.model_fails("malformed_response")

        assert conversation.rests_in(Failed).kind == "malformed_response"

    def test_a_response_that_only_thinks_is_followed_up(self) -> None:
        """The model reasoned and has not finished: it is asked again, once, with a nudge, since the same request would
        have the same result."""
        conversation = Conversation()
        conversation.says()

        conversation.model_says("", thinking="Hm.")
        conversation.rests_in(LlmRequesting)
        step = conversation.model_says(" \n", thinking="Hm?")

        assert step.ended is not None and step.ended.status == "incomplete"
        assert conversation.transcript[-1].text == TEXTS.ending

    def test_a_response_cut_off_while_thinking_is_not_followed_up(self) -> None:
        """The model would only reason again, up to the limit of its output."""
        conversation = Conversation()
        conversation.says()

        step = conversation.model_says("", thinking="Hm", finish_reason="length")

        assert step.ended is not None and step.ended.truncated

    def test_calls_of_a_response_that_was_cut_off_do_not_run(self) -> None:
        """P41: calls get "cut off" results and the model is asked again."""
        conversation = Conversation()
        conversation.says()

        conversation.model_calls("a", call("b", fault="Not JSON."), finish_reason="length")

        conversation.rests_in(LlmRequesting)
        assert conversation.results() == {"a": TEXTS.cut_off, "b": TEXTS.cut_off}

    def test_a_text_that_was_cut_off_ends_the_turn(self) -> None:
        """P41: the turn ends with that text and `truncated`."""
        conversation = Conversation()
        conversation.says()

        step = conversation.model_says("To be conti", finish_reason="length")

        assert step.ended is not None
        assert (step.ended.status, step.ended.truncated) == ("completed", True)

    def test_the_last_request_goes_out_without_tools(self) -> None:
        """`answer_now`: the last request allowed must be answered in text; its calls get "not run" results."""
        conversation = Conversation(limits=Limits(requests=2))
        conversation.says()
        conversation.model_calls("a")
        conversation.tool_ends("a")
        assert [request.tool_choice for request in conversation.requests()] == ["auto", "none"]

        step = conversation.model_calls("b", content="So far, so good.")

        assert conversation.results() == {"a": "done", "b": TEXTS.not_run}
        assert step.ended is not None and step.ended.status == "incomplete"
        assert step.ended.final_content == step.effects[0].said

    def test_a_last_request_that_only_calls_ends_with_a_sentence(self) -> None:
        """`answer_now`: if the response has no text beside its calls, the turn ends with a sentence of the policy."""
        conversation = Conversation(limits=Limits(requests=1))
        conversation.says()

        conversation.model_calls("a")

        assert conversation.roles() == ["user", "assistant", "tool", "assistant"]
        assert conversation.transcript[-1].text == TEXTS.limit

    def test_a_plain_last_request_is_like_any_other(self) -> None:
        """J12, `plain`: it goes out with tools; the calls it asks for get "not run" results, and the turn ends."""
        conversation = Conversation(limits=Limits(requests=1, last="plain"))
        conversation.says()
        assert conversation.requests()[0].tool_choice == "auto"

        step = conversation.model_calls("a")

        assert conversation.results() == {"a": TEXTS.not_run}
        assert step.ended is not None and step.ended.final_content == Made(text=TEXTS.limit)

    def test_calls_beyond_their_limit_do_not_run(self) -> None:
        """The calls within the limit run, the others get "not run" results, and the model is asked again."""
        conversation = Conversation(parallel=2, limits=Limits(tool_calls=1))
        conversation.says()

        conversation.model_calls("a", "b")
        assert conversation.tools() == ["a"]
        conversation.tool_ends("a")

        conversation.rests_in(LlmRequesting)
        assert conversation.results() == {"a": "done", "b": TEXTS.not_run}

    @pytest.mark.parametrize(
        ("limits", "used"),
        [
            (Limits(tokens=100), Usage(input_tokens=60, output_tokens=40)),
            (Limits(cost=0.5), Usage(cost=0.5)),
            (Limits(seconds=1), Usage()),
        ],
    )
    def test_once_the_budget_is_spent_nothing_is_started(self, limits: Limits, used: Usage) -> None:
        """A limit of tokens, money or time: the calls get "not run" results and the turn ends with a sentence."""
        conversation = Conversation(limits=limits)
        conversation.says()

        step = conversation.model_calls("a", usage=used)

        conversation.rests_in(Idle)
        assert conversation.results() == {"a": TEXTS.not_run}
        assert step.ended is not None and step.ended.usage == used

    def test_an_answer_of_a_person_counts_anew(self) -> None:
        """P34: the request limit counts per turn and starts anew with a message and an answer."""
        conversation = Conversation(limits=Limits(requests=2))
        conversation.says()
        conversation.model_calls(asking())
        conversation.tool_asks()

        conversation.answers({"When?": "Now"})

        assert conversation.rests_in(LlmRequesting).turn.requests == 1
        assert conversation.requests()[-1].tool_choice == "auto"

    def test_an_approval_of_a_person_counts_anew(self) -> None:
        """P34: it starts anew with an approval, and with a denial."""
        for allowed in (True, False):
            conversation = Conversation(limits=Limits(requests=2))
            conversation.says()
            conversation.model_calls(call("pay", approval=True))

            conversation.allows("pay", allowed)
            if allowed:
                conversation.tool_ends("pay")

            assert conversation.rests_in(LlmRequesting).turn.requests == 1

    def test_a_message_counts_anew(self) -> None:
        """P34: it starts anew with the next turn, and with a message that steers this one."""
        conversation = Conversation(limits=Limits(requests=3), when_busy="steer")
        conversation.says()
        conversation.model_calls("a")
        conversation.says("quickly")
        conversation.tool_ends("a")
        assert conversation.rests_in(LlmRequesting).turn.requests == 1
        conversation.model_says("Done.")

        conversation.says("Next")

        assert conversation.rests_in(LlmRequesting).turn.requests == 1

    def test_the_limit_ends_a_turn_that_nobody_speaks_in(self) -> None:
        """P34: the limit counts per turn, so the turn before does not count."""
        conversation = Conversation(limits=Limits(requests=2))
        for text in ("first", "second"):
            conversation.says(text)
            conversation.model_calls("a")
            conversation.tool_ends("a")

            step = conversation.model_calls("a")

            assert step.ended is not None and step.ended.status == "incomplete"
        assert len(conversation.requests()) == 4

    def test_a_retry_is_the_same_request(self) -> None:
        """A request that failed and is sent again counts once; if it had no tools, it still has none."""
        conversation = Conversation(models=TWO_MODELS, limits=Limits(requests=1), retry=Retry(attempts=2))
        conversation.says()

        conversation.model_fails()
        conversation.timer_rings()
        conversation.model_fails()

        assert conversation.rests_in(LlmRequesting).turn.requests == 1
        assert [request.tool_choice for request in conversation.requests()] == ["none", "none", "none"]

    def test_the_wait_for_a_person_does_not_count(self) -> None:
        """The wall-clock limit leaves out the time spent waiting for people."""
        conversation = Conversation(limits=Limits(seconds=10), questions=Questions(deadline=3_600))
        conversation.says()
        conversation.model_calls(asking(), "write")
        conversation.tool_asks()
        conversation.now = conversation.asked().deadline.due

        conversation.timer_rings()

        assert conversation.tools() == ["write"]


class TestWhatAStateTakes:
    """`next_events` returns the events that are possible in a state."""

    def test_at_rest_a_message_may_come(self) -> None:
        """Idle takes a message of a person or an agent, a wake-up, a change of the policy or another setting, a request
        for compaction or for another branch, the close, and a cancel, which may say what was heard of the last turn."""
        taken = {UserMessage, AgentMessage, WakeUp, *SETTINGS, PolicyChanged, CompactionRequested, CloseRequested}
        assert set(next_events(Idle())) == {*taken, *BRANCHING, UserCancel}

    def test_a_question_takes_its_answer(self) -> None:
        """It takes an answer, messages, a wake-up, changes of settings, a cancel, another branch, the close, a resume,
        and that a call behind it is restricted; the deadline only if one is set."""
        conversation = asked()
        with_deadline = asked(deadline=60)

        requests = {UserQuestionResponse, UserMessage, AgentMessage, MessageWithdrawn, UserCancel, CloseRequested}
        expected = {*requests, *BRANCHING, WakeUp, *SETTINGS, Resumed, CallRestricted}
        assert set(next_events(conversation.state)) == expected
        assert DeadlineReached in next_events(with_deadline.state)

    def test_a_closed_conversation_takes_nothing(self) -> None:
        """There are none."""
        assert next_events(Closed()) == ()


class TestWhileStopping:
    """Events that come while a cancelled effect has not acknowledged the cancel."""

    def test_a_question_is_dropped_for_the_tool_that_asked_it(self) -> None:
        """The tool that asked has stopped; one that runs beside it has not."""
        conversation = Conversation(parallel=2)
        conversation.says()
        conversation.model_calls("a", "b")
        conversation.cancels()

        conversation.tool_asks("b")

        assert conversation.tools() == ["a"]
        assert conversation.results() == {"b": TEXTS.cancelled}

    def test_what_a_sub_agent_used_counts_while_others_stop(self) -> None:
        """Its usage counts, though the turn is cancelled."""
        conversation = stopping_children()
        conversation.child_finishes("north", status="cancelled", usage=Usage(input_tokens=3))

        conversation.timer_rings()

        assert conversation.ended.usage.input_tokens == 3


def test_a_reply_that_tells_of_a_failure_leaves_the_failure_to_be_read() -> None:
    """J16: the user gets a sentence, and a program can read what kind of failure it was."""
    conversation = Conversation(on_failure="reply")
    conversation.says()

    conversation.model_fails("authentication")

    assert conversation.ended.failure == Failure(kind="authentication", sentence="The model is not well.")
