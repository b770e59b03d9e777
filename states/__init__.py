"""The pure machine: what a conversation is, where it can rest, and what moves it.

Nothing here reads a clock, makes up an id, opens a file or waits. Start with `table`, the whole conversation on one
page; `machine` reads it.

    from turnwise.states import Context, Idle, UserMessage, next_events, pending, transition

Glossary

- *state*: where a conversation rests. In *busy* states something is under way, nearly always a turn.
- *event*: what can happen to it: a *request* from people and programs, an *answer* to an effect, or a *report* of
  whoever takes it up after a crash.
- *effect*: what it asks of the world, as data. *Awaited* effects have an id, and exactly one answer names it.
- *step*: one event taken: the state afterwards, and the effects wanted.
- *turn*: from a message to the next rest. *round*: the tool calls of one response.
- *call*: one use of a tool that the model asked for. It is *settled* by exactly one *result*.
- *act*: what a tool's result does beside being read: *speech* to the user, a *claim* of completed work, *mail* to
  another agent, *children* (sub-agents) at work for the turn.
- *nudge*: what the model is told in passing, in a request and nowhere else.
- *delivery*: what is handed over to the user. A turn that delivers nothing is *silent*.
- *reply*: what the user receives of a turn, as one text.
- *channel*: a way to the user. *outbox*: what is still to be delivered, stored with the step that said it, once for
  each *target*: whom it must reach, by name, such as a channel. *receipt*: the note that a target has it, or that an
  *attempt* failed.
- *inbox*: messages that wait for their turn: *queued* for the next one, or *steered* into this one. *Silent* ones of
  other agents wake nobody.
- *said*: a text by reference: *heard* in an event, *made* by the machine, or several *joined*.
- *rest*: nothing is under way (`Idle`, `Failed`, `Closed`). *fork*: a copy of a conversation up to a rest.
- *log*: all steps, in order. *transcript*: what was said, read from the log.
- *policy*: the rules that a host chose. *context*: those, and what else holds for the whole conversation.
- *guard*: a yes-or-no question of the table. *handler*: what a row does. *junction*: a choice that rows share.
- *refused*: a request that is not taken; nothing happened. *ignored*: an answer that nobody waits for, or a request
  with nothing to act on.
- *case* and *seed*: the number of a requirement of turnwise, and of the text that it comes from; tests quote them.
"""

from .context import Context
from .effects import (
    Abort,
    CancelSubAgent,
    CompactHistory,
    DeliverToUser,
    Effect,
    ExecuteTool,
    NotifyParent,
    PersistMessage,
    PersistToolResults,
    RecallMemory,
    ReconcileTool,
    RequestLlm,
    SelectProfile,
    SendToAgent,
    SettledCall,
    SpawnSubAgent,
    StartTimer,
    SummarizeTurn,
    VerifyWork,
)
from .errors import ConfigurationError, InvalidInput, Refused, StoreError, TurnwiseError, UnknownConversation
from .events import (
    AgentMessage,
    Answer,
    AskUserQuestionPending,
    CloseRequested,
    CompactionRequested,
    DeadlineReached,
    DoubtResolved,
    EffectFailed,
    Event,
    HistoryCompacted,
    LlmFailed,
    LlmResponse,
    MemoryRecalled,
    MessageWithdrawn,
    Opened,
    PolicyChanged,
    ProfileSelected,
    RecentText,
    Report,
    Request,
    Resumed,
    RetryDue,
    RetryRequested,
    SubAgentFinished,
    ToolAborted,
    ToolApproval,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    TurnSummarized,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    WorkVerified,
)
from .log import LogEntry
from .machine import MACHINE, begin, next_events, transition
from .policy.policy import (
    Empty,
    Limits,
    ModelSpec,
    Policy,
    Profile,
    Questions,
    Recent,
    Recovery,
    Repeats,
    Retry,
    SpeechRules,
)
from .policy.texts import Texts
from .projections.transcript import transcript
from .states import (
    AwaitingApproval,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Book,
    Cancelling,
    Closed,
    Compacting,
    Failed,
    Idle,
    InDoubt,
    LlmRequesting,
    MemoryRecalling,
    ProfileSelecting,
    RetryWaiting,
    State,
    Summarizing,
    Timer,
    ToolExecuting,
    Verifying,
    pending,
)
from .step import Step
from .values.acts import Act, AgentMail, Speech, SubAgents, WorkComplete
from .values.images import Image
from .values.inbox import Waiting
from .values.messages import Heard, Joined, Made, Message, ToolCall, ToolResult, Usage
from .values.questions import Annotation, AskUserQuestionInput, QuestionOption, UserQuestion
from .values.round import Child, Round, RoundCall, Running
from .values.turn import Delivered, Failure, Spoken, TurnEnded, TurnRecord

__all__ = [
    "MACHINE",
    "Abort",
    "Act",
    "AgentMail",
    "AgentMessage",
    "Annotation",
    "Answer",
    "AskUserQuestionInput",
    "AskUserQuestionPending",
    "AwaitingApproval",
    "AwaitingSubAgents",
    "AwaitingUserResponse",
    "Book",
    "CancelSubAgent",
    "Cancelling",
    "Child",
    "CloseRequested",
    "Closed",
    "CompactHistory",
    "Compacting",
    "CompactionRequested",
    "ConfigurationError",
    "Context",
    "DeadlineReached",
    "DeliverToUser",
    "Delivered",
    "DoubtResolved",
    "Effect",
    "EffectFailed",
    "Empty",
    "Event",
    "ExecuteTool",
    "Failed",
    "Failure",
    "Heard",
    "HistoryCompacted",
    "Idle",
    "Image",
    "InDoubt",
    "InvalidInput",
    "Joined",
    "Limits",
    "LlmFailed",
    "LlmRequesting",
    "LlmResponse",
    "LogEntry",
    "Made",
    "MemoryRecalled",
    "MemoryRecalling",
    "Message",
    "MessageWithdrawn",
    "ModelSpec",
    "NotifyParent",
    "Opened",
    "PersistMessage",
    "PersistToolResults",
    "Policy",
    "PolicyChanged",
    "Profile",
    "ProfileSelected",
    "ProfileSelecting",
    "QuestionOption",
    "Questions",
    "RecallMemory",
    "Recent",
    "RecentText",
    "ReconcileTool",
    "Recovery",
    "Refused",
    "Repeats",
    "Report",
    "Request",
    "RequestLlm",
    "Resumed",
    "Retry",
    "RetryDue",
    "RetryRequested",
    "RetryWaiting",
    "Round",
    "RoundCall",
    "Running",
    "SelectProfile",
    "SendToAgent",
    "SettledCall",
    "SpawnSubAgent",
    "Speech",
    "SpeechRules",
    "Spoken",
    "StartTimer",
    "State",
    "Step",
    "StoreError",
    "SubAgentFinished",
    "SubAgents",
    "SummarizeTurn",
    "Summarizing",
    "Texts",
    "Timer",
    "ToolAborted",
    "ToolApproval",
    "ToolCall",
    "ToolComplete",
    "ToolExecuting",
    "ToolInterrupted",
    "ToolReconciled",
    "ToolResult",
    "TurnEnded",
    "TurnRecord",
    "TurnSummarized",
    "TurnwiseError",
    "UnknownConversation",
    "Usage",
    "UserCancel",
    "UserMessage",
    "UserQuestion",
    "UserQuestionResponse",
    "VerifyWork",
    "Verifying",
    "Waiting",
    "WorkComplete",
    "WorkVerified",
    "begin",
    "next_events",
    "pending",
    "transcript",
    "transition",
]
