"""Leaves the regular expressions of a schema unchecked, where nobody vouches for who wrote them.

Python's regular expressions can take time that grows exponentially with the text, and nothing can interrupt them. So
can a look for unevaluated parts that follows references.
"""

from __future__ import annotations

from functools import cache
from typing import Any

_APPLY_A_PATTERN = ("pattern", "patternProperties")
_LOOK_AT_OTHER_PATTERNS = ("additionalProperties", "unevaluatedProperties")
"""Keywords about the properties that no pattern beside them matches."""

_FOLLOW_REFERENCES = ("unevaluatedProperties", "unevaluatedItems")
"""Keywords that follow references by themselves."""


def without_patterns(dialect: Any, schema: str) -> Any:
    """The class of validators for the same dialect that applies no regular expression of this schema, JSON text."""
    has_patterns, has_references = '"patternProperties"' in schema, 'Ref"' in schema or '"$ref"' in schema
    others = (*_LOOK_AT_OTHER_PATTERNS * has_patterns, *_FOLLOW_REFERENCES * has_references)
    return _without(dialect, (*_APPLY_A_PATTERN, *others))


@cache
def _without(dialect: Any, keywords: tuple[str, ...]) -> Any:
    from jsonschema.validators import extend  # type: ignore[import-untyped]  # only for tools with a schema

    return extend(dialect, dict.fromkeys(keywords, _accept))


def _accept(validator: Any, wanted: object, instance: object, schema: object) -> tuple[()]:
    """Yield no error: the function of a keyword, as `jsonschema` calls it."""
    return ()
