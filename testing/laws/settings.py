"""Laws of the events that change the tools and the details of a conversation."""

from __future__ import annotations

from ...states.events import DetailsChanged, Opened, ToolsChanged
from ..history import History
from ..law import require


def changes_settings_alone(history: History) -> None:
    """A change of the tools, the title or the metadata counts one step, and changes nothing else of the state."""
    newest = history.newest
    if newest.step is None or not isinstance(newest.event, ToolsChanged | DetailsChanged):
        return
    book = newest.before.book
    expected = newest.before.replace(book=book.replace(seq=book.seq + 1))
    require(newest.after == expected, "a change of the tools or the details changed the state", history)
    done = newest.effects or newest.step.ended or newest.step.withdrawn
    require(not done, "a change of the tools or the details did something", history)


def keeps_tools_of_turns(history: History) -> None:
    """No event changes the tools of the newest turn, so a turn has the same tools from its beginning to its end."""
    newest = history.newest
    if newest.step is None or isinstance(newest.event, Opened):
        return
    turn = newest.before.book.turn
    before, after = newest.context.tools_in(turn), history.context.tools_in(turn)
    require(before == after, "the tools of the newest turn changed", history)
    if not isinstance(newest.event, ToolsChanged):
        kept = newest.context.tools_in(turn + 1) == history.context.tools_in(turn + 1)
        require(kept, "the tools of the next turn changed without being asked to", history)
