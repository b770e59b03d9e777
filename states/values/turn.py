"""The record that a turn carries with it, and what is left of it when it ends.

A turn is everything between a message and the next rest: model requests, tools, questions. Its record counts what the
turn has used up, so that its limits can be kept, and remembers what was said, so that it can be delivered.
"""

from __future__ import annotations

from typing import Literal

from .failures import FailureKind
from .messages import Heard, Made, Said, Usage
from .value import Instant, Part

TurnStatus = Literal["completed", "incomplete", "failed", "cancelled"]
"""How a turn ended: with an answer, without one (a limit, an empty response), by a failure, by a person."""


class Spoken(Part):
    """A speech that a tool brought. `place` orders speeches as their calls were made: the step of the response, the
    place of the call in it, the place of the speech in the result."""

    said: Heard
    place: tuple[int, int, int]
    now: bool = False


class Delivered(Part):
    """Something handed over to the user: by which effect, and what. `relayed` tells that it is another agent's message,
    passed on as it was."""

    effect_id: int
    said: Said
    relayed: bool = False


class TurnRecord(Part):
    """A turn under way.

    `requests`, `tool_calls`, `spent` and `since` count since the last human input; `usage` is the whole turn's. `model`
    is the place of the model in `Policy.models`: a fallback, once taken, is kept to the end of the turn.
    """

    number: int
    tries_again: int | None = None
    """The first of the failed turns that this one tries again: what people said then, this one answers."""

    since: Instant
    model: int = 0
    requests: int = 0
    tool_calls: int = 0
    spent: Usage = Usage()
    usage: Usage = Usage()

    profile: str = ""
    memory: Heard | None = None
    """The answer that holds what was recalled."""

    nudge: Made | None = None
    plain: bool = False
    """What the newest request is told in passing, and whether it is sent bare: system prompt and message alone."""

    nudges: int = 0
    only_thought: bool = False
    """Whether the newest response was thinking and nothing else."""

    worked: bool = False
    """Whether tools have given results."""

    empties: int = 0
    fell_back: bool = False
    plain_retries: int = 0
    """Empty responses in a row, and what was tried against them."""

    condensed: bool = False
    """Whether the history was condensed for the newest request, or for an earlier one and the window stayed full."""

    earlier_calls: tuple[tuple[str, ...], ...] = ()
    """Fingerprints of the calls made, request by request, as far back as the policy remembers them."""

    said: tuple[Spoken, ...] = ()
    deliveries: tuple[Delivered, ...] = ()
    relay: tuple[Heard, ...] = ()
    """Messages for the user that this turn is to pass on: those that began it, or that a failed turn left to it."""

    cut_off: bool = False
    """Whether the provider cut the newest response off."""

    final: Heard | None = None
    """The newest text of the model."""

    claim: Heard | None = None
    """The claim that the work is complete."""

    asked_to_speak: bool = False
    """Whether the model was asked for its answer, after a claim with nothing said."""

    rejections: int = 0
    """How often the check of a claim failed."""

    rejection: Heard | None = None
    """The answer that says why the check of the newest claim failed."""


class Failure(Part):
    """Why a turn failed or stayed incomplete, in one sentence for people."""

    kind: FailureKind
    sentence: str


class TurnEnded(Part):
    """What a turn came to.

    `final_content` is the text to show, `user_response` what was said to the user by tool and reached them,
    `deliveries` everything that was handed over, in order: all by reference. A turn is silent if it delivered nothing.
    """

    turn: int
    status: TurnStatus
    final_content: Said | None = None
    user_response: tuple[Said, ...] = ()
    deliveries: tuple[Delivered, ...] = ()
    silent: bool = False
    truncated: bool = False
    usage: Usage = Usage()
    failure: Failure | None = None
