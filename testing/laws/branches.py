"""The laws of branches: what is shown is one path through the tree of turns, whole, and nothing else.

What was hidden returns as it was. Nothing is counted anew: steps, turns and effects are numbered through all branches.
"""

from __future__ import annotations

from itertools import starmap

from ...states.branches import Branches
from ...states.effects import RequestLlm
from ...states.states import Closed, Failed, Idle
from ...states.values.messages import Message
from ..history import History, require


def shows_one_branch(history: History) -> None:
    """What models are shown, and what is shown at rest, is what was said in the turns of the branch under way, all of
    it, in order, but for what the user has not heard. Of another branch only messages of agents are shown that no model
    has read."""
    newest, ledger = history.newest, history.branches
    asks = any(isinstance(effect, RequestLlm) for effect in newest.effects)
    if history.said.branches is None or not (asks or isinstance(newest.after, Idle | Failed | Closed)):
        return
    shown = [message for message in history.transcript if message.audience is None]
    wanted = [message for turn in (0, *ledger.path) for message in ledger.said[turn]]
    pairs = [*zip(sorted(shown, key=_mark), sorted(wanted, key=_mark), strict=len(shown) == len(wanted))]
    is_shown = len(shown) == len(wanted) and all(starmap(_is_shown_as, pairs))
    require(is_shown, "what is shown is not the branch under way", history)
    turns = [message.turn for message in history.transcript]
    require(turns == sorted(turns), "the turns of a branch are out of order", history)
    ids = [message.message_id for message in history.transcript if message.message_id]
    require(len(ids) == len({*ids}), "a message is shown twice", history)


def _mark(message: Message) -> tuple[int, int, str, str, str]:
    return message.turn, message.seq, message.role, message.tool_call_id or "", message.message_id or ""


def _is_shown_as(shown: Message, said: Message) -> bool:
    """Whether this is what was said: all of it, or, where the user has interrupted it, its beginning."""
    is_whole = shown.text == said.text
    return _mark(shown) == _mark(said) and (is_whole or (shown.heard is not None and said.text.startswith(shown.text)))


def knows_its_branches(history: History) -> None:
    """The tree of turns is that of the log; each turn leads back to the first one, and what is left can be found."""
    branches, ledger, turns = history.said.branches, history.branches, history.state.book.turn
    if branches is None:
        require(ledger.path == tuple(range(1, turns + 1)), "a branch was left that nobody knows", history)
        return
    require(branches == Branches.of(history.log), "the tree is not that of the log", history)
    for turn in range(turns + 1):
        require(branches.turns_to(turn) == ledger.paths[turn], f"turn {turn} leads back another way", history)
    shown = tuple(turn for turn in range(1, turns + 1) if branches.shows(turn))
    require(shown == ledger.path, "other turns are on the branch under way", history)
    hidden = {turn for first, last in branches.hidden(turns) for turn in range(first, last + 1)}
    require(hidden == {*range(1, turns + 1)} - {*shown}, "other turns are hidden", history)
    found = {turn for leaf in branches.left(turns) for turn in branches.turns_to(leaf)}
    require(hidden <= found, "a turn is hidden that is in no branch", history)


def counts_through_all_branches(history: History) -> None:
    """Steps, turns and effects are numbered forward whatever branch the conversation goes to, and it rests in no turn
    that is hidden."""
    before, after = history.newest.before.book, history.newest.after.book
    forward = after.turn >= before.turn and after.next_effect >= before.next_effect and after.branch >= before.branch
    require(forward, "something is numbered anew", history)
    if isinstance(history.state, Failed):
        path = history.branches.path
        require(not path or history.state.turn in path, "a failed turn is hidden", history)
