"""Stores conversations so that a crash loses nothing; whoever writes a store needs no other names than those here.

    records/      what every store shares: rows, their encoding, digests, verification
    ports         what an engine needs of a store: `Store`, `Log`, `SearchableStore`
    sqlite/       the store in a SQLite database
    maintenance/  replay, fork, export, import and examination of any store
    opening       which store belongs to a URL

What a step means is for `states/` to say; an effect is never performed here. SQLAlchemy is imported in `sqlite/` only.
Each name is imported on first use, so that importing this package imports no database.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..states.errors import StoreError, UnknownConversation
    from .errors import Damaged, FileGone, NotAnExport, StorageFailed, StoreConflict, TracesLeft
    from .maintenance.doctor import Examination, Finding, examine, repair
    from .maintenance.export import export_all, export_conversation
    from .maintenance.export_reader import read_export
    from .maintenance.fork import ForkPoint, fork
    from .maintenance.imports import Imported, import_records
    from .maintenance.replay import Divergence, ReplayReport, replay, replay_conversation
    from .opening import open_store
    from .ports import DamageableStorage, LoadedConversation, Log, RepairableStorage, SearchableStore, Store
    from .records.codec import decode, decode_state, encode, from_microseconds, to_microseconds
    from .records.conversation_record import ConversationRecord
    from .records.details import Details, details_row
    from .records.digests import GENESIS
    from .records.entry import StoredEntry
    from .records.integrity import read_record, read_steps
    from .records.metadata import json_identity, metadata_entry
    from .records.origin import Origin
    from .records.outbox import Outgoing, Undelivered
    from .records.rows import DetailsRow, EventRow, HeadRow, OutboxRow
    from .records.summary import Place, Summary, place_of, summary_of
    from .records.text_list import TextList
    from .sqlite.store import SqliteStore

_HOMES = {
    "..states.errors": (
        "StoreError",
        "UnknownConversation",
    ),
    ".errors": (
        "Damaged",
        "FileGone",
        "NotAnExport",
        "StorageFailed",
        "StoreConflict",
        "TracesLeft",
    ),
    ".maintenance.doctor": (
        "Examination",
        "examine",
        "Finding",
        "repair",
    ),
    ".maintenance.export": (
        "export_all",
        "export_conversation",
    ),
    ".maintenance.export_reader": ("read_export",),
    ".maintenance.fork": (
        "fork",
        "ForkPoint",
    ),
    ".maintenance.imports": (
        "import_records",
        "Imported",
    ),
    ".maintenance.replay": (
        "Divergence",
        "replay",
        "replay_conversation",
        "ReplayReport",
    ),
    ".opening": ("open_store",),
    ".ports": (
        "DamageableStorage",
        "LoadedConversation",
        "Log",
        "RepairableStorage",
        "SearchableStore",
        "Store",
    ),
    ".records.codec": (
        "decode",
        "decode_state",
        "encode",
        "from_microseconds",
        "to_microseconds",
    ),
    ".records.conversation_record": ("ConversationRecord",),
    ".records.details": (
        "Details",
        "details_row",
    ),
    ".records.digests": ("GENESIS",),
    ".records.entry": ("StoredEntry",),
    ".records.integrity": (
        "read_record",
        "read_steps",
    ),
    ".records.metadata": (
        "json_identity",
        "metadata_entry",
    ),
    ".records.origin": ("Origin",),
    ".records.outbox": (
        "Outgoing",
        "Undelivered",
    ),
    ".records.rows": (
        "DetailsRow",
        "EventRow",
        "HeadRow",
        "OutboxRow",
    ),
    ".records.summary": (
        "Place",
        "place_of",
        "Summary",
        "summary_of",
    ),
    ".records.text_list": ("TextList",),
    ".sqlite.store": ("SqliteStore",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "GENESIS",
    "ConversationRecord",
    "DamageableStorage",
    "Damaged",
    "Details",
    "DetailsRow",
    "Divergence",
    "EventRow",
    "Examination",
    "FileGone",
    "Finding",
    "ForkPoint",
    "HeadRow",
    "Imported",
    "LoadedConversation",
    "Log",
    "NotAnExport",
    "Origin",
    "OutboxRow",
    "Outgoing",
    "Place",
    "RepairableStorage",
    "ReplayReport",
    "SearchableStore",
    "SqliteStore",
    "StorageFailed",
    "Store",
    "StoreConflict",
    "StoreError",
    "StoredEntry",
    "Summary",
    "TextList",
    "TracesLeft",
    "Undelivered",
    "UnknownConversation",
    "decode",
    "decode_state",
    "details_row",
    "encode",
    "examine",
    "export_all",
    "export_conversation",
    "fork",
    "from_microseconds",
    "import_records",
    "json_identity",
    "metadata_entry",
    "open_store",
    "place_of",
    "read_export",
    "read_record",
    "read_steps",
    "repair",
    "replay",
    "replay_conversation",
    "summary_of",
    "to_microseconds",
]


if not TYPE_CHECKING:  # a type checker would take any name for a name of this package

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOME_OF[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
