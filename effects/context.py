"""What a performer may look at while it carries out an effect.

An effect context is frozen: it shows the conversation as it was committed when the effect was asked for. A performer
that is tried again later, in whatever process, sees exactly what it saw before. To make one costs the same however
long the conversation is; what was said is read when a performer asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..states.context import Context
from ..states.policy import Policy
from ..states.transcript import Transcript
from ..states.values.messages import Said, ToolCall
from ..states.values.round import RoundCall
from ..states.values.value import MARKED_KEYS
from .effect_keys import EffectLinks, key_of
from .receipts import Receipts
from .redact import unchanged
from .suspended_calls import SuspendedCalls

LiveKind = Literal["token", "tool_progress", "delivered", "delivery_failed"]
"""What may be shown of an effect while it is carried out. Live updates are never stored.

Each kind has its data: token `text`, `kind` (text or thinking) and `fallback`, tool_progress `call_id` and `text`,
delivered `turn`, `ordinal`, `key` and `channel`, delivery_failed these and `sentence`.
"""

UNAWAITED: frozenset[LiveKind] = frozenset({"delivered", "delivery_failed"})
"""The kinds of live updates that are shown even though no state awaits their effect."""

Progress = Callable[[int, LiveKind, dict[str, Any]], None]
"""Takes an effect id, a kind and its data, and passes them on as a live update to whoever watches the conversation. The
ids of the turn, the request and the attempt are added there. Raises `InvalidInput` for other data."""


class History(Protocol):
    """What was said in one conversation. Every method raises `StoreError` if the log cannot be read, in particular
    `Damaged`. The object lives for as long as its conversation is in memory."""

    async def transcript(self, up_to: int) -> Transcript:
        """Return the transcript as of the step `up_to`. Nothing changes it while the caller holds it."""
        ...

    async def call(self, call: RoundCall, up_to: int) -> ToolCall:
        """Return the call with its arguments as of the step `up_to`."""
        ...

    async def words(self, said: Said) -> str:
        """Return the text that `said` stands for."""
        ...

    async def origin(self, said: Said) -> str:
        """Return the agent that wrote this; empty for everybody else."""
        ...


@dataclass(frozen=True, init=False)
class EffectContext:
    """The conversation as of the step `seq`, which asked for the effect. `turn` is the turn that the step is in.

    `progress(effect_id, kind, data)` shows a live update; those of an effect that is no longer awaited are dropped.
    `receipts` notes which deliveries have reached their targets. `redact` replaces secrets if the policy asks for it; a
    performer needs it for texts that it cuts, and for texts of other conversations that it passes on, since its answer
    is redacted anyway. `suspended` holds the calls of this conversation that wait for the answer of a person. `links`
    are those of the steps that first asked for effects which are now carried out. `begun` counts, for an effect that is
    taken from the outbox, the processes that have begun it after an earlier one had died, and died, too. `longest_wait`
    is for how many seconds a timer of this step waits at most; None if nothing is agreed. The coroutines raise
    `StoreError` if the log cannot be read.
    """

    conversation_id: str
    seq: int
    turn: int
    context: Context
    history: History
    progress: Progress
    receipts: Receipts
    redact: Callable[[str], str]
    suspended: SuspendedCalls
    links: EffectLinks
    begun: int
    longest_wait: float | None

    def __init__(
        self,
        conversation_id: str,
        seq: int,
        turn: int,
        context: Context,
        history: History,
        progress: Progress,
        receipts: Receipts,
        redact: Callable[[str], str] = unchanged,
        suspended: SuspendedCalls | None = None,
        links: EffectLinks | None = None,
        begun: int = 0,
        longest_wait: float | None = None,
    ) -> None:
        # Each step makes one. The constructor of a frozen dataclass takes three times as long, and fields that are put
        # into the dictionary that an object begins with take five times as long to read.
        fields = {
            "conversation_id": conversation_id,
            "seq": seq,
            "turn": turn,
            "context": context,
            "history": history,
            "progress": progress,
            "receipts": receipts,
            "redact": redact,
            "suspended": SuspendedCalls() if suspended is None else suspended,
            "links": EffectLinks() if links is None else links,
            "begun": begun,
            "longest_wait": longest_wait,
        }
        object.__setattr__(self, "__dict__", fields)

    @property
    def policy(self) -> Policy:
        """The rules of the conversation."""
        return self.context.policy

    def key(self, effect_id: int) -> str:
        """Return the idempotency key by which the outside world can recognise a repeated effect: the id of the
        conversation, that of the effect, and a mark that no other history under the same id has. It is the same however
        often the effect is carried out. A conversation that began before revision 6 has keys without a mark."""
        is_marked = self.context.revision >= MARKED_KEYS
        return key_of(self.conversation_id, effect_id, self.links.of(effect_id) if is_marked else b"")

    def asked_by(self, effect_id: int, link: bytes, begun: int = 0) -> EffectContext:
        """Return this context for an effect from the outbox: another step asked for it, whose link this is, and so many
        processes have `begun` it and died."""
        links = EffectLinks(((effect_id, link),))
        return EffectContext(**{**vars(self), "links": links, "begun": begun})

    async def transcript(self) -> Transcript:
        """Return what was said up to the step `seq`. Do not change it.

        Hold the transcript itself for as long as you read its lists: once you let go of it, they grow with the
        conversation. Let go of it before a long wait if you can: while you hold it, the conversation's next step has
        to copy it.
        """
        return await self.history.transcript(self.seq)

    async def call(self, call: RoundCall) -> ToolCall:
        """Return a tool call of the current round with its arguments, as a person may have edited them."""
        return await self.history.call(call, self.seq)

    async def words(self, said: Said) -> str:
        """Return the text that `said` stands for."""
        return await self.history.words(said)

    async def origin(self, said: Said) -> str:
        """Return the agent that wrote this; empty for everybody else."""
        return await self.history.origin(said)
