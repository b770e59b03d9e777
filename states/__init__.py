"""The pure machine: the states of a conversation, the events that move it, and the effects that it asks for.

Nothing here reads a clock, creates an id, opens a file or waits; what carries out effects and stores steps is outside.
Start with `table`, the whole conversation on one page. `machine` reads it.

    from turnwise.states import Context, Idle, UserMessage, next_events, pending, transition

The glossary of the project is docs/reference/glossary.md.
"""

from typing import TYPE_CHECKING, Any

from . import machine, presets
from .branches import Branches, Part
from .context import Context, NextTools
from .effects import (
    Abort,
    AnswerSubAgent,
    AnyEffect,
    AwaitedEffect,
    CancelSubAgent,
    ClearResults,
    CompactHistory,
    DeliverToUser,
    Effect,
    ExecuteTool,
    NoteHeard,
    NotifyParent,
    PersistMessage,
    PersistToolResults,
    RecallMemory,
    ReconcileTool,
    Reply,
    RequestLlm,
    ResumeTool,
    SelectProfile,
    SendToAgent,
    SettledCall,
    SpawnSubAgent,
    StartTimer,
    SummarizeTurn,
    SwitchBranch,
    VerifyWork,
    WithholdContent,
)
from .errors import (
    ConfigurationError,
    InvalidInput,
    RefusalCode,
    Refused,
    StoreError,
    TurnwiseError,
    UnknownConversation,
)
from .events import (
    AgentMessage,
    Answer,
    AnswerTypes,
    AnyEvent,
    AskUserQuestionPending,
    Branching,
    BranchSwitched,
    CallRestricted,
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
    LlmStopped,
    MemoryRecalled,
    MessageEdited,
    MessageWithdrawn,
    Opened,
    PolicyChanged,
    ProfileSelected,
    ProfileTransferred,
    RecentText,
    Report,
    Request,
    Resolution,
    Resumed,
    RetryDue,
    RetryRequested,
    Rewound,
    ScheduleChanged,
    SubAgentAsked,
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
    WakeUp,
    WorkVerified,
)
from .header import Header
from .machine import begin, next_events, transition
from .openai_reading import RepairedHistory, TakeFile, repair_history
from .openai_writing import openai_messages
from .policy import (
    Clearing,
    Empty,
    FileRules,
    Limits,
    ModelSettings,
    ModelSpec,
    OutputField,
    OutputRendering,
    Policy,
    Profile,
    Questions,
    Recent,
    Recovery,
    Repeats,
    Retry,
    SpeechRules,
    SubAgentRules,
    Texts,
    WhenBusy,
    models_of,
    named_models,
)
from .roles import Caller, Role
from .states import (
    AnyState,
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
    InFlight,
    LlmRequesting,
    MemoryRecalling,
    ProfileSelecting,
    ReportTypes,
    RetryWaiting,
    State,
    Summarizing,
    Timer,
    ToolExecuting,
    Verifying,
    pending,
)
from .step import LogEntry, Step
from .transcript import Condensed, Transcript, transcript
from .values.acts import (
    Act,
    ActKind,
    AgentMail,
    Audience,
    FoundText,
    MemoryQuery,
    MemoryScope,
    Schedule,
    Speech,
    SubAgents,
    SubAgentTask,
    Transfer,
    VectorQuery,
    WorkComplete,
)
from .values.files import FileKind, FileReference, FileReferences
from .values.messages import (
    Approver,
    Citation,
    CrashContract,
    Heard,
    HistoryMessage,
    HistoryRole,
    Joined,
    Made,
    Matter,
    Message,
    MessageRole,
    Outcomes,
    ProviderFields,
    Reminder,
    Said,
    SaidPart,
    Stopped,
    Suspect,
    ToolCall,
    ToolResult,
    Usage,
    Withheld,
)
from .values.output import ModelOutput, OutputSchema, OutputWay, WantedOutput
from .values.questions import (
    Annotation,
    Answers,
    AskUserQuestionInput,
    ChoiceQuestion,
    OpenQuestion,
    QuestionOption,
    QuestionSet,
    UserQuestion,
)
from .values.round import Child, ChildQuestion, Round, RoundCall, Running, Share
from .values.turn import (
    BranchPoint,
    Delivered,
    EndedStatus,
    Failure,
    LimitKind,
    Owed,
    Spoken,
    TurnEnded,
    TurnRecord,
    Waiting,
)
from .values.value import FailureKind

if TYPE_CHECKING:
    from .machine import MACHINE
else:

    def __getattr__(name: str) -> Any:
        """Return the machine of the `transitions` library, which is built when it is first asked for, and keep it."""
        value = globals()[name] = machine.__getattr__(name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), "MACHINE"})


__all__ = ["MACHINE"]
__all__ += ["Abort", "Act", "ActKind", "AgentMail", "AgentMessage", "Annotation", "Answer", "AnswerSubAgent"]
__all__ += ["AnswerTypes", "Answers", "AnyEffect", "AnyEvent", "AnyState", "Approver"]
__all__ += ["AskUserQuestionInput"]
__all__ += ["AskUserQuestionPending", "Audience", "AwaitedEffect", "AwaitingApproval", "AwaitingSubAgents"]
__all__ += ["AwaitingUserResponse"]
__all__ += ["Book", "BranchPoint", "BranchSwitched", "Branches", "Branching"]
__all__ += ["CallRestricted", "Caller", "CancelSubAgent", "Cancelling", "Child", "ChildQuestion", "ChoiceQuestion"]
__all__ += ["Citation", "ClearResults", "Clearing"]
__all__ += ["CloseRequested", "Closed", "CompactHistory", "Compacting", "CompactionRequested", "Condensed"]
__all__ += ["ConfigurationError", "Context", "CrashContract"]
__all__ += ["DeadlineReached", "DeliverToUser", "Delivered", "DetailsChanged", "DoubtResolved"]
__all__ += ["Effect", "EffectFailed", "Empty", "EndedStatus", "Event", "ExecuteTool"]
__all__ += ["Failed", "Failure", "FailureKind", "FileKind", "FileReference", "FileReferences", "FileRules", "FoundText"]
__all__ += ["Header", "Heard", "HistoryCompacted", "HistoryMessage", "HistoryRole"]
__all__ += ["Idle", "InDoubt", "InFlight", "InvalidInput"]
__all__ += ["Joined"]
__all__ += ["LimitKind", "Limits", "LlmFailed", "LlmRequesting", "LlmResponse", "LlmStopped"]
__all__ += ["LogEntry"]
__all__ += ["Made", "Matter", "MemoryQuery", "MemoryRecalled", "MemoryRecalling", "MemoryScope", "Message"]
__all__ += ["MessageEdited", "MessageRole", "MessageWithdrawn", "ModelOutput"]
__all__ += ["ModelSettings", "ModelSpec"]
__all__ += ["NextTools", "NoteHeard", "NotifyParent"]
__all__ += ["OpenQuestion", "Opened", "Outcomes", "OutputField", "OutputRendering", "OutputSchema", "OutputWay"]
__all__ += ["Owed"]
__all__ += ["Part", "PersistMessage", "PersistToolResults", "Policy", "PolicyChanged", "Profile", "ProfileSelected"]
__all__ += ["ProfileSelecting", "ProfileTransferred", "ProviderFields"]
__all__ += ["QuestionOption", "QuestionSet", "Questions"]
__all__ += ["RecallMemory", "Recent", "RecentText", "ReconcileTool", "Recovery", "RefusalCode", "Refused"]
__all__ += [
    "Reminder",
    "RepairedHistory",
    "Repeats",
    "Reply",
    "Report",
    "ReportTypes",
    "Request",
    "RequestLlm",
    "Resolution",
]
__all__ += ["ResumeTool", "Resumed", "Retry", "RetryDue", "RetryRequested", "RetryWaiting", "Rewound", "Role", "Round"]
__all__ += ["RoundCall", "Running"]
__all__ += ["Said", "SaidPart", "Schedule", "ScheduleChanged", "SelectProfile", "SendToAgent", "SettledCall", "Share"]
__all__ += ["SpawnSubAgent", "Speech", "SpeechRules", "Spoken", "StartTimer", "State", "Step", "Stopped", "StoreError"]
__all__ += ["SubAgentAsked", "SubAgentFinished", "SubAgentRules", "SubAgentTask", "SubAgents", "SummarizeTurn"]
__all__ += ["Summarizing", "Suspect", "SwitchBranch"]
__all__ += ["TakeFile", "Texts", "Timer", "ToolAborted", "ToolApproval", "ToolCall", "ToolComplete", "ToolExecuting"]
__all__ += ["ToolInterrupted", "ToolReconciled", "ToolResult", "ToolsChanged", "Transcript", "Transfer", "TurnEnded"]
__all__ += ["TurnRecord", "TurnSummarized", "TurnwiseError"]
__all__ += ["UnknownConversation", "Usage", "UserCancel", "UserMessage", "UserQuestion", "UserQuestionResponse"]
__all__ += ["VectorQuery", "VerifyWork", "Verifying"]
__all__ += ["Waiting", "WakeUp", "WantedOutput", "WhenBusy", "Withheld", "WithholdContent", "WorkComplete"]
__all__ += ["WorkVerified"]
__all__ += ["begin"]
__all__ += ["models_of"]
__all__ += ["named_models", "next_events"]
__all__ += ["openai_messages"]
__all__ += ["pending", "presets"]
__all__ += ["repair_history"]
__all__ += ["transcript", "transition"]
