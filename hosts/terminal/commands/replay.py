"""`turnwise replay`: replays stored conversations, and reports the outcome to users and to continuous integration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from ....persistence.errors import StorageFailed
from ....persistence.maintenance.replay import replay_conversation
from ....persistence.ports import Store, find_all
from ....states.errors import ConfigurationError, StoreError, UnknownConversation
from ..configuration.conversation_ids import resolve_id
from ..configuration.databases import open_for_reading
from ..configuration.settings import Settings
from ..output.json_document import print_json
from ..output.printable import one_line
from .junit import junit_report
from .replay_results import ReplayResult, described

DIVERGED = 1
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
        print_json({"conversations": [described(result) for result in results]})
    elif not results:
        print("There are no conversations to replay.")
    if junit is not None:
        _write(junit, results)
    return DIVERGED if any(result.failure for result in results) else 0


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
