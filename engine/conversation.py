"""A conversation, as a host program holds it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from ..states.errors import Refused
from ..states.events import (
    CloseRequested,
    CompactionRequested,
    DoubtResolved,
    Event,
    MessageWithdrawn,
    PolicyChanged,
    Resolution,
    RetryRequested,
    ToolApproval,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ..states.policy.policy import Policy, WhenBusy
from ..states.projections.transcript import transcript
from ..states.states import AwaitingPerson, AwaitingUserResponse, Cancelling, Compacting, InTurn, State
from ..states.step import Step
from ..states.values.images import Image
from ..states.values.messages import Message
from .compaction import failure_of, goes_on
from .projections.projection import ConversationProjection, is_queued
from .projections.turn import Turn
from .projections.updates import Update
from .projections.watcher import Watcher
from .requests import checked, make

if TYPE_CHECKING:
    from ..persistence.maintenance.replay import ReplayReport
    from ..persistence.ports import Store
    from ..persistence.records.entry import StoredEntry
    from .loop import Loop


class ConversationHost(Protocol):
    """What a handle needs from the engine of its conversation."""

    @property
    def store(self) -> Store:
        """The open store. Raises `EngineClosed`."""
        ...

    def now(self) -> datetime:
        """Return the current time."""
        ...

    def with_models(self, policy: Policy) -> Policy:
        """Return the policy with the models of the engine. Raises `InvalidInput`."""
        ...

    async def get(self, conversation_id: str) -> Conversation:
        """Return a handle on a conversation."""
        ...


@dataclass(frozen=True)
class Cancelled:
    """The result of a cancel. `no_op`: nothing was running, or something else than the caller had last seen."""

    no_op: bool


@dataclass(frozen=True)
class _Seen:
    """The turn and the question that a handle has last seen, and the step at which. Its next cancel or answer is meant
    for them."""

    seq: int
    turn: int
    call_id: str | None

    @classmethod
    def of(cls, state: State) -> _Seen:
        call_id = state.call.call_id if isinstance(state, AwaitingPerson) else None
        return cls(state.book.seq, state.book.turn, call_id)


class Conversation:
    """A handle on one conversation of an engine; get it from `Engine.create` or `Engine.get`.

    Any number of handles may exist. Each remembers the turn and the question that it has last seen, so a late click
    never applies to the next one. Every method that requests something raises `Refused` if the conversation does not
    take it now; then nothing has changed.
    """

    def __init__(self, host: ConversationHost, loop: Loop) -> None:
        self._host = host
        self._loop = loop
        self._seen = _Seen.of(loop.state)
        self._sending = asyncio.Lock()

    @property
    def id(self) -> str:
        """The id under which `Engine.get` finds this conversation again."""
        return self._loop.conversation_id

    @property
    def state(self) -> State:
        """The current state, as stored."""
        self._seen = _Seen.of(self._loop.state)
        return self._loop.state

    @property
    def policy(self) -> Policy:
        """The current policy."""
        return self._loop.projection.context.policy

    # --- requests

    async def send(
        self,
        text: str,
        *,
        images: Iterable[str | bytes | Image] = (),
        message_id: str | None = None,
        when_busy: WhenBusy | None = None,
        wait: bool = True,
    ) -> Turn:
        """Send a message, and wait until the turn that takes it ends or waits for a person.

        `images` belong to the message. Each is an https:// URL, a data: URL, or the bytes of a PNG, JPEG, GIF or WebP
        file: at most 20 of them, each of up to 10 million characters as a data: URL. With images the text may be empty.

        `when_busy` says what happens to the message during a turn; None leaves that to the policy. Queued messages
        begin the next turn together; a steered one enters the current turn before its next model request. With
        `wait=False` the method returns as soon as the message is stored, and the turn has the status of that moment. A
        message that is sent again under the same `message_id` is not taken twice: the turn that took it is returned.

        Raises `InvalidInput`; `Refused`: `busy`, `awaiting_user_response`, …, and for a message that waited
        `withdrawn`, `closed`, or `failed`, in which case it still waits; and `StoreError`, in particular `Damaged` if
        the log cannot be read, although the message is stored.
        """
        message_id = _new_id() if message_id is None else message_id
        message = make(
            UserMessage,
            event_id=message_id,
            at=self._host.now(),
            text=text,
            images=images,
            when_busy=when_busy,
        )
        async with self._sending:
            step = await self._ask(message)
        if wait:
            return self._note_seen(await self._loop.turns.of_message(message_id))
        if step.ignored or step.ended is not None or not isinstance(step.state, InTurn):
            return self._note_seen(await self._loop.turns.now(message_id))
        if is_queued(message_id, step.state):
            return Turn(number=0, status="queued")
        return self._note_seen(Turn(number=step.state.book.turn, status="running"))

    async def withdraw(self, message_id: str) -> None:
        """Withdraw a message that still waits. Raises `Refused`: `not_waiting` once a turn has taken it."""
        await self._ask(make(MessageWithdrawn, event_id=_new_id(), at=self._host.now(), message_id=message_id))

    async def answer(
        self,
        answers: Mapping[str, str | Sequence[str]],
        annotations: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Turn:
        """Answer the questions that this handle has last seen, by their text, and wait as `send` does.

        A multi-select question takes a list of labels. `annotations` are notes by question: `{question: {"notes": …}}`.
        Raises `Refused`: `unknown_question`, `missing_answer`, `invalid_answer` name the question and leave it open;
        `wrong_state` if nothing is asked, or something else than this handle has seen.
        """
        response = make(
            UserQuestionResponse,
            event_id=_new_id(),
            at=self._host.now(),
            answers=answers,
            annotations={} if annotations is None else annotations,
            call_id=self._seen.call_id,
        )
        return await self._turn(await self._ask(response))

    async def approve(
        self, call_id: str, allowed: bool, note: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> Turn:
        """Allow or deny the call that waits for approval, and wait as `send` does.

        A `note` tells the model why a call was denied; `arguments` replace those that the model wrote. Raises `Refused`
        with `wrong_state` unless this call waits.
        """
        approval = make(
            ToolApproval,
            event_id=_new_id(),
            at=self._host.now(),
            call_id=call_id,
            allowed=allowed,
            note=note or "",
            arguments=arguments,
        )
        return await self._turn(await self._ask(approval))

    async def resolve(self, call_id: str, verdict: Resolution) -> Turn:
        """Say what became of a call in doubt: one that was running when a process ended, and that must not run twice.
        Waits as `send` does.

        With `ran` or `did_not_run` the model is told so; with `again` the tool runs once more. Raises `Refused` with
        `wrong_state` unless this call is in doubt.
        """
        resolved = make(DoubtResolved, event_id=_new_id(), at=self._host.now(), call_id=call_id, verdict=verdict)
        return await self._turn(await self._ask(resolved))

    async def decline(self) -> Turn:
        """Decline to answer. The policy says whether that ends the turn or lets the model go on. Waits as `send`."""
        if not isinstance(self._loop.state, AwaitingUserResponse) or self._seen.call_id is None:
            raise Refused("wrong_state")
        step = await self._ask(self._cancel(self._seen.call_id))
        if step.ignored:
            raise Refused("wrong_state")
        return await self._turn(step)

    async def cancel(self) -> Cancelled:
        """Stop the turn that this handle has last seen, and wait until it has stopped.

        Tools that ignore it delay it no longer than `Policy.cancel_deadline`. If nothing runs, it is a no-op.
        """
        async with self._sending:  # the cancel is meant for what this handle is just sending
            cancel = self._cancel()
        step = await self._ask(cancel)
        if isinstance(step.state, Cancelling):
            await self._turn(step)
        return Cancelled(no_op=step.ignored)

    async def retry(self) -> Turn:
        """Try the failed turn again, as a new turn, and wait as `send` does."""
        return await self._turn(await self._ask(make(RetryRequested, event_id=_new_id(), at=self._host.now())))

    async def set_policy(self, policy: Policy) -> None:
        """Change the policy from the next turn on. Its models are replaced by those of the engine."""
        policy = self._host.with_models(policy)
        await self._ask(make(PolicyChanged, event_id=_new_id(), at=self._host.now(), policy=policy))

    async def compact(self) -> None:
        """Have everything so far condensed into a summary, which replaces it in requests to models; the log and the
        transcript keep everything. Returns when that is done, or was stopped by `cancel` or `close`.
        Raises `CompactionFailed` if it could not be done, and `Refused`: `busy` and the like during a turn."""
        step = await self._ask(make(CompactionRequested, event_id=_new_id(), at=self._host.now()))
        feed, begun = self._loop.feed, step.state
        assert isinstance(begun, Compacting), "the table rests there whenever it takes this request"
        while goes_on(self._loop.state, begun) and not feed.closed:
            await feed.changed()
        if (failure := failure_of(begun, await self._read_entries(begun.book.seq))) is not None:
            raise failure

    async def close(self) -> None:
        """End the conversation for good, and cancel what runs. It can still be read."""
        step = await self._ask(make(CloseRequested, event_id=_new_id(), at=self._host.now()))
        if isinstance(step.state, Cancelling):
            await self._turn(step)

    async def fork(self, at: int | None = None) -> Conversation:
        """Return a new conversation that begins as a copy of this one, up to its last rest at or before the step `at`;
        None means the newest step. The step on which it landed is its `.state.book.seq`.

        A rest is a state in which nothing is under way, so a turn that goes on, or waits for a person, is left out.
        This conversation is not changed, and may be busy; deliveries that are still due stay with it alone. Deleting it
        does not delete the copy. Raises `InvalidInput` if there is no such step.
        """
        from ..persistence.maintenance.fork import fork

        new_id = _new_id()
        await fork(self._host.store, self.id, new_id, at, self._host.now())
        return await self._host.get(new_id)

    async def dispatch(self, event: Event) -> Step:
        """Submit an event, and return the step that it led to. Raises `InvalidInput` and `Refused`."""
        return await self._ask(checked(event))

    async def _ask(self, event: Event) -> Step:
        step = await self._loop.request(event)
        self._seen = _Seen.of(step.state)
        return step

    async def _turn(self, step: Step) -> Turn:
        """Wait for the turn that this step belongs to."""
        number = step.state.book.turn if step.ended is None else step.ended.turn
        return self._note_seen(await self._loop.turns.of_turn(number))

    def _note_seen(self, turn: Turn) -> Turn:
        if turn.number:
            self._seen = _Seen(self._loop.state.book.seq, turn.number, turn.call_id)
        return turn

    def _note_shown(self, update: Update) -> None:
        """Remember what a watcher was shown, which may lag behind: the next click is meant for that, unless this handle
        has seen something newer."""
        if update.type in ("snapshot", "state_change") and update.position is not None:
            seq = update.position[0] - (update.type == "snapshot")
            shown = update.data.get("state", update.data)["data"]
            if seq >= self._seen.seq:
                self._seen = _Seen(seq, shown["turn"], shown.get("call_id"))

    def _cancel(self, call_id: str | None = None) -> UserCancel:
        return make(UserCancel, event_id=_new_id(), at=self._host.now(), turn=self._seen.turn, call_id=call_id)

    # --- reading

    async def updates(self, after: str | None = None) -> AsyncIterator[Update]:
        """Yield updates as they happen: first a snapshot, or with `after` (the id of an update) all updates since then.

        Ends when the conversation or its engine is closed. A slow watcher misses nothing that is stored. Raises
        `InvalidInput` for a malformed id, or one that no update of this conversation has had yet.
        """
        async for update in Watcher(self._loop.projection, self._loop.feed, self._read_entries).updates(after):
            self._note_shown(update)
            yield update

    async def transcript(self) -> tuple[Message, ...]:
        """Return what was said, oldest first."""
        return transcript(await self.events())

    async def events(self) -> tuple[StoredEntry, ...]:
        """Return the log as stored, one entry for each step."""
        return await self._read_entries()

    async def _read_entries(self, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        return await self._host.store.entries(self.id, after, up_to)

    async def turns(self) -> tuple[Turn, ...]:
        """Return the turns that have ended, oldest first."""
        projection = ConversationProjection(self._loop.state, self._loop.projection.context, self._read_entries)
        await projection.read()
        return tuple(projection.turns.values())

    async def replay(self) -> ReplayReport:
        """Replay the stored log, and compare every step with what was stored."""
        from ..persistence.maintenance.replay import replay_conversation

        return await replay_conversation(self._host.store, self.id)


def _new_id() -> str:
    return str(uuid.uuid4())
