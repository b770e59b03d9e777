"""Guards about a model that refuses the content of its request.

Which part was refused, no provider says. So the parts that may be it are withheld one after the other, and each time
the model is asked without them. The part that is suspected first is the one whose loss costs least, should it be
innocent: what has just come in, and nobody but a tool has said.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..context import Context
from ..events import LlmFailed
from ..states import LlmRequesting
from ..step_builder import StepBuilder
from ..values.failures import FailureKind
from ..values.turn import TurnRecord
from ..values.withheld import Suspect
from .responses import has_next_model, may_retry, uses_up_budget

ORDER: Mapping[FailureKind, tuple[Suspect, ...]] = {
    "unsupported_content": ("sight", "new_images", "images"),
    "unreadable_content": ("new_images", "images"),
    "content_filter": ("additions", "answers", "memory", "earlier", "words"),
    "invalid_request": ("new_images", "images", "additions", "answers", "earlier"),
    "server_error": ("new_images", "images"),
}
"""What is suspected when a request is refused for its content, or fails for a reason that may be its content, in this
order."""


def may_ask_without_suspect(step: StepBuilder[LlmRequesting], event: LlmFailed, context: Context) -> bool:
    """The request was refused for its content, and something may be what was refused that the model can be asked
    without: anything but what people said in this turn. What can pass by itself is waited for first, and a turn whose
    budget is used up asks no more."""
    if first_suspect(step.turn, event) in (None, "words") or uses_up_budget(step, event, context):
        return False
    return not (may_retry(step, event, context) or has_next_model(step, event, context))


def refuses_words(step: StepBuilder[LlmRequesting], event: LlmFailed, context: Context) -> bool:
    """The request was refused for its content, and only what people said in this turn can be what was refused."""
    return first_suspect(step.turn, event) == "words"


def first_suspect(turn: TurnRecord, event: LlmFailed) -> Suspect | None:
    """What is suspected first, of what the refused request held and what was not yet withheld since the newest answer.
    `Pure.`"""
    if not event.held:
        return None
    order = ORDER.get(event.kind, ())
    return next((one for one in order if one in event.held and one not in turn.withheld), None)
