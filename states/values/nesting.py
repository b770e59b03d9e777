"""How deeply lists and objects of JSON lie inside each other."""

from __future__ import annotations

from typing import Any

DEEPEST = 100
"""How deeply a JSON value from a client or a model is shown or taken over HTTP. Chosen so that it can be written with
everything that is around it: pydantic writes values of up to 255 levels."""


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether more than `levels` lists and objects lie inside each other. It does not recurse. `Pure.`"""
    layer = [value]
    for _ in range(levels + 1):
        layer = [one for one in layer if isinstance(one, list | dict)]
        if not layer:
            return False
        layer = [inner for one in layer for inner in (one.values() if isinstance(one, dict) else one)]
    return True
