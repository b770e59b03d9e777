"""Joins the fields of a streamed answer that mean something to its provider alone.

A signature or a sealed thought must go back exactly as it came. It comes in pieces like the rest of the answer: in an
object that gains fields, in a list that gains items, or as items of one index whose texts are cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CUT = ("text", "summary", "data", "thinking", "content")
"""The texts of an item that come in pieces; others come whole."""


def merged(before: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with those of a further piece. Nulls say nothing. `Pure.`"""
    told = {name: value for name, value in more.items() if value is not None}
    return {
        **before,
        **{name: _joined(before[name], value) if name in before else value for name, value in told.items()},
    }


def _joined(before: Any, more: Any) -> Any:
    match before, more:
        case dict(), dict():
            return merged(before, more)
        case list(), list():
            return more if more[: len(before)] == before else _with_items(before, more)
        case _:
            return more if more not in ("", None) else before


def _with_items(before: list[Any], more: list[Any]) -> list[Any]:
    items = list(before)
    for item in more:
        place = next((place for place, other in enumerate(items) if _is_of(other, item)), None)
        if place is None:
            items.append(item)
        else:
            items[place] = _grown(items[place], item)
    return items


def _is_of(item: Any, piece: Any) -> bool:
    """Whether this is a piece of that item: it has the same index and type."""
    if not isinstance(item, dict) or not isinstance(piece, dict) or piece.get("index") is None:
        return False
    return bool(item.get("index") == piece["index"] and item.get("type") == piece.get("type"))


def _grown(item: dict[str, Any], piece: dict[str, Any]) -> dict[str, Any]:
    texts = {
        name: item[name] + piece[name]
        for name in _CUT
        if isinstance(item.get(name), str) and isinstance(piece.get(name), str)
    }
    return {**merged(item, piece), **texts}
