"""What a tool function may know about the call that it serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..context import EffectContext
from ..recall.conversation_memory import ConversationMemory
from ..recall.search import ConversationSearch


@dataclass(frozen=True)
class ToolContext:
    """The argument for a parameter of this type, which the model neither sees nor fills.

    `key` is `<conversation id>/<effect id>` and stays the same when the call is run again after a crash. A tool that
    acts on the world passes it on as its idempotency key. If a person decides that a call in doubt is to run again,
    that run has a key of its own. `progress` shows a line to everybody who watches the conversation; it may be called
    from any thread. `metadata` is what the application noted about the conversation, as of the step that asked for the
    call; it cannot be changed here. `memory` searches older conversations of the same owner; it is None where there is
    no such search.
    """

    conversation_id: str
    key: str
    call_id: str
    progress: Callable[[str], None]
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    memory: ConversationMemory | None = field(default=None, compare=False, repr=False)


def tool_context_of(
    call_id: str, context: EffectContext, effect_id: int, started_as: int, search: ConversationSearch | None = None
) -> ToolContext:
    """The context for a function that serves this call as the effect `effect_id`.

    `started_as` is the effect as which the call was first started; it is another one if a crash lies between.
    """

    def progress(text: str) -> None:
        context.progress(effect_id, "tool_progress", {"call_id": call_id, "text": text})

    return ToolContext(
        conversation_id=context.conversation_id,
        key=context.key(started_as),
        call_id=call_id,
        progress=progress,
        metadata=MappingProxyType(deepcopy(context.context.metadata)),
        memory=None if search is None else ConversationMemory(search, context),
    )
