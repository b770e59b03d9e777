"""Faults that a machine might have, and the laws that notice them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from turnwise.states import (
    Closed,
    Context,
    DeliverToUser,
    Effect,
    Event,
    Idle,
    Limits,
    LlmResponse,
    Made,
    Opened,
    Outcomes,
    PersistToolResults,
    Policy,
    PolicyChanged,
    SpawnSubAgent,
    Speech,
    State,
    Step,
    SubAgentAsked,
    SubAgentFinished,
    SubAgentRules,
    SubAgents,
    ToolCall,
    ToolComplete,
    ToolResult,
    ToolsChanged,
    UserCancel,
    UserMessage,
    UserQuestion,
    VerifyWork,
    WorkComplete,
    WorkVerified,
    pending,
    presets,
    transition,
)
from turnwise.testing import History, LawBroken
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
from turnwise.testing.strategies import NOON

from ..support.planted.machines import Transition, plant

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
