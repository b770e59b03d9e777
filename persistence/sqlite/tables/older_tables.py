"""What the tables of older versions did not store, although the logs say it: the titles of conversations that their
first messages give, and the roles and parents that their first steps name.

A migration stores these values once, by SQL functions. A database that is only read is not migrated: there, views take
the place of the missing tables and columns, so that the same statements read it.
"""

from __future__ import annotations

import json
import sqlite3

from ...records.digests import delivery_checksum, origin_checksum
from ...records.titles import message_title
from .schema import conversations, forks, outbox

_OPENED = "(SELECT opened_field(CAST(payload AS BLOB), '{}') FROM main.events WHERE conversation = key AND seq = 1)"
_AGENT = {name: _OPENED.format(name) for name in ("role", "parent", "works_for")}
_FIRST_MESSAGE = """(
    SELECT message_title(CAST(payload AS BLOB)) FROM main.events
    WHERE conversation = key AND type = 'user_message' ORDER BY seq LIMIT 1
)"""
_CONVERSATIONS = {column.name: column.name for column in conversations.columns}
_OUTBOX = {column.name: column.name for column in outbox.columns} | {"begun": "0"}
_FORKS = {column.name: column.name for column in forks.columns} | {"checksum": "NULL"}
_VIEW = "CREATE TEMP VIEW {} AS SELECT {} FROM main.{} {}"
_ACKNOWLEDGEMENTS = "CREATE TEMP VIEW acknowledgements AS SELECT NULL AS conversation, NULL AS checksum WHERE false"
_METADATA_ENTRIES = "CREATE TEMP VIEW metadata_entries AS SELECT NULL AS entry, NULL AS conversation WHERE false"


def add_functions(driver: sqlite3.Connection) -> None:
    """Give this connection the SQL functions that the migrations use."""
    driver.create_function("message_title", 1, _title, deterministic=True)
    driver.create_function("opened_field", 2, _opened_field, deterministic=True)
    driver.create_function("delivery_checksum", 2, delivery_checksum, deterministic=True)
    driver.create_function("origin_checksum", 3, origin_checksum, deterministic=True)


def add_views(driver: sqlite3.Connection, revision: str) -> None:
    """Give this connection views in place of what the tables of this revision lack: `details` and `metadata_entries`
    before 0004; the role, the parent and the wake-up before 0006; the checksums, and the attempts in which processes
    have died, before 0007."""
    if revision >= "0007":
        return
    driver.execute(_VIEW.format("outbox", _selected(_OUTBOX), "outbox", ""))
    driver.execute(_VIEW.format("forks", _selected(_FORKS), "forks", ""))
    driver.execute(_ACKNOWLEDGEMENTS)
    older = {"sent": "NULL"} if revision >= "0006" else {"sent": "NULL", "wakes_at": "NULL"}
    driver.execute(_VIEW.format("conversations", _selected(_CONVERSATIONS | older), "conversations", ""))
    if revision >= "0006":
        return
    add_functions(driver)
    details = {"conversation": "key", "title": "title", "first_message": "first_message", "metadata": "metadata"}
    stored = "LEFT JOIN main.details ON main.details.conversation = key"
    if revision < "0004":
        details |= {"title": "NULL", "first_message": _FIRST_MESSAGE, "metadata": "NULL"}
        stored = ""
        driver.execute(_METADATA_ENTRIES)
    driver.execute(_VIEW.format("details", _selected(details | _AGENT), "conversations", stored))


def _selected(columns: dict[str, str]) -> str:
    return ", ".join(f"{value} AS {name}" for name, value in columns.items())


def _title(payload: bytes) -> str | None:
    """Return the title that the payload of a `UserMessage` gives; None if damage has made it unreadable."""
    try:
        message = json.loads(payload)
        return message_title(message["text"], len(message.get("images", ())))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _opened_field(payload: bytes, name: str) -> str | None:
    """Return a text of the payload of an `Opened`; None if there is none, or if damage has made it unreadable.

    Most payloads lack it, and a given history makes some of them long. So a payload is only parsed if it may have it.
    """
    if f'"{name}":"'.encode() not in payload:
        return None
    try:
        value = json.loads(payload).get(name)
    except (ValueError, AttributeError, RecursionError):
        return None
    known = value in ("background", "sub_agent") if name == "role" else isinstance(value, str)
    return value if known else None
