"""A conversation in a test's own words, without an engine: the test plays the people, the model and the tools.

What happens to it is one line each (`says`, `model_calls`, `tool_ends`), and so is what became of it (`rests_in`,
`wanted`, `results`, `delivered`). Everything goes through the pure machine, and after each event the laws are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

from turnwise.states import (
    Act,
    AgentMail,
    AgentMessage,
    AskUserQuestionPending,
    AwaitingUserResponse,
    Cancelling,
    CloseRequested,
    CompactHistory,
    CompactionRequested,
    DeadlineReached,
    DeliverToUser,
    DoubtResolved,
    Effect,
    EffectFailed,
    Event,
    ExecuteTool,
    HistoryCompacted,
    LlmFailed,
    LlmResponse,
    LlmStopped,
    LogEntry,
    Message,
    MessageWithdrawn,
    Opened,
    Policy,
    PolicyChanged,
    QuestionOption,
    ReconcileTool,
    Refused,
    Request,
    RequestLlm,
    Resumed,
    RetryDue,
    RetryRequested,
    SpawnSubAgent,
    Speech,
    StartTimer,
    State,
    Step,
    SubAgentAsked,
    SubAgentFinished,
    SubAgents,
    SubAgentTask,
    SummarizeTurn,
    ToolAborted,
    ToolApproval,
    ToolCall,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    ToolResult,
    TurnEnded,
    TurnSummarized,
    UserCancel,
    UserMessage,
    UserQuestion,
    UserQuestionResponse,
    VerifyWork,
    WorkComplete,
    WorkVerified,
    pending,
)
from turnwise.states.effects import TOOL_RUNS, ControlEffect
from turnwise.states.transcript import Transcript
from turnwise.states.values.messages import Said
from turnwise.testing.history import History
from turnwise.testing.laws import check_newest
from turnwise.testing.strategies import NOON

S = TypeVar("S", bound=State)

"""The effects that name another one: what is to be stopped."""


# --- what a model calls


def call(name: str, **facts: Any) -> ToolCall:
    """A call of a tool, under the tool's name."""
    return ToolCall(**{"call_id": name, "name": name, **facts})


def asking(name: str = "ask", **facts: Any) -> ToolCall:
    """A call of a tool that asks people."""
    return call(name, exclusive=True, acts=("question",), **facts)


def responding(name: str = "respond", **facts: Any) -> ToolCall:
    """A call of a tool that says something to the user at the end of the turn."""
    return call(name, acts=("speech",), **facts)


def talking(name: str = "talk", **facts: Any) -> ToolCall:
    """A call of a tool that says something to the user at once."""
    return call(name, exclusive=True, acts=("speech",), **facts)


def completing(name: str = "complete", **facts: Any) -> ToolCall:
    """A call of a tool that claims that the work is complete."""
    return call(name, acts=("work_complete",), **facts)


def mailing(name: str = "mail", **facts: Any) -> ToolCall:
    """A call of a tool that writes to another agent."""
    return call(name, acts=("mail",), **facts)


def spawning(name: str = "spawn", **facts: Any) -> ToolCall:
    """A call of a tool that starts sub-agents."""
    return call(name, exclusive=True, acts=("children",), **facts)


def question(text: str = "When?", *labels: str, **facts: Any) -> UserQuestion:
    """A question with these answers offered, or with two."""
    options = tuple(QuestionOption(label=label) for label in labels or ("Now", "Later"))
    return UserQuestion(question=text, options=options, **facts)


class Conversation:
    """One conversation under the rules given. `step` is what the last event came to.

    The rules are those of `policy` but for those that are named. `messages` are a history to begin with. `depth` is how
    many agents are above this one.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        /,
        *,
        role: str = "foreground",
        messages: Any = (),
        depth: int = 0,
        **rules: Any,
    ) -> None:
        self.history = History()
        self.said = Transcript()
        self.now = NOON
        self.step: Step
        policy = Policy(**{**dict(policy or Policy()), **rules})
        self.happens(Opened, role=role, messages=messages, policy=policy, depth=depth)

    # --- what happens

    def happens(self, kind: type[Event], /, **fields: Any) -> Step:
        """Let this event happen, a second after the last. Raises `Refused` if it is."""
        self.now += timedelta(seconds=1)
        if issubclass(kind, Request):
            fields.setdefault("event_id", f"request-{len(self.history.observations)}")
        observation = self.history.take(kind(at=self.now, **fields))
        check_newest(self.history)
        if isinstance(observation.outcome, Refused):
            raise observation.outcome
        self.step = observation.outcome
        if observation.step is not None:
            self.said.add(LogEntry.of(observation.event, observation.step))
        return self.step

    def passes(self, seconds: float) -> None:
        """Nothing happens for so long."""
        self.now += timedelta(seconds=seconds)

    # --- people and programs

    def says(self, text: str = "Hello", **fields: Any) -> Step:
        """A person says something."""
        return self.happens(UserMessage, text=text, **fields)

    def agent_says(self, text: str = "It is done.", **fields: Any) -> Step:
        """Another agent says something, to this one if nothing else is said."""
        return self.happens(AgentMessage, **{"origin": "researcher", "text": text, **fields})

    def withdraws(self, message_id: str) -> Step:
        """A person takes a message back."""
        return self.happens(MessageWithdrawn, message_id=message_id)

    def cancels(self, turn: int | None = None, **fields: Any) -> Step:
        """A person cancels. A model that is asked has written nothing."""
        return self.with_model_stopped(self.happens(UserCancel, turn=turn, **fields))

    def with_model_stopped(self, step: Step) -> Step:
        """The step behind which a model that this one stops has acknowledged it, with nothing written."""
        is_asked = isinstance(self.state, Cancelling) and self.state.answering is not None
        return self.model_stops() if is_asked else step

    def answers(self, answers: dict[str, Any], **fields: Any) -> Step:
        """A person answers."""
        return self.happens(UserQuestionResponse, answers=answers, **fields)

    def allows(self, call_id: str, allowed: bool = True, **fields: Any) -> Step:
        """A person allows a call, or does not."""
        return self.happens(ToolApproval, call_id=call_id, allowed=allowed, **fields)

    def resolves(self, call_id: str, verdict: str) -> Step:
        """A person says what became of a call that is in doubt."""
        return self.happens(DoubtResolved, call_id=call_id, verdict=verdict)

    def tries_again(self) -> Step:
        """A person wants the failed turn tried again."""
        return self.happens(RetryRequested)

    def wants_it_condensed(self) -> Step:
        """Somebody wants the history condensed."""
        return self.happens(CompactionRequested)

    def closes(self) -> Step:
        """The host closes the conversation. A model that is asked has written nothing."""
        return self.with_model_stopped(self.happens(CloseRequested))

    def changes_rules(self, **rules: Any) -> Step:
        """The host changes the policy."""
        return self.happens(PolicyChanged, policy=Policy(**rules))

    # --- the model

    def model_says(self, content: str, **fields: Any) -> Step:
        """The model answers with a text."""
        return self.happens(LlmResponse, effect_id=self.flying(RequestLlm), content=content, **fields)

    def model_calls(self, *calls: str | ToolCall, **fields: Any) -> Step:
        """The model calls tools, by name or as given. An id that was given before is numbered, as performers do."""
        made = tuple(self._numbered(call(each) if isinstance(each, str) else each) for each in calls)
        return self.happens(LlmResponse, effect_id=self.flying(RequestLlm), tool_calls=made, **fields)

    def _numbered(self, made: ToolCall) -> ToolCall:
        given = {each.call_id for message in self.transcript for each in message.tool_calls}
        ids = (made.call_id, *(f"{made.call_id}-{number}" for number in range(2, len(given) + 2)))
        return made.model_copy(update={"call_id": next(each for each in ids if each not in given)})

    def model_fails(self, kind: str = "server_error", retry_after: float | None = None, **fields: Any) -> Step:
        """The model request fails."""
        failed = {"kind": kind, "sentence": "The model is not well.", "retry_after": retry_after, **fields}
        return self.happens(LlmFailed, effect_id=self.flying(RequestLlm), **failed)

    def model_stops(self, content: str = "", **fields: Any) -> Step:
        """The model acknowledges that it was stopped, when it had written this."""
        return self.happens(LlmStopped, effect_id=self.flying(RequestLlm), content=content, **fields)

    # --- tools

    def tool_ends(self, name: str, text: str = "done", *, error: bool = False, acts: Sequence[Act] = ()) -> Step:
        """A tool ends, and does what else it does."""
        result = ToolResult(text=text, error=error, acts=tuple(acts))
        return self.happens(ToolComplete, effect_id=self.running(name), result=result)

    def tool_responds(self, name: str, *texts: str) -> Step:
        """A tool ends that says something to the user at the end of the turn."""
        return self.tool_ends(name, acts=[Speech(text=text) for text in texts])

    def tool_talks(self, name: str, *texts: str) -> Step:
        """A tool ends that says something to the user at once."""
        return self.tool_ends(name, acts=[Speech(text=text, when="now") for text in texts])

    def tool_claims(self, name: str = "complete", summary: str = "All is done.") -> Step:
        """A tool ends that claims that the work is complete."""
        return self.tool_ends(name, acts=[WorkComplete(summary=summary)])

    def tool_mails(self, name: str = "mail", text: str = "Look here.", target: str = "other", **fields: Any) -> Step:
        """A tool ends that writes to another agent."""
        return self.tool_ends(name, acts=[AgentMail(target=target, text=text, **fields)])

    def tool_spawns(self, name: str, *tasks: str | SubAgentTask) -> Step:
        """A tool ends that starts sub-agents."""
        return self.tool_ends(name, acts=[SubAgents(tasks=tasks)])

    def tool_stops(self, name: str) -> Step:
        """A tool acknowledges that it was stopped."""
        return self.happens(ToolAborted, effect_id=self.running(name))

    def tool_breaks(self, name: str, sentence: str) -> Step:
        """A tool could not be run to its end."""
        return self.happens(EffectFailed, effect_id=self.running(name), kind="timeout", sentence=sentence)

    def tool_asks(self, name: str = "ask", *questions: UserQuestion, suspends: bool = False) -> Step:
        """A tool wants to ask people; a call that suspends waits for the answer and then goes on."""
        asked = questions or (question(),)
        effect_id = self.running(name)
        return self.happens(AskUserQuestionPending, effect_id=effect_id, questions=asked, suspends=suspends)

    def tool_was_interrupted(self, call_id: str) -> Step:
        """It is reported that the process died while this call ran."""
        return self.happens(ToolInterrupted, call_id=call_id)

    def tool_reconciles(
        self, name: str, verdict: str, text: str | None = None, *, error: bool = False, acts: Sequence[Act] = ()
    ) -> Step:
        """A tool says whether the call that a crash interrupted did run, and what came of it if there is a text."""
        result = None if text is None else ToolResult(text=text, error=error, acts=tuple(acts))
        return self.happens(ToolReconciled, effect_id=self.asked_about(name), verdict=verdict, result=result)

    # --- everything else in the world

    def verifier_says(self, passed: bool, reason: str = "", *missing: str, **fields: Any) -> Step:
        """The check of the claim gives its verdict."""
        effect_id = self.flying(VerifyWork)
        return self.happens(WorkVerified, effect_id=effect_id, passed=passed, reason=reason, missing=missing, **fields)

    def summary_comes(self, summary: str = "In short.", **fields: Any) -> Step:
        """The summary of the turn is written."""
        return self.happens(TurnSummarized, effect_id=self.flying(SummarizeTurn), summary=summary, **fields)

    def history_is_condensed(self, summary: str = "What was said before.", **fields: Any) -> Step:
        """The history is condensed."""
        return self.happens(HistoryCompacted, effect_id=self.flying(CompactHistory), summary=summary, **fields)

    def child_finishes(self, task: str, outcome: str = "found", **fields: Any) -> Step:
        """The sub-agent with this task ends."""
        return self.happens(SubAgentFinished, effect_id=self.working(task), outcome=outcome, **fields)

    def child_asks(self, task: str, *questions: UserQuestion, call_id: str = "ask", **fields: Any) -> Step:
        """The sub-agent with this task asks the user."""
        effect_id, asked = self.working(task), questions or (question(),)
        fields = {"since": self.now, **fields}
        return self.happens(SubAgentAsked, effect_id=effect_id, call_id=call_id, questions=asked, **fields)

    def child_no_longer_asks(self, task: str, call_id: str = "ask") -> Step:
        """The sub-agent with this task does not wait for an answer any longer."""
        return self.happens(SubAgentAsked, effect_id=self.working(task), call_id=call_id)

    def breaks(self, kind: type[Effect], failure: str = "timeout", sentence: str = "It broke.") -> Step:
        """The one effect of this type that is in flight could not be carried out."""
        return self.happens(EffectFailed, effect_id=self.flying(kind), kind=failure, sentence=sentence)

    def timer_rings(self) -> Step:
        """The only timer is due."""
        timer = self.in_flight()[self.flying(StartTimer)]
        assert isinstance(timer, StartTimer)
        kind = RetryDue if timer.wakes == "retry_due" else DeadlineReached
        return self.happens(kind, effect_id=timer.effect_id)

    def resumes(self) -> Step:
        """Another process takes the conversation up after one has died."""
        return self.happens(Resumed, open=tuple(self.in_flight()))

    def is_imported(self) -> Step:
        """An engine takes the conversation up that another database held."""
        return self.happens(Resumed, open=tuple(self.in_flight()), imported=True)

    # --- what became of it

    @property
    def state(self) -> State:
        """Where the conversation rests."""
        return self.history.state

    @property
    def transcript(self) -> tuple[Message, ...]:
        """What was said."""
        return tuple(self.said.messages)

    @property
    def ended(self) -> TurnEnded:
        """What the turn came to that the last step left."""
        assert self.step.ended is not None, "the last step left no turn"
        return self.step.ended

    def rests_in(self, kind: type[S]) -> S:
        """The state, which must be of this type."""
        assert isinstance(self.state, kind), f"it rests in {self.state.type}"
        return self.state

    def wanted(self) -> list[type[Effect]]:
        """The types of the effects that the last step wants, in order."""
        return [type(effect) for effect in self.step.effects]

    def words(self, *said: Said | None) -> list[str]:
        """The words that these stand for; none for None."""
        return [self.said.words(each) for each in said if each is not None]

    def results(self) -> dict[str, str]:
        """The results of the tools so far, by the call."""
        return {message.tool_call_id: message.text for message in self.transcript if message.tool_call_id}

    def errors(self) -> list[str]:
        """The calls whose result tells of an error."""
        return [message.tool_call_id for message in self.transcript if message.tool_call_id and message.error]

    def roles(self) -> list[str]:
        """Who spoke, in order."""
        return [message.role for message in self.transcript]

    def delivered(self) -> list[str]:
        """What was handed over to the user so far, in order."""
        effects = [effect for entry in self.history.log for effect in entry.effects]
        return self.words(*(effect.said for effect in effects if isinstance(effect, DeliverToUser)))

    def asked(self) -> AwaitingUserResponse:
        """The state in which a person is asked."""
        return self.rests_in(AwaitingUserResponse)

    def in_flight(self) -> dict[int, Effect]:
        """The effects that are waited for, each as it was wanted last, in the order of their ids."""
        effects = [effect for entry in self.history.log for effect in entry.effects]
        wanted = {
            getattr(effect, "effect_id", 0): effect for effect in effects if not isinstance(effect, ControlEffect)
        }
        return {effect_id: wanted[effect_id] for effect_id in sorted(pending(self.state))}

    def flying(self, kind: type[Effect]) -> int:
        """The id of the one effect of this type that is in flight."""
        (effect_id,) = (each for each, effect in self.in_flight().items() if isinstance(effect, kind))
        return effect_id

    def tools(self) -> list[str]:
        """The tools that run, in the order in which they started."""
        return [effect.call.name for effect in self.in_flight().values() if isinstance(effect, ExecuteTool)]

    def running(self, name: str) -> int:
        """The id of the effect that runs this call, or this tool."""
        return self._of_call(TOOL_RUNS, name)

    def asked_about(self, name: str) -> int:
        """The id of the effect that asks this tool what became of its call, or of this one."""
        return self._of_call(ReconcileTool, name)

    def _of_call(self, kind: Any, name: str) -> int:
        calls = {each: effect.call for each, effect in self.in_flight().items() if isinstance(effect, kind)}
        by_name = {made.name: each for each, made in calls.items()}
        return {**by_name, **{made.call_id: each for each, made in calls.items()}}[name]

    def children(self) -> list[str]:
        """The tasks of the sub-agents that work."""
        flying = self.in_flight().values()
        return self.words(*(effect.task for effect in flying if isinstance(effect, SpawnSubAgent)))

    def working(self, task: str) -> int:
        """The id of the effect that runs the sub-agent with this task."""
        flying = self.in_flight()
        spawned = {each: effect for each, effect in flying.items() if isinstance(effect, SpawnSubAgent)}
        (effect_id,) = (each for each, effect in spawned.items() if self.words(effect.task) == [task])
        return effect_id

    def requests(self) -> list[RequestLlm]:
        """All model requests so far."""
        return [effect for entry in self.history.log for effect in entry.effects if isinstance(effect, RequestLlm)]

    def nudge(self) -> str | None:
        """What the newest model request is told in passing."""
        nudge = self.requests()[-1].nudge
        return None if nudge is None else self.said.words(nudge)

    def stopped(self) -> list[int]:
        """The effects that the last step wants stopped."""
        return [effect.effect_id for effect in self.step.effects if isinstance(effect, ControlEffect)]
