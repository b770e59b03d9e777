"""Messages, tool calls and results, and references to texts.

A text is stored once, in the event that brought it. Everything else refers to it by `Heard`. Only words that the
machine itself adds ("Cancelled by user") are carried along, as `Made`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field

from .acts import Act, ActKind, Audience
from .images import Image, Images
from .part import Part, TaggedPart
from .value import Block, Text, Value, json_object
from .withheld import Withheld

MessageRole = Literal["system", "user", "assistant", "tool"]

CrashContract = Literal["pure", "idempotent", "reconcile", "at_most_once"]
"""What may happen to a call that was running when the process died.

pure: it runs again. idempotent: it runs again under the same key. reconcile: its tool is asked whether it ran.
at_most_once: it never runs twice.
"""

CONTRACTS: tuple[CrashContract, ...] = get_args(CrashContract)
"""The contracts, the strictest last: by how little is done without a person. A pure call may run any number of times;
an idempotent one as well, if the outside world knows its key; before a reconcilable one runs its tool is asked; and
nothing is done for one that may run at most once."""

REPEATABLE: frozenset[CrashContract] = frozenset({"pure", "idempotent"})
"""The contracts under which such a call runs again without a question."""

Approver = Literal["user", "operator"]
"""Who may allow a call: whoever uses the conversation, or only somebody who acts for the application."""

Stopped = Literal["cancelled", "denied"]
"""Why a call has no result of its own although nothing failed: the turn was cancelled, or nobody allowed the call."""


class Heard(TaggedPart):
    """A reference to the `index`-th text of the event at the step `seq`. A message has one text, 0. In a model's
    response 0 is its text, and 1 + n the fault of its n-th call. In a tool's result 0 is what the model reads, followed
    by the texts of its acts."""

    type: Literal["heard"] = "heard"
    seq: int
    index: int = 0


class Made(TaggedPart):
    """A text of the machine, worded by `Policy.texts`."""

    type: Literal["made"] = "made"
    text: Text


SaidPart = Annotated[Heard | Made, Field(discriminator="type")]
"""A text that is part of another one."""


class Joined(TaggedPart):
    """Several texts, joined by blank lines."""

    type: Literal["joined"] = "joined"
    parts: tuple[SaidPart, ...]

    @staticmethod
    def text_of(parts: Iterable[str]) -> str:
        """The text that these texts of the parts make. `Pure.`"""
        return "\n\n".join(parts)


class Outcomes(TaggedPart):
    """The outcomes of sub-agents as JSON, in the order of their tasks: how each ended, and its last text."""

    type: Literal["outcomes"] = "outcomes"
    statuses: tuple[Text, ...]
    parts: tuple[SaidPart, ...]

    def text_of(self, parts: Iterable[str]) -> str:
        """The JSON that these texts of the parts make, `{"agents": [{"status": …, "result": …}, …]}`. `Pure.`"""
        agents = [{"status": status, "result": result} for status, result in zip(self.statuses, parts, strict=True)]
        return json.dumps({"agents": agents}, ensure_ascii=False)


Said = Annotated[Heard | Made | Joined | Outcomes, Field(discriminator="type")]

Reminder = Annotated[Heard | Made | Joined, Field(discriminator="type")]
"""What a model is reminded of in one request."""


class Usage(Value):
    """What a request cost: tokens in and out, and money in US dollars where the price is known.

    `cached_tokens` are those of the input that the provider read from its cache, and `reasoning_tokens` those of the
    output that the model spent on thinking; both are 0 where the provider does not say. `estimated` says that the
    provider has not told all of it, as of an answer that broke off, so that a part is what it must have been about.
    """

    # A price that is no number is not known, and the answer that it belongs to counts all the same.
    model_config: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="null")

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cached_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """Tokens in and out together."""
        return self.input_tokens + self.output_tokens

    @property
    def is_anything(self) -> bool:
        """Whether any cost is known."""
        tokens = self.input_tokens or self.output_tokens or self.cached_tokens or self.reasoning_tokens
        return bool(tokens) or self.cost is not None

    def __add__(self, other: Usage) -> Usage:
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        cost = min(sum(known), sys.float_info.max) if known else None  # a sum beyond all floats stays a number
        return self.replace(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=cost,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            estimated=self.estimated or other.estimated,
        )


class ProviderFields(Value):
    """What a provider wrote on a message besides what everybody reads. It is never looked into, and goes back
    unchanged to the `family` of models that wrote it.

    `thinking` is the name of the field that held the thinking, where it was not `reasoning_content`. `message` are
    further fields of the message under their names, and `calls` those of its calls by `ToolCall.call_id`; the `id` of a
    call is among them if it is longer than `LONGEST_ID`. An empty family is that of the message's model by its name.
    """

    family: Text = ""
    thinking: Text = ""
    message: Block = Field(default_factory=dict)
    calls: dict[Text, Block] = Field(default_factory=dict)


LONGEST_ID = 64
"""The most characters of an id that a call carries along. A provider may hide a signature of kilobytes in an id."""


class ToolCall(Value):
    """A call in a model's response, with what the tool registry knew of it when the response was recorded.

    `call_id` is unique in the conversation. `provider_id` is the id that the provider gave, which may repeat; it is
    empty if that is longer than `LONGEST_ID` (see `ProviderFields.calls`).
    `raw_arguments` is the JSON text as the model wrote it, which is stored as `arguments`. A call with a `fault` never
    runs: the fault is its result. A call with `approval` runs only if a person allows it, and `approval_by` says who.
    """

    call_id: Text = Field(min_length=1)
    name: Text
    raw_arguments: Text = Field(default="{}", validation_alias="arguments", serialization_alias="arguments")
    provider_id: Text = ""
    fault: Text | None = None
    approval: bool = False
    approval_by: Approver = "user"
    exclusive: bool = False
    crash: CrashContract = "at_most_once"
    acts: tuple[ActKind, ...] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as data; empty if the model did not write a JSON object. `Pure.`"""
        return json_object(self.raw_arguments) or {}


class ToolResult(Value):
    """The outcome of a call: the text that the model reads, whether it is an error, the images that the model sees, and
    the acts to carry out."""

    text: Text
    error: bool = False
    images: Images = ()
    acts: tuple[Act, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts of the result, in the order in which `Heard.index` counts them."""
        acts = self.acts
        return (self.text, *(text for act in acts for text in act.texts)) if acts else (self.text,)


class Message(Part):
    """One message of the transcript. `turn` is the turn in which it was said, `seq` the step in which it entered.
    Messages of a history that was given to begin with have the turn 0; only such a history holds system messages.

    A person's message has the `message_id` under which it was sent. A message of another agent has that agent as its
    `origin` and says by `audience` for whom it is. A model's message has the `model` that said it, its `thinking`, and
    `opaque`, the provider's sealed thinking blocks; `provider` is what else only its family of models reads.

    A tool's result has a `tool_call_id`, and `error` if it failed; `stopped` says of an error that it is no fault: a
    person stopped the turn, or did not allow the call. `edited_arguments` are those, as JSON text, by which a person
    has replaced what the model wrote. `images` are those of a person or a tool. `deliveries` are the
    texts of this message that were delivered to the user: its own, or the speeches of a result. `undelivered` says that
    it holds a speech that was not delivered before its turn ended.

    `parts` are the texts of a given message and, as numbers, the places of its images in `images`, in their order. They
    are empty where the images simply follow the text.

    `withheld` says what of it models are not shown, because a provider refused it.
    """

    role: MessageRole
    text: str = ""
    images: tuple[Image, ...] = ()
    parts: tuple[str | int, ...] = ()
    thinking: str = ""
    opaque: tuple[dict[str, Any], ...] = ()
    provider: ProviderFields | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    message_id: str = ""
    origin: str = ""
    audience: Audience | None = None
    tool_call_id: str | None = None
    error: bool = False
    stopped: Stopped | None = None
    edited_arguments: str = ""
    deliveries: tuple[Text, ...] = ()
    undelivered: bool = False
    withheld: tuple[Withheld, ...] = ()
    turn: int = 0
    seq: int = 0
    model: str = ""
