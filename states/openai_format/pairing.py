"""Brings the results of a given history behind the messages whose calls they answer, and makes ids unique."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .call_ids import UniqueIds, id_in
from .repairs import Repairs, quoted
from .writing import NO_RESULT


@dataclass
class Entry:
    """A message, its place in the list that was given, the results of its calls, and those that have none so far."""

    place: int
    fields: dict[str, Any]
    results: list[Entry] = field(default_factory=list)
    unanswered: _OpenCalls = field(default_factory=lambda: _OpenCalls())


@dataclass(frozen=True)
class _OpenCall:
    """A call that has no result so far: the id that it had, the one that it has now, and the name of its tool."""

    given_id: str
    call_id: str
    name: str


class _OpenCalls:
    """The calls of a message that have no result so far. Each is found and removed at a cost that does not grow with
    their number, in whatever order the results come."""

    def __init__(self) -> None:
        self._calls: dict[str, _OpenCall] = {}
        """By the ids that they have now, in the order of the message."""
        self._in_order: deque[_OpenCall] = deque()
        self._with_id: dict[str, deque[_OpenCall]] = {}
        self._with_name: dict[str, deque[_OpenCall]] = {}

    def __iter__(self) -> Iterator[_OpenCall]:
        return iter(self._calls.values())

    def add(self, call: _OpenCall) -> None:
        """Add a call behind the others."""
        self._calls[call.call_id] = call
        self._in_order.append(call)
        self._with_id.setdefault(call.given_id, deque()).append(call)
        self._with_name.setdefault(call.name, deque()).append(call)

    def take_with_id(self, given_id: str) -> _OpenCall | None:
        """Remove and return the first call that had this id, or None."""
        return self._take(self._with_id.get(given_id))

    def take_with_name(self, name: object) -> _OpenCall | None:
        """Remove and return the first call of the tool with this name, or else the first of all; None if there is
        none."""
        named = self._with_name.get(name) if isinstance(name, str) else None
        return self._take(named) or self._take(self._in_order)

    def _take(self, candidates: deque[_OpenCall] | None) -> _OpenCall | None:
        """Remove and return the first of the candidates that is open; those before it were taken by another way."""
        while candidates:
            call = candidates.popleft()
            if self._calls.pop(call.call_id, None) is not None:
                return call
        return None


def arranged(entries: Iterable[Entry], repairs: Repairs) -> Iterator[Entry]:
    """Yield the messages, each result directly behind the message that called for it, and ids replaced that are used
    twice. `entries` are messages that were repaired one by one."""
    entries = list(entries)
    rounds = _Rounds(entries, repairs)
    kept: list[Entry] = []
    for entry in entries:
        if entry.fields["role"] == "tool":
            rounds.take_result(entry, is_in_place=bool(kept) and kept[-1] is rounds.newest)
        else:
            rounds.take_calls(entry)
            kept.append(entry)
    for entry in kept:
        rounds.add_missing_results(entry)
        yield entry
        yield from entry.results


class _Rounds:
    """Gives calls their ids, and pairs them with their results."""

    def __init__(self, entries: Iterable[Entry], repairs: Repairs) -> None:
        calls = (call for entry in entries for call in entry.fields.get("tool_calls") or ())
        self._ids = UniqueIds(str(call.get("id")) for call in calls)
        self._repairs = repairs
        self._latest: dict[str, Entry] = {}
        """The message that made the latest call with each of the given ids."""
        self.newest: Entry | None = None
        """The newest message with calls."""

    def take_calls(self, entry: Entry) -> None:
        """Give the calls of this message their ids."""
        report = partial(self._repairs.add, entry.place)
        for call in entry.fields.get("tool_calls") or ():
            given_id, name = id_in(call, "id", report), call["function"]["name"]
            call["id"] = self._ids.assign(given_id, entry.place, report)
            entry.unanswered.add(_OpenCall(given_id, call["id"], name))
            self._latest[given_id] = entry
            self.newest = entry

    def take_result(self, entry: Entry, *, is_in_place: bool) -> None:
        """Put a result behind the message with its call, or leave it out if there is no such call."""
        report = partial(self._repairs.add, entry.place)
        given_id = id_in(entry.fields, "tool_call_id", report)
        caller = self._latest.get(given_id) if given_id else self.newest
        call = None if caller is None else _take_call(caller, given_id, entry.fields.get("name"))
        if caller is None or call is None:
            what = f"the call {quoted(given_id)}" if given_id else "no call"
            report(f"A result of {what}, which waits for none, was left out.")
            return
        if not given_id:
            report(f"A result without tool_call_id was taken as that of the call {quoted(call.call_id)}.")
        if not is_in_place or caller is not self.newest:
            report(f"The result of the call {quoted(call.call_id)} was moved behind the message with the call.")
        entry.fields["tool_call_id"] = call.call_id
        caller.results.append(entry)

    def add_missing_results(self, entry: Entry) -> None:
        """Add a result that says so for each call that has none."""
        for call in entry.unanswered:
            sentence = (
                f"The call {quoted(call.call_id)} of {quoted(call.name)} has no result; one that says so was added."
            )
            self._repairs.add(entry.place, sentence)
            fields = {"role": "tool", "tool_call_id": call.call_id, "content": NO_RESULT}
            entry.results.append(Entry(entry.place, fields))


def _take_call(caller: Entry, given_id: str, name: object) -> _OpenCall | None:
    """Take the call to which a result belongs: the first with its id, or, if it has none, with its name."""
    return caller.unanswered.take_with_id(given_id) if given_id else caller.unanswered.take_with_name(name)
