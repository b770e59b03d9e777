"""The record that a turn carries with it, and what is left of it when it ends.

A turn is everything between a person's message and the next rest: model requests, tools, questions. Its record
counts what the turn has used up, so that its limits can be kept.
"""

from __future__ import annotations

from typing import Literal

from .failures import FailureKind
from .messages import Said, Usage
from .value import Instant, Value

TurnStatus = Literal["completed", "incomplete", "failed", "cancelled"]
"""How a turn ended: with an answer, without one (a limit, an empty response), by a failure, by a person."""


class TurnRecord(Value):
    """A turn under way.

    `requests`, `tool_calls`, `spent` and `since` count since the last human input; `usage` is the whole turn's.
    `only_thought` tells that the newest response was thinking and nothing else. `model` is the place of the model in
    `Policy.models`: a fallback, once taken, is kept to the end of the turn.
    """

    number: int
    since: Instant
    model: int = 0
    requests: int = 0
    only_thought: bool = False
    tool_calls: int = 0
    spent: Usage = Usage()
    usage: Usage = Usage()


class Failure(Value):
    """Why a turn failed, in one sentence for people."""

    kind: FailureKind
    sentence: str


class TurnEnded(Value):
    """What a turn came to. `final_content` is the text to show, by reference; None if there is none."""

    turn: int
    status: TurnStatus
    final_content: Said | None = None
    truncated: bool = False
    usage: Usage = Usage()
    failure: Failure | None = None
