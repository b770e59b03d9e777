"""A turn as a host receives it, when it has ended or waits for a person.

`Turn` is the union of one small class for each status, so that a type checker knows what a turn holds once a program
has asked for its class or its status: a `WaitsForAnswer` has questions, a `WaitsForApproval` has a call. Turns are made
out of what the log says of them, and written as JSON, as messages and calls are, when somebody asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeAlias, TypeGuard, cast, get_args

from pydantic import ConfigDict, Field, JsonValue, computed_field
from typing_extensions import TypeVar

from ..states.policy import Policy
from ..states.replies import spoken_and_delivered, text_of_delivery, text_of_reply
from ..states.states import STATES, AwaitingApproval, AwaitingPerson, AwaitingSubAgents, InDoubt, State
from ..states.transcript import Transcript
from ..states.values.messages import Said, Usage
from ..states.values.turn import Delivered, LimitKind, TurnEnded
from .json_forms import DescribedBy, ShownCall, ShownQuestion, ShownUsage, as_json
from .outputs import OutputReading

T = TypeVar("T", default=Any)
"""The type of the answer of a turn. It is any type where a program has not asked for one."""

TurnStatus = Literal[
    "completed",
    "incomplete",
    "failed",
    "cancelled",
    "awaiting_user",
    "awaiting_approval",
    "in_doubt",
    "running",
    "queued",
]
"""The status of a turn. `running` and `queued` occur only if the caller does not wait (`send(wait=False)`)."""


ShownOutput = Annotated[
    str,
    DescribedBy(lambda: JsonValue, json.loads),
]
"""A typed answer as JSON text, which is written as the JSON that it is."""

_OUTPUT = Field(serialization_alias="output", exclude_if=lambda value: value is None)
_HIDDEN = Field(exclude=True)

ShownReading = Annotated[OutputReading | None, DescribedBy(lambda: type(None)), _HIDDEN]
"""How a typed answer is read. It is no part of a turn as JSON."""


@dataclass(frozen=True, kw_only=True)
class TurnResult:
    """What came of a turn, as the turn itself and the update that shows its end have it."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(json_schema_serialization_defaults_required=True)

    status: TurnStatus
    reply: str = ""
    final_content: str | None = None
    user_response: str | None = None
    deliveries: tuple[str, ...] = ()
    silent: bool = False
    truncated: bool = False
    failure: str | None = None
    limit: LimitKind | None = None
    usage: ShownUsage = field(default_factory=Usage)
    profile: str = ""
    output_json: Annotated[ShownOutput | None, _OUTPUT] = None
    output_form: Annotated[str, _HIDDEN] = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_complete(self) -> bool:
        """Whether the turn ended with an answer."""
        return self.status == "completed"


Number = Annotated[int, Field(serialization_alias="turn")]

_IF_SET = Field(exclude_if=lambda value: not value)
"""As JSON the field is left out where it says nothing."""


@dataclass(frozen=True, kw_only=True)
class BaseTurn(TurnResult, Generic[T]):
    """What all kinds of turns have in common.

    `number` counts the turns of the conversation from 1. `reply` is the answer: what was said to the user by a tool,
    otherwise the text if the policy delivers it, otherwise "". `final_content` is the text for display, or None.
    `user_response` is what was said to the user by a tool, or None; several speeches are joined by a blank line.
    `deliveries` are all texts that go to the user, in order. They are more than the `reply` if the policy delivers text
    as well as speech. A turn that ended without deliveries is `silent`. While a turn waits for a person, these fields
    describe it up to that point.

    `questions`, and the `call_id` of the call that asks them, are set while the turn waits for an answer; `call_id` and
    `call` while it waits for somebody to approve that call, or to say whether it ran. `failure` is one sentence if the
    turn failed or its work was not verified. `limit` names the limit of the policy that ended the turn, if one did.
    `truncated`: the provider cut the text off. `profile` is the name of the turn's profile, or "" if it has none.

    `output_json` is the typed answer, as JSON text, if the turn gave one; `output` is the answer itself.
    """

    __pydantic_config__: ClassVar[ConfigDict] = TurnResult.__pydantic_config__

    number: Number
    questions: Annotated[tuple[ShownQuestion, ...], _IF_SET] = ()
    call_id: Annotated[str | None, _IF_SET] = None
    call: Annotated[ShownCall | None, _IF_SET] = None
    reading: ShownReading = field(default=None, repr=False, compare=False)

    @cached_property
    def output(self) -> T:
        """The typed answer: an object of the type that was asked for, where this process knows it, and otherwise as
        JSON data. None if none was asked for. It is made, and its validators run, when a turn object is first asked
        for it.

        Raises `NoOutput` if the turn has no such answer, on the turn that `send(…, output=…)` returns and on every turn
        of a conversation or a profile with an `output`; and if the type does not take the stored answer any more.
        """
        if self.reading is None:
            return cast(T, None if self.output_json is None else json.loads(self.output_json))
        if self.output_json is not None:
            return cast(T, self.reading.read(self.output_json, self.output_form))
        if (missing := self.reading.missing(self.status, self.failure)) is not None:
            raise missing
        return cast(T, None)

    @property
    def data(self) -> dict[str, Any]:
        """The turn as JSON, with the keys of the update `turn_ended`; the number is its `turn`. While it waits for a
        person, it also has `call_id`, and `questions` or `call`."""
        return as_json(self, complete=True)


@dataclass(frozen=True, kw_only=True)
class CompletedTurn(BaseTurn[T]):
    """The turn ended with an answer."""

    status: Literal["completed"] = "completed"


@dataclass(frozen=True, kw_only=True)
class IncompleteTurn(BaseTurn[T]):
    """The turn ended at a limit, which `limit` names, or without what the policy requires. `failure` says why if its
    work was not accepted."""

    status: Literal["incomplete"] = "incomplete"


@dataclass(frozen=True, kw_only=True)
class FailedTurn(BaseTurn[T]):
    """The turn could not go on. `failure` is one sentence for people."""

    status: Literal["failed"] = "failed"
    failure: str = field()  # required here: a field without `field()` would keep the default of the base


@dataclass(frozen=True, kw_only=True)
class CancelledTurn(BaseTurn[T]):
    """A person stopped the turn."""

    status: Literal["cancelled"] = "cancelled"


@dataclass(frozen=True, kw_only=True)
class WaitsForAnswer(BaseTurn[T]):
    """The model asks `questions`, by the call `call_id`. Go on with `Conversation.answer` or `decline`."""

    status: Literal["awaiting_user"] = "awaiting_user"
    questions: tuple[ShownQuestion, ...] = field()
    call_id: str = field()


@dataclass(frozen=True, kw_only=True)
class WaitsForApproval(BaseTurn[T]):
    """`call` runs only if a person allows it. Go on with `Conversation.approve`."""

    status: Literal["awaiting_approval"] = "awaiting_approval"
    call_id: str = field()
    call: ShownCall = field()


@dataclass(frozen=True, kw_only=True)
class WaitsForResolution(BaseTurn[T]):
    """A crash interrupted `call`, and it is unknown whether it ran. Go on with `Conversation.resolve`."""

    status: Literal["in_doubt"] = "in_doubt"
    call_id: str = field()
    call: ShownCall = field()


@dataclass(frozen=True, kw_only=True)
class RunningTurn(BaseTurn[T]):
    """The turn is under way; the caller did not wait for it."""

    status: Literal["running"] = "running"


@dataclass(frozen=True, kw_only=True)
class QueuedTurn(BaseTurn[T]):
    """No turn has taken the message yet; the caller did not wait for one. So the number is 0."""

    status: Literal["queued"] = "queued"
    number: Number = 0


EndedTurn: TypeAlias = CompletedTurn[T] | IncompleteTurn[T] | FailedTurn[T] | CancelledTurn[T]
"""A turn that has ended."""

WaitingTurn: TypeAlias = WaitsForAnswer[T] | WaitsForApproval[T] | WaitsForResolution[T]
"""A turn that waits for a person."""

Turn: TypeAlias = (
    CompletedTurn[T]
    | IncompleteTurn[T]
    | FailedTurn[T]
    | CancelledTurn[T]
    | WaitsForAnswer[T]
    | WaitsForApproval[T]
    | WaitsForResolution[T]
    | RunningTurn[T]
    | QueuedTurn[T]
)
"""A turn of a conversation. Narrow it by its class or by its `status`. `Turn[Ticket]` is one whose `output` is a
`Ticket`. Whether an object is a turn at all, `isinstance(…, BaseTurn)` says."""


def ended_turn(ended: TurnEnded, transcript: Transcript, policy: Policy) -> EndedTurn:
    """Return a turn that has ended. The transcript must hold its last step. `Pure.`"""
    final = ended.final_content
    words = transcript.kept_words if transcript.cut_answers else transcript.words
    described: dict[str, Any] = {
        "number": ended.turn,
        "final_content": None if final is None else text_of_reply(words(final), policy),
        **_received_texts(ended.user_response, ended.deliveries, transcript, policy),
        "silent": ended.silent,
        "truncated": ended.truncated,
        "failure": ended.failure.sentence if ended.failure else None,
        "limit": ended.limit,
        "usage": ended.usage,
        "profile": ended.profile,
    }
    if (output := ended.output) is not None:
        described |= {"output_json": transcript.words(output), "output_form": transcript.form(output)}
    match ended.status:
        case "completed":
            return CompletedTurn(**described)
        case "incomplete":
            return IncompleteTurn(**described)
        case "failed":
            return FailedTurn(**{**described, "failure": described["failure"] or ""})
        case "cancelled":
            return CancelledTurn(**described)


def _received_texts(
    spoken: Sequence[Said], delivered: Sequence[Delivered], transcript: Transcript, policy: Policy
) -> dict[str, Any]:
    """Return the fields that hold what the user received of a turn."""
    by_tool = tuple(text_of_reply(transcript.words(said), policy) for said in spoken)
    deliveries = tuple(text_of_delivery(transcript.words(one.said), policy, relayed=one.relayed) for one in delivered)
    return {
        "reply": "\n\n".join(by_tool or deliveries),
        "user_response": "\n\n".join(by_tool) if by_tool else None,
        "deliveries": deliveries,
    }


_WaitsForPerson: TypeAlias = AwaitingPerson | InDoubt | AwaitingSubAgents
"""The states in which a turn may wait for a person."""

_MAY_WAIT = frozenset(state for state in STATES if issubclass(state, get_args(_WaitsForPerson)))


def waits_for_person(state: State) -> TypeGuard[_WaitsForPerson]:
    """Whether the turn waits for a person; while sub-agents work, that is so if one of them asks. `Pure.`"""
    return type(state) in _MAY_WAIT and (isinstance(state, InDoubt) or state.waiting_call_id is not None)


def waiting_turn(state: _WaitsForPerson, transcript: Transcript, policy: Policy) -> WaitingTurn:
    """Return a turn that waits for a person, with what the user has received of it so far. `Pure.`"""
    spoken = spoken_and_delivered(state.turn)
    described: dict[str, Any] = {
        "number": state.turn.number,
        "call_id": state.call.call_id,
        **_received_texts(spoken, state.turn.deliveries, transcript, policy),
        "usage": state.turn.usage,
        "profile": state.turn.profile,
    }
    if (asked := state.open_question) is not None:
        return WaitsForAnswer(**{**described, "questions": asked.questions, "call_id": asked.call_id})
    call = transcript.call(state.call.call_id)
    if isinstance(state, AwaitingApproval):
        return WaitsForApproval(call=call, **described)
    return WaitsForResolution(call=call, **described)
