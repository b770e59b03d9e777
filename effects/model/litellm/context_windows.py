"""How much a model can take in, by the name that litellm knows it under.

litellm knows the windows of thousands of models, but takes seconds to import, and a conversation wants to know before
the first request. The list itself is a JSON file in its package, so it is read from there, and litellm is not imported:
tens of milliseconds, once in a process, and only when a window is asked for.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

logger = logging.getLogger("turnwise.model")

_FILE = "model_prices_and_context_window_backup.json"
_RULES = "fallback_generalizations"
"""The entry of the list that holds no model: patterns for names that it does not know yet."""


@dataclass(frozen=True)
class _Listed:
    """The windows that the list knows: provider and window by name, in lower case, and the patterns, in their order."""

    models: Mapping[str, tuple[str, int | None]]
    rules: tuple[tuple[re.Pattern[str], int], ...]


def window_of(name: str) -> int | None:
    """The tokens that a request to the model of this name may hold; None if nobody knows.

    Names are looked up as litellm does: as they stand; without the provider in front, if the list has the name for
    that provider; and then, if they are of a family that is listed, as that family. Raises nothing: without the
    list no window is known.
    """
    listed, wanted = _listed(), name.lower()
    if wanted in listed.models:
        return listed.models[wanted][1]
    provider, _, model = wanted.partition("/")
    if model in listed.models:
        known_for, window = listed.models[model]
        # The list tells apart what one provider offers by several ways: bedrock and bedrock_converse, say.
        return window if known_for.startswith(provider) else None
    return next((window for pattern, window in reversed(listed.rules) if pattern.search(wanted)), None)


@functools.cache
def _listed() -> _Listed:
    try:
        entries = json.loads(_path().read_bytes())
        models = {
            name.lower(): (str(entry.get("litellm_provider") or ""), _tokens(entry))
            for name, entry in entries.items()
            if name != _RULES
        }
        return _Listed(models, tuple(_rules(entries.get(_RULES) or {})))
    except Exception as error:  # whatever shape another version gives its list
        logger.warning("The windows of models cannot be read, so none is known: %s", error)
        return _Listed({}, ())


def _path() -> Path:
    package = find_spec("litellm")
    if package is None or package.origin is None:
        raise FileNotFoundError("litellm is not installed")
    return Path(package.origin).with_name(_FILE)


def _tokens(entry: Mapping[str, Any]) -> int | None:
    """What goes in. Of models without this number the list may have `max_tokens`, which rather is what comes out; a
    window taken for too small would end turns for nothing, so theirs counts as unknown."""
    tokens = entry.get("max_input_tokens")
    return int(tokens) if isinstance(tokens, int | float) and tokens >= 1 else None


def _rules(entry: Mapping[str, Any]) -> Iterator[tuple[re.Pattern[str], int]]:
    for rule in entry.get("rules") or ():
        if (window := _tokens(rule["model_info"])) is not None:
            yield re.compile(rule["pattern"], re.IGNORECASE), window
