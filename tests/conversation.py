"""A conversation in a test's own words, without an engine: the test plays the people, the model and the tools.

What happens to it is one line each (`says`, `model_calls`, `tool_ends`), and so is what became of it (`rests_in`,
`wanted`, `results`). Everything goes through the pure machine, and after each event the laws are checked.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from turnwise.states import (
    Abort,
    AskUserQuestionPending,
    AwaitingUserResponse,
    CloseRequested,
    DeadlineReached,
    Effect,
    EffectFailed,
    Event,
    ExecuteTool,
    LlmFailed,
    LlmResponse,
    Message,
    Opened,
    Policy,
    PolicyChanged,
    QuestionOption,
    Refused,
    RequestLlm,
    RetryDue,
    RetryRequested,
    StartTimer,
    State,
    Step,
    ToolAborted,
    ToolCall,
    ToolComplete,
    ToolResult,
    UserCancel,
    UserMessage,
    UserQuestion,
    UserQuestionResponse,
)
from turnwise.testing.history import History
from turnwise.testing.laws import check_newest
from turnwise.testing.strategies import NOON

S = TypeVar("S", bound=State)


def call(name: str, **facts: Any) -> ToolCall:
    """A call of a tool, under the tool's name."""
    return ToolCall(call_id=name, name=name, **facts)


def asking(name: str = "ask") -> ToolCall:
    """A call of a tool that asks people."""
    return call(name, exclusive=True, acts=("question",))


def question(text: str = "When?", *labels: str, **facts: Any) -> UserQuestion:
    """A question with these answers offered, or with two."""
    options = tuple(QuestionOption(label=label) for label in labels or ("Now", "Later"))
    return UserQuestion(question=text, options=options, **facts)


class Conversation:
    """One conversation under the rules given. `step` is what the last event came to."""

    def __init__(self, **rules: Any) -> None:
        self.history = History()
        self.now = NOON
        self.step: Step
        self.happens(Opened, policy=Policy(**rules))

    # --- what happens

    def happens(self, kind: type[Event], /, **fields: Any) -> Step:
        """Let this event happen, a second after the last. Raises `Refused` if it is."""
        self.now += timedelta(seconds=1)
        if "effect_id" not in fields:
            fields["event_id"] = f"request-{len(self.history.observations)}"
        outcome = self.history.take(kind(at=self.now, **fields)).outcome
        check_newest(self.history)
        if isinstance(outcome, Refused):
            raise outcome
        self.step = outcome
        return outcome

    def says(self, text: str = "Hello") -> Step:
        """A person says something."""
        return self.happens(UserMessage, text=text)

    def cancels(self, turn: int | None = None) -> Step:
        """A person cancels."""
        return self.happens(UserCancel, turn=turn)

    def answers(self, answers: dict[str, Any], **fields: Any) -> Step:
        """A person answers."""
        return self.happens(UserQuestionResponse, answers=answers, **fields)

    def tries_again(self) -> Step:
        """A person wants the failed turn tried again."""
        return self.happens(RetryRequested)

    def closes(self) -> Step:
        """The host closes the conversation."""
        return self.happens(CloseRequested)

    def changes_rules(self, **rules: Any) -> Step:
        """The host changes the policy."""
        return self.happens(PolicyChanged, policy=Policy(**rules))

    def model_says(self, content: str, **fields: Any) -> Step:
        """The model answers with a text."""
        return self.happens(LlmResponse, effect_id=self.flying(RequestLlm), content=content, **fields)

    def model_calls(self, *calls: str | ToolCall, **fields: Any) -> Step:
        """The model calls tools, by name or as given."""
        made = tuple(call(each) if isinstance(each, str) else each for each in calls)
        return self.happens(LlmResponse, effect_id=self.flying(RequestLlm), tool_calls=made, **fields)

    def model_fails(self, kind: str = "server_error", retry_after: float | None = None) -> Step:
        """The model request fails."""
        sentence = "The model is not well."
        effect_id = self.flying(RequestLlm)
        return self.happens(LlmFailed, effect_id=effect_id, kind=kind, sentence=sentence, retry_after=retry_after)

    def tool_ends(self, name: str, text: str = "done", *, error: bool = False) -> Step:
        """A tool ends."""
        return self.happens(ToolComplete, effect_id=self.running(name), result=ToolResult(text=text, error=error))

    def tool_stops(self, name: str) -> Step:
        """A tool acknowledges that it was stopped."""
        return self.happens(ToolAborted, effect_id=self.running(name))

    def tool_breaks(self, name: str, sentence: str) -> Step:
        """A tool could not be run to its end."""
        return self.happens(EffectFailed, effect_id=self.running(name), kind="timeout", sentence=sentence)

    def tool_asks(self, name: str = "ask", *questions: UserQuestion) -> Step:
        """A tool wants to ask people."""
        return self.happens(AskUserQuestionPending, effect_id=self.running(name), questions=questions or (question(),))

    def timer_rings(self) -> Step:
        """The only timer is due."""
        timer = self.history.in_flight[self.flying(StartTimer)]
        assert isinstance(timer, StartTimer)
        kind = RetryDue if timer.wakes == "retry_due" else DeadlineReached
        return self.happens(kind, effect_id=timer.effect_id)

    # --- what became of it

    @property
    def state(self) -> State:
        """Where the conversation rests."""
        return self.history.state

    @property
    def transcript(self) -> tuple[Message, ...]:
        """What was said."""
        return self.history.transcript

    def rests_in(self, kind: type[S]) -> S:
        """The state, which must be of this type."""
        assert isinstance(self.state, kind), f"it rests in {self.state.type}"
        return self.state

    def wanted(self) -> list[type[Effect]]:
        """The types of the effects that the last step wants, in order."""
        return [type(effect) for effect in self.step.effects]

    def results(self) -> dict[str, str]:
        """The results of the tools so far, by the call."""
        return {message.tool_call_id: message.text for message in self.transcript if message.tool_call_id}

    def roles(self) -> list[str]:
        """Who spoke, in order."""
        return [message.role for message in self.transcript]

    def asked(self) -> AwaitingUserResponse:
        """The state in which a person is asked."""
        return self.rests_in(AwaitingUserResponse)

    def flying(self, kind: type[Effect]) -> int:
        """The id of the one effect of this type that is in flight."""
        (effect_id,) = (each for each, effect in self.history.in_flight.items() if isinstance(effect, kind))
        return effect_id

    def tools(self) -> list[str]:
        """The tools that run, in the order in which they started."""
        return [effect.call.name for effect in self.history.in_flight.values() if isinstance(effect, ExecuteTool)]

    def running(self, name: str) -> int:
        """The id of the effect that runs this tool."""
        running = {
            effect.call.name: effect_id
            for effect_id, effect in self.history.in_flight.items()
            if isinstance(effect, ExecuteTool)
        }
        return running[name]

    def requests(self) -> list[RequestLlm]:
        """All model requests so far."""
        return [effect for entry in self.history.log for effect in entry.effects if isinstance(effect, RequestLlm)]

    def stopped(self) -> list[int]:
        """The effects that the last step wants stopped."""
        return [effect.effect_id for effect in self.step.effects if isinstance(effect, Abort)]
