"""What the log of a conversation holds: its steps, the requests to models, the replay, and what is to be delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import AwareDatetime

from ....states.values.value import Value
from .body import Answer, Shown
from .states import StepJson

if TYPE_CHECKING:
    from ....engine.inspection import RequestView
    from ....persistence.maintenance.replay import Divergence, ReplayReport, StepOutcome
    from ....persistence.records import Undelivered


class LogPage(Answer):
    """Steps of the log, in order. `next` is the `after` of the next page, or null."""

    steps: list[StepJson]
    next: int | None


class AskedModelRequest(Answer):
    """The request that a step sends to a model, written again from the log by the code that wrote it then.

    `is_exact` says whether its digest is the one that was stored with the answer; null as long as there is no answer.
    With `has_fresh_context`, it also had a note with the time and the place at its end, which is never stored.
    """

    seq: int
    effect_id: int
    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    tool_choice: Any
    settings: dict[str, Any]
    is_exact: bool | None
    has_fresh_context: bool

    @classmethod
    def of(cls, view: RequestView) -> Self:
        """Return a request as clients read it."""
        return cls(**view.data)


class ShownOutcome(Answer):
    """What an event led to: the effects, the end of a turn or null, and the state. The `state` is null where only its
    digest is known. All are JSON as an export has it."""

    effects: list[dict[str, Any]]
    turn_ended: dict[str, Any] | None
    state: dict[str, Any] | None

    @classmethod
    def of(cls, outcome: StepOutcome) -> Self | None:
        """Return an outcome as clients read it, or None if there was none."""
        if outcome.digest is None:
            return None
        return cls(
            effects=[_json(effect) for effect in outcome.effects],
            turn_ended=None if outcome.ended is None else _json(outcome.ended),
            state=None if outcome.state is None else _json(outcome.state),
        )


class ShownDivergence(Answer):
    """The first step that does not come out as it was stored, and the `reason` in one sentence: what was stored
    (`expected`), and what its event leads to now (`actual`). Each is null where there is nothing."""

    seq: int
    reason: str
    event: dict[str, Any] | None
    expected: ShownOutcome | None
    actual: ShownOutcome | None

    @classmethod
    def of(cls, divergence: Divergence) -> Self:
        """Return a divergence as clients read it."""
        return cls(
            seq=divergence.seq,
            reason=divergence.reason,
            event=None if divergence.event is None else _json(divergence.event),
            expected=ShownOutcome.of(divergence.expected),
            actual=ShownOutcome.of(divergence.actual),
        )


class ReplayAnswer(Answer):
    """How many steps came out as they were stored, and the first that did not, or null."""

    events: int
    divergence: ShownDivergence | None

    @classmethod
    def of(cls, report: ReplayReport, shown: Shown) -> Self:
        """Return the result of a replay, as a caller reads it."""
        if report.divergence is None:
            return cls(events=report.events, divergence=None)
        found = ShownDivergence.of(report.divergence)
        return cls(events=report.events, divergence=ShownDivergence(**shown(found.model_dump())))


class WaitingDelivery(Answer):
    """A delivery that is not acknowledged by its `target`, the name of a channel or the id of an agent. The effect
    stands in the step `seq`. `next_attempt` is null if the next attempt is due at once."""

    target: str
    effect_id: int
    seq: int
    attempts: int
    next_attempt: AwareDatetime | None

    @classmethod
    def of(cls, delivery: Undelivered, shown: Shown) -> Self:
        """Return a delivery as a caller reads it."""
        return cls(**shown(delivery.data))


class OutboxAnswer(Answer):
    """The deliveries that are not acknowledged, in the order in which they were asked for; and the names of the
    `channels` of the engine. Without channels, what is said is read by clients only."""

    deliveries: list[WaitingDelivery]
    channels: list[str]


def _json(value: Value) -> dict[str, Any]:
    return value.model_dump(mode="json", exclude_defaults=True)
