"""Conversation ids as users write them: an id, or the beginning of one that no other id shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from ....persistence.ports import Store
from ....states.errors import InvalidInput, UnknownConversation
from ..output.printable import one_line

SHORTEST = 8
"""The fewest characters of a short id: enough to stay unique while a few more conversations are begun."""

_MAX_CANDIDATES = 5


async def resolve_id(store: Store, given: str) -> str:
    """Return the id that is `given`, or else the only one that begins with it.

    Raises `UnknownConversation`, and `InvalidInput` with the candidates if there are several.
    """
    candidates = await store.ids(given) if given else ()
    if given in candidates:
        return given
    if not candidates:
        raise UnknownConversation(given)
    if len(candidates) > 1:
        raise InvalidInput(_ambiguity(given, candidates))
    return candidates[0]


def _ambiguity(given: str, candidates: Sequence[str]) -> str:
    listed = ", ".join(one_line(each) for each in candidates[:_MAX_CANDIDATES])
    more = len(candidates) - _MAX_CANDIDATES
    rest = f" and {more} more" if more > 0 else ""
    return f"{len(candidates)} conversations have an id that begins with {one_line(given)}: {listed}{rest}."


def short_ids(ids: Iterable[str]) -> Mapping[str, str]:
    """Return for each id its shortest beginning that no other one shares, of at least `SHORTEST` characters. `Pure.`"""
    known = sorted(set(ids))
    lengths = dict.fromkeys(known, SHORTEST)
    for first, second in pairwise(known):
        needed = _shared(first, second) + 1
        lengths[first] = max(lengths[first], needed)
        lengths[second] = max(lengths[second], needed)
    return {each: each[:length] for each, length in lengths.items()}


def _shared(first: str, second: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))
