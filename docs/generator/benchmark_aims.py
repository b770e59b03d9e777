"""What turnwise wants to reach beside other libraries, and whether it did in the last run of `make bench`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .benchmark_results import FLOOR, GROWTH, MANY, MANY_RATE, OURS, RATE, READY, Measure, Results


@dataclass(frozen=True)
class Aim:
    """A ratio or a number that has a bound."""

    what: str
    value: Callable[[Results], float | None]
    bound: float
    unit: str
    at_least: bool

    def is_met(self, results: Results) -> bool | None:
        """Whether the last run met the aim; None if it did not measure it."""
        value = self.value(results)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound

    def row(self, results: Results) -> str:
        """Return the row of the table of aims."""
        value = self.value(results)
        relation = "at least" if self.at_least else "at most"
        if value is None:
            return f"| {self.what} | not measured | {relation} {self.bound:,g}{self.unit} | |"
        verdict = "met" if self.is_met(results) else "**missed**"
        return f"| {self.what} | {_short(value)}{self.unit} | {relation} {self.bound:,g}{self.unit} | {verdict} |"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def ratio_to(system: str, measure: Measure) -> Callable[[Results], float | None]:
    """Return what divides the value of turnwise by that of a system, or of the best peer."""

    def ratio(results: Results) -> float | None:
        ours = results.best(measure, OURS)
        theirs = results.best_peer(measure) if system == "peers" else results.best(measure, system)
        return ours / theirs if ours is not None and theirs else None

    return ratio


def number(name: str) -> Callable[[Results], float | None]:
    """Return what looks up a figure of turnwise alone."""
    return lambda results: results.number(name)


PEERS = "peers"

AIMS = (
    Aim("one conversation of 200 turns: turns/s beside the fastest peer's", ratio_to(PEERS, RATE), 8, " ×", True),
    Aim("100 × 10 at once: turns/s beside the fastest peer's", ratio_to(PEERS, MANY_RATE), 1, " ×", True),
    Aim("100 × 10 at once: processor time beside the smallest of a peer", ratio_to(PEERS, MANY), 0.6, " ×", False),
    Aim("one conversation: turns/s beside the floor's", ratio_to(FLOOR, RATE), 0.5, " ×", True),
    Aim("100 × 10 at once: turns/s beside the floor's", ratio_to(FLOOR, MANY_RATE), 1, " ×", True),
    Aim(
        "growth over 1,000 turns, last fifth to first, processor time",
        lambda results: results.best(GROWTH, OURS),
        *(1.2, " ×", False),
    ),
    Aim("growth within a turn of 1,000 rounds, last fifth to first", number("long-turn-growth"), 1.5, " ×", False),
    Aim("model path beside bare litellm", number("model-path-ratio"), 1.1, " ×", False),
    Aim("replay", number("replay-rate"), 20_000, " events/s", True),
    Aim("opened and ready for the next message", lambda results: results.best(READY, OURS), 10, " ms", False),
    Aim("`turnwise --help` beside `python -c pass`", number("help-ratio"), 5, " ×", False),
)
