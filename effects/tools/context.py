"""What a tool function may know about the call that it serves, and what it may do meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ...states.values.questions import UserQuestion
from ..agents.port import Agents, ReachableAgents
from ..context import EffectContext
from ..recall.conversation_memory import ConversationMemory
from ..recall.search import ConversationSearch
from .asking import Answers, Asking
from .tool_error import ToolError

NOTHING_NOTED: Mapping[str, Any] = MappingProxyType({})
"""What an application has noted about most conversations."""

NOBODY_TO_ASK = "Nobody can be asked here."


@dataclass(frozen=True)
class ToolContext:
    """The argument for a parameter of this type, which the model neither sees nor fills.

    `key` is `<conversation id>/<effect id>/<mark>` and stays the same when the call is run again after a crash. No call
    of another conversation ever has it, also not one that was created under the same id, in another database or from a
    backup. A tool that acts on the world passes it on as its idempotency key. If a person decides that a call in doubt
    is to run again, that run has a key of its own. `progress` shows a line to everybody who watches the conversation;
    it may be called from any thread, and raises `InvalidInput` for what has no text. `metadata` is what the application
    noted about the conversation, as of the step that asked for the call; it cannot be changed here. `memory` searches
    older conversations of the same owner; it is None where there is no such search. `agents` finds the agents that this
    one may write to; it is None where there are none. `asking` serves `ask`.
    """

    conversation_id: str
    key: str
    call_id: str
    progress: Callable[[str], None]
    metadata: Mapping[str, Any] = field(default_factory=lambda: NOTHING_NOTED, hash=False)
    memory: ConversationMemory | None = field(default=None, compare=False, repr=False)
    agents: ReachableAgents | None = field(default=None, compare=False, repr=False)
    asking: Asking | None = field(default=None, repr=False, compare=False)

    async def ask(self, questions: Iterable[UserQuestion | Mapping[str, Any]]) -> Answers:
        """Ask the user, and go on when the user has answered, declined, or done nothing until the policy's deadline.

        The conversation rests in `AwaitingUserResponse` meanwhile, and the timeout of the tool does not run. If the
        process dies, the call is interrupted, and the crash contract of the tool decides whether it runs again and asks
        again. If the turn is cancelled, so is the call. A call may ask several times.

        Only a tool that is declared `exclusive` may ask: in the call of another one this raises `ToolError`, which the
        model reads. So it does when the call is over. Raises `pydantic.ValidationError` for questions that do not
        follow the rules for questions.
        """
        return await self._asking.ask(questions)

    def ask_blocking(self, questions: Iterable[UserQuestion | Mapping[str, Any]]) -> Answers:
        """Ask as `ask` does, in a plain function, whose thread is blocked until the user has acted. If the call is
        stopped meanwhile, this raises `concurrent.futures.CancelledError`."""
        return self._asking.ask_blocking(questions)

    @property
    def _asking(self) -> Asking:
        if self.asking is None:
            raise ToolError(NOBODY_TO_ASK)
        return self.asking


def tool_context_of(
    call_id: str,
    context: EffectContext,
    effect_id: int,
    started_as: int,
    search: ConversationSearch | None = None,
    agents: Agents | None = None,
) -> ToolContext:
    """The context for a function that serves this call as the effect `effect_id`.

    `started_as` is the effect as which the call was first started; it is another one if a crash lies between, or if the
    call has asked a person.
    """

    def progress(text: str) -> None:
        context.progress(effect_id, "tool_progress", {"call_id": call_id, "text": text})

    return ToolContext(
        conversation_id=context.conversation_id,
        key=context.key(started_as),
        call_id=call_id,
        progress=progress,
        metadata=MappingProxyType(deepcopy(noted)) if (noted := context.context.metadata) else NOTHING_NOTED,
        memory=None if search is None else ConversationMemory(search, context),
        agents=None if agents is None else ReachableAgents(context.conversation_id, agents),
    )
