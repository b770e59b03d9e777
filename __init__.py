"""turnwise: an explicit finite-state-machine conversation engine.

A conversation rests in a typed state; typed events move it through pure transitions that return the effects they want;
an engine stores each step and then performs its effects. This module maps public names to the modules that define them,
and imports each on first use, so importing one package never loads another.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .effects.agents import Agent, Agents, ReachableAgents
    from .effects.channels.port import Channel, Delivery, NotTaken
    from .effects.channels.speech import SpeechChannel
    from .effects.channels.stream import Lagged, StreamChannel, Subscription
    from .effects.channels.terminal import TerminalChannel
    from .effects.channels.webhook import WebhookChannel
    from .effects.clock import Clock
    from .effects.context import EffectContext, EffectLinks, History, Progress, Receipts, SuspendedCall, SuspendedCalls
    from .effects.dispatcher import Performer
    from .effects.location import IpLookup, Location, LocationSource
    from .effects.mcp.server import McpCrashContract, McpServer, McpTool
    from .effects.model.litellm.dialect import Dialect
    from .effects.model.litellm.llm import LiteLlm
    from .effects.model.performers.rewording import Rewording
    from .effects.model.port import Llm, LlmFailure, ModelAnswer, ModelCall, ModelRequest, Purpose, Token
    from .effects.recall.ports import DocumentQuery, DocumentSource, Embed
    from .effects.recall.search import ConversationMemory
    from .effects.redaction.redaction import Redaction
    from .effects.redaction.rule import RedactionRule, SecretRule, SecretSpan
    from .effects.tools.arguments import Arguments
    from .effects.tools.context import Answers, Asking, Question, ToolContext, ToolError
    from .effects.tools.tool import AnyTool, Approval, ErrorDetail, Receiver, Tool, ToolOptions, tool, tools_of
    from .effects.version import __version__
    from .engine.blocking import BlockingConversation, BlockingEngine
    from .engine.choices import OfferedTool
    from .engine.composition import DispatcherFactory
    from .engine.conversation import Cancelled, Conversation
    from .engine.engine import Engine
    from .engine.inspection import RequestView, StepView
    from .engine.ports import Dispatcher
    from .engine.settings import Settings
    from .engine.turns import (
        CancelledTurn,
        CompletedTurn,
        EndedTurn,
        FailedTurn,
        IncompleteTurn,
        QueuedTurn,
        RunningTurn,
        Turn,
        TurnStatus,
        WaitingTurn,
        WaitsForAnswer,
        WaitsForApproval,
        WaitsForResolution,
    )
    from .engine.updates import (
        AnyTreeUpdate,
        ConversationDeletedUpdate,
        ConversationOpenedUpdate,
        DeliveredUpdate,
        DeliveryFailedUpdate,
        DeliveryUpdate,
        MessageUpdate,
        SnapshotUpdate,
        StateChangeUpdate,
        StateType,
        StateView,
        Streaming,
        ThoughtUpdate,
        TokenUpdate,
        ToolProgressUpdate,
        ToolStatus,
        ToolUpdate,
        TreeSnapshotUpdate,
        TreeUpdate,
        TurnEndedUpdate,
        Update,
        update_schema,
    )
    from .persistence.maintenance.replay import Divergence, ReplayReport, StepOutcome, replay
    from .persistence.ports import LoadedConversation, Log, Store
    from .persistence.records import ConversationRecord, Origin, StoredEntry, Undelivered
    from .persistence.summaries import ConversationFilter, Summary
    from .states import presets
    from .states.errors import (
        CannotForkThere,
        CompactionFailed,
        ConfigurationError,
        EngineClosed,
        EngineElsewhere,
        EngineNotOpen,
        InvalidInput,
        Refused,
        StoreError,
        TurnwiseError,
        UnknownConversation,
    )
    from .states.policy import (
        Empty,
        Limits,
        ModelSettings,
        ModelSpec,
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
    )
    from .states.values.acts import AgentMail, Schedule, Speech, SubAgents, SubAgentTask, Transfer, WorkComplete
    from .states.values.messages import Image, Message, Usage, Withheld
    from .states.values.questions import QuestionOption, UserQuestion

# Where a host has set up no log Python would print warnings at people.
logging.getLogger("turnwise").addHandler(logging.NullHandler())

_HOMES = {
    "effects.agents": (
        "Agent",
        "Agents",
        "ReachableAgents",
    ),
    "effects.channels.port": (
        "Channel",
        "Delivery",
        "NotTaken",
    ),
    "effects.channels.speech": ("SpeechChannel",),
    "effects.channels.stream": (
        "Lagged",
        "StreamChannel",
        "Subscription",
    ),
    "effects.channels.terminal": ("TerminalChannel",),
    "effects.channels.webhook": ("WebhookChannel",),
    "effects.clock": ("Clock",),
    "effects.context": (
        "EffectContext",
        "EffectLinks",
        "History",
        "Progress",
        "Receipts",
        "SuspendedCall",
        "SuspendedCalls",
    ),
    "effects.dispatcher": ("Performer",),
    "effects.location": (
        "IpLookup",
        "Location",
        "LocationSource",
    ),
    "effects.version": ("__version__",),
    "effects.mcp.server": (
        "McpCrashContract",
        "McpServer",
        "McpTool",
    ),
    "effects.model.litellm.dialect": ("Dialect",),
    "effects.model.litellm.llm": ("LiteLlm",),
    "effects.model.performers.rewording": ("Rewording",),
    "effects.model.port": (
        "Llm",
        "LlmFailure",
        "ModelAnswer",
        "ModelCall",
        "ModelRequest",
        "Purpose",
        "Token",
    ),
    "effects.recall.ports": (
        "DocumentQuery",
        "DocumentSource",
        "Embed",
    ),
    "effects.recall.search": ("ConversationMemory",),
    "effects.redaction.redaction": ("Redaction",),
    "effects.redaction.rule": (
        "RedactionRule",
        "SecretRule",
        "SecretSpan",
    ),
    "effects.tools.arguments": ("Arguments",),
    "effects.tools.context": (
        "Answers",
        "Asking",
        "Question",
        "ToolContext",
        "ToolError",
    ),
    "effects.tools.tool": (
        "AnyTool",
        "Approval",
        "ErrorDetail",
        "Receiver",
        "tool",
        "Tool",
        "ToolOptions",
        "tools_of",
    ),
    "engine.blocking": (
        "BlockingConversation",
        "BlockingEngine",
    ),
    "engine.choices": ("OfferedTool",),
    "engine.composition": ("DispatcherFactory",),
    "engine.conversation": (
        "Cancelled",
        "Conversation",
    ),
    "engine.engine": ("Engine",),
    "engine.inspection": (
        "RequestView",
        "StepView",
    ),
    "engine.ports": ("Dispatcher",),
    "engine.settings": ("Settings",),
    "engine.turns": (
        "CancelledTurn",
        "CompletedTurn",
        "EndedTurn",
        "FailedTurn",
        "IncompleteTurn",
        "QueuedTurn",
        "RunningTurn",
        "Turn",
        "TurnStatus",
        "WaitingTurn",
        "WaitsForAnswer",
        "WaitsForApproval",
        "WaitsForResolution",
    ),
    "engine.updates": (
        "AnyTreeUpdate",
        "ConversationDeletedUpdate",
        "ConversationOpenedUpdate",
        "DeliveredUpdate",
        "DeliveryFailedUpdate",
        "DeliveryUpdate",
        "MessageUpdate",
        "SnapshotUpdate",
        "StateChangeUpdate",
        "StateType",
        "StateView",
        "Streaming",
        "ThoughtUpdate",
        "TokenUpdate",
        "ToolProgressUpdate",
        "ToolStatus",
        "ToolUpdate",
        "TreeSnapshotUpdate",
        "TreeUpdate",
        "TurnEndedUpdate",
        "Update",
        "update_schema",
    ),
    "persistence.maintenance.replay": (
        "Divergence",
        "replay",
        "ReplayReport",
        "StepOutcome",
    ),
    "persistence.ports": (
        "LoadedConversation",
        "Log",
        "Store",
    ),
    "persistence.records": (
        "ConversationRecord",
        "Origin",
        "StoredEntry",
        "Undelivered",
    ),
    "persistence.summaries": ("ConversationFilter", "Summary"),
    "states.errors": (
        "CannotForkThere",
        "CompactionFailed",
        "ConfigurationError",
        "EngineClosed",
        "EngineElsewhere",
        "EngineNotOpen",
        "InvalidInput",
        "Refused",
        "StoreError",
        "TurnwiseError",
        "UnknownConversation",
    ),
    "states.policy": (
        "Empty",
        "Limits",
        "ModelSettings",
        "ModelSpec",
        "Policy",
        "Profile",
        "Questions",
        "Recent",
        "Recovery",
        "Repeats",
        "Retry",
        "SpeechRules",
        "SubAgentRules",
        "Texts",
    ),
    "states.values.acts": (
        "AgentMail",
        "Schedule",
        "Speech",
        "SubAgents",
        "SubAgentTask",
        "Transfer",
        "WorkComplete",
    ),
    "states.values.messages": (
        "Image",
        "Message",
        "Usage",
        "Withheld",
    ),
    "states.values.questions": (
        "QuestionOption",
        "UserQuestion",
    ),
}
_MODULES = {"presets": "states.presets"}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["Agent", "AgentMail", "Agents", "Answers", "AnyTool", "AnyTreeUpdate", "Approval", "Arguments", "Asking"]
__all__ += ["BlockingConversation", "BlockingEngine"]
__all__ += ["Cancelled", "CancelledTurn", "CannotForkThere", "Channel", "Clock", "CompactionFailed", "CompletedTurn"]
__all__ += ["ConfigurationError"]
__all__ += ["Conversation", "ConversationDeletedUpdate", "ConversationMemory", "ConversationOpenedUpdate"]
__all__ += ["ConversationFilter", "ConversationRecord"]
__all__ += ["DeliveredUpdate", "Delivery", "DeliveryFailedUpdate", "DeliveryUpdate", "Dispatcher", "DispatcherFactory"]
__all__ += ["Dialect", "Divergence", "DocumentQuery", "DocumentSource"]
__all__ += ["EffectContext", "EffectLinks", "Embed", "Empty", "EndedTurn", "Engine", "EngineClosed", "EngineElsewhere"]
__all__ += ["EngineNotOpen", "ErrorDetail"]
__all__ += ["FailedTurn", "History", "Image", "IncompleteTurn", "InvalidInput", "IpLookup"]
__all__ += ["Lagged", "Limits", "LiteLlm", "Llm", "LlmFailure", "LoadedConversation", "Location", "LocationSource"]
__all__ += ["Log", "McpCrashContract", "McpServer", "McpTool", "Message", "MessageUpdate"]
__all__ += ["ModelAnswer", "ModelCall", "ModelRequest", "ModelSettings", "ModelSpec"]
__all__ += ["NotTaken", "OfferedTool", "Origin"]
__all__ += ["Performer", "Policy", "Profile", "Progress", "Purpose"]
__all__ += ["Question", "QuestionOption", "Questions", "QueuedTurn"]
__all__ += ["ReachableAgents", "Receipts", "Receiver", "Recent", "Recovery", "Redaction", "RedactionRule"]
__all__ += ["Refused", "Repeats"]
__all__ += ["ReplayReport", "RequestView", "Retry", "Rewording", "RunningTurn"]
__all__ += ["Schedule", "SecretRule", "SecretSpan"]
__all__ += ["Settings", "SnapshotUpdate", "Speech", "SpeechChannel", "SpeechRules", "StateChangeUpdate", "StateType"]
__all__ += ["StateView", "StepOutcome", "StepView", "Store", "StoreError", "StoredEntry", "StreamChannel", "Streaming"]
__all__ += ["SubAgentRules", "SubAgentTask", "SubAgents", "Subscription", "Summary", "SuspendedCall", "SuspendedCalls"]
__all__ += ["TerminalChannel", "Texts", "ThoughtUpdate", "Token", "TokenUpdate", "Tool", "ToolContext", "ToolError"]
__all__ += ["ToolOptions", "ToolProgressUpdate", "ToolStatus", "ToolUpdate", "Transfer"]
__all__ += ["TreeSnapshotUpdate", "TreeUpdate", "Turn", "TurnEndedUpdate"]
__all__ += ["TurnStatus", "TurnwiseError", "Undelivered", "UnknownConversation", "Update", "Usage", "UserQuestion"]
__all__ += ["WaitingTurn", "WaitsForAnswer", "WaitsForApproval", "WaitsForResolution", "WebhookChannel", "Withheld"]
__all__ += ["WorkComplete"]
__all__ += ["__version__", "presets", "replay", "tool", "tools_of", "update_schema"]


if not TYPE_CHECKING:  # a type checker would take any name for a name of this package

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f".{_MODULES[name]}", __name__)
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_HOME_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
