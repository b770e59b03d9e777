"""Writes the tables of docs/reference/settings.md: those of an engine, and those of the terminal.

The meaning of a setting is written once, below its field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from turnwise import Settings
from turnwise.hosts.terminal import configuration

from .field_texts import field_texts


def settings() -> str:
    """Return the table of the settings of an engine: name, default, and meaning."""
    return _table(Settings)


def terminal_settings() -> str:
    """Return the table of the settings that the terminal has beside those of its engine."""
    return _table(configuration.Settings)


def _table(kind: type[Settings]) -> str:
    return "\n".join(["| setting | by default | what it is |", "| --- | --- | --- |", *_rows(kind)]) + "\n"


def _rows(kind: type[Settings]) -> Iterator[str]:
    """One row for each field that the class itself declares."""
    for name, text in field_texts(kind).items():
        if name in kind.model_fields:
            default = kind.model_fields[name].default
            yield f"| `{name}` | {'none' if default in (None, '') else f'`{json.dumps(default)}`'} | {text} |"
