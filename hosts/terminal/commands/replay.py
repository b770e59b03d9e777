"""Takes stored conversations through their steps again, and tells people and machines what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from ....persistence.errors import StorageFailed
from ....states.errors import ConfigurationError, UnknownConversation
from ..configuration.databases import store_for
from .replay_results import Replayed, verdict

if TYPE_CHECKING:
    from ....persistence.sqlite.store import Store
    from ..configuration.settings import Settings

DIVERGED = 1
"""The exit code of a replay that came out differently."""


async def replay(settings: Settings, conversation_id: str | None, junit: Path | None) -> int:
    """Replay one conversation, or with None all of them, and print what comes of each; `junit` is a file for CI."""
    replayed: list[Replayed] = []
    async with store_for(settings) as store:
        for each in [conversation_id] if conversation_id else [summary.id for summary in await store.list()]:
            try:
                one = await _replay(store, each)
            except UnknownConversation:
                if conversation_id:
                    raise
                continue  # deleted meanwhile
            print(f"{each}  {one.told}")
            replayed.append(one)
    if not replayed:
        print("There are no conversations to replay.")
    if junit is not None:
        _write(junit, replayed)
    return DIVERGED if any(one.fault for one in replayed) else 0


def _write(file: Path, replayed: Iterable[Replayed]) -> None:
    from .junit import report_on

    try:
        file.write_bytes(report_on(replayed))
    except OSError as error:
        raise ConfigurationError(f"The report cannot be written to {file}: {error.strerror}.") from error


async def _replay(store: Store, conversation_id: str) -> Replayed:
    from ....persistence.maintenance.replay import replay_conversation

    begun = perf_counter()
    try:
        report = await replay_conversation(store, conversation_id)
    except StorageFailed as failure:
        return Replayed(conversation_id, perf_counter() - begun, failure.sentence, failure.sentence)
    fault = "" if report.divergence is None else report.divergence.reason
    told = verdict(report.events, report.divergence)
    return Replayed(conversation_id, perf_counter() - begun, told, fault)
