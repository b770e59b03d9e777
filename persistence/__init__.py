"""Stores conversations so that a crash loses nothing; whoever writes a store needs no other names than those here.

    ports         what an engine needs of a store: `Store`, `Log`, `SearchableStore`
    records       what every store shares: the rows of a conversation and their verification
    codec         how steps are encoded in rows
    summaries     what a list of conversations shows, as it follows from their events
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
    from .codec import (
        GENESIS,
        decode,
        decode_state,
        encode,
        from_microseconds,
        read_record,
        read_steps,
        to_microseconds,
    )
    from .errors import Damaged, FileGone, NotAnExport, StorageFailed, StoreConflict, TracesLeft
    from .maintenance.doctor import Examination, Finding, examine, repair
    from .maintenance.export import Imported, export_all, export_conversation, import_records
    from .maintenance.fork import ForkPoint, fork
    from .maintenance.reading import read_export
    from .maintenance.replay import Divergence, ReplayReport, replay, replay_conversation
    from .opening import open_store
    from .ports import DamageableStorage, LoadedConversation, Log, RepairableStorage, SearchableStore, Store
    from .records import (
        ConversationRecord,
        DetailsRow,
        EventRow,
        HeadRow,
        Origin,
        OutboxRow,
        Outgoing,
        StoredEntry,
        Undelivered,
    )
    from .sqlite.store import SqliteStore
    from .summaries import (
        EVERYTHING,
        ConversationFilter,
        Details,
        Place,
        Summary,
        details_row,
        json_identity,
        metadata_entry,
        place_of,
        summary_of,
    )
    from .words import MAX_RECENT, holds, keywords_of, unit_vector, words_of

_HOMES = {
    "..states.errors": (
        "StoreError",
        "UnknownConversation",
    ),
    ".codec": (
        "decode",
        "decode_state",
        "encode",
        "from_microseconds",
        "GENESIS",
        "read_record",
        "read_steps",
        "to_microseconds",
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
        "import_records",
        "Imported",
    ),
    ".maintenance.fork": (
        "fork",
        "ForkPoint",
    ),
    ".maintenance.reading": ("read_export",),
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
    ".records": (
        "ConversationRecord",
        "DetailsRow",
        "EventRow",
        "HeadRow",
        "Origin",
        "OutboxRow",
        "Outgoing",
        "StoredEntry",
        "Undelivered",
    ),
    ".sqlite.store": ("SqliteStore",),
    ".summaries": (
        "ConversationFilter",
        "Details",
        "details_row",
        "EVERYTHING",
        "json_identity",
        "metadata_entry",
        "Place",
        "place_of",
        "Summary",
        "summary_of",
    ),
    ".words": (
        "holds",
        "keywords_of",
        "MAX_RECENT",
        "unit_vector",
        "words_of",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "EVERYTHING",
    "GENESIS",
    "MAX_RECENT",
    "ConversationFilter",
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
    "holds",
    "import_records",
    "json_identity",
    "keywords_of",
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
    "unit_vector",
    "words_of",
]


if not TYPE_CHECKING:  # a type checker would take any name for a name of this package

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOME_OF[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
