"""Removes keys from what is logged of a provider's errors, which may quote the keys of this program.

They are known by their values, and removed whatever the rules of a conversation are. Secrets of what was said are
another matter: `effects/logs.py` keeps them out of the log where a conversation asks for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_KEY = re.compile(r"\b(?:Bearer\s+\S+|(?:sk|pk|rk|gsk|hf|xai|AIza|key)[-_]?[\w*-]{8,})", re.IGNORECASE)
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)

_SHORTEST_SECRET = 6
"""Characters. Shorter values are not replaced: they occur in ordinary words, and the log would become unreadable."""


def without_keys(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with `***` in place of each of the `secrets`, of the values of environment variables whose names suggest
    a secret, and of everything that has the form of a key."""
    known = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)} | set(secrets)
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return _KEY.sub("***", text)
