"""Conversation ids as users write them: an id, or the beginning of one that no other id shares."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import pairwise

from ....persistence.ports import Store
from ....states.errors import InvalidInput, UnknownConversation
from ..output.printable import one_line

SHORTEST = 8
"""The fewest characters of a short id: enough to stay unique while a few more conversations are begun."""

_MAX_CANDIDATES = 5


async def resolve_id(store: Store, given: str) -> str:
    """Return the id that is `given`, or else the only one that begins with it.

    The id of a sub-agent is that of the conversation that started it, a number and a mark, behind slashes. So the
    beginning that these two share names the conversation itself. The number may stand behind a beginning, too, and the
    mark may be left out.

    Raises `UnknownConversation`, and `InvalidInput` with the candidates if there are several.
    """
    found = await _beginning_with(store, given)
    upper, slash, number = given.rpartition("/")
    while found is None and slash:
        started_by = await _beginning_with(store, upper)
        found = None if started_by is None else await _beginning_with(store, f"{started_by}/{number}")
        upper, slash, rest = upper.rpartition("/")
        number = f"{rest}/{number}"
    if found is None:
        raise UnknownConversation(given)
    return found


async def _beginning_with(store: Store, given: str) -> str | None:
    """Return the id that is `given`, or the only one that begins with it, apart from those of its sub-agents."""
    candidates = await store.ids(given) if given else ()
    if given in candidates or not candidates:
        return given if candidates else None
    candidates = tuple(each for each in candidates if each.startswith(f"{given}/")) or candidates
    shortest = min(candidates, key=len)
    if not all(each == shortest or each.startswith(f"{shortest}/") for each in candidates):
        raise InvalidInput(_ambiguity(given, candidates))
    return shortest


def _ambiguity(given: str, candidates: Sequence[str]) -> str:
    listed = ", ".join(one_line(each) for each in candidates[:_MAX_CANDIDATES])
    more = len(candidates) - _MAX_CANDIDATES
    rest = f" and {more} more" if more > 0 else ""
    return f"{len(candidates)} conversations have an id that begins with {one_line(given)}: {listed}{rest}."


def short_ids(ids: Iterable[str]) -> Mapping[str, str]:
    """Return for each id its shortest beginning that no other one shares, of at least `SHORTEST` characters. That of a
    sub-agent is the one of the conversation that started it, with the rest. `Pure.`"""
    everything = set(ids)
    uppers = {each: _started_by(each, everything) for each in everything}
    short = _shortest({each for each, upper in uppers.items() if upper is None})
    for each in sorted(everything - short.keys(), key=len):  # a conversation comes before those that it started
        upper = uppers[each] or ""
        short[each] = f"{short[upper]}{each[len(upper) :]}"
    return short


def _started_by(conversation_id: str, ids: Container[str]) -> str | None:
    """Return the longest of these ids that this one continues behind a slash."""
    upper = conversation_id
    while "/" in upper:
        upper = upper.rpartition("/")[0]
        if upper in ids:
            return upper
    return None


def _shortest(ids: Iterable[str]) -> dict[str, str]:
    known = sorted(ids)
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
