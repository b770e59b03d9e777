"""What a conversation can ask of the world, as plain data.

There are five kinds of effect, one base class each:

- a *persisting* effect is carried out inside the commit of its step: it says what enters the transcript;
- an *awaited* effect is started after the commit, and exactly one answer names its id;
- an *outgoing* effect is handed over after the commit. It has an id, although nobody waits for it;
- a *recorded* effect is not carried out after the commit: it is read where it stands, in the log;
- a *control* effect stops an awaited effect, which it names.

Effects are started in the order of their step. The key by which the world may recognise an effect that it is asked for
again is made of the id of the conversation, that of the effect, and the link of the step that asked for it first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from .events import (
    Answer,
    AnswerType,
    AnswerTypes,
    AskUserQuestionPending,
    DeadlineReached,
    EffectFailed,
    HistoryCompacted,
    LlmFailed,
    LlmResponse,
    LlmStopped,
    MemoryRecalled,
    ProfileSelected,
    RetryDue,
    SubAgentFinished,
    ToolAborted,
    ToolComplete,
    ToolReconciled,
    TurnSummarized,
    WorkVerified,
)
from .policy import Limits
from .values.acts import Audience
from .values.messages import Heard, Reminder, Said, Suspect
from .values.output import WantedOutput
from .values.round import RoundCall
from .values.turn import BranchPoint, EndedStatus
from .values.value import FailureKind, Instant, Record, Seconds, Tagged, Text, members


class Effect(Tagged):
    """Something the machine wants done."""


class PersistingEffect(Effect):
    """An effect that is carried out by the commit of its step: something enters the transcript, or is read differently
    in it from then on."""


class AwaitedEffect(Effect):
    """An effect that is started after the commit. The conversation waits for its one answer."""

    ANSWERS: ClassVar[AnswerTypes] = ()
    """The answers that an effect of this type can have."""

    ACKNOWLEDGES: ClassVar[AnswerType | None] = None
    """The answer that confirms that an effect of this type was stopped. With None, an effect that is told to stop is no
    longer awaited."""

    AFTER_DELIVERIES: ClassVar[bool] = False
    """Whether an effect of this type starts only after the deliveries in front of it were attempted. This holds for
    effects that users can notice: a text that was said before a tool runs arrives before it runs."""

    effect_id: int

    @property
    def answers(self) -> AnswerTypes:
        """The answers that this effect can have. `Pure.`"""
        return self.ANSWERS

    @classmethod
    def acknowledgement(cls, effect_id: int, at: datetime) -> Answer | None:
        """The answer that confirms that the effect `effect_id` of this type was stopped, or None if such an effect
        confirms nothing. `Pure.`"""
        answer = cls.ACKNOWLEDGES
        return None if answer is None else answer.model_validate({"effect_id": effect_id, "at": at})


AwaitedTypes: TypeAlias = tuple[type[AwaitedEffect], ...]
"""Types of awaited effect."""


class OutgoingEffect(Effect):
    """An effect that hands something over to a user or to another agent. Nobody waits for it, but it must arrive."""

    effect_id: int


class RecordedEffect(Effect):
    """An effect that is carried out by the commit of its step: whoever needs what it says reads it in the log."""

    effect_id: int


class ControlEffect(Effect):
    """An effect that stops the awaited effect `effect_id`."""

    effect_id: int


class PersistMessage(PersistingEffect):
    """A message enters the transcript: a message of a person or of the model, by reference, or a reply worded by the
    machine."""

    type: Literal["persist_message"] = "persist_message"
    said: Said


@dataclass(frozen=True, kw_only=True)
class SettledCall(Record):
    """A call and the text that is its result."""

    call_id: str
    said: Said
    error: bool = False


class PersistToolResults(PersistingEffect):
    """Results of tool calls enter the transcript, each directly behind the message that made the call, in call
    order."""

    type: Literal["persist_tool_results"] = "persist_tool_results"
    results: tuple[SettledCall, ...]


class SwitchBranch(PersistingEffect):
    """From now on the transcript is what was said up to this point, and what follows this effect. What was said behind
    the point is hidden; another effect of this kind may bring it back. `turns` is how many turns there were by then."""

    type: Literal["switch_branch"] = "switch_branch"
    to: BranchPoint
    turns: int


class WithholdContent(PersistingEffect):
    """From now on models are shown a note in place of this part of what was said: `model` has refused a request for its
    content, by a failure of this kind, and this is what it probably refused.

    What some model has accepted before, and what this model does not take or cannot read, is withheld from this model
    only; the rest from every model.
    """

    type: Literal["withhold_content"] = "withhold_content"
    suspect: Suspect
    kind: FailureKind
    model: Text


class ClearResults(PersistingEffect):
    """From now on models are shown a note in place of the long results of all tool calls but those of the newest
    `rounds` rounds of calls, so that the window has room. The note says how the result can be read."""

    type: Literal["clear_results"] = "clear_results"
    rounds: int = Field(ge=1)


class NoteHeard(PersistingEffect):
    """The user has heard only this of what was said in the turn `turn`. What of it they have not heard is cut, now or,
    if the turn is still under way, at its end."""

    type: Literal["note_heard"] = "note_heard"
    turn: int
    said: Heard


class RequestLlm(AwaitedEffect):
    """Ask the model. The request itself is built by the performer, from the committed transcript.

    `memory` refers to the answer that holds what was recalled. `nudge` is put into this request only and is not part of
    the dialogue: a reminder of the rules, the reason why the newest claim was rejected, or both. A `plain` request
    holds the system prompt and the user's message, nothing else. With `tool_choice="none"` the tools stay listed, since
    some providers refuse a history with calls otherwise, but none may be called. `output` names the form
    that the answer must have; None stands for a text. A request for a typed answer may offer one tool more, by which
    the answer is given, and which may be called in any case. `at` is the time that fresh context states.
    """

    ANSWERS: ClassVar[AnswerTypes] = (LlmResponse, LlmFailed, LlmStopped, EffectFailed)
    ACKNOWLEDGES: ClassVar[AnswerType | None] = LlmStopped

    type: Literal["request_llm"] = "request_llm"
    model: Text
    profile: Text = ""
    memory: Heard | None = None
    nudge: Reminder | None = None
    plain: bool = False
    tool_choice: Literal["auto", "none"] = "auto"
    output: WantedOutput | None = None
    at: Instant


class ExecuteTool(AwaitedEffect):
    """Run a tool. The arguments of its call are in the transcript, under the id of the call.

    `started_as` is the effect as which the call was first started, if it is another one: the process died after the
    call had asked a person, and the call runs again.
    """

    ANSWERS: ClassVar[AnswerTypes] = (ToolComplete, ToolAborted, AskUserQuestionPending, EffectFailed)
    ACKNOWLEDGES: ClassVar[AnswerType | None] = ToolAborted
    AFTER_DELIVERIES: ClassVar[bool] = True

    type: Literal["execute_tool"] = "execute_tool"
    call: RoundCall
    started_as: int | None = None

    @property
    def first_id(self) -> int:
        """The effect as which the call was first started. `Pure.`"""
        return self.effect_id if self.started_as is None else self.started_as


Reply = Literal["answered", "declined", "unanswered", "cancelled"]
"""What a call learns that has asked a person: the answers, that the person declined, that nobody answered in time, or
that it is to stop because its turn was cancelled."""


class ResumeTool(AwaitedEffect):
    """Let a call go on that has asked a person and waits, and tell it the `reply`.

    `said` refers to the answers, if there are any. `started_as` is the effect as which the call was first started.

    If the call is not where this effect is carried out, its crash contract decides, as after a crash: see
    `ToolReconciled`.
    """

    ANSWERS: ClassVar[AnswerTypes] = (ToolComplete, ToolAborted, AskUserQuestionPending, ToolReconciled, EffectFailed)
    ACKNOWLEDGES: ClassVar[AnswerType | None] = ToolAborted
    AFTER_DELIVERIES: ClassVar[bool] = True

    type: Literal["resume_tool"] = "resume_tool"
    call: RoundCall
    started_as: int
    reply: Reply
    said: Heard | None = None

    @property
    def first_id(self) -> int:
        """The effect as which the call was first started. `Pure.`"""
        return self.started_as


TOOL_RUNS = (ExecuteTool, ResumeTool)
"""The effects that run a tool. If the process dies, its call is interrupted."""


class ReconcileTool(AwaitedEffect):
    """Ask a tool whether the call that was started as the effect `started_as` ran before the process died."""

    ANSWERS: ClassVar[AnswerTypes] = (ToolReconciled, ToolAborted, EffectFailed)
    ACKNOWLEDGES: ClassVar[AnswerType | None] = ToolAborted

    type: Literal["reconcile_tool"] = "reconcile_tool"
    call: RoundCall
    started_as: int


class SelectProfile(AwaitedEffect):
    """Choose one of the policy's profiles for this turn."""

    ANSWERS: ClassVar[AnswerTypes] = (ProfileSelected, EffectFailed)

    type: Literal["select_profile"] = "select_profile"


class RecallMemory(AwaitedEffect):
    """Find what belongs to this turn: by a `search` in older conversations, the texts of the last `recent` seconds, the
    `documents` of the application, or several of these."""

    ANSWERS: ClassVar[AnswerTypes] = (MemoryRecalled, EffectFailed)

    type: Literal["recall_memory"] = "recall_memory"
    profile: Text = ""
    search: bool = False
    recent: Seconds | None = None
    documents: bool = False


class VerifyWork(AwaitedEffect):
    """Check the claim that the work is complete against the task. `deliverable` is everything that the user will have
    received if the turn ends with this claim; for an agent without a user it also holds the agent's result."""

    ANSWERS: ClassVar[AnswerTypes] = (WorkVerified, EffectFailed)

    type: Literal["verify_work"] = "verify_work"
    claim: Heard
    deliverable: tuple[Said, ...] = ()


class SummarizeTurn(AwaitedEffect):
    """Write a summary of the turn, for display."""

    ANSWERS: ClassVar[AnswerTypes] = (TurnSummarized, EffectFailed)

    type: Literal["summarize_turn"] = "summarize_turn"


class CompactHistory(AwaitedEffect):
    """Summarize what entered the transcript up to the step `up_to`, except for what people said since the turn
    `turn`."""

    ANSWERS: ClassVar[AnswerTypes] = (HistoryCompacted, EffectFailed)

    type: Literal["compact_history"] = "compact_history"
    up_to: int
    turn: int | None = None


class SpawnSubAgent(AwaitedEffect):
    """Start a sub-agent with this task.

    It works by this `profile`, if one is named, with those of its parent's tools that `tools` names, or
    with all of them, and within these `limits`. It is stopped when it is `due`, which is never more than
    `seconds` ahead, even if the clock was set back since.
    """

    ANSWERS: ClassVar[AnswerTypes] = (SubAgentFinished, EffectFailed)
    ACKNOWLEDGES: ClassVar[AnswerType | None] = SubAgentFinished
    AFTER_DELIVERIES: ClassVar[bool] = True

    type: Literal["spawn_sub_agent"] = "spawn_sub_agent"
    task: Heard
    profile: Text = ""
    tools: tuple[Text, ...] | None = None
    limits: Limits = Limits()
    due: Instant | None = None
    seconds: float | None = None

    @classmethod
    def acknowledgement(cls, effect_id: int, at: datetime) -> SubAgentFinished:
        """The sub-agent has finished, with the status `cancelled`. `Pure.`"""
        return SubAgentFinished(effect_id=effect_id, at=at, outcome="It was cancelled.", status="cancelled")


class StartTimer(AwaitedEffect):
    """Answer when `due` is reached, with the event that `wakes` names."""

    ANSWERS: ClassVar[AnswerTypes] = (RetryDue, DeadlineReached)

    type: Literal["start_timer"] = "start_timer"
    due: Instant
    wakes: Literal["retry_due", "deadline_reached"]

    @property
    def answers(self) -> AnswerTypes:
        """The answer that `wakes` names. `Pure.`"""
        return (RetryDue,) if self.wakes == "retry_due" else (DeadlineReached,)


class Abort(ControlEffect):
    """Stop the effect `effect_id`. A tool confirms this with `ToolAborted`, and a model with `LlmStopped`; any other
    effect is no longer awaited."""

    type: Literal["abort"] = "abort"


class CancelSubAgent(ControlEffect):
    """Stop the sub-agent that the effect `effect_id` started."""

    type: Literal["cancel_sub_agent"] = "cancel_sub_agent"


DELIVERY_DEATHS = 2
"""In how many attempts to deliver one text, begun after the first process had died, the process may die, too. Then the
delivery is left out: it is probably what ends the process, and would do so at every start."""


class DeliverToUser(OutgoingEffect):
    """Deliver a text to the user, through every channel. It is the `ordinal`-th delivery of its turn, counted from 1.

    `relayed` marks a message of another agent that is passed on unchanged.
    """

    type: Literal["deliver_to_user"] = "deliver_to_user"
    said: Said
    turn: int
    ordinal: int
    relayed: bool = False


class SendToAgent(OutgoingEffect):
    """Put a message into the inbox of the agent `target`. A message that is `returned` came from that agent and was not
    read, or not passed on to the user, because this conversation has closed or the message has lapsed."""

    type: Literal["send_to_agent"] = "send_to_agent"
    target: Text
    said: Heard
    audience: Audience = "agent"
    silent: bool = False
    returned: bool = False


class AnswerSubAgent(OutgoingEffect):
    """Pass an answer on to the sub-agent that the effect `child` started: `said` answers what it asked by its call
    `call_id`, or is None if the user declined."""

    type: Literal["answer_sub_agent"] = "answer_sub_agent"
    child: int
    call_id: Text
    said: Heard | None = None


class NotifyParent(RecordedEffect):
    """Record in the log of a sub-agent how its turn ended and what it said last, if anything, or its typed answer,
    which `is_json`.

    Whoever waits for the sub-agent finds its outcome there, even if both processes died.
    """

    type: Literal["notify_parent"] = "notify_parent"
    status: EndedStatus
    said: Said | None = None
    is_json: bool = False


AnyEffect = Annotated[
    PersistMessage
    | PersistToolResults
    | SwitchBranch
    | WithholdContent
    | ClearResults
    | NoteHeard
    | RequestLlm
    | ExecuteTool
    | ResumeTool
    | ReconcileTool
    | SelectProfile
    | RecallMemory
    | VerifyWork
    | SummarizeTurn
    | CompactHistory
    | SpawnSubAgent
    | StartTimer
    | Abort
    | CancelSubAgent
    | DeliverToUser
    | SendToAgent
    | AnswerSubAgent
    | NotifyParent,
    Field(discriminator="type"),
]
"""Every effect, for reading one back by its `type`."""

EFFECTS = members(AnyEffect, Effect)
OUTGOING = members(AnyEffect, OutgoingEffect)
CONTROL = members(AnyEffect, ControlEffect)
