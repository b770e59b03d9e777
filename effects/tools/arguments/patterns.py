"""Leaves the regular expressions of a schema unchecked, where nobody vouches for who wrote them.

Python's regular expressions can take time that grows exponentially with the text, and nothing can interrupt them.
"""

from __future__ import annotations

from typing import Any

_APPLY_A_PATTERN = ("pattern", "patternProperties")
_LOOK_AT_OTHER_PATTERNS = ("additionalProperties", "unevaluatedProperties")
"""Keywords about the properties that no pattern beside them matches."""


def without_patterns(dialect: Any, schema: str) -> Any:
    """The class of validators for the same dialect that applies no regular expression of this schema, JSON text."""
    from jsonschema.validators import extend  # type: ignore[import-untyped]  # only for tools with a schema

    others = _LOOK_AT_OTHER_PATTERNS if '"patternProperties"' in schema else ()
    return extend(dialect, dict.fromkeys((*_APPLY_A_PATTERN, *others), _accept))


def _accept(validator: Any, wanted: object, instance: object, schema: object) -> tuple[()]:
    """Yield no error: the function of a keyword, as `jsonschema` calls it."""
    return ()
