"""What a performer may look at while it carries out an effect.

An effect context is frozen: it shows the conversation as it was committed when the effect was asked for. A performer
that is tried again later, in whatever process, sees exactly what it saw before. To make one costs the same however
long the conversation is; what was said is read when a performer asks for it.

The world outside recognises an effect that it is asked for again by its idempotency key, which must be the same
whenever one effect is carried out, and another for everything else. The id of a conversation and the number of an
effect are not enough for that. A conversation may be deleted and created again under its id, two databases may have a
conversation of the same id, and a backup that was restored counts on from where it was made. So the key holds a part
of the link of the step that first asked for the effect. Each link depends on all that the log holds up to there: the
random origin of the conversation, the ids of its requests, and the moments of its events. Whoever drives the
conversation reads the same link from the log.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, Protocol

from ..states.context import Context
from ..states.policy import Policy
from ..states.states import Interruptible, State
from ..states.transcript import Transcript
from ..states.values.messages import Said, ToolCall
from ..states.values.round import RoundCall
from .files import NO_FILES, KeptFiles

LiveKind = Literal["token", "output", "tool_progress", "delivered", "delivery_failed"]
"""What may be shown of an effect while it is carried out. Live updates are never stored.

Each kind has its data: token `text`, `kind` (text or thinking) and `fallback`, tool_progress `call_id` and `text`,
delivered `turn`, `ordinal`, `key` and `channel`, delivery_failed these and `sentence`.
"""

UNAWAITED: frozenset[LiveKind] = frozenset({"delivered", "delivery_failed"})
"""The kinds of live updates that are shown even though no state awaits their effect."""

Progress = Callable[[int, LiveKind, dict[str, Any]], None]
"""Takes an effect id, a kind and its data, and passes them on as a live update to whoever watches the conversation. The
ids of the turn, the request and the attempt are added there. Raises `InvalidInput` for other data."""

Redact = Callable[[str], str]
"""Returns a text without its secrets."""


def unchanged(text: str) -> str:
    """Return the text as it is: where a conversation does not ask for redaction. `Pure.`"""
    return text


@dataclass(frozen=True)
class EffectContext:
    """The conversation as of the step `seq`, which asked for the effect. `turn` is the turn that the step is in.

    `progress(effect_id, kind, data)` shows a live update; those of an effect that is no longer awaited are dropped.
    `receipts` notes which deliveries have reached their targets. `redact` replaces secrets if the policy asks for it; a
    performer needs it for texts that it cuts, and for texts of other conversations that it passes on, since its answer
    is redacted anyway. `suspended` holds the calls of this conversation that wait for the answer of a person. `links`
    are those of the steps that first asked for effects which are now carried out. `begun` counts, for an effect that is
    taken from the outbox, the processes that have begun it after an earlier one had died, and died, too. `longest_wait`
    is for how many seconds a timer of this step waits at most; None if nothing is agreed. `files` are those of the
    conversation. The coroutines raise
    `StoreError` if the log cannot be read.
    """

    conversation_id: str
    seq: int
    turn: int
    context: Context
    history: History
    progress: Progress
    receipts: Receipts
    redact: Callable[[str], str] = unchanged
    suspended: SuspendedCalls = field(default_factory=lambda: SuspendedCalls())
    links: EffectLinks = field(default_factory=lambda: EffectLinks())
    begun: int = 0
    longest_wait: float | None = None
    files: KeptFiles = NO_FILES

    @property
    def policy(self) -> Policy:
        """The rules of the conversation."""
        return self.context.policy

    def key(self, effect_id: int) -> str:
        """Return the idempotency key by which the outside world can recognise a repeated effect: the id of the
        conversation, that of the effect, and a mark that no other history under the same id has. It is the same however
        often the effect is carried out."""
        return key_of(self.conversation_id, effect_id, self.links.of(effect_id))

    def asked_by(self, effect_id: int, link: bytes, begun: int = 0) -> EffectContext:
        """Return this context for an effect from the outbox: another step asked for it, whose link this is, and so many
        processes have `begun` it and died."""
        return replace(self, links=EffectLinks(((effect_id, link),)), begun=begun)

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


class Receipts(Protocol):
    """Notes in the outbox of one conversation what became of its deliveries. Only `begin` waits."""

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Record that the target has received the effect, which need not be delivered again."""
        ...

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Record that the `attempts`-th attempt has failed, and that the next one is due at `next_attempt`."""
        ...

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Record that the `begun`-th attempt in a row begins at what an earlier process has left. Returns when it is
        stored, so that a process which dies in the attempt leaves its trace. Raises `StorageFailed`."""
        ...


class SuspendedCall(Protocol):
    """A call that waits."""

    async def stop(self) -> None:
        """Stop the call. Returns in bounded time, and raises nothing."""
        ...


class SuspendedCalls:
    """Calls that wait, by the effect as which each was first started.

    They have asked a person and wait in this process. While such a call waits, no effect carries it out, so no
    dispatcher knows of it. Its conversation holds it: until the person has acted and the call goes on, or until the
    conversation is done with the call or is no longer driven here, and the call is stopped.
    """

    __slots__ = ("_calls", "_is_closed", "_stopping")

    def __init__(self) -> None:
        self._calls: dict[int, SuspendedCall] = {}
        self._stopping: dict[asyncio.Task[None], SuspendedCall] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._calls)

    def hold(self, first_id: int, call: SuspendedCall) -> None:
        """Hold a call until it goes on. It is stopped if the conversation is no longer driven here."""
        if self._is_closed:
            self._stop(call)
        else:
            self._calls[first_id] = call

    def release(self, first_id: int) -> SuspendedCall | None:
        """Return the call that goes on, which is not held any longer; None if it does not wait here."""
        return self._calls.pop(first_id, None)

    def follow(self, state: State) -> None:
        """Stop the calls with which the conversation is done in this state."""
        if not self._calls:
            return
        running = state.round.running if isinstance(state, Interruptible) else ()
        for first_id in self._calls.keys() - {one.first_id for one in running}:
            self._stop(self._calls.pop(first_id))

    async def stop_all(self) -> None:
        """Stop all calls, and those that are to be held later."""
        self._is_closed = True
        for first_id in list(self._calls):
            self._stop(self._calls.pop(first_id))
        if self._stopping:
            await asyncio.wait(self._stopping)

    def _stop(self, call: SuspendedCall) -> None:
        stopping = asyncio.ensure_future(call.stop())
        if self._stopping is None:
            self._stopping = {}
        self._stopping[stopping] = call
        stopping.add_done_callback(self._stopping.pop)


_CHARACTERS = 12
"""How many hexadecimal digits of a link stand in a key. Chosen so that two histories of one conversation never share
them by chance, and that the ids of nested sub-agents, which are keys, stay short."""

_KEY = re.compile(rf"(?s)(.+)/([0-9]{{1,18}})/[0-9a-f]{{{_CHARACTERS}}}", re.ASCII)
_OLD_KEY = re.compile(r"(?s)(.+)/([0-9]{1,18})", re.ASCII)


def key_of(conversation_id: str, effect_id: int, link: bytes = b"") -> str:
    """Return the key of an effect that the step with this link first asked for. Without a link it is the key of a
    conversation that began before keys had one. `Pure.`"""
    key = f"{conversation_id}/{effect_id}"
    return f"{key}/{mark_of(link)}" if link else key


def mark_of(link: bytes) -> str:
    """Return the part of a link that stands in keys. `Pure.`"""
    return link.hex()[:_CHARACTERS]


def effect_of_key(key: str) -> tuple[str, int]:
    """Return the conversation and the effect that a key names; ("", 0) for other texts. `Pure.`"""
    found = _KEY.fullmatch(key) or _OLD_KEY.fullmatch(key)
    return ("", 0) if found is None else (found[1], int(found[2]))


class EffectLinks:
    """The links of the steps that first asked for the effects of a conversation, as far back as they are needed: to the
    oldest effect in flight."""

    __slots__ = ("_first_ids", "_links")

    def __init__(self, noted: Iterable[tuple[int, bytes]] = ()) -> None:
        """`noted` are the first new effect id and the link of steps, in their order."""
        known = tuple(noted)
        self._first_ids = [first_id for first_id, _ in known]
        self._links = [link for _, link in known]

    def __len__(self) -> int:
        return len(self._links)

    def note(self, first_id: int, link: bytes) -> None:
        """The step with this link is stored, and asks for the first time for effects from this id on."""
        self._first_ids.append(first_id)
        self._links.append(link)

    def of(self, effect_id: int) -> bytes:
        """Return the link of the step that first asked for this effect; empty if that is not known."""
        place = bisect_right(self._first_ids, effect_id)
        return self._links[place - 1] if place else b""

    def since(self, effect_id: int) -> EffectLinks:
        """Return the links from that of this effect on."""
        start = max(bisect_right(self._first_ids, effect_id) - 1, 0)
        return EffectLinks(zip(self._first_ids[start:], self._links[start:], strict=True))
