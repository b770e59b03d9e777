"""Why a call has an error result although nothing failed."""

from __future__ import annotations

from ..effects import PersistToolResults, SettledCall
from ..events import DeadlineReached, ToolAborted, ToolApproval, ToolInterrupted, ToolReconciled
from ..log import LogEntry
from ..values.messages import Heard, Joined, Outcomes, Stopped


def why_stopped(entry: LogEntry, result: SettledCall) -> Stopped | None:
    """Why this error is no fault of the tool: a person stopped the turn or did not allow the call. None if it is a
    fault.

    A text of the tool itself is always the tool's. Otherwise the result that the event brings is the first one of its
    step. `Pure.`
    """
    if isinstance(result.said, Heard):
        return None
    if entry.ended is not None and entry.ended.status == "cancelled":
        return "cancelled"
    first = next(effect for effect in entry.effects if isinstance(effect, PersistToolResults)).results[0]
    if result != first or isinstance(result.said, Joined | Outcomes):
        return None
    match entry.event:
        case ToolApproval(allowed=False) | DeadlineReached():
            return "denied"
        case ToolAborted() | ToolInterrupted() | ToolReconciled(verdict="did_not_run" | "unknown"):
            return "cancelled"
        case _:
            return None
