"""The outcome of a replay, as text for users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from ....effects.text import printable
from ....persistence.maintenance.replay import Divergence, Outcome
from ..output.printable import counted, without_payloads


@dataclass(frozen=True)
class ReplayResult:
    """The outcome of replaying one conversation, and how many seconds it took.

    `report` is the text for users. `failure` says why the conversation diverged from its log or could not be read; it
    is empty if neither happened.
    """

    conversation_id: str
    seconds: float
    report: str
    failure: str = ""


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


def _block(name: str, outcome: Outcome) -> Iterator[str]:
    """Yield the lines of an outcome, with its name before the first."""
    for index, (part, text) in enumerate(_parts(outcome)):
        yield f"  {name if index == 0 else '':<8}  {part:<8}{without_payloads(printable(text))}"


def _parts(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Yield each effect, the end of a turn, and the state, or its digest if only that is known."""
    if outcome.digest is None:
        yield "nothing", ""
        return
    for effect in outcome.effects:
        yield "effect", effect.to_json()
    if outcome.ended is not None:
        yield "ended", outcome.ended.to_json()
    yield "state", json.dumps({"digest": outcome.digest.hex()}) if outcome.state is None else outcome.state.to_json()
