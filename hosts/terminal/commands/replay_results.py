"""What came of a replay, as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....effects.text import printable
from ..output.printable import counted, without_payloads

if TYPE_CHECKING:
    from ....persistence.maintenance.replay import Divergence, Outcome


@dataclass(frozen=True)
class Replayed:
    """A conversation that was replayed, and how long it took. `told` is what to say of it, and `fault` why it did not
    come out as it was stored, or could not be read; empty if it did."""

    conversation_id: str
    seconds: float
    told: str
    fault: str = ""


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
