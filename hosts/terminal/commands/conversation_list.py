"""`turnwise list`: a line for each conversation of a database."""

from __future__ import annotations

from datetime import datetime

from ....persistence.opening import is_in_use
from ....persistence.records.origin import Origin
from ....persistence.records.summary import Summary
from ..configuration.databases import open_for_reading
from ..configuration.settings import Settings
from ..output.notices import print_notice
from ..output.printable import one_line


async def list_conversations(settings: Settings) -> int:
    """Print for each conversation its id, its state, when it last changed, and the conversation it was forked from."""
    async with open_for_reading(settings) as store:
        summaries = await store.list()
    if not summaries:
        print_notice("There are no conversations yet.")
    abandoned = any(summary.busy for summary in summaries) and not is_in_use(settings.db)
    for summary in summaries:
        copied = "" if summary.origin is None else f"  {origin_line(summary.origin)}"
        print(f"{summary.id}  {_state(summary, abandoned):<22}  {_local_time(summary.updated_at)}{copied}")
    return 0


def origin_line(origin: Origin) -> str:
    """The conversation and the step that a conversation was forked from, in words. `Pure.`"""
    return f"forked from {one_line(origin.conversation_id)} at step {origin.seq}"


def _state(summary: Summary, abandoned: bool) -> str:
    return "interrupted" if summary.busy and abandoned else summary.state


def _local_time(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
