"""Takes stored conversations through their steps again, and tells people and machines what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from ....effects.text import printable
from ....persistence.errors import StorageFailed
from ....states.errors import ConfigurationError, UnknownConversation
from ..output.printable import counted, without_payloads
from .stores import store_for

if TYPE_CHECKING:
    from ....persistence.maintenance.replay import Divergence, Outcome
    from ....persistence.sqlite.store import Store
    from ..settings import Settings

DIVERGED = 1
"""The exit code of a replay that came out differently."""


@dataclass(frozen=True)
class Replayed:
    """A conversation that was replayed, and how long it took. `told` is what to say of it, and `fault` why it did not
    come out as it was stored, or could not be read; empty if it did."""

    conversation_id: str
    seconds: float
    told: str
    fault: str = ""


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


def verdict(events: int, divergence: Divergence | None) -> str:
    """What came of a replay: a sentence, and a block of lines more where it came out differently. `Pure.`"""
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


def _block(name: str, outcome: Outcome) -> Iterator[str]:
    """The lines of an outcome, under its name."""
    for place, (part, told) in enumerate(_parts(outcome)):
        yield f"  {name if place == 0 else '':<8}  {part:<8}{without_payloads(printable(told))}"


def _parts(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Each effect, the end of a turn, and the state in full, or its digest where only that is known."""
    if outcome.digest is None:
        yield "nothing", ""
        return
    for effect in outcome.effects:
        yield "effect", effect.to_json()
    if outcome.ended is not None:
        yield "ended", outcome.ended.to_json()
    yield "state", json.dumps({"digest": outcome.digest.hex()}) if outcome.state is None else outcome.state.to_json()
