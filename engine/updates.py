"""What watchers are told of a conversation: each kind of update, and how updates follow from the steps of its log.

Most updates follow from the log. Each of them has an id, the step that it shows and its position in that step, from
which a watcher can resume; whoever comes later has them made again from the events. Live updates are shown while
something happens and are never stored; they have no id. A watcher that begins now gets a snapshot, the conversation as
it is, with what has been streamed so far of an answer that a model is writing.

Updates of a tree are those of many conversations: of all agents of an owner, or of everybody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias, cast, get_args

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from ..effects.context import LiveKind
from ..persistence.errors import Damaged
from ..states.context import Context
from ..states.effects import DeliverToUser, Effect, ExecuteTool, PersistMessage, PersistToolResults, SwitchBranch
from ..states.errors import InvalidInput, Refused, StoreError
from ..states.events import EffectFailed, LlmResponse, LlmStopped, MemoryRecalled, Opened
from ..states.machine import begin, transition
from ..states.policy import Policy, models_of
from ..states.replies import text_of_delivery, text_of_reply, text_rule
from ..states.states import (
    AnyState,
    AwaitingApproval,
    Compacting,
    Failed,
    Idle,
    InDoubt,
    LlmRequesting,
    MemoryRecalling,
    ProfileSelecting,
    RetryWaiting,
    State,
    Summarizing,
    Verifying,
    pending,
)
from ..states.step import LogEntry, Step
from ..states.transcript import Transcript
from ..states.values.files import FileReference
from ..states.values.messages import Approver, Citation, Message, MessageRole
from ..states.values.turn import EndedStatus, TurnRecord
from ..states.values.value import encodable
from .json_forms import (
    Enveloped,
    ShownMessage,
    ShownQuestion,
    ShownSummary,
    ShownValue,
    arguments_data,
    as_json,
    extensible,
)
from .turns import EndedTurn, TurnResult, ended_turn

Position: TypeAlias = tuple[int, int]
"""The two numbers of an id. Updates come in their order."""


_OUTSIDE = Field(exclude=True)
"""The field is no part of the data: it says which update it is, or where it stands."""


class BaseUpdate(Enveloped):
    """What all updates have. As JSON an update is `{"type", "id", "data"}`."""

    shows_defaults: ClassVar[bool] = False
    """Whether the data also has the fields that are not set."""

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON. A field that is not set is left out."""
        data: dict[str, Any] = as_json(self, complete=self.shows_defaults)["data"]
        return data


@dataclass(frozen=True)
class StoredUpdate(BaseUpdate):
    """What all updates that follow from the log have: a `position`, in whose order they come."""

    position: Annotated[Position, _OUTSIDE]

    @property
    def id(self) -> str:
        """The position as text, which `Conversation.updates` takes as `after`."""
        return f"{self.position[0]}.{self.position[1]}"

    def envelope(self) -> dict[str, Any]:
        """Return what is written beside the data."""
        return {"type": self.type, "id": self.id}

    @classmethod
    def envelope_schema(cls) -> dict[str, CoreSchema]:
        """Return the schema of each key beside the data."""
        return {**super().envelope_schema(), "id": core_schema.str_schema(pattern=r"^\d+\.\d+$")}


@dataclass(frozen=True)
class StateChangeUpdate(StoredUpdate):
    """The conversation is in another `state`, or what the state tells has changed. As data, `type` is the type of the
    state and `data` what it tells."""

    type: Annotated[Literal["state_change"], _OUTSIDE] = field(default="state_change", init=False)
    data_field: ClassVar[str | None] = "state"
    state: StateView


@dataclass(frozen=True)
class MessageUpdate(StoredUpdate):
    """A message entered the transcript: of a user, with the `message_id` under which it was sent, or of the model.
    `origin` is the agent that wrote it, if it was another one. `citations` are the sources that the model names. With
    `fallback` a text of the model reaches the user only if nothing is said by tool in the turn; if it does, an update
    shows the delivery. With `stopped` it is what the model had written when a person stopped it, and `heard` is what of
    it the user has heard, if that is known: to this the text is cut, if it begins so."""

    type: Annotated[Literal["message"], _OUTSIDE] = field(default="message", init=False)
    role: MessageRole
    text: str
    turn: int
    message_id: str = ""
    origin: str = ""
    files: tuple[FileReference, ...] = ()
    citations: tuple[Citation, ...] = ()
    fallback: bool = False
    stopped: bool = False
    heard: str | None = None


@dataclass(frozen=True)
class ThoughtUpdate(StoredUpdate):
    """The model thought this, or wrote a text that the rules keep from the user."""

    type: Annotated[Literal["thought"], _OUTSIDE] = field(default="thought", init=False)
    text: str
    turn: int


ToolStatus = Literal["running", "completed", "failed", "cancelled", "denied"]
"""What became of a tool call so far."""


@dataclass(frozen=True)
class ToolUpdate(StoredUpdate):
    """A tool call was started, or has ended with a `result` or an `error`: the text that the model reads. `speaks` says
    whether the tool may say something to the user. `raw_arguments` is set where the model did not write a JSON
    object, and `files` are those that the tool has returned."""

    type: Annotated[Literal["tool"], _OUTSIDE] = field(default="tool", init=False)
    call_id: str
    name: str
    speaks: bool
    status: ToolStatus
    turn: int
    arguments: dict[str, Any]
    raw_arguments: str | None = None
    result: str | None = None
    error: str | None = None
    files: tuple[FileReference, ...] = ()


@dataclass(frozen=True)
class DeliveryUpdate(StoredUpdate):
    """This text is said to the user. `ordinal` counts the deliveries of the turn; a `relayed` one was written by
    another agent."""

    type: Annotated[Literal["delivery"], _OUTSIDE] = field(default="delivery", init=False)
    text: str
    turn: int
    ordinal: int
    relayed: bool = False


@dataclass(frozen=True, kw_only=True)
class TurnEndedUpdate(StoredUpdate, TurnResult):
    """A turn has ended. The fields are those of the turn, whose number is `turn`."""

    __pydantic_config__: ClassVar[ConfigDict] = TurnResult.__pydantic_config__
    shows_defaults = True

    type: Annotated[Literal["turn_ended"], _OUTSIDE] = field(default="turn_ended", init=False)
    turn: int
    status: EndedStatus

    @classmethod
    def of(cls, position: Position, turn: EndedTurn) -> TurnEndedUpdate:
        """Return the update that shows the end of this turn. `Pure.`"""
        result: dict[str, Any] = {one.name: getattr(turn, one.name) for one in fields(TurnResult)}
        return cls(position, turn=turn.number, **result)


@dataclass(frozen=True)
class RewoundUpdate(StoredUpdate):
    """The conversation went back, or to another branch. The `transcript` is what was said up to the point at which it
    goes on, in place of all that was shown; `turn` is the newest turn that it holds, or 0."""

    type: Annotated[Literal["rewound"], _OUTSIDE] = field(default="rewound", init=False)
    turn: int
    transcript: tuple[ShownMessage, ...]


@dataclass(frozen=True)
class HeardUpdate(StoredUpdate):
    """The user has interrupted what was said in this `turn`. The `transcript` is what the turn holds now, cut to what
    was heard, in place of what was shown of it."""

    type: Annotated[Literal["heard"], _OUTSIDE] = field(default="heard", init=False)
    turn: int
    transcript: tuple[ShownMessage, ...]


class BaseLiveUpdate(BaseUpdate):
    """What all live updates have."""

    id: ClassVar[None] = None
    position: ClassVar[None] = None

    def envelope(self) -> dict[str, Any]:
        """Return what is written beside the data."""
        return {"type": self.type, "id": None}

    @classmethod
    def envelope_schema(cls) -> dict[str, CoreSchema]:
        """Return the schema of each key beside the data."""
        return {**super().envelope_schema(), "id": core_schema.none_schema()}


@dataclass(frozen=True)
class TokenUpdate(BaseLiveUpdate):
    """A piece of the answer that a model is writing, of the `kind` text, thinking or speech: what a tool is to say to
    the user, with a blank line between the words of two calls. `request` and `attempt` are those of the state: a piece
    of another request or attempt begins a new answer. With `fallback` the text reaches the user only if the model says
    nothing by tool. With `from_start` the text is everything of this kind that was streamed so far, and replaces what
    is shown of it: for a watcher that has missed pieces."""

    type: Annotated[Literal["token"], _OUTSIDE] = field(default="token", init=False)
    text: str
    kind: Literal["text", "thinking", "speech"]
    turn: int
    request: int
    attempt: int
    from_start: bool = False
    fallback: bool = False


@dataclass(frozen=True)
class OutputUpdate(BaseLiveUpdate):
    """The typed answer that a model is writing, as far as it can be read: each update has all of it. It is not checked
    yet, and a text in it may go on. `request` and `attempt` are those of the state: that of another one is another
    answer."""

    type: Annotated[Literal["output"], _OUTSIDE] = field(default="output", init=False)
    value: ShownValue
    turn: int
    request: int
    attempt: int


@dataclass(frozen=True)
class ToolProgressUpdate(BaseLiveUpdate):
    """A tool that runs reports this text, by `ToolContext.progress`."""

    type: Annotated[Literal["tool_progress"], _OUTSIDE] = field(default="tool_progress", init=False)
    call_id: str
    text: str
    turn: int


@dataclass(frozen=True)
class DeliveredUpdate(BaseLiveUpdate):
    """This channel has taken the delivery `ordinal` of this turn. The `key` is that of the delivery."""

    type: Annotated[Literal["delivered"], _OUTSIDE] = field(default="delivered", init=False)
    turn: int
    ordinal: int
    key: str
    channel: str


@dataclass(frozen=True)
class DeliveryFailedUpdate(BaseLiveUpdate):
    """This channel has not taken the delivery, for the reason in `sentence`. It is tried again."""

    type: Annotated[Literal["delivery_failed"], _OUTSIDE] = field(default="delivery_failed", init=False)
    turn: int
    ordinal: int
    key: str
    channel: str
    sentence: str


LiveUpdate: TypeAlias = TokenUpdate | OutputUpdate | ToolProgressUpdate | DeliveredUpdate | DeliveryFailedUpdate


@dataclass(frozen=True)
class SnapshotUpdate(StoredUpdate):
    """The conversation as it is now: its `state` as in state_change, and its `transcript`, messages with their
    `deliveries` if there are any. `streaming` is the text that the model has written so far of an answer that is not
    complete; it is left out if there is none."""

    type: Annotated[Literal["snapshot"], _OUTSIDE] = field(default="snapshot", init=False)
    state: StateView
    transcript: tuple[ShownMessage, ...]
    streaming: Streaming | None = None


Update: TypeAlias = (
    SnapshotUpdate
    | RewoundUpdate
    | HeardUpdate
    | StateChangeUpdate
    | MessageUpdate
    | ThoughtUpdate
    | ToolUpdate
    | DeliveryUpdate
    | TurnEndedUpdate
    | TokenUpdate
    | OutputUpdate
    | ToolProgressUpdate
    | DeliveredUpdate
    | DeliveryFailedUpdate
)
"""Something to show. Narrow it by its class or by its `type`. `data` is the same as JSON, and `id` is None for what is
live."""


def update_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of an update as JSON, `{"type": update.type, "id": update.id, "data":
    update.data}`. The `type` tells the updates apart. A client ignores keys that it does not know: a later version may
    add some. `Pure.`"""
    schema = TypeAdapter(Annotated[Update, Field(discriminator="type")]).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Update", **extensible(schema)}


StateType = Literal[
    "idle",
    "profile_selecting",
    "memory_recalling",
    "llm_requesting",
    "retry_waiting",
    "tool_executing",
    "awaiting_user_response",
    "awaiting_approval",
    "awaiting_sub_agents",
    "verifying",
    "summarizing",
    "compacting",
    "cancelling",
    "in_doubt",
    "failed",
    "closed",
]
"""The types of all states, in snake_case."""

WAITS: frozenset[StateType] = frozenset(("awaiting_user_response", "awaiting_approval", "in_doubt"))
"""The states in which a turn always waits for a person."""


@dataclass(frozen=True, kw_only=True)
class StateView(Enveloped):
    """A state, without what only the machine needs.

    `turn` is the newest turn, 0 before the first one, and `inbox` has the ids of the messages that wait for a turn.
    While a model is asked, `request` is the id of that request, `attempt` counts the requests to this `model`; while
    the next attempt is waited for, it is `due` at that moment (ISO 8601). `questions` and `call_id` are set while the
    turn waits for an answer, also to what a sub-agent asks; `call_id`, `name` and `arguments` while it waits for a
    person to approve that call, or to say whether it ran; `approval_by` is `operator` where nobody else may approve it.
    `raw_arguments` is set where the model did not write a JSON object. A failure has a `kind` and a `sentence` for
    people. `left_out` is set in the `state_change` with which a turn goes on although something failed or was not there
    in time, such as the choice of a profile or a search of older conversations: what it goes on without, and why.
    """

    type: Annotated[StateType, _OUTSIDE]
    turn: int
    request: int | None = None
    attempt: int | None = None
    model: str | None = None
    due: str | None = None
    questions: tuple[ShownQuestion, ...] = ()
    call_id: str | None = None
    name: str | None = None
    arguments: dict[str, Any] | None = None
    raw_arguments: str | None = None
    approval_by: Approver = "user"
    kind: str | None = None
    sentence: str | None = None
    inbox: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def waits_for_person(self) -> bool:
        """Whether the turn waits for a person, also for one who is to answer a sub-agent."""
        return self.type in WAITS or bool(self.questions)

    @property
    def data(self) -> dict[str, Any]:
        """The state as JSON: its type, and what it tells."""
        return as_json(self)

    @classmethod
    def envelope_schema(cls) -> dict[str, CoreSchema]:
        """Return the schema of each key beside the data."""
        return {"type": core_schema.literal_schema([*get_args(StateType)])}


def view_of(state: State, transcript: Transcript, policy: Policy) -> StateView:
    """Return a state as watchers see it. `Pure.`"""
    return StateView(
        type=cast("StateType", state.type),
        turn=state.book.turn,
        inbox=tuple(one.event_id for one in getattr(state, "inbox", ()) if one.audience is None),
        **_details(state, transcript, policy),
    )


def _details(state: State, transcript: Transcript, policy: Policy) -> dict[str, Any]:
    details = _asked_of_person(state, transcript)
    match state:
        case LlmRequesting(effect_id=request):
            details["request"] = request
        case RetryWaiting(timer=timer):
            details["due"] = timer.due.isoformat()
        case Failed(kind=kind, sentence=sentence):
            details |= {"kind": kind, "sentence": sentence}
        case _:
            pass
    if isinstance(state, LlmRequesting | RetryWaiting | Compacting):
        details["attempt"] = state.attempt
    if isinstance(state, LlmRequesting | RetryWaiting):
        details["model"] = models_of(policy, state.turn.profile)[state.turn.model].name
    return details


def _asked_of_person(state: State, transcript: Transcript) -> dict[str, Any]:
    if (asked := state.open_question) is not None:
        return {"questions": asked.questions, "call_id": asked.call_id}
    if isinstance(state, AwaitingApproval | InDoubt):
        call = state.call
        shown = {
            "call_id": call.call_id,
            "name": call.name,
            "approval_by": call.approval_by if call.approval else "user",
        }
        return shown | arguments_data(transcript.call(call.call_id))
    return {}


_Shown: TypeAlias = Callable[[Position], Update]
"""An update that does not have its position yet."""


class StepUpdates:
    """Makes the updates of steps that follow each other. It makes the view of each state once, because the state after
    a step is the one before the next step. `ended` is the turn that ended in the newest step, or None."""

    __slots__ = ("_state", "_view", "_viewed_under", "ended")

    def __init__(self) -> None:
        self.ended: EndedTurn | None = None
        self._state: State | None = None
        self._viewed_under: Policy | None = None
        self._view: StateView | None = None

    def add(
        self, entry: LogEntry, before: State, after: State, transcript: Transcript, context: Context
    ) -> tuple[Update, ...]:
        """Return the updates of a step, in order: what was said and done, the new state, and whether a turn has ended.

        Adds the entry to `transcript`, which must hold all entries before it; `context` is that before the step.
        """
        policy = context.policy
        said = partial(_said, policy=policy, falls_back=_falls_back(entry, before, context))
        was = self._view_of(before, transcript, policy)
        messages = transcript.add(entry)
        self._state = None  # the entry may change the arguments of a call that the same state shows
        now = self._view_of(after, transcript, policy)
        shown_state = replace(now, left_out=left_out) if (left_out := _left_out(entry, before, after)) else now
        change: list[_Shown] = [partial(StateChangeUpdate, state=shown_state)] if shown_state != was else []
        cut = [] if transcript.cut_turn is None else [_cut(transcript, transcript.cut_turn, policy)]
        if transcript.branches is not None and (entering := _entering_elsewhere(entry)) is not None:
            shown = self._elsewhere(entry, messages, entering, transcript, policy, said)
            shown += [partial(StateChangeUpdate, state=shown_state)]
        elif entry.ended is None:
            self.ended = None
            shown = [*cut, *said(messages), *_done(entry, messages, transcript, policy), *change]
        else:
            turn = entry.ended.turn
            self.ended = ended_turn(entry.ended, transcript, policy)
            end = partial(TurnEndedUpdate.of, turn=self.ended)
            shown = [*said(m for m in messages if m.turn <= turn)]
            shown += [*_done(entry, messages, transcript, policy), *cut]
            begun = list(said(m for m in messages if m.turn > turn))
            # If the next turn begins in the same step, the end of this one is shown before anything of the next.
            shown += [end, *begun, *change] if after.book.turn > turn else [*change, end]
        return tuple(make((entry.seq, n)) for n, make in enumerate(shown, start=1))

    def _elsewhere(
        self,
        entry: LogEntry,
        messages: Sequence[Message],
        entering: int,
        transcript: Transcript,
        policy: Policy,
        said: Callable[[Iterable[Message]], Iterator[_Shown]],
    ) -> list[_Shown]:
        """The updates of a step that goes to another branch, but for the new state: the end of the turn that was under
        way, what is shown from now on, and the messages that have entered there, which are the last ones."""
        before, new = messages[: len(messages) - entering], messages[len(messages) - entering :]
        shown = [*said(before), *_done(entry, before, transcript, policy)]
        self.ended = None
        if entry.ended is not None:
            self.ended = ended_turn(entry.ended, transcript, policy)
            shown.append(partial(TurnEndedUpdate.of, turn=self.ended))
        there = transcript.messages[: len(transcript.messages) - entering]
        turn = max((one.turn for one in there if one.audience is None), default=0)
        viewed = tuple(_message_view(message, policy) for message in there)
        return [*shown, partial(RewoundUpdate, turn=turn, transcript=viewed), *said(new)]

    def _view_of(self, state: State, transcript: Transcript, policy: Policy) -> StateView:
        if self._view is None or state is not self._state or policy is not self._viewed_under:
            self._state, self._viewed_under = state, policy
            self._view = view_of(state, transcript, policy)
        return self._view


def _entering_elsewhere(entry: LogEntry) -> int | None:
    """How many messages entered in this step behind the point at which it went to another branch; None if it did
    not."""
    entering: int | None = None
    for effect in entry.effects:
        if isinstance(effect, SwitchBranch):
            entering = 0
        elif entering is not None and isinstance(effect, PersistMessage):
            entering += 1
    return entering


def _cut(transcript: Transcript, turn: int, policy: Policy) -> _Shown:
    """What is shown of a turn that has ended, after the user told what they have heard of it."""
    shown = tuple(_message_view(message, policy) for message in transcript.messages if message.turn == turn)
    return partial(HeardUpdate, turn=turn, transcript=shown)


def _falls_back(entry: LogEntry, before: State, context: Context) -> bool:
    """Whether the text of the model in this step reaches the user only if nothing is said by tool."""
    if isinstance(entry.event, LlmResponse | LlmStopped):
        speaks = entry.event.speaks
    else:
        turn = getattr(before, "turn", None)
        speaks = isinstance(turn, TurnRecord) and turn.speaks
    return text_rule(context, speaks=speaks) == "fallback"


def _said(messages: Iterable[Message], *, policy: Policy, falls_back: bool) -> Iterator[_Shown]:
    for message in messages:
        if message.thinking:
            yield partial(ThoughtUpdate, text=message.thinking, turn=message.turn)
        # What was given was said to the user.
        is_thought = policy.text == "thought" and bool(message.turn) and not message.spoken
        if message.role == "assistant" and is_thought and message.text.strip():
            yield partial(ThoughtUpdate, text=message.text, turn=message.turn)
        elif message.role in ("user", "assistant") and (message.text.strip() or message.shown or message.files):
            yield partial(
                MessageUpdate,
                role=message.role,
                text=_message_view(message, policy).text,
                turn=message.turn,
                message_id=message.message_id,
                origin=message.origin,
                files=message.files,
                citations=message.citations,
                fallback=falls_back and message.role == "assistant" and bool(message.turn) and not message.spoken,
                stopped=message.stopped is not None,
                heard=message.heard,
            )


def _message_view(message: Message, policy: Policy) -> Message:
    """Return the message as people see it: what a model wrote, and what was delivered, without marked lines.
    `Pure.`"""
    if message.shown:
        message = message.replace(text=message.shown, shown="")
    if not policy.marker:
        return message
    is_mail = message.audience is not None
    deliveries = tuple(text_of_delivery(text, policy, relayed=is_mail) for text in message.deliveries)
    text = text_of_reply(message.text, policy) if message.role == "assistant" else message.text
    return message.replace(text=text, deliveries=deliveries)


_GOES_ON_WITHOUT = (ProfileSelecting, MemoryRecalling, Verifying, Summarizing, Compacting)
"""The states in which a turn can do without what is being made."""


def _left_out(entry: LogEntry, before: State, after: State) -> tuple[str, ...]:
    """What the turn goes on without after this step, in sentences for people. A call that failed shows its error."""
    if isinstance(entry.event, MemoryRecalled):
        return entry.event.left_out
    goes_on = isinstance(before, _GOES_ON_WITHOUT) and not isinstance(after, Failed)
    return (entry.event.sentence,) if isinstance(entry.event, EffectFailed) and goes_on else ()


def _done(entry: LogEntry, messages: Iterable[Message], transcript: Transcript, policy: Policy) -> Iterator[_Shown]:
    results = {message.tool_call_id: message for message in messages}
    for effect in entry.effects:
        if isinstance(effect, PersistToolResults):
            for result in effect.results:
                yield partial(ToolUpdate, **_call(transcript, result.call_id), **_outcome(results[result.call_id]))
        elif isinstance(effect, ExecuteTool):
            call = _call(transcript, effect.call.call_id)
            yield partial(ToolUpdate, **call, status="running", turn=entry.turn)
        elif isinstance(effect, DeliverToUser):
            text = text_of_delivery(transcript.words(effect.said), policy, relayed=effect.relayed)
            yield partial(DeliveryUpdate, text=text, turn=effect.turn, ordinal=effect.ordinal, relayed=effect.relayed)


def _call(transcript: Transcript, call_id: str) -> dict[str, Any]:
    call = transcript.call(call_id)
    return {
        "call_id": call_id,
        "name": call.name,
        "speaks": "speech" in call.acts,
        **arguments_data(call),
    }


def _outcome(result: Message) -> dict[str, Any]:
    status: ToolStatus = result.stopped or ("failed" if result.error else "completed")
    told = "error" if result.error else "result"
    return {"status": status, "turn": result.turn, told: result.text, "files": result.files}


def updates_of_log(entries: Iterable[LogEntry]) -> Iterator[Update]:
    """Yield all updates of a log. Raises `Refused` if the machine does not take an event that it took then. `Pure.`"""
    transcript, updates = Transcript(), StepUpdates()
    for entry, before, after, context, _ in replayed_steps(entries):
        yield from updates.add(entry, before, after, transcript, context)


class ReplayedStep(NamedTuple):
    """A step of a log: its entry, the states before and after it, the context before it, and the effects that the
    event leads to now."""

    entry: LogEntry
    before: AnyState
    after: AnyState
    context: Context
    effects: tuple[Effect, ...]


_BEGINNING, _NO_CONTEXT = Idle(), Context()


def replayed_steps(
    entries: Iterable[LogEntry], state: AnyState = _BEGINNING, context: Context = _NO_CONTEXT
) -> Iterator[ReplayedStep]:
    """Yield the steps of these entries, the first of a log, or those that follow this state with this context. Raises
    `Refused` if the machine does not take an event that it took then. `Pure.`"""
    for entry in entries:
        event = entry.event
        step = begin(event) if isinstance(event, Opened) else transition(state, event, context)
        yield ReplayedStep(entry, state, step.state, context, step.effects)
        state, context = step.state, context.after(event)


def repeated_step(entry: LogEntry, state: State, context: Context) -> Step:
    """Return the step that the entry was stored with; `state` and `context` are those before it. Raises `Damaged` if
    the entry does not follow that state, and `StoreError` if the machine makes another step of the event now. `Pure.`
    """
    before = state.book.seq
    if entry.seq != before + 1:
        raise Damaged(entry.seq, f"Step {entry.seq} does not follow step {before}.")
    try:
        step = transition(state, entry.event, context)
    except Refused:
        step = None
    if step is None or step.ignored or step.effects != entry.effects:
        raise StoreError(f"Step {entry.seq} was made by another version of the state machine.")
    return step


_ID = re.compile(r"(\d{1,18})\.(\d{1,18})", re.ASCII)


def parse_id(text: object) -> Position:
    """Return the numbers of an id. Raises `InvalidInput`. `Pure.`"""
    match = _ID.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidInput("The id of an update reads like 12.3, the step and the position in it.")
    return int(match[1]), int(match[2])


_KINDS: Mapping[LiveKind, type[LiveUpdate]] = {
    "token": TokenUpdate,
    "output": OutputUpdate,
    "tool_progress": ToolProgressUpdate,
    "delivered": DeliveredUpdate,
    "delivery_failed": DeliveryFailedUpdate,
}


def live_update(kind: LiveKind, data: Mapping[str, Any], effect_id: int, state: State) -> LiveUpdate:
    """Return what a performer reports of the effect `effect_id`, with the ids that the state knows. Raises
    `InvalidInput` for data that an update of this kind does not have. `Pure.`"""
    given: dict[str, Any] = {
        name: encodable(value) if isinstance(value, str) else value for name, value in data.items()
    }
    if kind in ("token", "output"):
        if kind == "token":
            _check_token(given)
        attempt = state.attempt if isinstance(state, LlmRequesting | Compacting) else 1
        given |= {"turn": state.book.turn, "request": effect_id, "attempt": attempt}
    elif kind == "tool_progress":
        given |= {"turn": state.book.turn, "text": encodable(str(given.get("text", "")))}  # a tool may report a number
    try:
        return _KINDS[kind](**given)
    except TypeError:
        raise InvalidInput(f"A live update of the kind {kind} has other data.") from None


def _check_token(data: Mapping[str, Any]) -> None:
    if not isinstance(data.get("text"), str):
        raise InvalidInput("What a model shows of its answer is a text.")
    if data.get("kind") not in ("text", "thinking", "speech"):
        raise InvalidInput("A token is of the kind text, thinking or speech.")


@dataclass(frozen=True)
class Streaming:
    """The `text`, the `thinking` and the `speech` that were streamed so far in this `attempt` of this `request`. With
    `fallback` the text reaches the user only if the model says nothing by tool."""

    text: str
    thinking: str
    turn: int
    request: int
    attempt: int
    fallback: bool = False
    speech: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON."""
        return as_json(self)


SHORTEST_REPEATED, LONGEST_REPEATED = 256, 65_536
"""Characters of a text that is passed on to other processes once more when it has doubled."""


_KINDS_OF_TOKENS: tuple[Literal["text", "thinking", "speech"], ...] = ("thinking", "text", "speech")

_NO_LENGTHS: Mapping[str, int] = {}
_NOTHING_REPLACED = (None, frozenset[str]())
"""What a conversation has of which nothing is streamed: one for all of them, because most are at rest."""


class StreamedText:
    """Collects the tokens of one request. A token of another request or attempt begins anew."""

    __slots__ = ("_fallback", "_key", "_lengths", "_pieces", "_replaced")

    def __init__(self) -> None:
        self._key: tuple[int, int, int] | None = None
        self._pieces: dict[str, list[str]] | None = None
        self._lengths: Mapping[str, int] = _NO_LENGTHS
        self._fallback = False
        self._replaced: tuple[tuple[int, int, int] | None, frozenset[str]] = _NOTHING_REPLACED
        """The request that is written once more, and the kinds of which nothing new was shown yet."""

    def begin_again(self, requests: Collection[int]) -> None:
        """The answers to these requests are written once more: they were taken over. What comes now of the one that is
        streamed replaces what was shown."""
        if self._key is None or self._key[1] not in requests:
            return
        self._replaced = self._key, frozenset(kind for kind, length in self._lengths.items() if length)
        self.clear()

    def replacing(self, token: TokenUpdate) -> TokenUpdate:
        """Return the token, as one `from_start` if it replaces what was shown before the answer was begun again."""
        key, kinds = self._replaced
        if token.kind not in kinds or key != (token.turn, token.request, token.attempt):
            return token
        self._replaced = key, kinds - {token.kind}
        return replace(token, from_start=True)

    def add(self, token: TokenUpdate) -> None:
        """Add a piece."""
        key = (token.turn, token.request, token.attempt)
        if key != self._key:
            self.clear()
            self._key = key
        self._fallback = self._fallback or token.fallback
        if self._pieces is None:
            self._pieces = {}
        self._pieces.setdefault(token.kind, []).append(token.text)
        self._lengths = {**self._lengths, token.kind: self._lengths.get(token.kind, 0) + len(token.text)}

    def to_pass_on(self, token: TokenUpdate) -> tuple[str, int]:
        """Return the text to pass on to other processes for the token that was added last, and its place in the whole
        text: all of it each time that its length has doubled, for those who have missed a part."""
        length = self._lengths[token.kind]
        place = length - len(token.text)
        if place.bit_length() < length.bit_length() and SHORTEST_REPEATED <= length <= LONGEST_REPEATED:
            return self._joined(token.kind), 0
        return token.text, place

    def new_part(self, token: TokenUpdate, place: int) -> str:
        """Return what is new of a token that stands at this place in its whole text; nothing if what stands before it
        is missing here: a text with a gap would not be the beginning of the message that follows."""
        is_known = (token.turn, token.request, token.attempt) == self._key
        length = self._lengths.get(token.kind, 0) if is_known else 0
        return token.text[length - place :] if place <= length else ""

    def keep_only(self, requests: Collection[int]) -> None:
        """Forget the text unless its request is one of these, which are still under way."""
        if self._key is not None and self._key[1] not in requests:
            self.clear()

    @property
    def has_text(self) -> bool:
        """Whether something was streamed of a request that may be under way."""
        return self._key is not None

    def clear(self) -> None:
        """Forget the text."""
        self._key = None
        self._pieces = None
        self._lengths = _NO_LENGTHS
        self._fallback = False

    @property
    def so_far(self) -> Streaming | None:
        """The text so far; None if nothing was streamed of a request that is under way."""
        if self._key is None:
            return None
        turn, request, attempt = self._key
        text, thinking, speech = map(self._joined, ("text", "thinking", "speech"))
        return Streaming(text, thinking, turn, request, attempt, self._fallback, speech)

    def tokens(self) -> Iterator[TokenUpdate]:
        """Yield the text so far as one token of each kind."""
        if self._key is not None:
            turn, request, attempt = self._key
            for kind in _KINDS_OF_TOKENS:
                if text := self._joined(kind):
                    fallback = self._fallback and kind == "text"
                    yield TokenUpdate(text, kind, turn, request, attempt, from_start=True, fallback=fallback)

    def _joined(self, kind: str) -> str:
        """Join the pieces once: what was joined counts as one piece from then on."""
        if self._pieces is None:
            return ""
        joined = "".join(self._pieces.get(kind, ()))
        self._pieces[kind] = [joined]
        return joined


def snapshot(
    state: State, transcript: Transcript, policy: Policy, streaming: Streaming | None = None
) -> SnapshotUpdate:
    """Return the conversation as it is now, for a new watcher. Its id follows those of all updates so far. `Pure.`"""
    return SnapshotUpdate(
        (state.book.seq + 1, 0),
        state=view_of(state, transcript, policy),
        transcript=tuple(_message_view(message, policy) for message in transcript.messages),
        streaming=streaming if streaming is not None and streaming.request in pending(state) else None,
    )


@dataclass(frozen=True)
class TreeSnapshotUpdate(BaseUpdate):
    """The `conversations` as they are now, the one that moved last first. Whoever shows a tree replaces all that it has
    shown. `Summary.parent` and `works_for` tell which conversation an agent belongs to."""

    type: Annotated[Literal["tree_snapshot"], _OUTSIDE] = field(default="tree_snapshot", init=False)
    conversations: tuple[ShownSummary, ...]


@dataclass(frozen=True)
class ConversationOpenedUpdate(BaseUpdate):
    """A new `conversation` has begun.

    Its title is empty where none was given and nothing was said yet, as for a sub-agent, whose task comes next, as its
    first message."""

    type: Annotated[Literal["conversation_opened"], _OUTSIDE] = field(default="conversation_opened", init=False)
    conversation: ShownSummary


@dataclass(frozen=True)
class ConversationDeletedUpdate(BaseUpdate):
    """The conversation was deleted; it has no more updates."""

    type: Annotated[Literal["conversation_deleted"], _OUTSIDE] = field(default="conversation_deleted", init=False)


AnyTreeUpdate: TypeAlias = Update | TreeSnapshotUpdate | ConversationOpenedUpdate | ConversationDeletedUpdate
"""Something to show of a tree: what `Conversation.updates` shows of one conversation, and what concerns the tree."""


@dataclass(frozen=True)
class TreeUpdate:
    """An update of the conversation with this id. That of a snapshot of the tree is None."""

    conversation_id: str | None
    update: AnyTreeUpdate

    @property
    def data(self) -> dict[str, Any]:
        """The update as JSON, with the conversation and the type."""
        return {"conversation_id": self.conversation_id, "type": self.update.type, "data": self.update.data}
