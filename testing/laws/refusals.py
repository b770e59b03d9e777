"""The law of refused content: what a model has refused is not shown to it again."""

from __future__ import annotations

from ...states.effects import RequestLlm, WithholdContent
from ...states.events import LlmFailed
from ...states.guards import ORDER
from ...states.states import LlmRequesting
from ...states.values.messages import Message
from ...states.values.value import REFUSED_CONTENT
from ..history import History
from ..law import require


def withholds_what_was_refused(history: History) -> None:
    """A request that was refused for its content is never sent again as it was: something is withheld first, and no
    suspect twice before the model answers. What people said in a turn that was refused is shown to no model from then
    on, so the next message is asked without it."""
    newest = history.newest
    if newest.step is None:
        return
    withheld = [effect.suspect for effect in newest.effects if isinstance(effect, WithholdContent)]
    asks = any(isinstance(effect, RequestLlm) for effect in newest.effects)
    kind = newest.event.kind if isinstance(newest.event, LlmFailed) else None
    refused = kind in ORDER
    require(len(withheld) <= (1 if refused else 0), "something is withheld that was not refused", history)
    if refused and asks and newest.step.ended is None and kind in REFUSED_CONTENT:
        require(len(withheld) == 1, "a refused request is sent again as it was", history)
    if withheld and newest.step.ended is None:
        tried = newest.before.turn.withheld if isinstance(newest.before, LlmRequesting) else ()
        require(withheld[0] not in tried, "the same is withheld twice for one answer", history)
    if asks and history.refusals.refused:
        shown = [message for message in history.transcript if _is_refused(message, history.refusals.refused)]
        require(all(map(_is_withheld, shown)), "a model is shown words that were refused", history)


def _is_refused(message: Message, refused: dict[int, int]) -> bool:
    is_said = message.role == "user" and message.audience is None and bool(message.text.strip())
    return is_said and message.seq > refused.get(message.turn, message.seq)


def _is_withheld(message: Message) -> bool:
    return any(one.what == "text" for one in message.withheld)
