"""How the values of statements are sent, above all texts that PostgreSQL would not take.

PostgreSQL's texts hold every character but NUL. Names that an application or a person gives may have it, so in them it
is escaped, and so is the character that escapes it. JSON escapes both by itself.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumperUnknown, TextLoader

_ESCAPE, _ESCAPED, _NUL = "\1", "\1\2", "\1\3"


def escaped(text: str) -> str:
    """Return the text without NUL. No two texts are escaped to the same one, and a prefix to a prefix. `Pure.`"""
    if "\0" in text or _ESCAPE in text:
        return text.replace(_ESCAPE, _ESCAPED).replace("\0", _NUL)
    return text


def unescaped(text: str) -> str:
    """Return the text that was escaped. `Pure.`"""
    if _ESCAPE in text:
        return text.replace(_NUL, "\0").replace(_ESCAPED, _ESCAPE)
    return text


class _TextDumper(StrDumperUnknown):
    """Writes texts as parameters."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class _TextLoader(TextLoader):
    """Reads columns of texts."""

    def load(self, data: Buffer) -> bytes | str:
        text = super().load(data)
        return unescaped(text) if isinstance(text, str) else text


def adapt(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Have a connection escape texts, and send every integer with 64 bits: the server keeps a plan for each combination
    of sizes. To be called once, when it was opened."""
    connection.adapters.register_dumper(str, _TextDumper)
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_loader("text", _TextLoader)
