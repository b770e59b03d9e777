"""What is said in a conversation: messages, calls of tools, their results, and where a text stands.

A text is stored once, in the event that brought it. Everything else refers to it by `Heard`; only words that the
machine itself makes up ("Cancelled by user") are carried along, as `Made`.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from pydantic import Field

from .acts import Act, ActKind, Audience
from .images import Image, Images
from .value import Part, TaggedPart, Text, Value

Role = Literal["user", "assistant", "tool"]

CrashContract = Literal["pure", "idempotent", "reconcile", "at_most_once"]
"""What may happen to a call of a tool that was running when the process died: run it again, run it again under the same
key, ask whether it ran, or never run it twice."""

Stopped = Literal["cancelled", "denied"]
"""Why a call has no result of its own, where that is no fault: its turn was cancelled, or nobody allowed it."""


class Heard(TaggedPart):
    """The `index`-th text of the event at `seq`: a message's only text is 0; in a model's response 0 is what it said,
    and 1 + n the fault of its n-th call; in a tool's result 0 is what the model reads, and behind it stand the texts of
    its acts."""

    type: Literal["heard"] = "heard"
    seq: int
    index: int = 0


class Made(TaggedPart):
    """A text that the machine makes, worded by `Policy.texts`."""

    type: Literal["made"] = "made"
    text: Text


class Joined(TaggedPart):
    """Several texts that stand together, a blank line between them: what several sub-agents came to, say."""

    type: Literal["joined"] = "joined"
    parts: tuple[Annotated[Heard | Made, Field(discriminator="type")], ...]


Said = Annotated[Heard | Made | Joined, Field(discriminator="type")]


class Usage(Value):
    """What a request cost: tokens in and out, and money in US dollars where the price is known."""

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @property
    def tokens(self) -> int:
        """Tokens in and out together."""
        return self.input_tokens + self.output_tokens

    @property
    def is_anything(self) -> bool:
        """Whether it cost anything that is known."""
        return bool(self.input_tokens or self.output_tokens) or self.cost is not None

    def __add__(self, other: Usage) -> Usage:
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        cost = min(sum(known), sys.float_info.max) if known else None  # a sum beyond all floats stays a number
        return self.replace(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=cost,
        )


class ToolCall(Value):
    """One call that a model asked for, with what the tool registry knew of it when the response entered.

    `call_id` is unique in the conversation; what the provider called it (providers repeat their ids) stays in
    `provider_id`. `arguments` is the JSON text as the model wrote it. A call with a `fault` never runs: the fault is
    its result. One with `approval` runs only if a person allows it.
    """

    call_id: Text = Field(min_length=1)
    name: Text
    arguments: Text = "{}"
    provider_id: Text = ""
    fault: Text | None = None
    approval: bool = False
    exclusive: bool = False
    crash: CrashContract = "at_most_once"
    acts: tuple[ActKind, ...] = ()


class ToolResult(Value):
    """What came of a call: the text that the model reads, whether it tells of an error, the images that the model sees,
    and what else the tool does."""

    text: Text
    error: bool = False
    images: Images = ()
    acts: tuple[Act, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text that the result brings, in the order in which `Heard` counts them."""
        return (self.text, *(text for act in self.acts for text in act.texts))


class Message(Part):
    """One message of the transcript. `turn` is the turn in which it was said, `seq` the step in which it entered.

    `images` are those that a person or a tool showed.

    `message_id` is the id under which a user's message was sent; one that another agent wrote has that agent as its
    `origin`, and says for whom it is. `thinking` and `opaque` (a provider's sealed thinking blocks) are the model's
    own; `model` is who said it. `tool_call_id` and `error` are set on a tool's result; `stopped` says of an error that
    it tells of no fault: a person stopped the turn, or did not allow the call. `deliveries` are the texts of this
    message that went to the user: its own, or the speeches of a result. `undelivered` says that it holds a speech that
    did not, because its turn ended without it.
    """

    role: Role
    text: str = ""
    images: tuple[Image, ...] = ()
    thinking: str = ""
    opaque: tuple[dict[str, Any], ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    message_id: str = ""
    origin: str = ""
    audience: Audience | None = None
    tool_call_id: str | None = None
    error: bool = False
    stopped: Stopped | None = None
    deliveries: tuple[Text, ...] = ()
    undelivered: bool = False
    turn: int = 0
    seq: int = 0
    model: str = ""
