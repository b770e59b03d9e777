"""A conversation, as a host program holds it: it makes requests, and reads what became of them.

A handle holds the loop of its conversation, to which it gives every request, and what it has last seen: its next answer
is meant for that question, and for no newer one. It waits for the turn that a request belongs to where its caller does;
everything else that it shows is read from the log, or from the projection of the log that the loop keeps.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, overload

from typing_extensions import TypeVar

from ..effects.context import mark_of
from ..effects.files import GivenFile, PreparedFile
from ..effects.model.performers.llm_request import RequestWriter
from ..effects.model.shown_files import with_bytes
from ..persistence.errors import CustodyLost
from ..states.dialogue import usage
from ..states.effects import Abort, CompactHistory
from ..states.errors import CompactionFailed, ConfigurationError, InvalidInput, Refused
from ..states.events import (
    Answer,
    BranchSwitched,
    CloseRequested,
    CompactionRequested,
    DetailsChanged,
    DoubtResolved,
    EffectFailed,
    Event,
    MessageEdited,
    MessageWithdrawn,
    PolicyChanged,
    ProfileTransferred,
    Request,
    Resolution,
    RetryRequested,
    Rewound,
    ScheduleChanged,
    ToolApproval,
    ToolsChanged,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    files_of,
)
from ..states.header import Header
from ..states.openai_writing import openai_messages, repairs_of
from ..states.outputs import schema_of_rules
from ..states.policy import ModelSettings, Policy, WhenBusy
from ..states.roles import Role
from ..states.states import AnyState, AwaitingApproval, Cancelling, Closed, Compacting, InDoubt, InTurn, State
from ..states.step import LogEntry, Step
from ..states.transcript import transcript
from ..states.values.acts import Schedule, marks_of
from ..states.values.files import FileReference
from ..states.values.messages import Approver, Message, Usage
from .branches import Branch, BranchRequests
from .choices import GivenTools
from .files import check_models
from .home import Home, Homebound
from .inspection import RequestView, StepView, request_view
from .loop import Loop, dispatcher_failures_logged
from .outputs import AnyOutput, Output, OutputReading, admitted, named_output
from .projection import ConversationProjection, is_queued
from .registry import children_of
from .requests import (
    MAX_ATTEMPTS,
    MODELS,
    NOTHING_FILLED,
    PROFILES,
    Filled,
    HandledRequest,
    Outcome,
    checked,
    checked_metadata,
    checked_policy,
    checked_request_id,
    make,
)
from .schedules import GivenInterval, first_moment, schedule_of
from .turns import EndedTurn, QueuedTurn, RunningTurn, Turn
from .updates import SnapshotUpdate, StateChangeUpdate, StateView, Update, view_of
from .watching import Watcher, updates_of_turn

if TYPE_CHECKING:
    from ..persistence.maintenance.replay import ReplayReport
    from ..persistence.records import Origin, StoredEntry, Undelivered
    from ..persistence.summaries import Summary
    from .engine import Engine


_NO_TURN = -1
"""A number that no turn has. 0 is not one: it stands for what is done before the first turn, compacting for example."""

ITERATIONS_TO_SEND = 32
"""For how many iterations of the event loop the caller of a turn lets channels take what was said in it. Several times
as many as a channel in the same process needs for a few texts; one that waits for a network is not waited for."""

_ASKS_MODEL = (
    UserMessage,
    UserQuestionResponse,
    ToolApproval,
    DoubtResolved,
    RetryRequested,
    Rewound,
    CompactionRequested,
)
"""The requests behind which a model is asked."""


T = TypeVar("T", default=Any)
"""The type of the answers of a conversation. It is any type where its application has not asked for one."""

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class SendOptions(TypedDict, total=False):
    """What `Conversation.send` takes besides the text and the form of the answer."""

    files: Iterable[GivenFile]
    settings: ModelSettings | None
    message_id: str | None
    when_busy: WhenBusy | None
    heard: str | None
    wait: bool


class Conversation(Homebound, Generic[T]):
    """A handle on one conversation of an engine; get it from `Engine.create` or `Engine.get`. In a
    `Conversation[Ticket]` turns end with a `Ticket`, unless a message or a profile asks for another type.

    Any number of handles may exist. Each remembers the question that it has last seen, so a late answer never applies
    to the next one. Every method that makes a request raises `Refused` if the conversation does not allow it now; then
    nothing has changed.
    """

    def __init__(self, engine: Engine, loop: Loop, home: Home | None) -> None:
        super().__init__(home)
        self._engine = engine
        self._choices = engine.choices
        self._loop = loop
        self._interest = loop.interest()
        self._seen = _LastSeen(loop.state)
        self._lock: asyncio.Lock | None = None

    def __repr__(self) -> str:
        state = self._loop.state
        turns = f"{state.book.turn} turn{'' if state.book.turn == 1 else 's'}"
        return f"<{type(self).__name__} {self.id!r}: {state.type}, {turns}>"

    @property
    def id(self) -> str:
        """The id under which `Engine.get` finds this conversation again."""
        return self._loop.conversation_id

    @property
    def state(self) -> AnyState:
        """The current state, as stored: one of the classes of `turnwise.states`, each with a `type` of its own."""
        self._seen.note_state(self._loop.state)
        return self._loop.state

    # --- a turn

    @overload
    async def send(self, text: str = ..., *, output: None = None, **options: Unpack[SendOptions]) -> Turn[T]: ...

    @overload
    async def send(
        self, text: str = ..., *, output: type[A] | Output[A], **options: Unpack[SendOptions]
    ) -> Turn[A]: ...

    @overload
    async def send(
        self, text: str = ..., *, output: tuple[type[A], type[B]], **options: Unpack[SendOptions]
    ) -> Turn[A | B]: ...

    @overload
    async def send(
        self, text: str = ..., *, output: tuple[type[A], type[B], type[C]], **options: Unpack[SendOptions]
    ) -> Turn[A | B | C]: ...

    @overload
    async def send(self, text: str = ..., *, output: AnyOutput, **options: Unpack[SendOptions]) -> Turn: ...

    async def send(
        self,
        text: str = "",
        *,
        output: AnyOutput | None = None,
        files: Iterable[GivenFile] = (),
        settings: ModelSettings | None = None,
        message_id: str | None = None,
        when_busy: WhenBusy | None = None,
        heard: str | None = None,
        wait: bool = True,
    ) -> Turn:
        """Send a message, and wait until the turn that takes it ends or waits for a person.

        `files` belong to the message: images, PDFs, recordings, videos, texts. Each is a path (`pathlib.Path`), the
        bytes, an https:// URL, or a `File`, which also says a name; `Policy.files` says how large they may be, and how
        many. Their bytes are stored once beside the log. With files the text may be empty.

        `settings` are parameters of the model requests of the turn that takes the message, such as `temperature` or
        `tool_choice`. Others are those of the turn's profile and of the policy.

        `when_busy` says what happens to the message during a turn: `"refuse"`, `"queue"`, `"steer"` or `"interrupt"`;
        None leaves that to the policy. Queued messages begin the next turn together. A steered message enters the
        current turn before its next model request. An interrupting message stops the current turn, as `cancel` does,
        and begins the next one. With `heard`, as in `cancel`, a message interrupts without `when_busy`.

        With `wait=False` the method returns as soon as the message is stored, and the turn has the status of that
        moment. A message that is sent again under the same `message_id` is handled once: the turn that took it is
        returned.

        `output` is the type that the answer must have: a pydantic model, a dataclass or a TypedDict, a tuple of types
        of which the answer has one, an `Output`, or a JSON schema. `turn.output` is then the answer; see
        docs/guides/typed-answers.md. If several messages of one turn have an `output`, the newest decides.

        Raises `InvalidInput`; `Refused`: `busy`, `awaiting_user_response`, …, and for a message that waited
        `withdrawn`, `closed`, or, in a conversation that an older version began, `failed`, in which case it still
        waits; and `StoreError`, in particular `Damaged` if the log cannot be read, although the message is stored.
        """
        prepared = await self._loop.files.prepare(files) if files != () else ()
        message = self._message(text, settings, message_id, when_busy, output, heard, prepared)
        async with self._sending:
            step = (await self._ask_with(prepared, message)).step
        if wait:
            turn = await self._stopped_turn(self._loop.turns.of_message(message.event_id))
        else:
            turn = await self._turn_of_step(step, message.event_id)
        if message.output is None:
            return turn
        return replace(turn, reading=OutputReading(self._choices.forms, message.output))

    def stream(
        self,
        text: str = "",
        *,
        files: Iterable[GivenFile] = (),
        settings: ModelSettings | None = None,
        message_id: str | None = None,
        when_busy: WhenBusy | None = None,
        output: AnyOutput | None = None,
        heard: str | None = None,
    ) -> AsyncGenerator[Update, None]:
        """Send a message, and yield the updates of the turn that takes it: from the message on, without a snapshot,
        until the turn has ended (`turn_ended`) or waits for a person (a `state_change`).

            async for update in conversation.stream("A table for two"): ...

        The arguments are those of `send`. The message is sent when the iteration begins. A message that waits for its
        turn shows nothing until then; one that is sent again under its `message_id` is not taken twice, and the same
        stored updates are shown. Leaving the loop does not stop the turn. Raises `InvalidInput` at once, or, of
        files, when the iteration begins, and later what `send` raises.
        """
        message = partial(self._message, text, settings, message_id, when_busy, output, heard)
        return self._stream(message(())) if files == () else self._stream_with(files, message)

    async def answer(
        self,
        answers: Mapping[str, str | Sequence[str]],
        annotations: Mapping[str, Mapping[str, str]] | None = None,
        *,
        call_id: str | None = None,
        request_id: str | None = None,
        wait: bool = True,
    ) -> Turn[T]:
        """Answer the questions of the call `call_id`, by their text, and wait as `send` does. Without `call_id` they
        are those that this handle has last seen; a server with a handle for each request must give it.

        With `wait=False` this method, and each of those below, returns as soon as the request is stored. The turn has
        the status of that moment, also if the request was sent before: `running` while it goes on. Otherwise a request
        that is sent again under its `request_id` returns the turn as it was when it first ended, or waited for a
        person, after the request, although it may have gone on since.

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
    ) -> Turn[T]:
        """Allow or deny the call that waits for approval, and wait as `send` does.

        A `note` tells the model why a call was denied; `arguments` replace those that the model wrote. `by` is who
        decided, as the application names its users: it stands in the log. Whether they may decide is for the caller to
        check: `conversation.approver` is `"operator"` where the tool leaves it to nobody else.

        A repeated `request_id` returns the turn as it first stopped after the request; with `wait=False`, as it is now.

        Raises `Refused` with `wrong_state` unless this call waits, and `InvalidInput`, naming the fields, for arguments
        that its tool refuses: the call goes on waiting.
        """
        handled = await self._request(
            ToolApproval, request_id, call_id=call_id, allowed=allowed, note=note or "", arguments=arguments, by=by
        )
        return await self._turn(handled, wait=wait)

    async def resolve(
        self, call_id: str, verdict: Resolution, *, request_id: str | None = None, wait: bool = True
    ) -> Turn[T]:
        """Say what became of a call in doubt: a call that was running when a process ended, and that must not run
        twice. Waits as `send` does.

        With `"ran"` or `"did_not_run"` the model is told so; with `"again"` the tool runs once more.

        A repeated `request_id` returns the turn as it first stopped after the request; with `wait=False`, as it is now.

        Raises `Refused` with `wrong_state` unless this call is in doubt.
        """
        handled = await self._request(DoubtResolved, request_id, call_id=call_id, verdict=verdict)
        return await self._turn(handled, wait=wait)

    async def decline(self, call_id: str | None = None, *, request_id: str | None = None, wait: bool = True) -> Turn[T]:
        """Decline to answer the questions of the call `call_id`; without it, those that this handle has last seen.

        The policy says whether that ends the turn or lets the model go on. Waits as `send`.

        A repeated `request_id` returns the turn as it first stopped after the request; with `wait=False`, as it is now.

        Raises `Refused` with `wrong_state` if nothing is asked, or something else than is meant.
        """
        meant = self._seen.call_id if call_id is None else call_id
        state = self._loop.state
        filled = {"turn"} if call_id is not None else {"turn", "call_id"}
        asked = state.open_question
        if isinstance(state, InTurn) and asked is not None and asked.call_id == meant:
            handled = await self._request(UserCancel, request_id, filled, turn=state.turn.number, call_id=meant)
        else:
            # Nothing is declined, unless this request was handled before. A request without effect is not remembered.
            handled = await self._request(UserCancel, request_id, {*filled, "event_id"}, turn=_NO_TURN, call_id=meant)
        if handled.is_no_op:
            raise Refused("wrong_state", sentence="No question waits to be declined.")
        if isinstance(handled.request, UserCancel) and handled.request.call_id is None:
            raise Refused("event_id_reused")  # it was a cancel of the turn
        return await self._turn(handled, wait=wait)

    async def cancel(
        self,
        turn: int | None = None,
        *,
        heard: str | None = None,
        request_id: str | None = None,
        wait: bool = True,
    ) -> Cancelled:
        """Stop the turn with this number, and wait until it has stopped; without a number, the turn under way, whoever
        began it: this handle, another one, another agent, or the schedule.

        What the model had written of its answer is kept. When the user interrupted a voice, `heard` says how much they
        heard: the beginning of what was said in the turn, or of the last text. The rest is cut from the transcript, and
        the model is told where it was interrupted. Spaces, punctuation, capitals and marks of Markdown may differ. If
        `heard` is no such beginning, it is quoted to the model, and nothing is cut. `heard=""` says that nothing was
        heard. With `heard` the newest turn is cut even if it has ended, because a voice may still be speaking then.

        If a click may arrive late, pass the turn that its user saw, so that it does not stop the next one. Tools that
        ignore the cancel delay it no longer than `Policy.cancel_deadline`. If no turn is under way, or another turn
        than the given one, the cancel does nothing. A cancel without effect is not in the log: the engine remembers its
        `request_id` only as long as it has the conversation in memory, so after a restart only `turn` protects a later
        turn from a repeated cancel.
        """
        filled = {"usage"} if turn is not None else {"turn", "usage"}
        if turn is None:
            async with self._sending:
                pass  # a message that this handle is just sending is taken first: the cancel is meant for its turn
        usage = self._engine.spent_on(self.id)
        handled = await self._request(UserCancel, request_id, filled, turn=turn, usage=usage, heard=heard)
        if wait:
            await self._until_cancelled(handled)
        return Cancelled(no_op=handled.is_no_op)

    async def retry(self, *, request_id: str | None = None, wait: bool = True) -> Turn[T]:
        """Try the failed turn again, as a new turn, and wait as `send` does.

        A repeated `request_id` returns the turn as it first stopped after the request; with `wait=False`, as it is now.
        """
        return await self._turn(await self._request(RetryRequested, request_id), wait=wait)

    async def withdraw(self, message_id: str, *, request_id: str | None = None) -> None:
        """Withdraw a message that still waits. Raises `Refused`: `not_waiting` once a turn has taken it."""
        await self._request(MessageWithdrawn, request_id, message_id=message_id)

    async def wait(self) -> Turn[T]:
        """Wait until the turn under way ends or waits for a person, and return it; if none is under way, return the
        newest turn at once.

        Another handle, another engine over the same store, or a process that has ended since may have begun the turn.
        Steps of other engines are read twice a second. Raises `Refused` with `wrong_state` if
        there was no turn yet, and what `send` raises.
        """
        with suppress(Refused):  # the store takes nothing at the moment; what is known here is as it was stored
            await self._loop.catch_up()
        return await self._stopped_turn(self._loop.turns.newest())

    async def turn_after(self, request_id: str) -> Turn[T]:
        """Wait until the turn of this request ends or waits for a person for the first time after it, and return it as
        it was then, even if it has gone on since. `request_id` is also the id of a message.

        So a server answers a repeated request as it answered the first one; `send` returns the turn of a repeated
        message as it is by now. Raises `InvalidInput` if no request with this id was stored, and what `send` raises.
        """
        handled = await self._loop.recent_requests.find_by_id(request_id)
        if handled is None or not handled.seq:
            raise InvalidInput("No request was stored under this id.")
        if isinstance(handled.request, MessageEdited | Rewound):
            return await self._turn_elsewhere(handled, wait=True)
        is_message = isinstance(handled.request, UserMessage)
        number = await self._loop.turns.number_of(request_id) if is_message else handled.turn
        if not number:
            raise InvalidInput("This request belongs to no turn.")
        return await self._stopped_turn(self._loop.turns.stopped_after(handled.seq, number))

    async def close(self, *, request_id: str | None = None, wait: bool = True) -> None:
        """End the conversation for good, and cancel what runs. It can still be read. With `wait=False` the method
        returns as soon as the request is stored, while a turn may still be stopping."""
        handled = await self._request(CloseRequested, request_id)
        if wait:
            await self._until_cancelled(handled)

    # --- its branches

    async def edit(
        self,
        message_id: str,
        text: str,
        *,
        files: Iterable[GivenFile] | None = None,
        request_id: str | None = None,
        wait: bool = True,
    ) -> Turn[T]:
        """Replace the message that was sent under `message_id`, and wait as `send` does. The message and all that
        followed it are hidden: no model is shown them any more, and `branches` lists them. A turn under way is
        cancelled first.

        The message keeps its files, unless others are given. It has `request_id` as its id from now on, under which
        it can be edited again, or else a new id. What was said before it in the same turn is answered with it.

        A repeated `request_id` returns the turn as it first stopped after the request; with `wait=False`, as it is now.

        Raises `InvalidInput`, and `Refused`: `unknown_message`, also for one that still waits; `hidden` for one that is
        in another branch; `busy` while the conversation goes to another branch; `no_branches` for a sub-agent.
        """
        named: dict[str, object] = {"message_id": message_id, "text": text}
        self._loop.check_may_write()
        prepared = () if files is None else await self._loop.files.prepare(files)
        if files is not None:
            named["files"] = self._references(prepared)
        async with self._loop.files.stored(prepared):
            handled = await self._elsewhere.request(
                MessageEdited, named, lambda tree: tree.edited(message_id), request_id
            )
        return await self._turn_elsewhere(handled, wait=wait)

    async def regenerate(self, turn: int | None = None, *, request_id: str | None = None, wait: bool = True) -> Turn[T]:
        """Have the messages of the newest turn answered again, in a new turn, and wait as `send` does. The old turn is
        hidden, so the messages are in the transcript once. A turn under way is cancelled first.

        A repeated `request_id` returns the turn as it first stopped after the request; with `wait=False`, as it is now.

        If a click may arrive late, pass the newest `turn` that its user saw. Raises `Refused`: `moved_on` if another
        one is the newest, `nothing_to_regenerate`, and what `edit` raises.
        """
        handled = await self._elsewhere.request(Rewound, {}, lambda tree: tree.answered_again(turn), request_id)
        return await self._turn_elsewhere(handled, wait=wait)

    async def rewind(self, to: int | str, *, request_id: str | None = None, wait: bool = True) -> None:
        """Hide the end of the conversation. With the number of a turn, that turn becomes the newest one (0: none is
        left); with the id of a message, that message and all that follows it are hidden. `branches` lists what is
        hidden. A turn under way is cancelled; with `wait=False` the method returns as soon as the request is stored. If
        there is nothing to hide, nothing happens.

        Raises `Refused`: `unknown_turn`, `unknown_message`, `hidden`, and what `edit` raises.
        """
        named = {"to": to if isinstance(to, str) else str(_count("to", to))}
        handled = await self._elsewhere.request(Rewound, named, lambda tree: tree.rewound(to), request_id)
        if handled is not None and wait:
            await self._elsewhere.until_there(handled)

    async def branches(self) -> tuple[Branch, ...]:
        """Return the branches that were left, oldest first. The cost grows with the log."""
        return (await self._elsewhere.tree()).left()

    async def switch(self, branch: int | Branch, *, request_id: str | None = None, wait: bool = True) -> None:
        """Return to a branch that was left: its messages are shown, also to models, and what is shown now is hidden. A
        turn under way is cancelled; with `wait=False` the method returns as soon as the request is stored.

        Raises `Refused`: `unknown_branch`, and what `edit` raises.
        """
        number = branch.number if isinstance(branch, Branch) else _count("branch", branch)
        named = {"turn": number}
        handled = await self._elsewhere.request(BranchSwitched, named, lambda tree: tree.switched(number), request_id)
        if handled is not None and wait:
            await self._elsewhere.until_there(handled)

    @property
    def _elsewhere(self) -> BranchRequests:
        """What makes requests to go to another branch. It is made when it is needed, which is seldom."""
        return BranchRequests(self._loop, self._read_entries, self._ask, partial(self._engine.spent_on, self.id))

    async def _turn_elsewhere(self, handled: HandledRequest | None, *, wait: bool) -> Turn:
        """Return the turn that begins in another branch by this request, or that takes the edited message."""
        assert handled is not None, "such a request always has something to do"
        if wait:
            await self._elsewhere.until_there(handled)
            if isinstance(handled.request, MessageEdited):
                await self._loop.turns.number_of(handled.request.event_id)
        begun = await self._elsewhere.turn_begun_by(handled)
        if begun is None:
            return QueuedTurn()
        if wait:
            return await self._stopped_turn(self._loop.turns.stopped_after(*begun))
        return self._note_seen(await self._loop.turns.turn_now(begun[1]))

    # --- its rules, its title, its schedule, a copy of it

    async def set_policy(self, policy: Policy, *, request_id: str | None = None) -> None:
        """Change the policy from the next turn on. If it does not choose `models` or `profiles`, the conversation keeps
        those that it has.

        Raises `ConfigurationError` for a model or a tool that the engine does not have and for a rule that it cannot
        apply, `InvalidInput`, and `Refused` with `busy` during a turn.
        """
        try:
            rules = self._choices.rules_after(self._loop.projection.context, policy)
        except ConfigurationError:
            meant = checked_policy(policy)
            named = meant.model_fields_set
            filled = _filled_rules(models="models" not in named, profiles="profiles" not in named)
            if await self._was_handled(PolicyChanged, request_id, filled, policy=meant):
                return
            raise
        filled = _filled_rules(models=rules.filled_models, profiles=rules.filled_profiles)
        await self._request(
            PolicyChanged,
            request_id,
            filled,
            policy=rules.policy,
            chose_models=rules.chose_models,
            chose_profiles=rules.chose_profiles,
        )

    async def set_tools(
        self, tools: GivenTools | None, *, narrows: bool = False, request_id: str | None = None
    ) -> None:
        """Let the conversation use these tools of the engine, and no others, from its next turn on; a turn under way
        keeps its own. None stands for all that the engine has. A tool is given by its name, or as it was given to
        `Engine.open`. With `narrows` they must be among those that the conversation has when the change arrives, so
        that a user can remove tools but not add any.

        Raises `ConfigurationError` for a tool that the engine does not have, and if the rules of the conversation need
        another one, and `Refused` with `wrong_state` for tools beyond those of the conversation, if it `narrows`.
        """
        given = list(tools) if isinstance(tools, Iterator) else tools
        filled = {"from_turn"}
        try:
            names = self._choices.tools_after(self._loop.projection.context, given)
        except ConfigurationError:
            meant = self._choices.names_meant(given)
            if await self._was_handled(ToolsChanged, request_id, filled, tools=meant, from_turn=1, narrows=narrows):
                return
            raise
        for _ in range(MAX_ATTEMPTS):
            from_turn = self._loop.state.book.turn + 1
            try:
                await self._request(ToolsChanged, request_id, filled, tools=names, from_turn=from_turn, narrows=narrows)
                return
            except Refused as refused:
                if refused.code != "wrong_state" or from_turn == self._loop.state.book.turn + 1:
                    raise
        raise Refused("busy")

    async def set_title(self, title: str, *, request_id: str | None = None) -> None:
        """Give the conversation a title for lists, of at most 1,000 characters. With a blank one, a list shows the
        first message, as if no title was given. Raises `InvalidInput`."""
        await self._request(DetailsChanged, request_id, title=_given_text("title", title))

    async def set_metadata(self, metadata: Mapping[str, Any], *, request_id: str | None = None) -> None:
        """Replace the metadata of the conversation: JSON values under names that the application chooses. Tools see
        them as `ToolContext.metadata`, and `Engine.list` can select by them. The marks of a host stay. Raises
        `InvalidInput`."""
        await self._request(DetailsChanged, request_id, metadata=checked_metadata(metadata, self._marks))

    async def set_system(self, system: str, *, request_id: str | None = None) -> None:
        """Change the system prompt from the next model request on, also if a turn is under way; "" removes it. What was
        said stays, and `model_request` shows each earlier request with the prompt that it had. Raises
        `InvalidInput`."""
        await self._request(DetailsChanged, request_id, system=_given_text("system", system))

    async def transfer_to(self, profile: str, *, request_id: str | None = None) -> None:
        """Switch to another profile of the policy, from the next model request on, also if a turn is under way. Later
        turns keep it, and no profile is chosen for them. The history stays. A policy without this profile ends the
        hand-over. Raises `Refused` with `unknown_profile`."""
        await self._request(ProfileTransferred, request_id, profile=profile)

    async def compact(self, *, request_id: str | None = None, wait: bool = True) -> None:
        """Summarize everything so far. The summary replaces the history in requests to models; the log and the
        transcript keep everything. Returns when that is done, or was stopped by `cancel` or `close`; with `wait=False`
        as soon as the request is stored. Raises `CompactionFailed` if it failed, and `Refused` (`busy` and the like)
        during a turn."""
        handled = await self._request(CompactionRequested, request_id)
        if not wait:
            return
        (asked,) = _compactions_asked_for(await self._read_entries(handled.seq - 1, handled.seq))
        feed = self._loop.feed
        with self._loop.follower.waiting():
            while _compaction_goes_on(self._loop.state, asked) and not feed.closed:
                await feed.changed()
        if _compaction_goes_on(self._loop.state, asked):
            await self._loop.catch_up()  # raises why nothing moves any more
        if (failure := _failure_of_compaction(asked, await self._read_entries(handled.seq))) is not None:
            raise failure

    @property
    def schedule(self) -> Schedule | None:
        """When the conversation wakes up of its own accord, and with what task; None if it has no schedule."""
        return self._loop.projection.context.schedule

    @property
    def next_wake(self) -> datetime | None:
        """The next moment of the schedule, in UTC; None if there is none, and once the conversation is closed."""
        return self._loop.state.book.wake

    async def set_schedule(
        self,
        *,
        every: GivenInterval | None = None,
        cron: str | None = None,
        zone: str = "UTC",
        task: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """Let the conversation wake up after each interval (`every`, in seconds or as a `timedelta`), or at the moments
        of a `cron` expression in the time zone `zone`, in place of what it was scheduled for before. Without either it
        has no schedule. At each of these moments a turn begins with the message `task`; a turn under way ends before.

        Raises `InvalidInput` for an expression that is not valid or never comes, an unknown time zone, and an interval
        of less than a second or more than ten years; `ConfigurationError` for a cron expression where the extra `cron`
        is not installed; and `Refused` with `no_schedule` for a sub-agent.
        """
        context = self._loop.projection.context
        schedule = schedule_of(every, cron, zone, task, context.policy.texts.wake_up)
        next_wake = None if schedule is None else first_moment(schedule, self._loop.now())
        await self._request(ScheduleChanged, request_id, {"next_wake"}, schedule=schedule, next_wake=next_wake)

    async def fork(
        self, at: int | None = None, *, keeps_rules: bool = False, request_id: str | None = None
    ) -> Conversation[T]:
        """Return a new conversation that begins as a copy of this one up to the step `at`; None stands for the newest
        step, without a turn that is under way.

        A copy ends at a rest, a state in which nothing is under way, or between two turns of which one ended and a
        message that waited began the other; the messages that waited there are withdrawn from the copy. Within a turn
        it cannot end, because something would be lost: raises `CannotForkThere`, whose `steps` are the nearest ones
        that are possible. `InvalidInput` is raised if there is no such step.

        This conversation is not changed, and may be busy. The copy has neither its schedule nor deliveries that are
        still due. Deleting it does not delete the copy.

        The copy has the policy, the system prompt, the tools, the profile and the metadata of that step. With
        `keeps_rules` it has those that this conversation has now, so that a user cannot undo a change of the
        application by copying an earlier step.

        With a `request_id` the copy is made once: a repeated call returns it as it is by now. If it was made up to
        another step, `Refused` with `event_id_reused` is raised.
        """
        from ..persistence.maintenance.fork import fork, fork_once

        self._loop.check_may_write()
        store, now = self._engine.store, self._loop.now()
        if request_id is None:
            copy_id = new_id()
            await fork(store, self.id, copy_id, at, now, keeps_rules=keeps_rules)
        else:
            made_once = checked_request_id(request_id)
            copy_id = await fork_once(store, self.id, made_once, at, now, keeps_rules=keeps_rules)
        self._engine.note_copy()
        return await self._engine.get(copy_id)

    def now(self) -> datetime:
        """Return the current time, by the clock of the engine: the moment of an event that is submitted now."""
        return self._loop.now()

    async def submit(self, request: Request, *, wait: bool = True) -> Turn[T]:
        """Submit what a person does about a turn, such as a `ToolApproval` or a `UserQuestionResponse`, as the event
        itself, and wait as `send` does: for hosts that make events of what their clients send. Submitted again under
        its `event_id` it has the same result. Raises what the method of the same purpose raises."""
        taken = checked(request)
        await self._check_files(taken)
        outcome = await self._ask(taken)
        assert outcome.handled is not None, "the event was a request"
        return await self._turn(outcome.handled, wait=wait)

    async def dispatch(self, event: Event) -> Step:
        """Submit an event, and return the step that it led to; an ignored one if it is a request that was handled
        before. Raises `InvalidInput` and `Refused`."""
        taken = checked(event)
        await self._check_files(taken)
        if isinstance(taken, DetailsChanged) and taken.metadata is not None:
            taken = taken.replace(metadata=checked_metadata(taken.metadata, self._marks))
        while True:
            try:
                return (await self._ask(taken)).step
            except CustodyLost:
                pass  # of an answer: what nobody performs here is taken without custody

    async def _check_files(self, event: Event) -> None:
        """Raise `InvalidInput` if the event refers to a stored file that this conversation does not have, and
        `UnknownConversation` if that is so because the conversation was deleted."""
        try:
            await self._loop.files.check(files_of(event))
        except InvalidInput:
            await self._loop.catch_up()
            raise

    # --- what was said

    def updates(
        self, after: str | None = None, *, caught_up: Callable[[int], object] | None = None
    ) -> AsyncGenerator[Update, None]:
        """Return an iterator over the updates as they happen: first a snapshot, or with `after` (the id of an update)
        all updates since then.

        It ends when the conversation or its engine is closed, and can be ended before with `aclose()`, also while
        another task iterates. A slow watcher misses nothing that is stored. Raises `InvalidInput` for a malformed id;
        the iterator raises it for an id that no update of this conversation has had yet.

        A model that fails in the middle of its answer writes it again. So a client that shows the tokens of an answer
        must discard them at a token of another `(request, attempt)`, and at a `state_change` whose state has another
        one. In the middle of an answer a snapshot has the text so far as `streaming`. With `after` the text so far
        comes as one token of each kind, with `from_start`, which replaces what is shown.

        A step may have no updates. To know whether it shows everything, a client passes `caught_up`: it is called in
        the event loop, with the number of the newest step (`state.book.seq`), each time the client has taken the
        updates of all steps and asks for more.
        """
        return self._showing(self._watcher(after, caught_up).updates())

    async def transcript(self) -> tuple[Message, ...]:
        """Return what was said, oldest first."""
        return transcript(await self.events())

    async def messages(self) -> list[dict[str, Any]]:
        """Return what was said as messages in OpenAI's chat format, oldest first: the system prompt, the history that
        the conversation began with, as it was given but for its repairs, and everything since.

        A new conversation can begin with them: `engine.create(messages=await conversation.messages())`. Files stand in
        them with their bytes. A call that has no result yet has one that says so; what a model thought, and what was
        delivered, is not part of the format.
        """
        written = openai_messages(await self.events())
        return [await with_bytes(message, self._loop.files) for message in written]

    async def file(self, sha256: str) -> FileReference | None:
        """Return the stored file with this digest, as the newest message or result of the transcript has it that refers
        to it; None if none does."""
        await self._loop.projection.read_contents()
        messages = reversed(self._loop.projection.transcript.messages)
        found = (file for message in messages for file in message.files if file.sha256 == sha256)
        return next(found, None) if sha256 else None

    async def read_file(self, file: FileReference | str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return the bytes of a stored file of this conversation, or of that with this digest, from `start` up to
        `end`, or to its end; None if the conversation has no such file. The cost grows with what is returned. Raises
        `StorageFailed`."""
        return await self._loop.files.part(file if isinstance(file, str) else file.sha256, start, end)

    async def keep_file(self, file: GivenFile) -> FileReference:
        """Store a file for a later message: `send(files=[reference])`.

        It is no part of the conversation until then. A file that no message has used for a day is removed when the next
        one is stored. Raises `InvalidInput` for a file that cannot be used, and, with the subject `waiting`, if the
        unused files are together as large as those of five messages may be; `Refused` with `closed`; and
        `StorageFailed`."""
        self._loop.check_may_write()
        if isinstance(self.state, Closed):
            raise Refused("closed")
        await self._loop.files.forget_unused()
        (reference,) = await self._loop.files.keep([file])
        return reference

    async def repairs(self) -> tuple[str, ...]:
        """Return what was repaired in the history that the conversation began with, a sentence for each repair."""
        return repairs_of(await self._read_entries(0, 1))

    async def turns(self, *, hidden: bool = False) -> tuple[EndedTurn[T], ...]:
        """Return the turns of this branch that have ended, oldest first. Turns are never numbered anew, so there is a
        gap where others are hidden. With `hidden` those of all branches are returned: what was edited or regenerated
        has cost something, too."""
        projection = ConversationProjection(self._loop.state, self._loop.projection.context, self._read_entries)
        await projection.read_contents()
        branches = projection.transcript.branches
        turns = projection.turns.values()
        shown = (turn for turn in turns if hidden or branches is None or branches.shows(turn.number))
        return tuple(replace(turn, reading=self._reading_of(turn)) for turn in shown)

    async def usage(self, since: datetime | None = None) -> Usage:
        """Return what the conversation has cost so far, or since this moment: all its turns, also those that failed or
        are under way, and its compactions. A copy that `fork` made begins with what the original had cost by then.

        An answer counts at the moment at which it was stored. Raises `InvalidInput` for a moment without a time zone.
        """
        if since is None:
            return usage(await self.events())
        if since.tzinfo is None:
            raise InvalidInput("The moment needs a time zone, as datetime.now(UTC) has one.", "since")
        return usage(entry for entry in await self.events() if entry.event.at >= since)

    async def children(self) -> tuple[Summary, ...]:
        """Return the sub-agents that the turns of this conversation have started, as `Engine.list` describes them, the
        first one first. `Engine.get` opens each by its id."""
        return await children_of(self._engine.store, self.id)

    # --- the conversation itself

    @property
    def policy(self) -> Policy:
        """The current policy."""
        return self._loop.projection.context.policy

    @property
    def system(self) -> str:
        """The current system prompt, without what profiles and rules add to it; "" if there is none."""
        return self._loop.projection.context.system

    @property
    def tools(self) -> tuple[str, ...] | None:
        """The names of the tools that the next turn may use; None stands for all that the engine has."""
        return self._loop.projection.context.tools_in(self._loop.state.book.turn + 1)

    @property
    def profile(self) -> str:
        """The name of the profile of the newest turn, also of one that is under way; "" before the first turn, and in a
        turn without profiles. While a profile is being chosen, this is the first one."""
        return self._loop.projection.profile

    @property
    def header(self) -> Header:
        """What a list shows of the conversation, apart from its state. The title is the one that was given, or None."""
        fields = deepcopy(self._loop.projection.context.header_fields)
        return Header.model_construct(**{**fields, "title": self.title})

    @property
    def role(self) -> Role:
        """Whether this agent has a user ("foreground"), works for another agent ("background"), or was started by a
        turn of another agent ("sub_agent")."""
        return self._loop.projection.context.role

    @property
    def works_for(self) -> str | None:
        """The id of the conversation for which this background agent works, or None."""
        return self._loop.projection.context.works_for

    @property
    def parent(self) -> str | None:
        """The id of the conversation whose turn started this sub-agent, or None."""
        return self._loop.projection.context.parent

    @property
    def owner(self) -> str | None:
        """The owner of the conversation, which the application gave when it created it."""
        return self._loop.projection.context.owner

    @property
    def title(self) -> str | None:
        """The title that was given, or None. `Engine.list` shows the first message of a user where none was given."""
        title = self._loop.projection.context.title
        return title if title and title.strip() else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the conversation: a copy."""
        return deepcopy(self._loop.projection.context.metadata)

    @property
    def approver(self) -> Approver | None:
        """Who may decide about the call that waits for approval, or for word of whether it ran; None if none does. A
        call is the operator's if it needs approval and its tool said so when it was made, or says so now."""
        state = self._loop.state
        if not isinstance(state, AwaitingApproval | InDoubt):
            return None
        call, registry = state.call, self._choices.tool_registry
        tool, _ = registry.find_in(self._loop.projection.context, state.book.turn, call.name)
        present = registry.approver_at_source(call.name) if tool is None else tool.approval_by
        return "operator" if call.approval and "operator" in (call.approval_by, present) else "user"

    # --- for people who look into the machine

    async def events(self) -> tuple[StoredEntry, ...]:
        """Return the log as stored, one entry for each step."""
        return await self._read_entries()

    async def view(self) -> StateView:
        """Return the current state as updates show it."""
        projection = self._loop.projection
        await projection.read_contents()
        return view_of(projection.state, projection.transcript, projection.context.policy)

    async def updated_at(self) -> datetime:
        """Return the moment of the newest step, as `Engine.list` shows it."""
        entries = await self._read_entries(self._loop.projection.seq - 1)
        return entries[-1].event.at

    async def steps(self, after: int = 0, limit: int | None = None) -> tuple[StepView, ...]:
        """Return the steps that follow the step `after`, at most `limit` of them, in order: each with its event, its
        effects, and the state that it led to.

        The states are computed from the beginning of the log, so a page far back costs as much as all steps before it;
        the page behind one that was read lately costs only itself. Raises `InvalidInput`, and `Damaged` if the log
        cannot be read, or if a step does not come out as it was stored.
        """
        first, most = _count("after", after), None if limit is None else _count("limit", limit)
        return () if most == 0 else await self._loop.steps.page(first, most)

    async def step_of(self, request_id: str) -> int | None:
        """Return the number of the step that took the request with this id, which may be that of a message; None if no
        step did. The cost does not grow with the log. Raises `UnknownConversation` if the conversation was deleted, and
        `StoreError`."""
        handled = await self._loop.recent_requests.find_by_id(request_id)
        return None if handled is None or handled.is_no_op else handled.seq

    async def model_request(self, seq: int) -> RequestView:
        """Return the request for the next answer that the step `seq` asked for, as it was sent to the model, or is
        being sent. The same code builds it again from the log.

        Raises `InvalidInput` if there is no such step, or if it asked for none (`StepView.requests` is empty); and
        `Damaged` if the log cannot be read.
        """
        choices = self._choices
        writer = RequestWriter(
            choices.tool_registry, choices.models.family_of, choices.forms, choices.models.output_way
        )
        return await request_view(self.id, self._loop.projection, self._read_entries, _count("seq", seq), writer)

    async def origin(self) -> Origin | None:
        """Return where this conversation was copied from, and the newest step that both have in common; None if it is
        no copy."""
        from ..persistence.maintenance.fork import origin_of

        return await origin_of(self._engine.store, self.id)

    async def history_mark(self) -> str:
        """Return a short text that no other history under this id has: a conversation that was deleted and created
        again has another one. It is for names outside that must not be taken for those of another history."""
        (first,) = await self._read_entries(0, 1)
        return mark_of(first.chain)

    async def outbox(self) -> tuple[Undelivered, ...]:
        """Return the deliveries of this conversation that are not acknowledged: for each channel, and for each agent
        that was written to, in the order in which they were asked for."""
        return await self._engine.store.outbox([self.id])

    async def replay(self) -> ReplayReport:
        """Replay the stored log, and compare every step with what was stored."""
        from ..persistence.maintenance.replay import replay_conversation

        return await replay_conversation(self._engine.store, self.id)

    # --- how requests are made

    def _message(
        self,
        text: str,
        settings: ModelSettings | None,
        message_id: str | None,
        when_busy: WhenBusy | None,
        output: AnyOutput | None,
        heard: str | None,
        files: Iterable[PreparedFile],
    ) -> UserMessage:
        """Make a message. Raises `InvalidInput`, also for files that no model of the conversation takes."""
        carried: dict[str, Any] = {}
        if files:
            carried["files"] = self._references(files)
        if output is not None:
            carried["output"] = named_output(output)
        if heard is not None:
            carried["heard"] = heard
            when_busy = when_busy or "interrupt"
        message = make(
            UserMessage,
            event_id=new_id() if message_id is None else message_id,
            at=self._loop.now(),
            text=text,
            settings=settings,
            when_busy=when_busy,
            **carried,
        )
        if message.output is not None:
            admitted(self._choices.forms, message.output)
        return message

    def _references(self, files: Iterable[PreparedFile]) -> tuple[FileReference, ...]:
        """The references to these files. Raises `InvalidInput` for one that no model of the conversation takes."""
        references = tuple(file.reference for file in files)
        if references:
            check_models(self.policy, references, self._loop.takes)
        return references

    async def _ask_with(self, files: Iterable[PreparedFile], event: Event) -> Outcome:
        """Have a request handled whose files are stored before; they are not kept if it is refused."""
        if not files:
            return await self._ask(event)
        self._loop.check_may_write()
        async with self._loop.files.stored(files):
            return await self._ask(event)

    async def _turn_of_step(self, step: Step, message_id: str) -> Turn:
        """Return the turn of a message as it is behind the step that took the message."""
        if step.ignored or step.ended is not None or not isinstance(step.state, InTurn):
            return self._note_seen(await self._loop.turns.of_message_now(message_id))
        if is_queued(message_id, step.state):
            return QueuedTurn()
        return self._note_seen(RunningTurn(number=step.state.book.turn, profile=step.state.turn.profile))

    async def _stream_with(
        self, files: Iterable[GivenFile], message: Callable[[Iterable[PreparedFile]], UserMessage]
    ) -> AsyncGenerator[Update, None]:
        prepared = await self._loop.files.prepare(files)
        async with aclosing(self._stream(message(prepared), prepared)) as updates:
            async for update in updates:
                yield update

    async def _stream(self, message: UserMessage, files: Iterable[PreparedFile] = ()) -> AsyncGenerator[Update, None]:
        loop = self._loop
        await loop.turns.read_contents()  # from here on the updates of every step are known
        with loop.feed.reading(), loop.follower.waiting():
            watcher = self._watcher()
            async with self._sending:
                outcome = await self._ask_with(files, message)
            updates = watcher.updates_from_now()
            if outcome.step.ignored and outcome.handled is not None:
                updates = self._watcher(f"{outcome.handled.seq}.0").updates()
            await loop.turns.number_of(message.event_id)
            stopped = partial(loop.turns.of_message, message.event_id)
            async with aclosing(self._showing(updates_of_turn(updates, message.event_id, stopped))) as shown:
                async for update in shown:
                    yield update

    @property
    def _sending(self) -> asyncio.Lock:
        """Held while a message is being sent. It is made when it is first needed, since most handles only read."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    async def _turn(self, handled: HandledRequest, *, wait: bool = True) -> Turn:
        """Wait for the turn that this request belongs to: until it stops for the first time after the request. Unless
        `wait`, return it as it is now."""
        turns = self._loop.turns
        if wait:
            return await self._stopped_turn(turns.stopped_after(handled.seq, handled.turn))
        return self._note_seen(await turns.turn_now(handled.turn))

    async def _stopped_turn(self, stopped: Awaitable[Turn]) -> Turn:
        """Wait for this turn, and let channels that are quick take what was said in it."""
        turn = await stopped
        if self._loop.sends:
            with dispatcher_failures_logged():
                await iterations_until_done(self._loop.sent(), ITERATIONS_TO_SEND)
        return self._note_seen(turn)

    async def _until_cancelled(self, handled: HandledRequest) -> None:
        """Wait while the turn of this request is being cancelled."""
        state = self._loop.state
        if isinstance(state, Cancelling) and state.turn.number == handled.turn:
            await self._turn(handled)

    def _reading_of(self, turn: Turn) -> OutputReading:
        """How the typed answer of this turn is read."""
        context = self._loop.projection.context
        return OutputReading(self._choices.forms, is_wanted=schema_of_rules(context, turn.profile) is not None)

    def _note_seen(self, turn: Turn) -> Turn:
        seen = self._seen.note_turn(turn, self._loop.state.book.seq)
        reading = self._reading_of(seen)
        return replace(seen, reading=reading) if reading.is_wanted or seen.output_json is not None else seen

    async def _request(
        self, kind: type[Request], request_id: str | None, filled: Iterable[str] = (), **fields: object
    ) -> HandledRequest:
        """Make a request of this kind, under a new id if its caller gave none. `filled` are the other fields that the
        caller left out. Raises `InvalidInput` and `Refused`."""
        event_id = new_id() if request_id is None else request_id
        request = make(kind, event_id=event_id, at=self._loop.now(), **fields)
        outcome = await self._ask(request, frozenset(filled if request_id is not None else {*filled, "event_id"}))
        assert outcome.handled is not None, "the event was a request"
        return outcome.handled

    async def _ask(self, event: Event, filled: Filled = NOTHING_FILLED) -> Outcome:
        if isinstance(event, _ASKS_MODEL):
            await self._check_models(event, filled)
        outcome = await self._loop.request(event, filled)
        self._seen.note_state(outcome.step.state)
        return outcome

    async def _check_models(self, request: Request, filled: Filled) -> None:
        """Raise `ConfigurationError` if the model that a turn asks first cannot be asked at all: it would fail for a
        reason that only another engine can mend. A request that was handled before may be repeated."""
        self._loop.check_may_write()
        projection = self._loop.projection
        fault = await self._choices.find_model_fault(projection.state, projection.context)
        if fault is not None and await self._loop.recent_requests.find(request, filled) is None:
            raise ConfigurationError(fault)

    async def _was_handled(
        self, kind: type[Request], request_id: str | None, filled: Iterable[str], **fields: object
    ) -> bool:
        """Whether this request was handled under its id before, although it could not be made now. Raises `Refused` if
        another one was handled under its id, `InvalidInput` and `StoreError`."""
        if request_id is None:
            return False
        request = make(kind, event_id=request_id, at=self._loop.now(), **fields)
        return await self._loop.recent_requests.find(request, frozenset(filled)) is not None

    @property
    def _marks(self) -> dict[str, Any]:
        """What a host has noted about its conversation."""
        return marks_of(self._loop.projection.context.metadata)

    def _watcher(self, after: str | None = None, caught_up: Callable[[int], object] | None = None) -> Watcher:
        """Return a watcher that begins after this update, or now. Raises `InvalidInput`."""
        return Watcher(self._loop.projection, self._loop.feed, self._read_entries, after, caught_up)

    async def _showing(self, updates: AsyncGenerator[Update, None]) -> AsyncGenerator[Update, None]:
        """Yield these updates, and note that this handle has shown them."""
        async with aclosing(updates):
            async for update in updates:
                self._seen.note_update(update)
                yield update

    async def _read_entries(self, after: int = 0, up_to: int | None = None) -> tuple[StoredEntry, ...]:
        return await self._engine.store.entries(self.id, after, up_to)


def _filled_rules(*, models: bool, profiles: bool) -> set[str]:
    """What was filled in for the caller of `set_policy`."""
    return {"chose_models", "chose_profiles", *[MODELS] * models, *[PROFILES] * profiles}


def _given_text(name: str, text: str | None) -> str:
    """The text. None would change nothing, and whoever passes it means something else."""
    if text is None:
        raise InvalidInput('A text is needed; "" takes away the one that is there.', name)
    return text


def _count(name: str, number: int) -> int:
    if type(number) is not int or number < 0:
        raise InvalidInput(f"{name} is a whole number, not below 0.")
    return min(number, _MOST_STEPS)


_MOST_STEPS = 2**62
"""More than any log has."""


@dataclass(frozen=True)
class Cancelled:
    """The result of a cancel. `no_op`: nothing was running, or another turn than the one that was named."""

    no_op: bool


class _LastSeen:
    """The call that waits for a person, as of the step `seq`, as its handle has last seen it."""

    __slots__ = ("call_id", "seq")

    def __init__(self, state: State) -> None:
        self.note_state(state)

    def note_state(self, state: State) -> None:
        """The handle was given this state."""
        self.seq = state.book.seq
        self.call_id = state.waiting_call_id

    def note_turn(self, turn: Turn, seq: int) -> Turn:
        """The handle returns this turn to its caller, as of the step `seq`. Returns the turn."""
        if turn.number:
            self.seq, self.call_id = seq, turn.call_id
        return turn

    def note_update(self, update: Update) -> None:
        """The handle shows this update to a watcher, which may lag behind. It counts unless something newer was
        seen."""
        if isinstance(update, SnapshotUpdate | StateChangeUpdate):
            seq, _ = update.position
            if isinstance(update, SnapshotUpdate):
                seq -= 1  # its id is that of the step after the one that it shows
            if seq >= self.seq:
                self.seq, self.call_id = seq, update.state.call_id


def new_id() -> str:
    """Return an id for a request that its caller gave none, or for a conversation."""
    return str(uuid.uuid4())


def _compactions_asked_for(entries: Iterable[LogEntry]) -> tuple[CompactHistory, ...]:
    """Return the compactions that these steps ask for. `Pure.`"""
    return tuple(effect for entry in entries for effect in entry.effects if isinstance(effect, CompactHistory))


def _compaction_goes_on(state: State, asked: CompactHistory) -> bool:
    """Return whether the compaction that was asked for still runs, in whatever attempt. `Pure.`"""
    return isinstance(state, Compacting) and state.turn is None and state.up_to == asked.up_to


def _failure_of_compaction(asked: CompactHistory, entries: Iterable[LogEntry]) -> CompactionFailed | None:
    """Return why the compaction that was asked for failed; None if it did not fail, or was stopped. It is not a
    turn, so its outcome is not kept in memory; the log has everything that happened.

    `entries` are the entries of the log after the step that asked for it, in order, up to its end or beyond. `Pure.`
    """
    effect_id = asked.effect_id
    for entry in entries:
        event, effects = entry.event, entry.effects
        if any(isinstance(effect, Abort) and effect.effect_id == effect_id for effect in effects):
            return None
        if not isinstance(event, Answer) or event.effect_id != effect_id:
            continue
        again = [effect.effect_id for effect in effects if isinstance(effect, CompactHistory) and effect.turn is None]
        if not isinstance(event, EffectFailed):
            return None
        if not again:
            return CompactionFailed(event.kind, event.sentence)
        effect_id = again[0]
    return None


async def iterations_until_done(work: Coroutine[Any, Any, None], most: int) -> None:
    """Return when `work` is done, and after `most` iterations of the event loop at the latest; then it is cancelled.

    It is for work that is quick or not worth waiting for. Unlike a timeout it does not depend on the speed of the
    machine. Raises what `work` raises.
    """
    task = asyncio.ensure_future(work)
    try:
        for _ in range(most):
            await asyncio.sleep(0)
            if task.done():
                return task.result()
    finally:
        task.cancel()
