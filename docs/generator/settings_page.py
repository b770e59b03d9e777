"""Writes the table of settings in docs/host.md. The meaning of a setting is written once, below its field."""

from __future__ import annotations

import json

from turnwise import Settings

from .field_texts import field_texts


def settings() -> str:
    """Return the table of all settings: name, default, and meaning."""
    texts = field_texts(Settings)
    rows = ["| setting | by default | what it is |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        default = "none" if field.default is None else f"`{json.dumps(field.default)}`"
        rows.append(f"| `{name}` | {default} | {texts[name]} |")
    return "\n".join(rows) + "\n"
