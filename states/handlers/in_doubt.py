"""Out of `InDoubt`: a person says what became of a call that a crash hit."""

from __future__ import annotations

from ..context import Context
from ..events import DoubtResolved
from ..states import InDoubt
from ..step_builder import StepBuilder
from ..values.messages import Made


def resolve(draft: StepBuilder[InDoubt], event: DoubtResolved, context: Context) -> None:
    """The call has its result, or runs again because a person says so."""
    texts = context.policy.texts
    if event.verdict == "ran":
        draft.settle(event.call_id, Made(text=texts.did_run))
    elif event.verdict == "did_not_run":
        draft.settle(event.call_id, Made(text=texts.did_not_run), error=True)
    else:
        draft.set_round(draft.open_round.trust(event.call_id))
    draft.count_anew(event.at)
