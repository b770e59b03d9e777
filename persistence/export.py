"""Writes a log as text: one line of JSON for each step, to be kept, searched and compared without turnwise."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from .entry import StoredEntry

FORMAT = "turnwise-log"
VERSION = 1


def export_lines(entries: Iterable[StoredEntry]) -> Iterator[str]:
    """The lines of an export, without line ends: a header, then one object for each step.

    A step has its `seq`, `turn` and `event`; `effects` and `ended` where there are any; `state` and `chain`, the
    digests of the log in hexadecimal. Everything is exact: read back, each value equals the one in the log. `Pure.`
    """
    yield json.dumps({"format": FORMAT, "version": VERSION})
    for entry in entries:
        yield _line(entry)


def _line(entry: StoredEntry) -> str:
    parts = [f'"seq":{entry.seq}', f'"turn":{entry.turn}', f'"event":{entry.event.to_json()}']
    if entry.effects:
        parts.append(f'"effects":[{",".join(effect.to_json() for effect in entry.effects)}]')
    if entry.ended is not None:
        parts.append(f'"ended":{entry.ended.to_json()}')
    parts += [f'"state":"{entry.digest.hex()}"', f'"chain":"{entry.chain.hex()}"']
    return f"{{{','.join(parts)}}}"
