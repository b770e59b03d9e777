"""The pure machine: the states of a conversation, the events that move it, and the effects that it asks for.

Nothing here reads a clock, creates an id, opens a file or waits; what carries out effects and stores steps is outside.
Start with `table`, the whole conversation on one page. `machine` reads it.

    from turnwise.states import Context, Idle, UserMessage, next_events, pending, transition

Glossary of the project

The machine
- *state*: where a conversation rests until the next event. In a *busy* state something is under way.
- *event*: something that happened: a *request* of a person or a program, an *answer* to an effect, or a *report* of the
  process that takes over a conversation after a crash.
- *effect*: something that the conversation wants done, as data. A *persisting* effect is carried out by the commit, an
  *awaited* effect has exactly one answer, an *outgoing* effect must arrive, and a *control* effect stops another one.
  An awaited effect without its answer is *in flight*.
- *transition*: the pure function from a state, an event and a context to a step. *step*: the next state and the
  effects. *step builder*: the step while handlers build it.
- *guard*: a yes-or-no question of the table. *handler*: what a row does. *junction*: a choice that rows share.
- *refused*: a request that is not taken; nothing happened. *ignored*: an answer that nobody waits for, or a request
  that has nothing to act on.
- *policy*: the rules that the application chose; a *preset* is a ready-made one. *context*: the policy and whatever
  else holds for the whole conversation.
- *policy warning*: a rule that nothing in this engine enforces yet.

The conversation
- *turn*: from a message to the next rest. *rest*: nothing is under way (`Idle`, `Failed`, `Closed`).
- *round*: the tool calls of one response. *call*: one use of a tool. A call is *settled* by exactly one *result*.
- *crash contract*: what may happen to a call that was running when the process died. A call is *in doubt* if nobody
  knows whether it ran and it must not run twice.
- *act*: what a result does besides being read: *speech* to the user, a *claim* of completed work, *mail* to another
  agent, *sub-agents* that work for the turn.
- *nudge*: a reminder for the model, in one request and nowhere else.
- *inbox*: messages that arrived during a turn: *queued* for the next one, or *steered* into this one. A *silent*
  message of another agent starts no turn.
- *compaction*: the replacement of the history by a summary, when it fills the model's *window*.
- *delivery*: a text that is handed over to the user. *delivery rules*: which texts of a turn these are. *reply*: what
  the user receives of a turn, as one text. A turn that delivers nothing is silent.
- *given history*: messages that a conversation begins with, which were said elsewhere. A *repair* changes what no
  provider would accept in them.
- *reference*: a text is stored once, in its event. Elsewhere it is referred to as `Heard`, or was `Made` by the
  machine, or is several texts `Joined`.

The log and its store
- *log*: the steps of a conversation, in order. *record*: a step as it is stored. *encoded step*: a step turned into a
  record, ready to be written. *event store*: keeps the logs.
- *projection*: something computed from a log. The *transcript* holds the messages; the *conversation projection* holds
  what the engine keeps in memory of a conversation.
- *conflict*: an append to a log that has moved on. *replay*: the computation of a log from its events alone; a
  *divergence* is the first step that comes out differently. *fork*: a copy of a conversation up to a rest.
- *outbox*: the outgoing effects that are not delivered yet, stored with their step, once for each *target*.
- *checkpoint*: the newest state, stored beside the log so that loading does not replay.

The engine
- *dispatcher*: starts the effects of a step, in order, and returns their answers. *performer*: carries out one type of
  effect. *effect context*: what a performer sees of the conversation, as committed when the effect was asked for.
- *conversation registry*: the conversations that the engine has loaded. *mailbox*: the events that one of them has yet
  to handle.
- *take over*: continue a conversation that another process left. *resume*: ask again for what was in flight.
- *update*: what watchers of a conversation see.
- *idempotency key*: `<conversation id>/<effect id>`, by which the outside recognises a repeated effect. *retry*: a
  further attempt, after a *backoff*.

Models, tools and channels
- *request builder*: builds the request to a model. *context assembly*: chooses the messages that it holds. *prompt
  cache*: keeps the beginning of a request, which is written once. *stream assembler*: joins the pieces of a streamed
  response. *rehearsal*: the built-in model that needs no key.
- *channel*: a way to the user. *delivery dispatcher*: brings deliveries to the channels, and tries again. *receipt*:
  the note that a target has its delivery, or that an *attempt* failed.

Tests
- *invariant*: what holds in every step of every conversation; the testing kit calls its invariants *laws*.
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
    DetailsChanged,
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
    ToolsChanged,
    TurnSummarized,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    WorkVerified,
)
from .log import LogEntry
from .machine import MACHINE, begin, next_events, transition
from .openai_format.messages import openai_messages
from .openai_format.repair import RepairedHistory, repair_history
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
from .values.history import HistoryMessage
from .values.images import Image
from .values.inbox import Waiting
from .values.messages import Heard, Joined, Made, Message, ToolCall, ToolResult, Usage
from .values.questions import Annotation, AskUserQuestionInput, ChoiceQuestion, QuestionOption, UserQuestion
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
    "ChoiceQuestion",
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
    "DetailsChanged",
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
    "HistoryMessage",
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
    "RepairedHistory",
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
    "ToolsChanged",
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
    "openai_messages",
    "pending",
    "repair_history",
    "transcript",
    "transition",
]
