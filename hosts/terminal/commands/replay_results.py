"""The outcome of a replay, as text for users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....effects.printable import printable
from ....persistence.maintenance.replay import Divergence, StepOutcome
from ..output.printable import counted, without_payloads


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


def described(result: ReplayResult) -> dict[str, Any]:
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
