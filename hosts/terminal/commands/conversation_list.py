"""`turnwise list`: a line for each conversation of a database, also as a tree of agents."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from shutil import get_terminal_size
from typing import Any

from ....persistence.opening import is_in_use
from ....persistence.ports import Store, find_all
from ....persistence.records import Origin
from ....persistence.summaries import Summary, details_of_rows, summary_of
from ....states.errors import StoreError, UnknownConversation
from ..configuration.conversation_ids import short_ids
from ..configuration.databases import open_for_reading
from ..configuration.settings import Settings
from ..output.json_document import print_json
from ..output.notices import print_notice
from ..output.printable import one_line
from .conversation_tree import MAX_LEVELS, Branch, arranged

WIDEST_HEAD = 48
"""Up to how many characters ids are padded, with the lines of a tree in front of them: enough for the id of a
sub-agent, in full, on the third level."""

INCOMPLETE = 1
"""The exit code of a list from which conversations are left out that cannot be read."""

_ROLES = {"foreground": "", "background": " (background)", "sub_agent": " (sub-agent)"}


async def list_conversations(
    settings: Settings, owner: str | None, limit: int | None, as_json: bool, as_tree: bool = False
) -> int:
    """Print for each conversation its id, its state, when it last changed, its title, and where it was forked from:
    of all, or of those of this owner, the newest `limit`. A tree has agents below the conversations that they belong
    to, with their roles and their next wake-ups.

    A terminal shows short ids, and cuts lines at its width; a program reads ids and lines in full.
    """
    async with open_for_reading(settings) as store:
        faults: Sequence[str] = ()
        try:
            summaries = await store.list(owner=owner, limit=limit)
            ids = await store.ids()
        except StoreError:
            summaries, faults = await _readable(store, owner, limit)
            ids = tuple(summary.id for summary in summaries)
    for fault in faults:
        print_notice(one_line(fault))
    abandoned = any(summary.busy for summary in summaries) and not is_in_use(settings.db)
    if as_json:
        branches = arranged(summaries) if as_tree else tuple(map(Branch, summaries))
        depths = ({"depth": branch.depth} if as_tree else {} for branch in branches)
        listed = [described(branch.summary, abandoned) | depth for branch, depth in zip(branches, depths, strict=True)]
        print_json({"conversations": listed})
        return INCOMPLETE if faults else 0
    if not summaries:
        print_notice(
            "There are no conversations yet." if owner is None else "There are no conversations of this owner."
        )
    on_a_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = get_terminal_size().columns if on_a_terminal else None
    shown_ids = short_ids(ids) if on_a_terminal else {}
    lines = tree_lines(summaries, abandoned, shown_ids, width) if as_tree else _lines(summaries, abandoned, shown_ids)
    for line in lines:
        print(_cut(line, width))
    return INCOMPLETE if faults else 0


async def _readable(store: Store, owner: str | None, limit: int | None) -> tuple[tuple[Summary, ...], Sequence[str]]:
    """Return what the list of a damaged file can still show, read conversation by conversation from its steps, and a
    sentence for each that it cannot."""
    ids, hidden = await find_all(store)
    found, faults = list[Summary](), [fault.sentence for fault in hidden]
    for each in ids:
        try:
            record = await store.read_record(each)
            found.append(summary_of(record, details_of_rows(record.steps)))
        except UnknownConversation:  # deleted meanwhile
            continue
        except (StoreError, LookupError, TypeError, ValueError, OverflowError):
            faults.append(f"{each} is left out: it cannot be read, because the file is damaged.")
    chosen = (summary for summary in found if owner is None or summary.owner == owner)
    return tuple(sorted(chosen, key=lambda summary: summary.updated_at, reverse=True)[:limit]), faults


def described(summary: Summary, abandoned: bool = False) -> dict[str, Any]:
    """Return a conversation as JSON shows it; `abandoned` says that no program has its database open. `Pure.`"""
    return {
        "id": summary.id,
        "title": summary.title,
        "state": summary.state,
        "interrupted": summary.busy and abandoned,
        "updated_at": summary.updated_at.isoformat(),
        "owner": summary.owner,
        "metadata": dict(summary.metadata),
        "forked_from": described_origin(summary.origin),
        "role": summary.role,
        "parent": summary.parent,
        "works_for": summary.works_for,
        "wakes_at": None if summary.wakes_at is None else summary.wakes_at.isoformat(),
    }


def described_origin(origin: Origin | None) -> dict[str, Any] | None:
    """Return the conversation and the step that a conversation was forked from, as JSON shows them. `Pure.`"""
    return None if origin is None else {"id": origin.conversation_id, "seq": origin.seq}


def origin_line(origin: Origin) -> str:
    """The conversation and the step that a conversation was forked from, in words. `Pure.`"""
    return f"forked from {one_line(origin.conversation_id)} at step {origin.seq}"


def _lines(summaries: Sequence[Summary], abandoned: bool, ids: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each conversation; `ids` are the short ids to show in place of the whole ones."""
    shown_ids = [one_line(ids.get(summary.id, summary.id)) for summary in summaries]
    widest_id = min(WIDEST_HEAD, max(map(len, shown_ids), default=0))
    widest_state = max((len(_state(summary, abandoned)) for summary in summaries), default=0)
    for summary, shown in zip(summaries, shown_ids, strict=True):
        yield f"{shown:<{widest_id}}  {_state(summary, abandoned):<{widest_state}}  {_details(summary)}".rstrip()


def tree_lines(
    summaries: Sequence[Summary], abandoned: bool, ids: Mapping[str, str], width: int | None
) -> Iterator[str]:
    """Yield a line for each conversation, below the one that it belongs to, for a terminal of this `width`; None for
    lines of any length. `Pure.`"""
    branches = arranged(summaries)
    levels = MAX_LEVELS if width is None else min(MAX_LEVELS, max(1, width // 12))
    heads = [branch.lines(levels) + one_line(ids.get(branch.summary.id, branch.summary.id)) for branch in branches]
    states = [_state(branch.summary, abandoned) + _ROLES[branch.summary.role] for branch in branches]
    room = WIDEST_HEAD if width is None else min(WIDEST_HEAD, width // 3)
    widest_head = min(room, max(map(len, heads), default=0))
    widest_state = max(map(len, states), default=0)
    for branch, head, state in zip(branches, heads, states, strict=True):
        summary, belongs = branch.summary, ""
        if branch.upper_id is not None:
            upper = one_line(ids.get(branch.upper_id, branch.upper_id))
            belongs = f"  {'works for' if summary.parent is None else 'started by'} {upper}"
        wakes = "" if summary.wakes_at is None else f"  wakes {_local_time(summary.wakes_at)}"
        yield f"{head:<{widest_head}}  {state:<{widest_state}}  {_details(summary, wakes)}{belongs}".rstrip()


def _details(summary: Summary, wakes: str = "") -> str:
    copied = "" if summary.origin is None else f"  {origin_line(summary.origin)}"
    return f"{_local_time(summary.updated_at)}{wakes}  {one_line(summary.title)}{copied}"


def _cut(line: str, width: int | None) -> str:
    """Return the line cut at so many cells; with None as it is."""
    if width is None:
        return line
    from rich.cells import cell_len, set_cell_size

    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


def _state(summary: Summary, abandoned: bool) -> str:
    return "interrupted" if summary.busy and abandoned else summary.state


def _local_time(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
