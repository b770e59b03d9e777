"""The pure machine: what a conversation is, where it can rest, and what moves it.

Nothing here reads a clock, makes up an id, opens a file or waits. Start with `table`, the whole conversation on one
page; `machine` reads it.

    from turnwise.states import Context, Idle, UserMessage, next_events, pending, transition

Glossary

- *state*: where a conversation rests. *Busy* states lie within a turn.
- *event*: what can happen to it: a *request* from people and programs, or an *answer* to an effect.
- *effect*: what it asks of the world, as data. *Awaited* effects have an id, and exactly one answer names it.
- *step*: one event taken: the state afterwards, and the effects wanted.
- *turn*: from a person's message to the next rest. *round*: the tool calls of one response.
- *call*: one use of a tool that the model asked for. It is *settled* by exactly one *result*.
- *inbox*: messages that wait for their turn: *queued* for the next one, or *steered* into this one.
- *said*: a text by reference: *heard* in an event, or *made* by the machine.
- *log*: all steps, in order. *transcript*: what was said, read from the log.
- *policy*: the rules that a host chose. *context*: those, and what else holds for the whole conversation.
- *guard*: a yes-or-no question of the table. *handler*: what a row does. *junction*: a choice that rows share.
- *refused*: a request that is not taken; nothing happened. *ignored*: an answer that nobody waits for, or a request
  with nothing to act on.
"""

from .context import Context
from .effects import (
    Abort,
    Effect,
    ExecuteTool,
    PersistMessage,
    PersistToolResults,
    RequestLlm,
    SettledCall,
    StartTimer,
)
from .errors import (
    ConfigurationError,
    InvalidInput,
    Refused,
    StoreError,
    TurnwiseError,
    UnknownConversation,
)
from .events import (
    Answer,
    AskUserQuestionPending,
    CloseRequested,
    DeadlineReached,
    EffectFailed,
    Event,
    LlmFailed,
    LlmResponse,
    MessageWithdrawn,
    Opened,
    PolicyChanged,
    Request,
    RetryDue,
    RetryRequested,
    ToolAborted,
    ToolApproval,
    ToolComplete,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from .images import Image
from .inbox import Waiting
from .log import LogEntry
from .machine import MACHINE, begin, next_events, transition
from .messages import Heard, Made, Message, ToolCall, ToolResult, Usage
from .policy import Limits, ModelSpec, Policy, Questions, Retry, Texts
from .questions import Annotation, AskUserQuestionInput, QuestionOption, UserQuestion
from .round import Round, RoundCall, Running
from .states import (
    AwaitingApproval,
    AwaitingUserResponse,
    Book,
    Cancelling,
    Closed,
    Failed,
    Idle,
    LlmRequesting,
    RetryWaiting,
    State,
    Timer,
    ToolExecuting,
    pending,
)
from .step import Step
from .transcript import transcript
from .turn import Failure, TurnEnded, TurnRecord

__all__ = [
    "MACHINE",
    "Abort",
    "Annotation",
    "Answer",
    "AskUserQuestionInput",
    "AskUserQuestionPending",
    "AwaitingApproval",
    "AwaitingUserResponse",
    "Book",
    "Cancelling",
    "CloseRequested",
    "Closed",
    "ConfigurationError",
    "Context",
    "DeadlineReached",
    "Effect",
    "EffectFailed",
    "Event",
    "ExecuteTool",
    "Failed",
    "Failure",
    "Heard",
    "Idle",
    "Image",
    "InvalidInput",
    "Limits",
    "LlmFailed",
    "LlmRequesting",
    "LlmResponse",
    "LogEntry",
    "Made",
    "Message",
    "MessageWithdrawn",
    "ModelSpec",
    "Opened",
    "PersistMessage",
    "PersistToolResults",
    "Policy",
    "PolicyChanged",
    "QuestionOption",
    "Questions",
    "Refused",
    "Request",
    "RequestLlm",
    "Retry",
    "RetryDue",
    "RetryRequested",
    "RetryWaiting",
    "Round",
    "RoundCall",
    "Running",
    "SettledCall",
    "StartTimer",
    "State",
    "Step",
    "StoreError",
    "Texts",
    "Timer",
    "ToolAborted",
    "ToolApproval",
    "ToolCall",
    "ToolComplete",
    "ToolExecuting",
    "ToolResult",
    "TurnEnded",
    "TurnRecord",
    "TurnwiseError",
    "UnknownConversation",
    "Usage",
    "UserCancel",
    "UserMessage",
    "UserQuestion",
    "UserQuestionResponse",
    "Waiting",
    "begin",
    "next_events",
    "pending",
    "transcript",
    "transition",
]
