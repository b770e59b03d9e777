"""`turnwise replay`: replays stored conversations, and reports the outcome to users and to continuous integration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from time import perf_counter

from ....persistence.errors import StorageFailed
from ....persistence.maintenance.replay import replay_conversation
from ....persistence.ports import Store
from ....states.errors import ConfigurationError, UnknownConversation
from ..configuration.conversation_ids import resolve_id
from ..configuration.databases import open_for_reading
from ..configuration.settings import Settings
from ..output.json_document import print_json
from .junit import junit_report
from .replay_results import ReplayResult, described

DIVERGED = 1
"""The exit code when a conversation diverged from its log, or could not be read."""


async def replay(settings: Settings, given_id: str | None, junit: Path | None, as_json: bool) -> int:
    """Replay one conversation, or with None all of them, and print each outcome; also write it to the file `junit`."""
    results: list[ReplayResult] = []
    async with open_for_reading(settings) as store:
        for each in [summary.id for summary in await store.list()] if given_id is None else [given_id]:
            try:
                result = await _replay(store, each if given_id is None else await resolve_id(store, each))
            except UnknownConversation:
                if given_id is not None:
                    raise
                continue  # it was deleted after it was listed
            results.append(result)
            if not as_json:
                print(f"{result.conversation_id}  {result.report}")
    if as_json:
        print_json({"conversations": [described(result) for result in results]})
    elif not results:
        print("There are no conversations to replay.")
    if junit is not None:
        _write(junit, results)
    return DIVERGED if any(result.failure for result in results) else 0


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
