"""Makes JSON of models and tools fit to be stored.

`states.values.surrogates` says why lone surrogates are replaced; JSON text can also hold them as escapes.
"""

from __future__ import annotations

import json
import re

from ..states.values.value import encodable

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL)
"""One escape in JSON text: a pair of surrogates, a lone surrogate (the group), or any other."""


def encodable_json(text: str) -> str:
    """Return JSON text with each lone surrogate replaced, also where it is written as an escape. `Pure.`"""
    text = encodable(text)
    return _ESCAPE.sub(lambda escape: "\\ufffd" if escape[1] else escape[0], text) if "\\u" in text else text


def is_encodable(value: object) -> bool:
    """Return whether a JSON value has no lone surrogate at any depth. `Pure.`"""
    try:
        (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError:
        return False
    return True
