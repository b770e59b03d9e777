"""Notices: what one process stores, deletes and shows, as the other processes hear it.

    step committed ─┐                                  ┌─ the loop of the conversation catches up
    deleted ────────┼─ bundle ── NOTIFY ── LISTEN ─────┼─ its loop ends
    token shown ────┤                                  ├─ watchers see it
    job waits ──────┘                                  └─ the worker takes it to which the conversation belongs

PostgreSQL carries them by NOTIFY and LISTEN. A NOTIFY takes a lock of the whole server until its transaction is on the
disk, so steps that notify in their own transactions are committed one after the other: 24 connections stored a third of
the steps that they store without. So the notices of a step are sent behind its commit, in bundles of all that a process
has to tell, and nothing waits for them to reach the disk. A process that dies in between has told nothing: what must
not be missed is found by `SharedStore.find_moved`, too.

Stored steps are sent within milliseconds, live updates within 50 ms; both in their order. A payload holds less than
8000 bytes. Live updates may be lost: when they come faster than they can be sent, when one of them is longer than a
payload, and whenever a connection breaks.

One connection of each process listens. It must lead to the server itself: a pooler such as PgBouncer lends a connection
for one transaction only, so nobody would listen behind it. That is noticed, and whoever listens then hears every second
that notices are missed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from math import inf
from time import monotonic
from typing import Any, TypeAlias

import psycopg

from ...states.errors import StoreError
from ...states.values.value import encodable
from ..ports import ConversationGone, LiveShown, Notice, NoticesMissed, StepStored
from .connection import hearing, is_pooled, why_not_connected

logger: logging.Logger = logging.getLogger("turnwise.postgres")


def channel_of(schema: str | None) -> str:
    """Return the name of the channel for the tables in this schema, None for those that are seen without one: databases
    in two schemas may have conversations of the same id. `Pure.`"""
    return "turnwise" if schema is None else f"turnwise_{sha256(schema.encode()).hexdigest()[:16]}"


NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
"""Sends one payload. It need not survive a crash of the server, so its commit does not wait for the disk."""

Execute: TypeAlias = Callable[[str, Sequence[Any]], Awaitable[object]]
"""Executes one statement in a transaction of its own, on a connection of the pool. Raises `StoreError`."""

STEP_GAP = 0.025
"""Seconds between two bundles of a process at least. A bundle costs half a millisecond of processor time where it is
sent, and a third wherever it is heard; the first after a pause is sent at once."""

LIVE_GAP = 0.05
"""Seconds for which live updates are collected: a person does not see the difference."""

FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0
"""Seconds between two attempts to connect; doubled each time."""

LOOK = 1.0
"""Seconds between two notices that some are missed, while none can be heard."""

PULSE, PATIENCE = 15.0, 5.0
"""Seconds between two notices that a process sends to itself, and until one counts as not heard."""


@dataclass(frozen=True)
class JobWaits:
    """Somebody has called for a process that looks after this conversation. Only workers hear of it."""

    conversation_id: str


class Notices:
    """What a process tells the others, and hears from them. A store has one, and calls it from the event loop.

    `execute` is what notices are sent by; `conninfo` leads to the server itself, for the connection that listens.
    """

    def __init__(self, execute: Execute, conninfo: str, channel: str = channel_of(None)) -> None:
        self._execute = execute
        self._conninfo = conninfo
        self._channel = channel
        self._node = secrets.token_hex(8)
        """By this the notices of this process are told from those of others."""
        self._outgoing = Outgoing()
        self._urgent = asyncio.Event()
        """Set while something waits that is not collected any longer."""
        self._sending: asyncio.Task[None] | None = None
        self._sent_at = 0.0
        self._is_closed = False
        self._heard_itself_at = -inf
        self.note_job: Callable[[str], None] | None = None
        """Is told of each conversation that another process has called for."""
        self.bundles: int = 0
        """How many bundles were sent."""

    # --- telling

    def tell(self, notice: Notice | JobWaits) -> None:
        """Tell the others. A step, a deletion or a job must be committed: whoever hears of it reads it. Does not
        wait."""
        if self._is_closed:
            return
        self._outgoing.add(notice)
        if not isinstance(notice, LiveShown):
            self._urgent.set()
        if self._sending is None:
            self._begin()

    async def close(self) -> None:
        """Send what waits, unless that takes long, and nothing more."""
        self._is_closed = True
        if self._sending is not None:
            self._urgent.set()
            _, late = await asyncio.wait([self._sending], timeout=PATIENCE)
            for sending in late:
                sending.cancel()

    def _begin(self) -> None:
        if not self._is_closed:
            self._sending = asyncio.ensure_future(self._send_all())
            self._sending.add_done_callback(self._has_sent)

    def _has_sent(self, sending: asyncio.Task[None]) -> None:
        self._sending = None
        if not sending.cancelled() and (error := sending.exception()) is not None:
            logger.error("Notices cannot be sent.", exc_info=error)
        elif self._outgoing:  # added when the task had just found nothing more
            self._begin()

    async def _send_all(self) -> None:
        wait = 0.0
        while self._outgoing:
            await asyncio.sleep(max(wait, self._sent_at + STEP_GAP - monotonic()))
            with suppress(TimeoutError):
                async with asyncio.timeout(LIVE_GAP - STEP_GAP):
                    await self._urgent.wait()
            self._urgent.clear()
            try:
                for bundle in self._outgoing.take():
                    await self._execute(NOTIFY, (self._channel, _payload(self._node, bundle)))
                    self.bundles += 1
                wait = 0.0
            except StoreError as error:
                if self._is_closed:
                    return
                logger.debug("Notices were not sent: %s", error)
                self._outgoing.add(NoticesMissed())
                wait = min(max(FIRST_WAIT, 2 * wait), LONGEST_WAIT)
            self._sent_at = monotonic()

    # --- hearing

    @property
    def is_heard(self) -> bool:
        """Whether notices reach this process, as far as is known: it has heard its own not long ago."""
        return monotonic() - self._heard_itself_at < PULSE + PATIENCE

    async def listen(self) -> AsyncGenerator[Notice, None]:
        """Listen to the other processes until this is closed, as `SharedStore.notices` says."""
        wait, is_well = FIRST_WAIT, True
        while True:
            try:
                async with await self._connect() as connection:
                    if await is_pooled(connection):
                        break
                    async for notice in self._hear(connection):
                        wait, is_well = FIRST_WAIT, True
                        yield notice
            except (psycopg.Error, OSError) as error:
                if is_well:
                    logger.warning("Notices of other processes are not heard for now: %s.", why_not_connected(error))
                is_well = False
            self._heard_itself_at = -inf
            yield NoticesMissed()
            await asyncio.sleep(wait)
            wait = min(2 * wait, LOOK)
        logger.warning(
            "This database is reached through a pool of connections, behind which notices of other processes are not "
            "heard: what they store is looked for every second, and their live updates are not shown."
        )
        while True:
            yield NoticesMissed()
            await asyncio.sleep(LOOK)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(
            self._conninfo, autocommit=True, application_name="turnwise notices"
        )

    async def _hear(self, connection: psycopg.AsyncConnection[Any]) -> AsyncGenerator[Notice, None]:
        """Listen on this connection until it breaks. Raises `psycopg.Error`."""
        await connection.execute(f"LISTEN {self._channel}")
        yield NoticesMissed()
        self._heard_itself_at = monotonic()
        pulse_at = 0.0
        with hearing(connection) as heard:
            while True:
                if monotonic() >= pulse_at:
                    pulse_at = monotonic() + PULSE
                    await self._pulse()
                for notify in await heard.next(LOOK):
                    for notice in self._of_others(notify.payload):
                        yield notice
                    await asyncio.sleep(0)  # many may be there at once
                if not self.is_heard:
                    yield NoticesMissed()
                if monotonic() - self._heard_itself_at > 3 * PULSE:
                    raise psycopg.OperationalError("nothing was heard for long")

    async def _pulse(self) -> None:
        """Send a notice to this process itself."""
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._execute(NOTIFY, (self._channel, _payload(self._node, ())))

    def _of_others(self, payload: str) -> Iterator[Notice]:
        """Yield the notices of a payload, unless they are of this process."""
        try:
            node, *pieces = json.loads(payload)
        except (ValueError, TypeError):
            return  # anybody may notify
        if node == self._node:
            self._heard_itself_at = monotonic()
            return
        for piece in pieces:
            notice = _decoded(piece)
            if isinstance(notice, JobWaits):
                if self.note_job is not None:
                    self.note_job(notice.conversation_id)
            elif notice is not None:
                yield notice


# --- what goes out

MOST_STEPS = 5_000
"""How many notices of steps may wait. When there are more, the other processes are told that they miss some."""

MOST_LIVE = 262_144
"""How many characters of live updates may wait. What is shown beyond that is not sent."""

PAYLOAD = 7_900
"""Bytes of a payload. The server takes less than 8000."""

_TOKEN = 1_200
"""Characters of a token at most: in any script, and escaped, they fit into a payload."""


class Outgoing:
    """What waits to be sent, in order.

    Steps of one conversation become one notice, of the newest. Tokens of one answer become one token if nothing of
    their conversation stands between them. What waits is bounded.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, Notice | JobWaits] = {}
        self._next = 0
        self._steps: dict[str, int] = {}
        """The place of the notice of a step, by conversation."""
        self._jobs: set[str] = set()
        """The conversations that were called for."""
        self._tokens: dict[str, int] = {}
        """The place of the token that the next one may be added to, by conversation."""
        self._live = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, notice: Notice | JobWaits) -> None:
        """Add a notice, or add to one that waits."""
        match notice:
            case StepStored(conversation_id):
                self._tokens.pop(conversation_id, None)
                self._add_step(notice)
            case LiveShown():
                self._show(notice)
            case NoticesMissed():
                self._forget_all()
                self._append(notice)
            case ConversationGone():
                self._append(notice)
            case JobWaits(conversation_id):  # of too many, none need be told: workers look
                if conversation_id not in self._jobs and len(self._jobs) < MOST_STEPS:
                    self._jobs.add(conversation_id)
                    self._append(notice)

    def take(self) -> Iterator[Sequence[str]]:
        """Take all that waits out, and yield it as bundles of JSON that fit into a payload each."""
        waiting = tuple(self._waiting.values())
        self._forget_all()
        bundle: list[str] = []
        size = 0
        for notice in waiting:
            piece = _encoded(notice)
            length = len(piece.encode())
            if size + length > PAYLOAD - _FRAME and bundle:
                yield bundle
                bundle, size = [], 0
            bundle.append(piece)
            size += length + 1
        if bundle:
            yield bundle

    def _add_step(self, stored: StepStored) -> None:
        if (place := self._steps.get(stored.conversation_id)) is not None:
            self._waiting[place] = stored
        elif len(self._steps) >= MOST_STEPS:
            self.add(NoticesMissed())
        else:
            self._steps[stored.conversation_id] = self._append(stored)

    def _show(self, shown: LiveShown) -> None:
        text = shown.data.get("text", "")
        size = len(text) if isinstance(text, str) else 0
        self._live += size + _FRAME
        if self._live > MOST_LIVE:
            return
        if shown.kind != "token" or not size:
            self._tokens.pop(shown.conversation_id, None)
            self._append(shown)
            return
        for start in range(0, size, _TOKEN):
            part = {**shown.data, "text": text[start : start + _TOKEN]}
            self._add_token(replace(shown, data=part, place=shown.place + start))

    def _add_token(self, token: LiveShown) -> None:
        place = self._tokens.get(token.conversation_id)
        before = None if place is None else self._waiting[place]
        if place is not None and isinstance(before, LiveShown) and (joined := _joined(before, token)) is not None:
            self._waiting[place] = joined
        else:
            self._tokens[token.conversation_id] = self._append(token)

    def _append(self, notice: Notice | JobWaits) -> int:
        self._next += 1
        self._waiting[self._next] = notice
        return self._next

    def _forget_all(self) -> None:
        self._waiting, self._steps, self._jobs, self._tokens, self._live = {}, {}, set(), {}, 0


def _joined(before: LiveShown, token: LiveShown) -> LiveShown | None:
    """The two tokens as one; None if the second does not go on with the text of the first, or if they are too long.
    `Pure.`"""
    text: str = before.data["text"]
    is_next = token == replace(before, data={**before.data, "text": token.data["text"]}, place=before.place + len(text))
    if not is_next or len(text) + len(token.data["text"]) > _TOKEN:
        return None
    return replace(before, data={**before.data, "text": text + token.data["text"]})


# --- as JSON: a payload is the node of its process, and a list of notices

_FRAME = 32
"""Bytes of a payload that are none of a notice."""


def _payload(node: str, pieces: Sequence[str]) -> str:
    return f"[{','.join((json.dumps(node), *pieces))}]"


def _encoded(notice: Notice | JobWaits) -> str:
    """Return a notice as JSON. One that cannot be sent becomes one that something is missed, or, if it is live, an
    empty one. `Pure.`"""
    fields: list[Any]
    match notice:
        case StepStored(conversation_id, seq):
            fields = ["stored", conversation_id, seq]
        case ConversationGone(conversation_id):
            fields = ["gone", conversation_id]
        case JobWaits(conversation_id):
            fields = ["job", conversation_id]
        case LiveShown(conversation_id, effect_id, kind, data, place):
            fields = ["shown", conversation_id, effect_id, kind, dict(data), place]
        case NoticesMissed():
            fields = ["missed"]
    try:
        text = encodable(json.dumps(fields, ensure_ascii=False, separators=(",", ":")))
    except (TypeError, ValueError):
        return "[]"  # data that is not JSON, of a performer of the application
    if len(text.encode()) <= PAYLOAD - _FRAME:
        return text
    return "[]" if isinstance(notice, LiveShown) else '["missed"]'


def _decoded(piece: Any) -> Notice | JobWaits | None:
    """Return the notice that this JSON is; None for what this version does not know. `Pure.`"""
    match piece:
        case ["stored", str(conversation_id), int(seq)]:
            return StepStored(conversation_id, seq)
        case ["gone", str(conversation_id)]:
            return ConversationGone(conversation_id)
        case ["job", str(conversation_id)] if conversation_id == encodable(conversation_id):
            return JobWaits(conversation_id)
        case ["shown", str(conversation_id), int(effect_id), str(kind), dict(data), int(place)]:
            return LiveShown(conversation_id, effect_id, kind, data, place)
        case ["missed"]:
            return NoticesMissed()
        case _:
            return None
