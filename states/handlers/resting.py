"""Out of `Idle` and `Failed`: a turn begins, or the rules change."""

from __future__ import annotations

from ..context import Context
from ..draft import Draft
from ..events import CloseRequested, PolicyChanged, RetryRequested, UserMessage
from ..states import Closed, Failed, Idle


def open_turn(draft: Draft[Idle | Failed], event: UserMessage, context: Context) -> None:
    """A message begins a turn; what waits since a turn that failed begins it together with this one."""
    draft.open_turn(event.at)
    draft.let_in(draft.inbox)
    draft.say(draft.heard())


def retry_turn(draft: Draft[Failed], event: RetryRequested, context: Context) -> None:
    """What failed is tried again, as a turn of its own: its message already stands in the transcript."""
    draft.open_turn(event.at)


def change_policy(draft: Draft[Idle | Failed], event: PolicyChanged, context: Context) -> Idle | Failed:
    """Other rules hold from here on; `Context.after` is where they enter."""
    return draft.same()


def close_at_rest(draft: Draft[Idle | Failed], event: CloseRequested, context: Context) -> Closed:
    """Nothing is under way, so nothing has to be stopped."""
    draft.withdraw_all()
    return Closed(book=draft.book)
