"""The laws of the machine, tried on thousands of conversations that nobody thought of.

Two kinds of trial. Traces begin at the beginning, so whatever they meet can really happen. Single steps begin in any
consistent state, also one that no trace reaches, and meet any event there.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from turnwise.states import (
    Abort,
    AskUserQuestionPending,
    CallRestricted,
    Closed,
    Compacting,
    Context,
    Event,
    ExecuteTool,
    Failed,
    Idle,
    Limits,
    LlmResponse,
    Made,
    ModelOutput,
    ModelSpec,
    Opened,
    PersistToolResults,
    Policy,
    Questions,
    Refused,
    RequestLlm,
    ResumeTool,
    Retry,
    Rewound,
    SettledCall,
    State,
    Step,
    SubAgentRules,
    ToolCall,
    ToolComplete,
    ToolResult,
    Usage,
    UserCancel,
    UserMessage,
    UserQuestion,
    transition,
)
from turnwise.states.branches import messages_of
from turnwise.states.effects import AnyEffect, Effect
from turnwise.states.events import EVENTS, AnyEvent
from turnwise.states.states import AnyState, Book
from turnwise.states.values.questions import answers_as_json
from turnwise.states.values.value import Value
from turnwise.testing import (
    ConversationMachine,
    History,
    LawBroken,
    Observation,
    Trace,
    check_laws,
    check_newest,
    laws,
    observe,
    strategies,
)
from turnwise.testing.generation.vocabulary import FORM
from turnwise.testing.laws import runs_no_more_than_allowed
from turnwise.testing.strategies import (
    NOON,
    contexts_for,
    events,
    events_for,
    late_answers_for,
    policies,
    states,
    traces,
)

from ..support.cases import holds_for
from ..support.conversation import Conversation, asking, question

pytestmark = pytest.mark.timeout(600)  # to shrink a counterexample takes longer than to find that there is none

TestConversation = pytest.mark.slow(ConversationMachine.TestCase)
"""A conversation that Hypothesis drives; every law is checked after each event."""

Situation = tuple[State, Event, Context]


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Generate any state, an event (any, or one that fits the state), and a context in which they can meet."""
    state = draw(states())
    return state, draw(events_for(state) | events()), draw(contexts_for(state))


OF_SUB_AGENTS = (SubAgentRules(depth=2, questions="ask_user"), SubAgentRules(depth=2, number=2, questions="ask_user"))
"""Rules that let sub-agents ask, and be nested."""


class TestTraces:
    """Conversations from their first event on."""

    @given(traces())
    def test_1_every_event_is_taken_ignored_or_refused(self, trace: Trace) -> None:
        """Law 1: every (state, event) gives a Step or `Refused`; no other exception, nothing mutated."""
        check_laws(trace, laws.is_taken_or_refused)

    @given(traces())
    def test_2_the_same_gives_the_same_and_json_is_exact(self, trace: Trace) -> None:
        """Law 2: same arguments, equal Step; JSON round trip of state, event, effects, policy is exact."""
        check_laws(trace, laws.is_deterministic)

    @given(traces())
    def test_2_the_log_tells_the_whole_story(self, trace: Trace) -> None:
        """Law 2, for a whole log: the events that were taken, alone, give the same state and the same transcript."""
        history = list(laws.histories(trace))[-1]

        laws.is_replayed_by_its_log(history)

    @given(traces())
    def test_3_refused_or_ignored_changes_nothing(self, trace: Trace) -> None:
        """Law 3: an event that is refused or ignored leaves the state equal and wants no effects."""
        check_laws(trace, laws.changes_nothing_unless_taken)

    @given(traces())
    def test_4_calls_and_results_are_paired(self, trace: Trace) -> None:
        """Law 4: in every request and at rest each call has exactly one result directly after its message."""
        check_laws(trace, laws.pairs_calls_with_results)

    @given(traces())
    def test_5_answers_are_taken_by_their_effect_only(self, trace: Trace) -> None:
        """Law 5: stale, doubled, unknown answers change nothing, also after a new turn began."""
        check_laws(trace, laws.takes_answers_by_their_effect)

    @given(traces())
    def test_6_no_more_runs_than_is_allowed(self, trace: Trace) -> None:
        """Law 6: at most one model request; running tools never exceed the policy; an exclusive call runs alone."""
        check_laws(trace, laws.runs_no_more_than_allowed)

    @given(traces())
    def test_7_what_is_waited_for_is_in_flight(self, trace: Trace) -> None:
        """Law 7: `pending(state)` equals what the trace left open; only a person is waited for without a timer."""
        check_laws(trace, laws.waits_for_something)

    @given(traces())
    def test_8_a_turn_can_be_stopped(self, trace: Trace) -> None:
        """Law 8: cancel ends that turn within bounded steps, given only acknowledgements or deadlines."""
        check_laws(trace, laws.can_be_stopped)

    @given(traces())
    def test_9_a_person_finds_a_way_out(self, trace: Trace) -> None:
        """Law 9: from every state but Closed there is a way out that a person can take."""
        check_laws(trace, laws.can_be_left)

    @given(traces())
    def test_10_closed_stays_closed(self, trace: Trace) -> None:
        """Law 10: Closed absorbs."""
        check_laws(trace, laws.stays_closed)

    @given(traces())
    def test_every_turn_ends_once(self, trace: Trace) -> None:
        """The step that leaves a turn, and no other, says that it ended, how, and what it cost."""
        check_laws(trace, laws.ends_each_turn_once)

    @given(traces())
    def test_11_what_the_policy_chooses_is_delivered_once(self, trace: Trace) -> None:
        """Law 11: each delivery is emitted once per speech that the policy chose, in call order."""
        check_laws(trace, laws.delivers_what_was_chosen)

    @given(traces(policies(sub_agents=st.sampled_from(OF_SUB_AGENTS))))
    def test_14_every_sub_agent_is_heard_once(self, trace: Trace) -> None:
        """Laws 12 and 14: pending and finished are what was spawned; each outcome reaches the model once, in any order;
        sub-agents share what their parent has left, and each question has at most one answer."""
        about_sub_agents = (laws.passes_questions_of_sub_agents_on, laws.shares_limits_with_sub_agents)
        check_laws(trace, laws.loses_no_sub_agent, *about_sub_agents)

    @settings(max_examples=3 * settings.default.max_examples)  # each limit meets each way to begin anew
    @given(traces(policies(limits=strategies.tight_limits())))
    def test_12_limits_hold(self, trace: Trace) -> None:
        """Law 12: requests and calls never exceed their limit; nothing new is started once the rest is spent."""
        check_laws(trace, laws.keeps_within_limits)

    @settings(max_examples=3 * settings.default.max_examples)
    @given(traces(policies(limits=strategies.tight_limits())))
    def test_12_the_limit_that_ends_a_turn_is_named(self, trace: Trace) -> None:
        """Law 12: an end names a limit only if it is reached."""
        check_laws(trace, laws.names_limits_truly)

    @given(traces())
    def test_settings_change_nothing_else(self, trace: Trace) -> None:
        """A change of a setting leaves everything else alone, and the tools of the turn under way."""
        check_laws(trace, laws.changes_settings_alone, laws.keeps_tools_of_turns)

    @given(traces())
    def test_schedules_and_profiles_hold(self, trace: Trace) -> None:
        """Only a schedule wakes a conversation, and one that was handed over stays with its profile."""
        check_laws(trace, laws.wakes_by_its_schedule, laws.stays_with_its_profile)

    @given(traces(policies(when_busy=st.sampled_from(["queue", "steer"]))))
    def test_13_no_message_is_lost_or_doubled(self, trace: Trace) -> None:
        """Law 13: what was said while busy is answered, withdrawn or still in the inbox; also through Failed."""
        check_laws(trace, laws.loses_no_message)

    @given(traces())
    def test_16_answers_reach_the_model_exactly(self, trace: Trace) -> None:
        """Law 16: any map of answers, in any script, gives a tool result that is JSON and reads back equal."""
        check_laws(trace, laws.hands_on_answers_exactly)


class TestSingleSteps:
    """Any consistent state meets any event, whether or not a trace leads there."""

    @given(situations())
    def test_1_every_event_is_taken_ignored_or_refused(self, situation: Situation) -> None:
        """Law 1: total also where no trace leads, and nothing that came in is changed."""
        copies = tuple(value.model_copy(deep=True) for value in situation)

        outcome = observe(*situation).outcome

        assert isinstance(outcome, Step | Refused)
        assert situation == copies

    @given(situations())
    def test_2_the_same_gives_the_same_and_json_is_exact(self, situation: Situation) -> None:
        """Law 2: equal twice, and equal once more when all arguments were written and read back."""
        state, event, context = situation
        read = (written(AnyState, state), written(AnyEvent, event), written(Context, context))

        once, again, from_json = observe(*situation), observe(*situation), observe(*read)

        assert told(once) == told(again) == told(from_json)

    @given(situations())
    def test_3_refused_or_ignored_changes_nothing(self, situation: Situation) -> None:
        """Law 3: an event that is refused or ignored leaves the state equal and wants no effects."""
        observation = observe(*situation)

        if observation.step is None:
            assert observation.after == situation[0]
            assert observation.effects == ()

    @given(st.data())
    def test_5_late_answers_change_nothing(self, data: st.DataObject) -> None:
        """Law 5: stale, doubled, unknown or misfitting answers are ignored in every state."""
        state = data.draw(states())
        answer = data.draw(late_answers_for(state))

        step = transition(state, answer, data.draw(contexts_for(state)))

        assert step == Step(state, ignored=True)

    @given(events(), policies())
    def test_10_closed_stays_closed(self, event: Event, policy: Policy) -> None:
        """Law 10: whatever happens, nothing comes of it."""
        assert observe(Closed(), event, Context(policy=policy)).step is None

    @given(st.data())
    def test_any_number_of_steps_from_anywhere(self, data: st.DataObject) -> None:
        """Law 1: a walk that begins in any state has a defined outcome at each step."""
        state = data.draw(states())
        context = data.draw(contexts_for(state))

        for _ in range(5):
            state = observe(state, data.draw(events_for(state)), context).after

        assert isinstance(state, State)


def written(family: Any, value: Value) -> Any:
    """A value, written as JSON and read back."""
    return TypeAdapter(family).validate_json(value.to_json())


def told(observation: Observation) -> object:
    """The outcome of an event, in a form that can be compared."""
    outcome = observation.outcome
    return (outcome.code, outcome.subject) if isinstance(outcome, Refused) else outcome


class TestJson:
    """Everything that is stored reads back equal (law 2)."""

    @given(states())
    def test_states(self, state: State) -> None:
        """Every state, told apart by its `type`."""
        assert written(AnyState, state) == state

    @given(events())
    def test_events(self, event: Event) -> None:
        """Every event."""
        assert written(AnyEvent, event) == event

    @given(strategies.effects())
    def test_effects(self, effect: Effect) -> None:
        """Every effect."""
        assert written(AnyEffect, effect) == effect

    @given(policies())
    def test_policies(self, policy: Policy) -> None:
        """Every policy."""
        assert written(Policy, policy) == policy

    @holds_for("kind", EVENTS)
    def test_every_kind_of_event_is_made_up(self, kind: type[Event]) -> None:
        """The generators make every type of event, so a new one cannot be left out."""
        assert strategies.events_of(kind) is not None

    @given(strategies.any_answers())
    def test_16_answers(self, answers: dict[str, Any]) -> None:
        """Law 16: any map of answers, in any script, gives valid JSON that reads back equal."""
        read = TypeAdapter(dict[str, Any]).validate_json(answers_as_json(answers, {}))

        assert read == {"answers": {text: list(a) if isinstance(a, tuple) else a for text, a in answers.items()}}

    @pytest.mark.parametrize("sealed", [{"a": float("nan")}, {"a": float("inf")}, {"a": "\ud800"}, {"a": b"x"}])
    def test_what_json_cannot_hold_is_refused_where_it_enters(self, sealed: dict[str, Any]) -> None:
        """Law 2: a provider's sealed block is kept exactly or not at all."""
        with pytest.raises(ValueError, match="opaque"):
            LlmResponse(effect_id=1, at=NOON, opaque=(sealed,))


class TestExtremes:
    """Numbers at the end of their range do not raise OverflowError (law 1)."""

    def retrying(self, **rules: Any) -> Conversation:
        """A conversation whose model has failed twice."""
        conversation = Conversation(**rules)
        conversation.says()
        conversation.model_fails()
        conversation.timer_rings()
        conversation.model_fails()
        return conversation

    def test_a_factor_that_overflows_waits_as_long_as_allowed(self) -> None:
        """`Retry.factor` to the power of the attempts may exceed all floats; `cap` still bounds the wait."""
        assert Retry(attempts=9, factor=1e200, cap=7.0).wait(8, None) == 7.0

    def test_a_wait_beyond_the_calendar_ends_with_it(self) -> None:
        """A timer that would be due after the last possible moment is due at that moment."""
        conversation = self.retrying(retry=Retry(base=1e308, cap=1e308))

        assert conversation.state.timer.due.year == 9999

    def test_every_deadline_may_lie_beyond_the_calendar(self) -> None:
        """The same holds for the deadlines of cancels and questions, and for the limit of time."""
        conversation = Conversation(
            cancel_deadline=1e308, questions=Questions(deadline=1e308), limits=Limits(seconds=1e308)
        )
        conversation.says()
        conversation.model_calls(asking(), "a")
        conversation.tool_asks()

        conversation.answers({"When?": "Now"})
        conversation.cancels()

        assert conversation.state.deadline.due.year == 9999

    def test_costs_beyond_all_numbers_stay_a_number(self) -> None:
        """Two costs that add up to infinity become the largest number that can be stored."""
        sum_ = Usage(cost=1.7e308) + Usage(cost=1.7e308)

        assert written(Usage, sum_) == sum_

    def test_a_moment_outside_the_calendar_is_not_an_event(self) -> None:
        """A time that has no equivalent in UTC is refused, with a sentence."""
        with pytest.raises(ValueError, match="the moment is outside the calendar"):
            TypeAdapter(AnyEvent).validate_python(
                {"type": "retry_due", "effect_id": 1, "at": "9999-12-31T23:59:59-01:00"}
            )


class TestRareConversations:
    """What traces seldom meet, because two rare things must come together. All laws hold there."""

    def test_a_call_that_waited_for_a_person_was_imported(self) -> None:
        """It waits in the other store, and has a result here."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(asking())
        conversation.tool_asks(suspends=True)

        conversation.is_imported()

        check_laws(conversation.history.observations)
        assert conversation.rests_in(Failed).kind == "interrupted"

    def test_an_invalid_typed_answer_comes_after_the_cancel(self) -> None:
        """It is no attempt that counts: the turn is cancelled, and does not fail."""
        conversation = Conversation(output_retries=0)
        conversation.says(output=FORM)
        conversation.happens(UserCancel)

        conversation.model_says("Well.", output=ModelOutput(way="native", errors="a: Field required"))

        check_laws(conversation.history.observations)
        assert conversation.ended.status == "cancelled"

    def test_a_performer_says_that_an_answer_is_not_valid(self) -> None:
        """Whatever kind of failure a performer names is that of the turn."""
        conversation = Conversation()
        conversation.says()

        conversation.model_fails("output")

        check_laws(conversation.history.observations)
        assert conversation.rests_in(Failed).kind == "output"

    def test_a_response_comes_after_the_conversation_was_to_go_back(self) -> None:
        """What could be cleared of its own branch is no room on the other one."""
        conversation = Conversation(models=(ModelSpec(name="a", window=1_000),))
        conversation.says("a", event_id="a")
        conversation.model_says("a!")
        conversation.says("b")
        again = messages_of(conversation.history.log, 1)
        conversation.happens(Rewound, before=1, window_used=1_000, again=again)

        conversation.model_says("b!", clearable=5)

        check_laws(conversation.history.observations)
        conversation.rests_in(Compacting)

    def test_a_performer_fails_for_lack_of_room(self) -> None:
        """It does not say what could be cleared, so the history is condensed."""
        conversation = Conversation(models=(ModelSpec(name="a", window=1_000),))
        conversation.says()
        conversation.model_says("Well.", usage=Usage(input_tokens=100), clearable=50)
        conversation.says()

        conversation.breaks(RequestLlm, "context_window")

        check_laws(conversation.history.observations)
        conversation.rests_in(Compacting)


def lived(**rules: Any) -> Conversation:
    """A conversation with one finished round of two tools and one running tool."""
    conversation = Conversation(parallel=2, **rules)
    conversation.says()
    conversation.model_calls("a", "b")
    conversation.tool_ends("b")
    conversation.tool_ends("a")
    conversation.model_calls("c")
    return conversation


def tampered(conversation: Conversation, place: int = -1, **changes: Any) -> Trace:
    """Its trace, with another outcome of the step at `place`."""
    trace = list(conversation.history.observations)
    outcome = trace[place].outcome
    trace[place] = replace(trace[place], outcome=replace(outcome, **changes))
    return tuple(trace)


class TestTheLawsNotice:
    """Each law reports the fault that it exists for."""

    def test_an_honest_trace(self) -> None:
        """A correct trace breaks no law."""
        check_laws(lived().history.observations)

    def test_a_refused_answer(self) -> None:
        """Law 1: only requests are refused."""
        conversation = lived()
        refused = replace(conversation.history.newest, outcome=Refused("busy"))

        with pytest.raises(LawBroken, match="an event was refused that is not a request"):
            check_laws((*conversation.history.observations[:-1], refused))

    def test_a_step_that_does_not_come_out_the_same(self) -> None:
        """Law 2: the machine makes another step of the same arguments."""
        with pytest.raises(LawBroken, match="the same input gave another outcome"):
            check_laws(tampered(lived(), effects=()), laws.is_deterministic)

    def test_an_ignored_event_with_an_effect(self) -> None:
        """Law 3: an ignored event wants an effect."""
        conversation = lived()
        conversation.cancels(turn=0)

        with pytest.raises(LawBroken, match="a refused or ignored event has effects"):
            check_laws(tampered(conversation, effects=(Abort(effect_id=1),)), laws.changes_nothing_unless_taken)

    def test_a_state_that_comes_from_nowhere(self) -> None:
        """Law 3: a step begins in another state than the one before left."""
        first, _, *rest = lived().history.observations

        with pytest.raises(LawBroken, match="the step does not start from the state before"):
            check_laws((first, *rest), laws.changes_nothing_unless_taken)

    def test_a_call_without_a_result(self) -> None:
        """Law 4: the model is asked although one of two calls has no result."""
        conversation = lived()
        asks = tuple(
            effect for effect in conversation.history.observations[4].effects if isinstance(effect, RequestLlm)
        )

        with pytest.raises(LawBroken, match="the result of the call b is not where it belongs"):
            check_laws(tampered(conversation, 4, effects=asks), laws.pairs_calls_with_results)

    def test_a_call_with_two_results(self) -> None:
        """Law 4: each call has one result."""
        conversation = lived()
        *_, asks = conversation.history.observations[4].effects
        twice = (SettledCall(call_id="a", said=Made(text="one")), SettledCall(call_id="a", said=Made(text="two")))
        doubled = (PersistToolResults(results=twice), asks)

        with pytest.raises(LawBroken, match="is not where it belongs"):
            check_laws(tampered(conversation, 4, effects=doubled), laws.pairs_calls_with_results)

    def test_an_answer_that_nobody_waited_for(self) -> None:
        """Law 5: a second answer to the first request is taken."""
        conversation = lived()
        late = LlmResponse(effect_id=1, at=NOON, content="Once more")
        taken = Observation(
            conversation.state, late, conversation.history.context, Step(Idle(book=Book(seq=7, turn=1)))
        )

        with pytest.raises(LawBroken, match="an answer was taken whose effect is not in flight"):
            check_laws((*conversation.history.observations, taken), laws.takes_answers_by_their_effect)

    def test_an_answer_that_was_waited_for_and_ignored(self) -> None:
        """Law 5: an answer that is awaited is ignored."""
        conversation = lived()
        answer = ToolComplete(effect_id=conversation.running("c"), at=NOON, result=ToolResult(text="done"))
        ignored = Step(conversation.state, ignored=True)
        lost = Observation(conversation.state, answer, conversation.history.context, ignored)

        with pytest.raises(LawBroken, match="an awaited answer was ignored"):
            check_laws((*conversation.history.observations, lost), laws.takes_answers_by_their_effect)

    @pytest.mark.parametrize(
        ("more", "fault"),
        [
            (["c", "d", "e"], "more tools run than the policy allows"),
            (["alone", "c"], "an exclusive call runs beside another"),
        ],
    )
    def test_too_much_at_once(self, more: list[str], fault: str) -> None:
        """Law 6: more tools run than `parallel` allows, or one runs beside an exclusive call."""
        conversation = lived()
        (running,) = (effect for effect in conversation.step.effects if isinstance(effect, ExecuteTool))
        started = tuple(
            ExecuteTool(effect_id=50 + n, call=running.call.replace(exclusive=name == "alone"))
            for n, name in enumerate(more)
        )

        with pytest.raises(LawBroken, match=fault):
            check_laws(tampered(conversation, effects=started), laws.runs_no_more_than_allowed)

    def test_two_requests_at_once(self) -> None:
        """Law 6: there is one model request at a time."""
        conversation = Conversation()
        conversation.says()
        (said, asks) = conversation.step.effects
        twice = (said, asks, asks.model_copy(update={"effect_id": 50}))

        with pytest.raises(LawBroken, match="two model requests are in flight"):
            check_laws(tampered(conversation, effects=twice), laws.runs_no_more_than_allowed)

    def test_a_state_that_waits_for_nothing(self) -> None:
        """Law 7: the state does not await the request that is in flight."""
        conversation = Conversation()
        conversation.says()

        with pytest.raises(LawBroken, match="the state does not wait for the effects in flight"):
            check_laws(tampered(conversation, effects=conversation.step.effects[:1]), laws.waits_for_something)

    def test_an_effect_that_is_stopped_and_does_not_run(self) -> None:
        """Law 7: only an effect in flight can be aborted."""
        conversation = lived()
        more = (*conversation.step.effects, Abort(effect_id=1))

        with pytest.raises(LawBroken, match="the effect 1 is told to stop, and is not in flight"):
            check_laws(tampered(conversation, effects=more), laws.waits_for_something)

    def test_a_cancel_that_is_ignored(self) -> None:
        """Law 8: a cancel is ignored while something runs."""
        conversation = lived()
        ignored = Step(conversation.state, ignored=True)
        cancel = UserCancel(event_id="cancel", at=NOON)
        lost = Observation(conversation.state, cancel, conversation.history.context, ignored)

        with pytest.raises(LawBroken, match="a cancel was not taken exactly where something is under way"):
            check_laws((*conversation.history.observations, lost), laws.can_be_stopped)

    def test_something_after_the_end(self) -> None:
        """Law 10: nothing leads out of Closed."""
        conversation = Conversation()
        conversation.closes()
        message = UserMessage(event_id="message", at=NOON, text="Hello?")
        taken = Observation(conversation.state, message, conversation.history.context, Step(Idle(book=Book(seq=3))))

        with pytest.raises(LawBroken, match="an event was taken after the conversation was closed"):
            check_laws((*conversation.history.observations, taken), laws.stays_closed)

    def test_a_turn_that_ends_without_a_word(self) -> None:
        """A turn ends, and no step says so."""
        conversation = lived()
        conversation.tool_ends("c")
        conversation.model_says("Done")

        with pytest.raises(LawBroken, match="a turn ended without a record"):
            check_laws(tampered(conversation, ended=None), laws.ends_each_turn_once)

    @pytest.mark.parametrize(
        ("limits", "fault"),
        [
            (Limits(requests=1, last="plain"), "more requests than the limit"),
            (Limits(requests=2), "the last request does not follow the limit"),
            (Limits(tool_calls=1), "more calls than the limit"),
            (Limits(seconds=1), "a request or call was started although a limit is reached"),
        ],
    )
    def test_limits_that_are_exceeded(self, limits: Limits, fault: str) -> None:
        """Law 12: the same trace under limits that it does not keep."""
        context = Context(policy=Policy(parallel=2, limits=limits))
        trace = [replace(observation, context=context) for observation in lived().history.observations]

        with pytest.raises(LawBroken, match=fault):
            check_laws(trace, laws.keeps_within_limits)

    def test_answers_that_are_changed_on_their_way(self) -> None:
        """Law 16: the model reads other answers than were given."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(asking())
        conversation.tool_asks("ask", question("When?"))
        conversation.answers({"When?": "Now"})
        (_, asks) = conversation.step.effects
        other = SettledCall(call_id="ask", said=Made(text='{"answers": {"When?": "Later"}}'))

        with pytest.raises(LawBroken, match="other answers are passed on than were given"):
            check_laws(
                tampered(conversation, effects=(PersistToolResults(results=(other,)), asks)),
                laws.hands_on_answers_exactly,
            )


def test_a_call_that_had_begun_goes_on() -> None:
    """A person must allow it by now, which holds for its next run: what runs already is not a run that nobody
    allowed, also when the question that it asks is answered at once."""
    history = History()
    history.take(Opened(at=NOON, event_id="request-0", policy=Policy(), role="background"))
    history.take(UserMessage(at=NOON, event_id="request-1", text="Book a table."))
    calls = (ToolCall(call_id="call-1", name="book", crash="pure", acts=("question",)),)
    history.take(LlmResponse(at=NOON, effect_id=1, tool_calls=calls))
    history.take(CallRestricted(at=NOON, call_id="call-1", crash="reconcile", approval=True))

    questions = (UserQuestion(question="Which one?"),)
    history.take(AskUserQuestionPending(at=NOON, effect_id=2, questions=questions, suspends=True))

    assert [type(effect) for effect in history.in_flight.values()] == [ResumeTool]
    check_newest(history, runs_no_more_than_allowed)
