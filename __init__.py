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
    from .effects.channels.port import Channel, Delivery, NotTaken
    from .effects.channels.speech.channel import SpeechChannel
    from .effects.channels.stream import Lagged, StreamChannel, Subscription
    from .effects.channels.terminal import TerminalChannel
    from .effects.channels.webhook import WebhookChannel
    from .effects.context import EffectContext
    from .effects.model.litellm.llm import LiteLlm
    from .effects.model.port import Llm, LlmFailure, ModelAnswer, ModelCall, ModelRequest, Token
    from .effects.model.rewording import Rewording
    from .effects.tools.context import ToolContext
    from .effects.tools.declaration import tool
    from .effects.tools.question import Question
    from .effects.tools.tool import Tool
    from .effects.tools.tool_error import ToolError
    from .effects.tools.tools_of import tools_of
    from .engine.conversation import Conversation
    from .engine.engine import Engine
    from .engine.projections.turn import (
        CancelledTurn,
        CompletedTurn,
        EndedTurn,
        FailedTurn,
        IncompleteTurn,
        QueuedTurn,
        RunningTurn,
        Turn,
        WaitingTurn,
        WaitsForAnswer,
        WaitsForApproval,
        WaitsForResolution,
    )
    from .engine.projections.updates.live import DeliveredUpdate, DeliveryFailedUpdate, TokenUpdate, ToolProgressUpdate
    from .engine.projections.updates.schema import update_schema
    from .engine.projections.updates.snapshot import SnapshotUpdate
    from .engine.projections.updates.state_view import StateView
    from .engine.projections.updates.stored import (
        DeliveryUpdate,
        MessageUpdate,
        StateChangeUpdate,
        ThoughtUpdate,
        ToolUpdate,
        TurnEndedUpdate,
    )
    from .engine.projections.updates.streamed_text import Streaming
    from .engine.projections.updates.update import Update
    from .engine.settings import Settings
    from .persistence.maintenance.replay import Divergence, ReplayReport, replay
    from .states.errors import (
        CompactionFailed,
        ConfigurationError,
        EngineClosed,
        EngineNotOpen,
        InvalidInput,
        NotAwaited,
        Refused,
        StoreError,
        TurnwiseError,
        UnknownConversation,
    )
    from .states.policy import presets
    from .states.policy.policy import (
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
    from .states.policy.texts import Texts
    from .states.values.acts import AgentMail, Speech, SubAgents, WorkComplete
    from .states.values.images import Image
    from .states.values.messages import Message, Usage
    from .states.values.questions import QuestionOption, UserQuestion

# Where a host has set up no log Python would print warnings at people.
logging.getLogger("turnwise").addHandler(logging.NullHandler())

_HOMES = {
    "effects.context": ("EffectContext",),
    "effects.channels.port": ("Channel", "Delivery", "NotTaken"),
    "effects.channels.speech.channel": ("SpeechChannel",),
    "effects.channels.stream": ("Lagged", "StreamChannel", "Subscription"),
    "effects.channels.terminal": ("TerminalChannel",),
    "effects.channels.webhook": ("WebhookChannel",),
    "effects.model.litellm.llm": ("LiteLlm",),
    "effects.model.port": ("Llm", "LlmFailure", "ModelAnswer", "ModelCall", "ModelRequest", "Token"),
    "effects.model.rewording": ("Rewording",),
    "effects.tools.question": ("Question",),
    "effects.tools.context": ("ToolContext",),
    "effects.tools.declaration": ("tool",),
    "effects.tools.tool": ("Tool",),
    "effects.tools.tool_error": ("ToolError",),
    "effects.tools.tools_of": ("tools_of",),
    "engine.conversation": ("Conversation",),
    "engine.engine": ("Engine",),
    "engine.settings": ("Settings",),
    "engine.projections.turn": (
        "CancelledTurn",
        "CompletedTurn",
        "EndedTurn",
        "FailedTurn",
        "IncompleteTurn",
        "QueuedTurn",
        "RunningTurn",
        "Turn",
        "WaitingTurn",
        "WaitsForAnswer",
        "WaitsForApproval",
        "WaitsForResolution",
    ),
    "engine.projections.updates.live": ("DeliveredUpdate", "DeliveryFailedUpdate", "TokenUpdate", "ToolProgressUpdate"),
    "engine.projections.updates.schema": ("update_schema",),
    "engine.projections.updates.snapshot": ("SnapshotUpdate",),
    "engine.projections.updates.state_view": ("StateView",),
    "engine.projections.updates.stored": (
        "DeliveryUpdate",
        "MessageUpdate",
        "StateChangeUpdate",
        "ThoughtUpdate",
        "ToolUpdate",
        "TurnEndedUpdate",
    ),
    "engine.projections.updates.streamed_text": ("Streaming",),
    "engine.projections.updates.update": ("Update",),
    "persistence.maintenance.replay": ("Divergence", "ReplayReport", "replay"),
    "states.values.acts": ("AgentMail", "Speech", "SubAgents", "WorkComplete"),
    "states.errors": (
        "CompactionFailed",
        "ConfigurationError",
        "EngineClosed",
        "EngineNotOpen",
        "InvalidInput",
        "NotAwaited",
        "Refused",
        "StoreError",
        "TurnwiseError",
        "UnknownConversation",
    ),
    "states.values.images": ("Image",),
    "states.values.messages": ("Message", "Usage"),
    "states.policy.policy": (
        "Empty",
        "Limits",
        "ModelSpec",
        "Policy",
        "Profile",
        "Questions",
        "Recent",
        "Recovery",
        "Repeats",
        "Retry",
        "SpeechRules",
    ),
    "states.values.questions": ("QuestionOption", "UserQuestion"),
    "states.policy.texts": ("Texts",),
}
_MODULES = {"presets": "states.policy.presets"}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AgentMail",
    "CancelledTurn",
    "Channel",
    "CompactionFailed",
    "CompletedTurn",
    "ConfigurationError",
    "Conversation",
    "DeliveredUpdate",
    "Delivery",
    "DeliveryFailedUpdate",
    "DeliveryUpdate",
    "Divergence",
    "EffectContext",
    "Empty",
    "EndedTurn",
    "Engine",
    "EngineClosed",
    "EngineNotOpen",
    "FailedTurn",
    "Image",
    "IncompleteTurn",
    "InvalidInput",
    "Lagged",
    "Limits",
    "LiteLlm",
    "Llm",
    "LlmFailure",
    "Message",
    "MessageUpdate",
    "ModelAnswer",
    "ModelCall",
    "ModelRequest",
    "ModelSpec",
    "NotAwaited",
    "NotTaken",
    "Policy",
    "Profile",
    "Question",
    "QuestionOption",
    "Questions",
    "QueuedTurn",
    "Recent",
    "Recovery",
    "Refused",
    "Repeats",
    "ReplayReport",
    "Retry",
    "Rewording",
    "RunningTurn",
    "Settings",
    "SnapshotUpdate",
    "Speech",
    "SpeechChannel",
    "SpeechRules",
    "StateChangeUpdate",
    "StateView",
    "StoreError",
    "StreamChannel",
    "Streaming",
    "SubAgents",
    "Subscription",
    "TerminalChannel",
    "Texts",
    "ThoughtUpdate",
    "Token",
    "TokenUpdate",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolProgressUpdate",
    "ToolUpdate",
    "Turn",
    "TurnEndedUpdate",
    "TurnwiseError",
    "UnknownConversation",
    "Update",
    "Usage",
    "UserQuestion",
    "WaitingTurn",
    "WaitsForAnswer",
    "WaitsForApproval",
    "WaitsForResolution",
    "WebhookChannel",
    "WorkComplete",
    "presets",
    "replay",
    "tool",
    "tools_of",
    "update_schema",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{_MODULES[name]}", __name__)
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
