"""`turnwise replay`: replays stored conversations, and reports the outcome to users and to continuous integration.

Users read it as text, programs as JSON, and continuous integration as test results in a JUnit report. That format has
no standard, only a form that the tools share: suites of cases, and in a case a failure with a message and a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any
from xml.etree import ElementTree

from ....effects.printable import printable
from ....persistence.errors import StorageFailed
from ....persistence.maintenance.replay import Divergence, StepOutcome, replay_conversation
from ....persistence.ports import Store, find_all
from ....states.errors import ConfigurationError, StoreError, UnknownConversation
from ..configuration import open_for_reading, resolve_id
from ..output.lines import counted, one_line, print_json, without_payloads
from ..settings import Settings

_DIVERGED = 1
"""The exit code when a conversation diverged from its log, or could not be read."""


async def replay(settings: Settings, given_id: str | None, junit: Path | None, as_json: bool) -> int:
    """Replay one conversation, or with None all of them, and print each outcome; also write it to the file `junit`."""
    results: list[ReplayResult] = []
    async with open_for_reading(settings) as store:
        async for result in _results(store, given_id):
            results.append(result)
            if not as_json:
                print("  ".join(filter(None, (result.conversation_id, result.report))))
    if as_json:
        print_json({"conversations": [_described(result) for result in results]})
    elif not results:
        print("There are no conversations to replay.")
    if junit is not None:
        _write(junit, results)
    return _DIVERGED if any(result.failure for result in results) else 0


async def _results(store: Store, given_id: str | None) -> AsyncIterator[ReplayResult]:
    """Replay one conversation, or all of them, the one that moved last first. A conversation that a damaged file hides
    has a result without an id. Raises `UnknownConversation` if there is none of the given id."""
    if given_id is not None:
        yield await _replay(store, await resolve_id(store, given_id))
        return
    ids, faults = await find_all(store)
    for fault in faults:
        yield ReplayResult("", 0.0, unreadable=one_line(fault.sentence))
    for each in await _newest_first(store, ids):
        with suppress(UnknownConversation):  # it was deleted after it was found
            yield await _replay(store, each)


async def _newest_first(store: Store, ids: Sequence[str]) -> Sequence[str]:
    """Return these ids, that of the conversation that moved last first; as they are if a damaged file does not say."""
    try:
        places = {summary.id: place for place, summary in enumerate(await store.list())}
        return sorted(ids, key=places.__getitem__)
    except (StoreError, KeyError):
        return ids


def _write(file: Path, results: Iterable[ReplayResult]) -> None:
    try:
        file.write_bytes(junit_report(results))
    except OSError as error:
        raise ConfigurationError(f"The report cannot be written to {file}: {error.strerror}.") from error


async def _replay(store: Store, conversation_id: str) -> ReplayResult:
    begun = perf_counter()
    try:
        report = await replay_conversation(store, conversation_id)
    except StorageFailed as failure:
        return ReplayResult(conversation_id, perf_counter() - begun, unreadable=failure.sentence)
    return ReplayResult(conversation_id, perf_counter() - begun, report.events, report.divergence)


@dataclass(frozen=True)
class ReplayResult:
    """The outcome of replaying one conversation, and how many seconds it took.

    `events` is how many came out as they were stored. `unreadable` says why the log could not be read, if so.
    """

    conversation_id: str
    seconds: float
    events: int = 0
    divergence: Divergence | None = None
    unreadable: str = ""

    @property
    def report(self) -> str:
        """The text for users."""
        return self.unreadable or replay_report(self.events, self.divergence)

    @property
    def failure(self) -> str:
        """Why the conversation diverged from its log or could not be read; empty if neither happened."""
        return self.unreadable or (self.divergence.reason if self.divergence else "")


def _described(result: ReplayResult) -> dict[str, Any]:
    """Return a result as JSON shows it. `Pure.`"""
    divergence = result.divergence
    return {
        "id": result.conversation_id,
        "events": result.events,
        "unreadable": result.unreadable or None,
        "divergence": None
        if divergence is None
        else {
            "seq": divergence.seq,
            "reason": divergence.reason,
            "event": divergence.event and json.loads(divergence.event.to_json()),
            "expected": _described_outcome(divergence.expected),
            "actual": _described_outcome(divergence.actual),
        },
    }


def _described_outcome(outcome: StepOutcome) -> dict[str, Any] | None:
    """Return the effects, the end of a turn and the state of an outcome, or None if there was none."""
    if outcome.digest is None:
        return None
    return {
        "effects": [json.loads(effect.to_json()) for effect in outcome.effects],
        "turn_ended": outcome.ended and json.loads(outcome.ended.to_json()),
        "state": outcome.state and json.loads(outcome.state.to_json()),
        "digest": outcome.digest.hex(),
    }


def replay_report(events: int, divergence: Divergence | None) -> str:
    """Return the report on a replay: one sentence, and below it the details of a divergence. `Pure.`"""
    if divergence is None:
        return f"{counted(events, 'event')} replayed, no divergence."
    event = divergence.event.to_json() if divergence.event else "missing, or cannot be read"
    return "\n".join(
        (
            f"{counted(events, 'event')} replayed, then a divergence at seq {divergence.seq}.",
            f"  reason    {divergence.reason}",
            f"  event     {without_payloads(printable(event))}",
            *_block("expected", divergence.expected),
            *_block("actual", divergence.actual),
        )
    )


def _block(name: str, outcome: StepOutcome) -> Iterator[str]:
    """Yield the lines of an outcome, with its name before the first."""
    for index, (part, text) in enumerate(_parts(outcome)):
        yield f"  {name if index == 0 else '':<8}  {part:<8}{without_payloads(printable(text))}"


def _parts(outcome: StepOutcome) -> Iterator[tuple[str, str]]:
    """Yield each effect, the end of a turn, and the state, or its digest if only that is known."""
    if outcome.digest is None:
        yield "nothing", ""
        return
    for effect in outcome.effects:
        yield "effect", effect.to_json()
    if outcome.ended is not None:
        yield "ended", outcome.ended.to_json()
    yield "state", json.dumps({"digest": outcome.digest.hex()}) if outcome.state is None else outcome.state.to_json()


_CLASS = "turnwise.replay"
"""The class name of each case."""

_NOT_IN_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that an XML document may not contain, even as references: section 2.2 of XML 1.0."""


def junit_report(results: Iterable[ReplayResult]) -> bytes:
    """Return the report as XML, with a case for each conversation. `Pure.`"""
    results = list(results)
    counts = {
        "name": "turnwise replay",
        "tests": str(len(results)),
        "failures": str(sum(bool(result.failure) for result in results)),
        "errors": "0",
        "skipped": "0",
        "time": _seconds(sum(result.seconds for result in results)),
    }
    root = ElementTree.Element("testsuites", {name: counts[name] for name in ("name", "tests", "failures", "errors")})
    suite = ElementTree.SubElement(root, "testsuite", counts)
    for result in results:
        _add_case(suite, result)
    if not results:
        ElementTree.SubElement(suite, "system-out").text = "There are no conversations to replay."
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _add_case(suite: ElementTree.Element, result: ReplayResult) -> None:
    attributes = {"classname": _CLASS, "name": _clean(result.conversation_id), "time": _seconds(result.seconds)}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    if result.failure:
        failure = ElementTree.SubElement(case, "failure", {"message": _clean(result.failure), "type": "divergence"})
        failure.text = _clean(result.report)


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"
