"""What can be wrong with a SQLite file as a whole, and the SQL of the repairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from sqlalchemy import ColumnElement, Connection, Executable, Table, bindparam, delete, select, update

from ..records import (
    CountDeliveries,
    DropDelivery,
    DropOrphanedDeliveries,
    RebuildIndex,
    Repair,
    ReplaceDetails,
    ReplaceHead,
    ResetDelivery,
    StorageFault,
)
from ..sql import queries, writing
from ..sql.schema import (
    acknowledgements,
    conversations,
    details,
    events,
    forks,
    metadata_entries,
    outbox,
    text_positions,
    texts,
)
from .file import driver_of

_FINDINGS_OF_SQLITE = 20
"""How many faults SQLite reports at most: enough to show what kind of damage it is."""

_CHECK = f"PRAGMA integrity_check({_FINDINGS_OF_SQLITE})"

_ROWS = (
    (events, "steps"),
    (outbox, "deliveries that wait"),
    (acknowledgements, "sums of receipts"),
    (forks, "origins"),
    (details, "titles"),
    (metadata_entries, "entries of metadata"),
    (texts, "texts"),
    (text_positions, "positions of the index"),
)
_REPAIRS: dict[Table, Repair] = {
    outbox: DropOrphanedDeliveries(),
    texts: RebuildIndex(),
    text_positions: RebuildIndex(),
}
TableRepair: TypeAlias = ReplaceHead | ReplaceDetails | DropDelivery | ResetDelivery | DropOrphanedDeliveries

_KEY = select(conversations.c.key).where(conversations.c.id == bindparam("conversation_id")).scalar_subquery()
_IS_DELIVERY = (
    outbox.c.conversation == _KEY,
    outbox.c.target == bindparam("to"),
    outbox.c.effect_id == bindparam("effect"),
)
_DROP_DELIVERY = delete(outbox).where(*_IS_DELIVERY)
_RESET_DELIVERY = update(outbox).where(*_IS_DELIVERY).values(attempts=0, next_attempt=None, begun=0)
_IS_CONVERSATION = conversations.c.id == bindparam("conversation_id")
_REPLACE = update(conversations).where(_IS_CONVERSATION)


def faults(connection: Connection) -> tuple[StorageFault, ...]:
    """Return what SQLite itself reports, and rows that belong to no conversation."""
    found = [
        StorageFault(f"SQLite finds the file damaged: {line}")
        for line in connection.exec_driver_sql(_CHECK).scalars()
        if line != "ok"
    ]
    (is_erasing,) = connection.exec_driver_sql("PRAGMA user_version").one()
    for table, what in _ROWS:
        if is_erasing and table in (events, texts, text_positions):
            continue  # they are of conversations that are being deleted
        count = len(connection.execute(select(table.c.conversation).where(_is_orphan(table))).all())
        if count:
            found.append(StorageFault(f"There are {what} of no conversation: {count}.", _REPAIRS.get(table)))
    return tuple(found)


def repair(connection: Connection, repairs: Iterable[Repair]) -> None:
    """Make the repairs of tables; the index of texts is none."""
    for each in repairs:
        if isinstance(each, RebuildIndex):
            continue
        if isinstance(each, CountDeliveries):
            key, _ = queries.found(driver_of(connection), each.conversation_id)
            writing.count_deliveries(driver_of(connection), key)
            continue
        statement, parameters = _statement(each)
        connection.execute(statement, parameters)
        if isinstance(each, ReplaceDetails):
            key, _ = queries.found(driver_of(connection), each.conversation_id)
            writing.replace(driver_of(connection), key, each.details)


def _statement(repair: TableRepair) -> tuple[Executable, dict[str, object]]:
    match repair:
        case ReplaceHead(conversation_id, head):
            return _REPLACE.values(**head._asdict()), {"conversation_id": conversation_id}
        case ReplaceDetails(conversation_id, owner):
            return _REPLACE.values(owner=owner), {"conversation_id": conversation_id}
        case DropDelivery(conversation_id, target, effect_id):
            return _DROP_DELIVERY, {"conversation_id": conversation_id, "to": target, "effect": effect_id}
        case ResetDelivery(conversation_id, target, effect_id):
            return _RESET_DELIVERY, {"conversation_id": conversation_id, "to": target, "effect": effect_id}
        case DropOrphanedDeliveries():
            return delete(outbox).where(_is_orphan(outbox)), {}


def _is_orphan(table: Table) -> ColumnElement[bool]:
    return table.c.conversation.not_in(select(conversations.c.key))
