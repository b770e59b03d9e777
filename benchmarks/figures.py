"""How the benchmarks print what they measured: one line for each figure, with its aim beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One thing that was measured, with the value that it should have."""

    what: str
    value: str
    aim: str = ""
    met: bool = True

    def __str__(self) -> str:
        verdict = "" if not self.aim else "met   " if self.met else "MISSED"
        return f"{verdict:6}  {self.what:<52} {self.value:<26} {self.aim}".rstrip()


def at_least(what: str, value: float, aim: float, unit: str, note: str = "") -> Figure:
    """A figure that should not be lower than its aim."""
    return Figure(what, f"{value:.2f} {unit}{note}", f"at least {aim:g}", value >= aim)


def at_most(what: str, value: float, aim: float, unit: str, note: str = "") -> Figure:
    """A figure that should not be higher than its aim."""
    return Figure(what, f"{value:.2f} {unit}{note}", f"at most {aim:g}", value <= aim)
