"""A failing test of generated conversations ends within seconds, shows the conversation, and finds planted faults."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from pydantic import BaseModel, Field

from turnwise import ConfigurationError, Policy, Question, ToolContext, ToolError, UserQuestion, tool, tools_of
from turnwise.states import (
    Closed,
    Context,
    DeliverToUser,
    Effect,
    Event,
    ExecuteTool,
    Idle,
    Limits,
    LlmResponse,
    Made,
    Opened,
    Outcomes,
    PersistToolResults,
    PolicyChanged,
    SpawnSubAgent,
    Speech,
    State,
    Step,
    SubAgentAsked,
    SubAgentFinished,
    SubAgentRules,
    SubAgents,
    ToolAborted,
    ToolCall,
    ToolComplete,
    ToolResult,
    ToolsChanged,
    UserCancel,
    UserMessage,
    VerifyWork,
    WorkComplete,
    WorkVerified,
    pending,
    presets,
    transition,
)
from turnwise.testing import ConversationMachine, History, LawBroken, call_of, calls_of, conversation_settings
from turnwise.testing.laws import (
    Law,
    can_be_left,
    changes_settings_alone,
    checks_what_is_delivered,
    delivers_no_blank_text,
    delivers_what_was_chosen,
    ends_each_turn_once,
    is_replayed_by_its_log,
    keeps_tools_of_turns,
    loses_no_message,
    loses_no_sub_agent,
    names_limits_truly,
    passes_questions_of_sub_agents_on,
    shares_limits_with_sub_agents,
)
from turnwise.testing.machine import ToolRuns
from turnwise.testing.strategies import NOON, values_of

from ..effects.tools.test_declaration import ZOO
from ..support.cases import holds_for
from ..support.planted.machines import Transition, plant
from ..support.searches import PROFILE
from ..support.source.source_tree import ROOT
from ..support.tools import find_table

# --- A failing test of generated conversations ends within seconds, and shows the conversation, wherever it fails.
#
# The kit runs the application's own tools.


def completed(history: History) -> int:
    """How many tools have completed."""
    return sum(isinstance(seen.event, ToolComplete) and seen.step is not None for seen in history.observations)


def few_tools_complete(history: History) -> None:
    """No two tools complete."""
    assert completed(history) < 2


class ByLaw(ConversationMachine):
    """Breaks a law."""

    laws = (few_tools_complete,)


class ByTeardown(ConversationMachine):
    """Fails when it is torn down."""

    generated = 0

    def take(self, event: Event) -> None:
        """Count the conversations that are generated."""
        ByTeardown.generated += isinstance(event, Opened)
        super().take(event)

    def teardown(self) -> None:
        """No two tools have completed."""
        super().teardown()
        few_tools_complete(self.history)


class BelowTeardown(ByTeardown):
    """Inherits a teardown that fails, and calls it from its own."""

    def teardown(self) -> None:
        """The same."""
        super().teardown()


FAILING = """
import json
import subprocess
import sys
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from turnwise.testing import conversation_settings
from tests.testing.test_machine import {machine}

settings.load_profile("default")
try:
    run_state_machine_as_test(
        {machine}, settings=conversation_settings(database=None, derandomize=True, max_examples=500)
    )
except AssertionError as failed:
    print(json.dumps(failed.__notes__))
"""
"""Has a machine fail, and prints what was noted of the failure."""


@pytest.fixture
def default_profile() -> Iterator[None]:
    """The profile of Hypothesis for programs that choose none."""
    settings.load_profile("default")
    yield
    settings.load_profile(PROFILE)


@pytest.mark.usefixtures("default_profile")
class TestAFailure:
    """In an application that has no profile of its own."""

    @pytest.mark.slow
    @pytest.mark.parametrize("machine", [ByLaw, ByTeardown, BelowTeardown])
    def test_it_is_shown_as_a_short_program(self, machine: type[ConversationMachine]) -> None:
        """Once, from the first event to the last one that it takes; also that of a teardown. In a process of its own:
        Hypothesis takes constants from the modules that are loaded, so its examples depend on what ran before."""
        program = FAILING.format(machine=machine.__name__)
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=240)

        assert done.returncode == 0, done.stderr
        (note,) = [note for note in json.loads(done.stdout) if note.startswith("The same, written as a program")]
        assert note.count("history.take(ToolComplete") == 2
        assert note.count("history.take(") <= 8

    @pytest.mark.slow
    def test_few_conversations_are_tried_after_it(self) -> None:
        """Hypothesis would try thousands of smaller ones, and trace each line of them to explain the failure."""
        ByTeardown.generated = 0
        with pytest.raises(AssertionError):
            run_state_machine_as_test(
                ByTeardown, settings=conversation_settings(database=None, derandomize=True, max_examples=500)
            )

        assert ByTeardown.generated < 1_000

    def test_the_settings_are_those_of_a_test_case(self) -> None:
        """So nobody has to ask for them."""

        class Assistant(ConversationMachine):
            """A machine of an application."""

        chosen = Assistant.TestCase.settings
        assert not {Phase.shrink, Phase.explain} & {*chosen.phases}
        assert chosen.deadline is None


def test_a_profile_that_chooses_phases_keeps_them() -> None:
    """Whoever wants Hypothesis to shrink says so."""
    settings.register_profile("thorough", phases=[Phase.generate, Phase.shrink])
    settings.load_profile("thorough")
    try:
        assert set(conversation_settings().phases) == {Phase.generate, Phase.shrink}
    finally:
        settings.load_profile(PROFILE)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "from": {"type": "string", "format": "date"},
        "count": {"type": ["integer", "null"], "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "word": {"type": "string", "pattern": "^[a-z]{3}$"},
        "kind": {"enum": ["a", 1, None]},
        "exactly": {"const": {"x": 1}},
        "list": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1, "uniqueItems": True},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        "either": {"anyOf": [{"type": "string", "minLength": 2}, {"type": "boolean"}]},
        "all": {"allOf": [{"type": "integer"}, {"minimum": 5}]},
        "tree": {"$ref": "#/$defs/tree"},
    },
    "required": ["from", "list", "other"],
    "$defs": {
        "item": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        "tree": {"type": "object", "properties": {"branches": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}},
    },
}


class TestCalls:
    """A call as the engine records it when a model makes it."""

    def test_a_call_has_the_declarations_of_its_tool(self) -> None:
        """Of a tool, a function, or a built-in tool by its name."""
        pay = tool(lambda amount: amount, name="pay", parameters={"type": "object", "properties": {"amount": {}}},
                   approval=lambda amount: amount > 5, crash="pure")  # fmt: skip

        calls = [call_of(pay, amount=3), call_of(pay, amount=7), call_of("talk", message="Hi"), call_of(plain, n=3)]

        assert [call.approval for call in calls] == [False, True, False, False]
        assert [call.crash for call in calls] == ["pure", "pure", "pure", "at_most_once"]
        assert calls[0].arguments == {"amount": 3}
        assert (calls[2].name, calls[2].acts, calls[2].exclusive) == ("talk", ("speech",), True)
        assert [call.fault for call in calls] == [None] * 4

    def test_arguments_that_do_not_fit_are_a_fault(self) -> None:
        """As for a model."""
        assert call_of(find_table, cuisine="x").fault == "Invalid input: party: Field required"

    def test_what_cannot_be_a_tool_is_refused(self) -> None:
        """As by an engine."""
        with pytest.raises(ConfigurationError):
            call_of(len)

    @pytest.mark.slow
    @given(st.data())
    def test_calls_are_made_of_the_schema_of_a_tool(self, data: Any) -> None:
        """Most of them fit; they are numbered by who uses them."""
        calls = data.draw(calls_of([find_table, "talk"]))

        for call in calls:
            assert call.name in {"find_table", "talk"}
            assert (call.fault is None) or call.raw_arguments in {"{}", "null", '{"unknown": 1}'}

    @pytest.mark.slow
    @settings(suppress_health_check=[HealthCheck.too_slow], max_examples=100)
    @given(values_of(SCHEMA))
    def test_values_fit_their_schema(self, value: Any) -> None:
        """With every keyword that tools use."""
        jsonschema.Draft202012Validator(SCHEMA).validate(value)
        assert json.loads(json.dumps(value)) == value

    @pytest.mark.slow
    @holds_for("function", [row[0] for row in ZOO])
    def test_every_kind_of_tool_can_be_called(self, function: Any) -> None:
        """Whatever its types are."""

        @settings(max_examples=3, phases=[Phase.generate], database=None)
        @given(calls_of([function]))
        def check(calls: tuple[ToolCall, ...]) -> None:
            assert all(isinstance(call, ToolCall) for call in calls)

        check()


def plain(n: int) -> int:
    """Count."""
    return n


class Order(BaseModel):
    """An order."""

    item: Literal["tea", "rice"]
    number: Annotated[int, Field(ge=1, le=9)]
    day: datetime.date | None = None


class Shop:
    """Tools that keep a state."""

    def __init__(self) -> None:
        self.ordered: list[Order] = []
        self.keys: list[str] = []

    @tool(approval=lambda order: order.number > 5)
    async def buy(self, order: Order, context: ToolContext) -> str:
        """Buy."""
        if order.item == "rice":
            raise ToolError("Rice is sold out.")
        self.ordered.append(order)
        self.keys.append(context.key)
        return f"bought {order.number}"

    @tool(crash="pure")
    def look(self) -> list[Order]:
        """Look."""
        return self.ordered

    @tool(exclusive=True, acts=["question"], crash="pure")
    def ask(self) -> Question:
        """Ask."""
        return Question((UserQuestion(question="What else?"),))


def only_known_tools_run(history: History) -> None:
    """The model calls the tools of the shop, and nothing else."""
    running = [effect for effect in history.in_flight.values() if isinstance(effect, ExecuteTool)]
    assert all(effect.call.name in {"buy", "look", "ask"} for effect in running)


class ShopMachine(ConversationMachine):
    """Conversations about shops, one for each."""

    policies = st.just(Policy(parallel=2))
    laws = (only_known_tools_run,)
    seen: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        super().__init__()
        self.shop = Shop()
        self.tools = tools_of(self.shop)

    def teardown(self) -> None:
        """What was bought is what the conversation says was bought."""
        super().teardown()
        told = [seen for seen in self.history.observations if isinstance(seen.event, ToolComplete)]
        assert {f"bought {order.number}" for order in self.shop.ordered} <= {seen.event.result.text for seen in told}
        self.seen.update(seen.event.result.text for seen in told if seen.step is not None)
        assert all(key.startswith("conversation/") for key in self.shop.keys)


@pytest.mark.slow
def test_the_tools_are_really_executed() -> None:
    """In a search by Hypothesis: results, errors that tools tell, and questions of theirs come from the tools."""
    search = ShopMachine.TestCase("runTest")
    search.settings = settings(
        max_examples=400, stateful_step_count=25, deadline=None, phases=[Phase.generate], derandomize=True
    )
    search.runTest()

    real = {"Rice is sold out.", "[]", *(f"bought {number}" for number in range(10))}
    assert ShopMachine.seen & real, "no tool ran"
    others = [text for text in ShopMachine.seen - real if " is not available here." not in text]
    assert [text for text in others if not text.startswith('[{"item":')] == []


class TestRuns:
    """One effect, without a search."""

    def history(self, call: ToolCall) -> History:
        """A conversation whose model has made this call."""
        history = History()
        history.take(Opened(event_id="opened", at=NOON, metadata={"tenant": "a"}))
        history.take(UserMessage(event_id="m", at=NOON, text="Go"))
        history.take(LlmResponse(effect_id=1, at=NOON, tool_calls=(call.replace(call_id="call_1_0"),)))
        return history

    def test_a_tool_gets_its_arguments_and_its_context(self) -> None:
        """As in an engine."""
        got: list[ToolContext] = []

        def note(text: str, context: ToolContext) -> str:
            got.append(context)
            return f"noted {text}"

        history = self.history(call_of(note, text="x"))
        drawn = ToolComplete(effect_id=2, at=NOON, result=ToolResult(text="made up"))

        answer = ToolRuns([note]).replace(drawn, history, NOON)

        assert answer == ToolComplete(effect_id=2, at=NOON, result=ToolResult(text="noted x"))
        assert (got[0].key, got[0].call_id, got[0].metadata) == ("conversation/2", "call_1_0", {"tenant": "a"})

    def test_other_answers_stay_as_they_are(self) -> None:
        """Those of other tools and of models, and that a tool was stopped."""
        history = self.history(call_of(plain, n=3))
        answers = [
            ToolComplete(effect_id=7, at=NOON, result=ToolResult(text="late")),
            ToolAborted(effect_id=2, at=NOON),
            LlmResponse(effect_id=2, at=NOON),
        ]

        assert [ToolRuns([plain]).replace(answer, history, NOON) for answer in answers] == answers
        result = ToolComplete(effect_id=2, at=NOON, result=ToolResult(text="made up"))
        assert ToolRuns([find_table]).replace(result, history, NOON) is result


# --- Faults that a machine might have, and the laws that notice them.


WORK = ToolCall(call_id="work", name="work", acts=("speech", "work_complete"))
SPAWN = ToolCall(call_id="spawn", name="spawn", exclusive=True, acts=("children",))


class PlantedConversation:
    """A conversation on the machine that is planted, or on the real one."""

    def __init__(self, **rules: Any) -> None:
        self.history = History()
        self.happens(Opened, policy=Policy(**rules))

    def happens(self, kind: type[Event], **fields: Any) -> None:
        """Put an event to the machine; an answer goes to the effect that was started first."""
        count = len(self.history.observations)
        named = {"event_id": f"request-{count}"}
        if "effect_id" in kind.model_fields:
            named = {"effect_id": fields.pop("effect_id", None) or min(pending(self.history.state))}
        self.history.take(kind(at=NOON + timedelta(seconds=count), **named, **fields))


def ignores_cancels(state: State, event: Event, context: Context) -> Step:
    """Nobody can stop anything."""
    return Step(state, ignored=True) if isinstance(event, UserCancel) else transition(state, event, context)


def empties_the_inbox(state: State, event: Event, context: Context) -> Step:
    """What is said during a turn is taken, and forgotten."""
    step = transition(state, event, context)
    waits = isinstance(event, UserMessage) and getattr(step.state, "inbox", ())
    return replace(step, state=step.state.replace(inbox=())) if waits else step


def delivers_twice(state: State, event: Event, context: Context) -> Step:
    """The user hears everything two times."""
    step = transition(state, event, context)
    again = tuple(effect for effect in step.effects if isinstance(effect, DeliverToUser))
    return replace(step, effects=(*step.effects, *again))


def checks_the_claim_by_itself(state: State, event: Event, context: Context) -> Step:
    """Whoever checks a claim is shown the claim in place of what the user hears."""
    step = transition(state, event, context)
    blind = (each.replace(deliverable=(each.claim,)) if isinstance(each, VerifyWork) else each for each in step.effects)
    return replace(step, effects=tuple(blind))


def loses_an_outcome(state: State, event: Event, context: Context) -> Step:
    """Of several sub-agents, the last has worked for nothing."""
    step = transition(state, event, context)
    return replace(step, effects=tuple(_without_the_last(effect) for effect in step.effects))


def _without_the_last(effect: Effect) -> Effect:
    if not isinstance(effect, PersistToolResults) or not isinstance(effect.results[0].said, Outcomes):
        return effect
    said = effect.results[0].said
    shorter = said.replace(statuses=said.statuses[:-1], parts=said.parts[:-1])
    return effect.replace(results=(effect.results[0].replace(said=shorter),))


def shares_everything_with_each(state: State, event: Event, context: Context) -> Step:
    """Each sub-agent may use up all that its parent has left."""
    step = transition(state, event, context)
    limits = Limits(requests=20, tokens=context.policy.limits.tokens)
    given = (each.replace(limits=limits) if isinstance(each, SpawnSubAgent) else each for each in step.effects)
    return replace(step, effects=tuple(given))


def forgets_a_question(state: State, event: Event, context: Context) -> Step:
    """What a sub-agent asks is taken, and shown to nobody."""
    step = transition(state, event, context)
    return replace(step, state=step.state.replace(asked=())) if isinstance(event, SubAgentAsked) else step


def goes_on_after_its_task(state: State, event: Event, context: Context) -> Step:
    """A sub-agent waits for another message when its turn has ended."""
    step = transition(state, event, context)
    return replace(step, state=Idle(book=step.state.book)) if isinstance(step.state, Closed) else step


def names_no_limit(state: State, event: Event, context: Context) -> Step:
    """The end of a turn does not say at which limit."""
    step = transition(state, event, context)
    return step if step.ended is None else replace(step, ended=step.ended.replace(limit=None))


def names_a_limit_too_early(state: State, event: Event, context: Context) -> Step:
    """Whatever ends, ends at its limit."""
    step = transition(state, event, context)
    return step if step.ended is None else replace(step, ended=step.ended.replace(limit="tokens"))


def says_nothing_at_the_end(state: State, event: Event, context: Context) -> Step:
    """A turn without an answer ends without a sentence."""
    step = transition(state, event, context)
    if step.ended is None:
        return step
    kept = tuple(effect for effect in step.effects if not isinstance(effect, DeliverToUser))
    return replace(step, effects=kept, ended=step.ended.replace(deliveries=(), silent=True))


def delivers_a_blank(state: State, event: Event, context: Context) -> Step:
    """What is delivered at the end has lost its words."""
    step = transition(state, event, context)
    blanked = [
        effect.replace(said=Made(text=" ")) if isinstance(effect, DeliverToUser) else effect for effect in step.effects
    ]
    return replace(step, effects=tuple(blanked))


def forgets_what_waits(state: State, event: Event, context: Context) -> Step:
    """A change of the tools empties the inbox."""
    step = transition(state, event, context)
    return replace(step, state=step.state.replace(inbox=())) if isinstance(event, ToolsChanged) else step


def takes_tools_at_once(state: State, event: Event, context: Context) -> Step:
    """A change of the tools is taken for whatever turn it names."""
    if not isinstance(event, ToolsChanged):
        return transition(state, event, context)
    return transition(state, event.model_copy(update={"from_turn": state.book.turn + 1}), context)


def runs_out(conversation: PlantedConversation) -> None:
    """The model calls tools in the last request that it has."""
    conversation.happens(PolicyChanged, policy=Policy(limits=Limits(requests=1)))
    conversation.happens(UserMessage, text="Hello")
    conversation.happens(LlmResponse, tool_calls=(WORK,))


def gets_tools(conversation: PlantedConversation) -> None:
    """While a message waits, the tools of the next turn are changed."""
    queues(conversation)
    conversation.happens(ToolsChanged, tools=("work",), from_turn=2)


def gets_tools_at_once(conversation: PlantedConversation) -> None:
    """Somebody wants to change the tools of the turn under way."""
    queues(conversation)
    conversation.happens(ToolsChanged, tools=("work",), from_turn=1)


def queues(conversation: PlantedConversation) -> None:
    """Somebody says two things, one after the other."""
    conversation.happens(UserMessage, text="Hello")
    conversation.happens(UserMessage, text="And another thing", when_busy="queue")


def answers(conversation: PlantedConversation) -> None:
    """The model answers a message."""
    conversation.happens(UserMessage, text="Hello")
    conversation.happens(LlmResponse, content="Good day.")


def claims(conversation: PlantedConversation) -> None:
    """The model says something by tool, claims that its work is complete, and it is."""
    conversation.happens(PolicyChanged, policy=presets.explicit_response())
    conversation.happens(UserMessage, text="Read me it")
    conversation.happens(LlmResponse, tool_calls=(WORK,))
    acts = (Speech(text="Rice and tea."), WorkComplete(summary="Read it aloud."))
    conversation.happens(ToolComplete, result=ToolResult(text="", acts=acts))
    conversation.happens(WorkVerified, passed=True)


def spawns(conversation: PlantedConversation) -> None:
    """Two sub-agents are started, and both finish."""
    conversation.happens(UserMessage, text="Hello")
    conversation.happens(LlmResponse, tool_calls=(SPAWN,))
    conversation.happens(ToolComplete, result=ToolResult(text="", acts=(SubAgents(tasks=("one", "two")),)))
    conversation.happens(SubAgentFinished, outcome="Found it.")
    conversation.happens(SubAgentFinished, outcome="Found more.")


def shares(conversation: PlantedConversation) -> None:
    """Two sub-agents are started when tokens are limited."""
    conversation.happens(PolicyChanged, policy=Policy(limits=Limits(tokens=100)))
    conversation.happens(UserMessage, text="Hello")
    conversation.happens(LlmResponse, tool_calls=(SPAWN,))
    conversation.happens(ToolComplete, result=ToolResult(text="", acts=(SubAgents(tasks=("one", "two")),)))


def lets_one_ask(conversation: PlantedConversation) -> None:
    """A sub-agent asks the user."""
    conversation.happens(PolicyChanged, policy=Policy(sub_agents=SubAgentRules(questions="ask_user")))
    conversation.happens(UserMessage, text="Hello")
    conversation.happens(LlmResponse, tool_calls=(SPAWN,))
    conversation.happens(ToolComplete, result=ToolResult(text="", acts=(SubAgents(tasks=("one",)),)))
    (child, *_) = sorted(pending(conversation.history.state))
    asked = (UserQuestion(question="Which?"),)
    conversation.happens(SubAgentAsked, effect_id=child, call_id="ask", questions=asked)


def does_its_task(conversation: PlantedConversation) -> None:
    """A sub-agent answers its task."""
    conversation.history = History()
    conversation.happens(Opened, role="sub_agent", policy=presets.sub_agent())
    answers(conversation)


@pytest.mark.parametrize(
    ("fault", "play", "law"),
    [
        pytest.param(ignores_cancels, queues, can_be_left, id="9"),
        pytest.param(delivers_twice, answers, delivers_what_was_chosen, id="11"),
        pytest.param(says_nothing_at_the_end, answers, delivers_no_blank_text, id="11, nothing"),
        pytest.param(delivers_a_blank, answers, delivers_no_blank_text, id="11, blank"),
        pytest.param(checks_the_claim_by_itself, claims, checks_what_is_delivered, id="11, before"),
        pytest.param(empties_the_inbox, queues, loses_no_message, id="13"),
        pytest.param(names_no_limit, runs_out, names_limits_truly, id="12, no name"),
        pytest.param(names_a_limit_too_early, answers, names_limits_truly, id="12, wrong name"),
        pytest.param(loses_an_outcome, spawns, loses_no_sub_agent, id="14"),
        pytest.param(shares_everything_with_each, shares, shares_limits_with_sub_agents, id="12, shares"),
        pytest.param(forgets_a_question, lets_one_ask, passes_questions_of_sub_agents_on, id="14, questions"),
        pytest.param(goes_on_after_its_task, does_its_task, ends_each_turn_once, id="ends"),
        pytest.param(forgets_what_waits, gets_tools, changes_settings_alone, id="settings"),
        pytest.param(takes_tools_at_once, gets_tools_at_once, keeps_tools_of_turns, id="tools"),
    ],
)
class TestALaw:
    """It lets the real machine pass, and notices the fault that it is there for."""

    def test_it_notices_the_fault(
        self, monkeypatch: pytest.MonkeyPatch, fault: Transition, play: Callable[[PlantedConversation], None], law: Law
    ) -> None:
        """With the fault planted, the conversation breaks the law."""
        plant(monkeypatch, fault)
        conversation = PlantedConversation()
        play(conversation)

        with pytest.raises(LawBroken):
            law(conversation.history)

    def test_it_lets_the_machine_pass(
        self, fault: Transition, play: Callable[[PlantedConversation], None], law: Law
    ) -> None:
        """The same conversation on the real machine keeps it."""
        conversation = PlantedConversation()
        play(conversation)

        law(conversation.history)


class TestTheLog:
    """A stored log must lead to the same states whoever replays it."""

    def test_rules_that_changed_since_are_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law 2: a log that other rules wrote leads somewhere else."""
        plant(monkeypatch, empties_the_inbox)
        conversation = PlantedConversation()
        queues(conversation)
        monkeypatch.undo()

        with pytest.raises(LawBroken, match="the log leads to another state"):
            is_replayed_by_its_log(conversation.history)
