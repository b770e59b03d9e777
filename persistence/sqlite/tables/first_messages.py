"""The titles of conversations in the tables of older versions, which stored none: those of their first messages.

A migration stores these titles once, by the SQL function `message_title`. A database that is only read is not migrated:
there, views take the place of the missing tables, so that the same statements read it.
"""

from __future__ import annotations

import json
import sqlite3

from ...records.titles import message_title

_DETAILS = """
CREATE TEMP VIEW details AS
SELECT key AS conversation, NULL AS title, (
    SELECT message_title(CAST(payload AS BLOB)) FROM events
    WHERE events.conversation = key AND type = 'user_message' ORDER BY seq LIMIT 1
) AS first_message, NULL AS metadata
FROM conversations
"""
_METADATA_ENTRIES = "CREATE TEMP VIEW metadata_entries AS SELECT NULL AS entry, NULL AS conversation WHERE false"


def add_function(driver: sqlite3.Connection) -> None:
    """Give this connection the SQL function `message_title`."""
    driver.create_function("message_title", 1, _title, deterministic=True)


def add_views(driver: sqlite3.Connection) -> None:
    """Give this connection views in place of the tables `details` and `metadata_entries`."""
    add_function(driver)
    driver.execute(_DETAILS)
    driver.execute(_METADATA_ENTRIES)


def _title(payload: bytes) -> str | None:
    """Return the title that the payload of a `UserMessage` gives; None if damage has made it unreadable."""
    try:
        message = json.loads(payload)
        return message_title(message["text"], len(message.get("images", ())))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
