"""The requests of a handle that concern a turn: they begin one, answer what it asks, stop it, or try it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...states.errors import Refused
from ...states.events import (
    DoubtResolved,
    MessageWithdrawn,
    Resolution,
    RetryRequested,
    ToolApproval,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ...states.policy import WhenBusy
from ...states.states import InTurn
from ...states.step import Step
from ...states.values.messages import Image
from ..projections.projection import is_queued
from ..projections.turn import QueuedTurn, RunningTurn, Turn
from ..requests import make
from .handle import Handle, new_id


@dataclass(frozen=True)
class Cancelled:
    """The result of a cancel. `no_op`: nothing was running, or another turn than the one that was named."""

    no_op: bool


NO_TURN = -1
"""A number that no turn has. 0 is not one: it stands for what is done before the first turn, compacting for example."""


class TurnRequests(Handle):
    """The requests of a conversation that return a turn, or stop one."""

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
        `withdrawn`, `closed`, or, in a conversation that an older version began, `failed`, in which case it still
        waits; and `StoreError`, in particular `Damaged` if the log cannot be read, although the message is stored.
        """
        message = self._message(text, images, message_id, when_busy)
        if not wait:
            return await self._turn_behind(await self._stored(message), message.event_id)
        await self._stored(message)
        return await self._stopped_turn(self._loop.turns.of_message(message.event_id))

    async def _stored(self, message: UserMessage) -> Step:
        """Have a message taken, and return the step that took it."""
        async with self._sending:
            return (await self._ask(message)).step

    async def _turn_behind(self, step: Step, message_id: str) -> Turn:
        """Return the turn of a message as it is behind the step that took the message."""
        if step.ignored or step.ended is not None or not isinstance(step.state, InTurn):
            return self._note_seen(await self._loop.turns.now(message_id))
        if is_queued(message_id, step.state):
            return QueuedTurn()
        return self._note_seen(RunningTurn(number=step.state.book.turn, profile=step.state.turn.profile))

    def _message(
        self,
        text: str,
        images: Iterable[str | bytes | Image],
        message_id: str | None,
        when_busy: WhenBusy | None,
    ) -> UserMessage:
        event_id = new_id() if message_id is None else message_id
        return make(UserMessage, event_id=event_id, at=self._host.now(), text=text, images=images, when_busy=when_busy)

    async def withdraw(self, message_id: str, *, request_id: str | None = None) -> None:
        """Withdraw a message that still waits. Raises `Refused`: `not_waiting` once a turn has taken it."""
        await self._request(MessageWithdrawn, request_id, message_id=message_id)

    async def answer(
        self,
        answers: Mapping[str, str | Sequence[str]],
        annotations: Mapping[str, Mapping[str, str]] | None = None,
        *,
        call_id: str | None = None,
        request_id: str | None = None,
        wait: bool = True,
    ) -> Turn:
        """Answer the questions of the call `call_id`, by their text, and wait as `send` does. Without `call_id` they
        are those that this handle has last seen; a server with a handle for each request must give it.

        With `wait=False` this method, and each of those below, returns as soon as the request is stored. The turn has
        the status of that moment, also if the request was sent before: `running` while it goes on.

        A multi-select question takes a list of labels. `annotations` are notes by question: `{question: {"notes": …}}`.
        Raises `Refused`: `unknown_question`, `missing_answer`, `invalid_answer` name the question and leave it open;
        `wrong_state` if nothing is asked, or something else than is meant.
        """
        handled = await self._request(
            UserQuestionResponse,
            request_id,
            () if call_id is not None else {"call_id"},
            answers=answers,
            annotations={} if annotations is None else annotations,
            call_id=self._seen.call_id if call_id is None else call_id,
        )
        return await self._turn(handled, wait=wait)

    async def approve(
        self,
        call_id: str,
        allowed: bool,
        note: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        *,
        by: str | None = None,
        request_id: str | None = None,
        wait: bool = True,
    ) -> Turn:
        """Allow or deny the call that waits for approval, and wait as `send` does.

        A `note` tells the model why a call was denied; `arguments` replace those that the model wrote. `by` is who
        decided, as the application names its users: it stands in the log. Whether they may decide is for the caller to
        check: `conversation.approver` is `"operator"` where the tool leaves it to nobody else.

        Raises `Refused` with `wrong_state` unless this call waits, and `InvalidInput`, naming the fields, for arguments
        that its tool refuses: the call goes on waiting.
        """
        handled = await self._request(
            ToolApproval, request_id, call_id=call_id, allowed=allowed, note=note or "", arguments=arguments, by=by
        )
        return await self._turn(handled, wait=wait)

    async def resolve(
        self, call_id: str, verdict: Resolution, *, request_id: str | None = None, wait: bool = True
    ) -> Turn:
        """Say what became of a call in doubt: one that was running when a process ended, and that must not run twice.
        Waits as `send` does.

        With `ran` or `did_not_run` the model is told so; with `again` the tool runs once more. Raises `Refused` with
        `wrong_state` unless this call is in doubt.
        """
        handled = await self._request(DoubtResolved, request_id, call_id=call_id, verdict=verdict)
        return await self._turn(handled, wait=wait)

    async def decline(self, call_id: str | None = None, *, request_id: str | None = None, wait: bool = True) -> Turn:
        """Decline to answer the questions of the call `call_id`; without it, those that this handle has last seen.

        The policy says whether that ends the turn or lets the model go on. Waits as `send`. Raises `Refused` with
        `wrong_state` if nothing is asked, or something else than is meant.
        """
        meant = self._seen.call_id if call_id is None else call_id
        state = self._loop.state
        filled = {"turn"} if call_id is not None else {"turn", "call_id"}
        asked = state.open_question
        if isinstance(state, InTurn) and asked is not None and asked.call_id == meant:
            handled = await self._request(UserCancel, request_id, filled, turn=state.turn.number, call_id=meant)
        else:
            # Nothing is declined, unless this request was handled before. A request without effect is not remembered.
            handled = await self._request(UserCancel, request_id, {*filled, "event_id"}, turn=NO_TURN, call_id=meant)
        if handled.is_no_op:
            raise Refused("wrong_state", sentence="No question waits to be declined.")
        if isinstance(handled.request, UserCancel) and handled.request.call_id is None:
            raise Refused("event_id_reused")  # it was a cancel of the turn
        return await self._turn(handled, wait=wait)

    async def cancel(self, turn: int | None = None, *, request_id: str | None = None, wait: bool = True) -> Cancelled:
        """Stop the turn with this number, and wait until it has stopped; without a number, the turn under way, whoever
        began it: this handle, another one, another agent, or the schedule.

        A click that may come late names the turn that its user saw, so that it does not stop the next one. Tools that
        ignore the cancel delay it no longer than `Policy.cancel_deadline`. If nothing runs, or another turn than the
        one named, it is a no-op. A cancel without effect is not in the log: the engine remembers its `request_id` only
        as long as it has the conversation in memory, so after a restart only `turn` protects a later turn from a
        repeated cancel.
        """
        filled = {"usage"} if turn is not None else {"turn", "usage"}
        if turn is None:
            async with self._sending:
                pass  # a message that this handle is just sending is taken first: the cancel is meant for its turn
        usage = self._host.spent_on(self.id)
        handled = await self._request(UserCancel, request_id, filled, turn=turn, usage=usage)
        if wait:
            await self._stopped(handled)
        return Cancelled(no_op=handled.is_no_op)

    async def retry(self, *, request_id: str | None = None, wait: bool = True) -> Turn:
        """Try the failed turn again, as a new turn, and wait as `send` does."""
        return await self._turn(await self._request(RetryRequested, request_id), wait=wait)
