"""Puts the calls of an answer together from the fragments in which they stream.

OpenAI's protocol numbers the calls: each fragment has the index of its call, the first one also an id and a name, and
the arguments are cut anywhere. Other servers write every call under one index or under none, give all calls one id or
each fragment a new one, cut or repeat names, repeat the arguments that came before, write `{}` before them, or send a
call again when it is complete. No fragment says which of these it follows.

So the fragments are kept, and are read when the last one has come. First they are sorted into lanes, by what names a
call: index and id. Within a lane a table says what may begin a new call. Of its readings those hold in which every
call has a name, and arguments that are one JSON object. If they agree, those are the calls that were written. If none
holds, or if they differ, the answer is malformed: whatever ran then might not be what the model wrote.

The fields that mean something to the provider alone are joined, too: a signature or a sealed thought must go back as
it came. It comes in an object that gains fields, in a list that gains items, or as items of one index whose texts are
cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ....states.values.value import encodable
from ..port import ModelCall

_AROUND_NAMES = re.compile(r"^(?:functions|tools|default_api)[.:/]|(?::\d+)?(?:<\|.*)?$", re.DOTALL)
"""Namespaces, numbers and marks that belong to the templates in which models see their tools."""


class AmbiguousCalls(ValueError):
    """The fragments can be read in several ways, or in none."""


@dataclass(frozen=True)
class Fragment:
    """A piece of a call as it came in the delta with the number `delta`; what was not told is None or empty. `opaque`
    are the fields that are no part of the protocol."""

    delta: int
    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: str = ""
    opaque: Mapping[str, Any] = field(default_factory=dict)


def assemble_calls(
    fragments: Sequence[Fragment], names: Collection[str] = (), *, is_cut: bool = False
) -> tuple[ModelCall, ...]:
    """The calls, in the order in which they began. `names` are those of the tools that the model was offered. Of an
    answer that `is_cut` the last call may be incomplete.

    The arguments of a call are empty if none came. Those that are no JSON object are handed on as they were written,
    where nothing else is unusual about their call. Raises `AmbiguousCalls`. `Pure.`
    """
    told = [fragment for fragment in fragments if fragment.id or fragment.name or fragment.arguments]
    calls = _read(told, names, is_cut)
    return tuple(_without_repeats(told, names, calls) if len(calls) > 1 else calls)


def _read(fragments: Sequence[Fragment], names: Collection[str], is_cut: bool) -> list[ModelCall]:
    calls = [call for lane in _Lanes(fragments).lanes for call in _read_lane(lane, names, is_cut)]
    if not all(call.name for call in calls):
        raise AmbiguousCalls("a call has no name")
    return calls


# --- lanes: what index and id say about which fragments belong together


class _Lanes:
    """The fragments by index. Those without one are told apart by their ids, and without an id they follow the fragment
    before them. So does a fragment under a new index that begins no call."""

    def __init__(self, fragments: Iterable[Fragment]) -> None:
        self.lanes: list[list[Fragment]] = []
        self._by_index: dict[int | None, list[Fragment]] = {}
        self._by_id: dict[str, list[Fragment]] = {}
        newest: list[Fragment] | None = None
        for fragment in fragments:
            newest = self._lane_of(fragment, newest)
            newest.append(fragment)

    def _lane_of(self, fragment: Fragment, newest: list[Fragment] | None) -> list[Fragment]:
        is_numbered = fragment.index is not None
        lane = self._by_index.get(fragment.index) if is_numbered or fragment.name else None
        if not is_numbered or (lane is None and not fragment.name):
            lane = self._by_id.get(fragment.id) or lane
        if lane is None and not fragment.name:
            lane = newest
        if lane is None:
            lane = []
            self.lanes.append(lane)
        if is_numbered or fragment.name:
            self._by_index.setdefault(fragment.index, lane)
        if fragment.id:
            self._by_id.setdefault(fragment.id, lane)
        return lane


# --- readings: what may begin a new call within a lane

Group = list[Fragment]
"""The fragments of one call."""


def _by_id(lane: Sequence[Fragment]) -> list[Group]:
    """Each id is a call. A fragment without an id belongs to the one before it."""
    groups: dict[str, Group] = {}
    newest = ""
    for fragment in lane:
        newest = fragment.id or newest
        groups.setdefault(newest, []).append(fragment)
    return list(groups.values())


def _by_name(lane: Sequence[Fragment]) -> list[Group]:
    """Each name begins a call."""
    groups: list[Group] = []
    for fragment in lane:
        if fragment.name.strip() or not groups:
            groups.append([])
        groups[-1].append(fragment)
    return groups


def _as_one(lane: Sequence[Fragment]) -> list[Group]:
    """Nothing begins a call but the first fragment."""
    return [list(lane)]


_READINGS: tuple[Callable[[Sequence[Fragment]], list[Group]], ...] = (_by_id, _by_name, _as_one)


def _read_lane(lane: Sequence[Fragment], names: Collection[str], is_cut: bool) -> list[ModelCall]:
    if _is_plain(lane):
        return [_plain_call(lane, names)]
    found = {reading: calls for reading in _READINGS if (calls := _calls_of(reading(lane), names)) is not None}
    known = {reading: calls for reading, calls in found.items() if all(call.name in names for call in calls)}
    found = known or found
    if _by_id in found and all(group[0].name and _is_whole(group) for group in _by_id(lane)):
        return found[_by_id]
    if not found and is_cut:
        return [_plain_call(group, names) for group in _by_name(lane)]
    contents = [[(call.name, _value(call.arguments)) for call in calls] for calls in found.values()]
    if not contents or any(content != contents[0] for content in contents):
        raise AmbiguousCalls("the fragments of the calls cannot be told apart")
    return next(iter(found.values()))


def _is_plain(lane: Sequence[Fragment]) -> bool:
    """Whether only the first fragment has a name, and none another id: this is one call, as the protocol has it."""
    first = lane[0]
    return not any(fragment.name.strip() or fragment.id not in ("", first.id) for fragment in lane[1:])


def _plain_call(group: Sequence[Fragment], names: Collection[str]) -> ModelCall:
    """The call of these fragments, with its arguments as they were written if they are no JSON object. Raises
    `AmbiguousCalls` where another object follows behind a complete one: it may belong to another call."""
    arguments = _arguments_of(group)
    if arguments is None:
        arguments = "".join(fragment.arguments for fragment in group)
        if _holds_two_objects(arguments):
            raise AmbiguousCalls("the arguments of a call are followed by others")
    return _call(group, _name_of(group, names), arguments)


def _calls_of(groups: Sequence[Group], names: Collection[str]) -> list[ModelCall] | None:
    """The calls of these groups; None if one of them has no name or no JSON object as its arguments."""
    calls: list[ModelCall] = []
    for before, group in zip([None, *groups], groups, strict=False):
        name, arguments = _name_of(group, names), _arguments_of(group)
        if not name or arguments is None or (before and _is_head(before, group)):
            return None
        if before and calls[-1].name == name and _is_same(calls[-1].arguments, arguments) and _repeats(before, group):
            continue
        calls.append(_call(group, name, arguments))
    return calls


def _is_head(before: Group, group: Group) -> bool:
    """Whether the group before may be the head of this call, and no call of its own: it has the same name and no
    arguments, where this one has some. A placeholder is none, unless ids or places in a delta tell the two apart."""
    first, second = before[0], group[0]
    if first.name.strip() != second.name.strip() or not (text := _text_of(group)):
        return False
    if not _text_of(before):
        return True
    is_apart = first.delta == second.delta or (first.id and second.id and first.id != second.id)
    return not is_apart and len(before) == 1 and _is_placeholder(first) and not _is_same(text, first.arguments)


def _repeats(before: Sequence[Fragment], group: Sequence[Fragment]) -> bool:
    """Whether a whole call after these fragments, equal to theirs, is the same one, sent again.

    It is if it has no name of its own, or if the fragments came in pieces. Else index or id must say so: two equal
    calls that came whole may both be meant.
    """
    first, again = before[0], group[0]
    if len(group) > 1 or again.delta == before[-1].delta:
        return False
    in_pieces = sum(bool(fragment.arguments) for fragment in before) > 1 or not first.arguments
    same_id = again.id in ("", first.id) if first.index is not None and first.index == again.index else False
    return not again.name or in_pieces or same_id or (bool(again.id) and again.id == first.id)


def _call(group: Sequence[Fragment], name: str, arguments: str) -> ModelCall:
    opaque: Mapping[str, Any] = {}
    for fragment in group:
        if fragment.opaque:
            opaque = merged(opaque, fragment.opaque)
    call_id = next((fragment.id for fragment in group if fragment.id), "")
    return ModelCall(call_id, name, arguments, opaque)


# --- what the fragments of one call say together


def _name_of(group: Sequence[Fragment], names: Collection[str]) -> str:
    """The name of the call, without what a model puts around the name of an offered tool."""
    name = _told_name(group, names)
    bare = _AROUND_NAMES.sub("", name)
    return bare if name not in names and bare in names else name


def _told_name(group: Sequence[Fragment], names: Collection[str]) -> str:
    """The name that was cut, repeated, or repeated with each piece; that of an offered tool if one of these is. Empty
    if two names of tools would make one."""
    told = [fragment.name for fragment in group if fragment.name.strip()]
    if len(told) < 2:
        return told[0].strip() if told else ""
    stripped = [name.strip() for name in told]
    readings = ["".join(told).strip(), "".join(stripped)]
    if all(later.startswith(earlier) for earlier, later in pairwise(stripped)):
        readings.insert(0, stripped[-1])
    if found := next((name for name in readings if name in names), ""):
        return found
    return readings[0] if not any(name in names for name in stripped) else ""


def _arguments_of(group: Sequence[Fragment]) -> str | None:
    """The arguments that the pieces say: empty if there are none, None if they are no JSON object."""
    text = _text_of(group)
    if not text or is_object(text):
        return text
    *before, last = group
    if len(before) > 1 and not last.name and last.arguments.strip() and _is_placeholder(last):
        return _arguments_of(before)
    first = next((place for place, fragment in enumerate(group) if not _is_placeholder(fragment)), 0)
    has_placeholder = any(fragment.arguments.strip() for fragment in group[:first])
    if has_placeholder and any(fragment.name.strip() for fragment in group[1 : first + 1]):
        return None
    if has_placeholder and is_object(text := _text_of(group[first:])):
        return text
    if any(fragment.name.strip() and not fragment.arguments.strip() for fragment in group[1:]):
        return None  # the head of another call
    return _cumulative(group[first:]) or _told_again(group[first:])


def _cumulative(group: Sequence[Fragment]) -> str | None:
    """The last piece, if each one repeats those before it."""
    pieces = [fragment.arguments for fragment in group if fragment.arguments.strip()]
    repeat = all(later.startswith(earlier) for earlier, later in pairwise(pieces))
    return pieces[-1] if repeat and not is_object(pieces[0]) and is_object(pieces[-1]) else None


def _told_again(group: Sequence[Fragment]) -> str | None:
    """What the pieces before the last say, if that says all of it again."""
    *before, last = group
    if not before or not is_object(last.arguments) or not _repeats(before, [last]):
        return None
    text = _text_of(before)
    earlier = text if is_object(text) else _cumulative(before)
    return earlier if earlier and _is_same(earlier, last.arguments) else None


def _is_placeholder(fragment: Fragment) -> bool:
    """Whether this is what some servers write before they begin with the arguments, if they write anything."""
    return fragment.arguments.strip() in ("", "{}", "null", '""')


def _text_of(group: Sequence[Fragment]) -> str:
    text = "".join(fragment.arguments for fragment in group)
    return encodable(text) if text.strip() else ""


def _is_whole(group: Group) -> bool:
    """Whether the first fragment with arguments has all of them, if one has any."""
    first = next((fragment.arguments for fragment in group if fragment.arguments.strip()), "")
    return not first or is_object(first)


def _value(text: str) -> object:
    """The value of JSON text, which may hold raw line ends; the text itself if it is none."""
    try:
        return json.loads(text, strict=False) if text else {}
    except (ValueError, RecursionError):
        return text


def is_object(text: str) -> bool:
    """Whether the text is one JSON object, which may be encoded twice. `Pure.`"""
    if not text:
        return False
    value = _value(text)
    return isinstance(value, dict) or (isinstance(value, str) and value != text and isinstance(_value(value), dict))


def _is_same(first: str, second: str) -> bool:
    return _value(first) == _value(second)


def _holds_two_objects(text: str) -> bool:
    """Whether another object begins behind a complete one."""
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "{" in text.lstrip()[end:]


# --- calls that are sent again


def _without_repeats(fragments: Sequence[Fragment], names: Collection[str], calls: list[ModelCall]) -> list[ModelCall]:
    """The first half of the calls, if the second half holds exactly these again, whole, after they came in pieces."""
    half = len(calls) // 2
    before, last = fragments[:-half], fragments[-half:]
    if len(calls) % 2 or all(is_object(fragment.arguments) for fragment in before):
        return calls
    if not all(is_object(fragment.arguments) for fragment in last):
        return calls
    try:
        earlier = _read(before, names, is_cut=False)
    except AmbiguousCalls:
        return calls
    again = [(fragment.name.strip(), _value(fragment.arguments)) for fragment in last]
    return earlier if again == [(call.name, _value(call.arguments)) for call in earlier] else calls


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
