"""What can be wrong with the tables as a whole, and the SQL of the repairs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from sqlalchemy import ColumnElement, Table, bindparam, delete, func, literal_column, null, select, update

from ..records import (
    CountDeliveries,
    DropDelivery,
    DropFile,
    DropOrphanedDeliveries,
    DropUnusedFiles,
    HeadRow,
    RebuildIndex,
    Repair,
    ReplaceDetails,
    ReplaceHead,
    ResetDelivery,
    StorageFault,
)
from . import files, queries, writing
from .schema import (
    acknowledgements,
    conversations,
    details,
    events,
    file_uses,
    forks,
    hidden_turns,
    metadata_entries,
    outbox,
    text_positions,
    texts,
)
from .statements import Driver, prepared

_ROWS = (
    (events, "steps"),
    (outbox, "deliveries that wait"),
    (acknowledgements, "sums of receipts"),
    (forks, "origins"),
    (file_uses, "uses of files"),
    (details, "titles"),
    (metadata_entries, "entries of metadata"),
    (texts, "texts"),
    (text_positions, "positions of the index"),
    (hidden_turns, "turns of other branches"),
)
_REPAIRS: dict[Table, Repair] = {
    outbox: DropOrphanedDeliveries(),
    texts: RebuildIndex(),
    text_positions: RebuildIndex(),
    hidden_turns: RebuildIndex(),
}


def _is_orphan(table: Table) -> ColumnElement[bool]:
    return table.c.conversation.not_in(select(conversations.c.key))


_COUNT_ORPHANS = {
    table: prepared(select(func.count()).select_from(table).where(_is_orphan(table))) for table, _ in _ROWS
}

_KEY = select(conversations.c.key).where(conversations.c.id == bindparam("conversation_id")).scalar_subquery()
_IS_DELIVERY = (
    outbox.c.conversation == _KEY,
    outbox.c.target == bindparam("to"),
    outbox.c.effect_id == bindparam("effect"),
)
_DELIVERY = ("conversation_id", "to", "effect")
_DROP_DELIVERY = prepared(delete(outbox).where(*_IS_DELIVERY), *_DELIVERY)
_RESET_DELIVERY = prepared(
    update(outbox)
    .where(*_IS_DELIVERY)
    .values(attempts=literal_column("0"), next_attempt=null(), begun=literal_column("0")),
    *_DELIVERY,
)
_DROP_ORPHANS = prepared(delete(outbox).where(_is_orphan(outbox)))
_IS_CONVERSATION = conversations.c.id == bindparam("conversation_id")
_REPLACE_HEAD = prepared(
    update(conversations).where(_IS_CONVERSATION).values({name: bindparam(name) for name in HeadRow._fields}),
    *HeadRow._fields,
    "conversation_id",
)
_REPLACE_OWNER = prepared(
    update(conversations).where(_IS_CONVERSATION).values(owner=bindparam("its_owner")), "its_owner", "conversation_id"
)


def orphans(driver: Driver, without: Collection[Table] = ()) -> tuple[StorageFault, ...]:
    """Return the faults that are rows of no conversation; those in the tables `without` are none."""
    found = ((table, what, driver.execute(_COUNT_ORPHANS[table]).fetchone()[0]) for table, what in _ROWS)
    unused = len(files.unused(driver))
    without_use = (StorageFault(f"There are files of no conversation: {unused}.", DropUnusedFiles()),) if unused else ()
    return without_use + tuple(
        StorageFault(f"There are {what} of no conversation: {count}.", _REPAIRS.get(table))
        for table, what, count in found
        if count and table not in without
    )


def repair(driver: Driver, repairs: Iterable[Repair]) -> None:
    """Make the repairs of tables; the index of texts is none."""
    for each in repairs:
        if isinstance(each, CountDeliveries):
            key, _ = queries.found(driver, each.conversation_id)
            writing.count_deliveries(driver, key)
        elif not isinstance(each, RebuildIndex):
            _repair_table(driver, each)


TableRepair: TypeAlias = (
    ReplaceHead | ReplaceDetails | DropDelivery | ResetDelivery | DropOrphanedDeliveries | DropFile | DropUnusedFiles
)


def _repair_table(driver: Driver, repair: TableRepair) -> None:
    match repair:
        case ReplaceHead(conversation_id, head):
            driver.execute(_REPLACE_HEAD, (*head, conversation_id))
        case ReplaceDetails(conversation_id, owner, row):
            driver.execute(_REPLACE_OWNER, (owner, conversation_id))
            key, _ = queries.found(driver, conversation_id)
            writing.replace(driver, key, row)
        case DropDelivery(conversation_id, target, effect_id):
            driver.execute(_DROP_DELIVERY, (conversation_id, target, effect_id))
        case ResetDelivery(conversation_id, target, effect_id):
            driver.execute(_RESET_DELIVERY, (conversation_id, target, effect_id))
        case DropOrphanedDeliveries():
            driver.execute(_DROP_ORPHANS)
        case DropFile(conversation_id, sha256, mark):
            files.take_back(driver, conversation_id, sha256, mark)
        case DropUnusedFiles():
            files.remove_unused(driver, files.unused(driver))
