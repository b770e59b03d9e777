"""Draws the plots of docs/development/benchmarks.md: bars for single numbers, lines for what grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .benchmark_results import (
    ANSWER,
    BYTES,
    FLOOR,
    GROWTH,
    MANY,
    MANY_RATE,
    OURS,
    RATE,
    REOPEN,
    Measure,
    Results,
)

TEXT = "#7d8590"
"""A grey that can be read on white and on black."""

COLOURS = {
    OURS: "#2f81f7",
    FLOOR: "#7d8590",
    "Burr": "#d29922",
    "LangGraph": "#3fb950",
    "openai-agents": "#a371f7",
    "pydantic-ai": "#f778ba",
}
POINTS = 100
"""The most points of a line; each is the median of the turns around it."""

BARS = {
    "one-conversation": (RATE, "turns per second of one conversation of 200 turns"),
    "many-rate": (MANY_RATE, "turns per second of 100 conversations of 10 turns at once"),
    "many-processor": (MANY, "ms of processor time a turn, 100 conversations of 10 turns at once"),
    "bytes": (BYTES, "bytes of database a turn, over 200 turns"),
    "resume": (REOPEN, "ms from opening a conversation of 200 turns to its next request"),
    "answer": (ANSWER, "ms from an answer to the next request to the model"),
}
"""The measures that are drawn as bars, by the name of the file, each with the label of its axis."""

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "turnwise",
    "svg.fonttype": "none",  # text stays text: smaller, and it can be searched
    "font.size": 10,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "grid.color": TEXT,
    "grid.alpha": 0.3,
}


def draw(results: Results, folder: Path) -> None:
    """Write every plot into the folder."""
    rcParams.update(STYLE)
    for name, (measure, label) in BARS.items():
        _save(_bars(results, measure, label), folder / f"{name}.svg")
    _save(_growth_over_turns(results), folder / "growth-over-turns.svg")
    _save(_growth_within_a_turn(results), folder / "growth-within-a-turn.svg")


def _bars(results: Results, measure: Measure, label: str) -> Figure:
    """One bar for each system, the best on top."""
    values = {name: results.best(measure, name) for name in results.systems}
    shown = sorted(
        ((value, name) for name, value in values.items() if value is not None), reverse=not measure.higher_is_better
    )
    figure = Figure(figsize=(7, 0.4 * len(shown) + 0.9), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([name for _, name in shown], [value for value, _ in shown])
    for bar, (_, name) in zip(bars, shown, strict=True):
        bar.set_color(COLOURS.get(name, TEXT))
    axes.bar_label(bars, [measure.text(value) for value, _ in shown], padding=4, color=TEXT)
    axes.margins(x=0.15)
    lengths = [value for value, _ in shown]
    if shown and max(lengths) > 50 * min(lengths) > 0:
        axes.set_xscale("log")
        label += ", on a logarithmic scale"
    axes.set_xlabel(f"{label} ({'more' if measure.higher_is_better else 'less'} is better)")
    return figure


def _growth_over_turns(results: Results) -> Figure:
    """Milliseconds of processor time of each turn, by its number."""
    figure, axes = _lines("turn of one conversation", "processor time of the turn, ms")
    for name in results.systems:
        if taken := results.best_round(GROWTH, name):
            turns = [each / 1e3 for each in taken["processor"]]
            _line(axes, name, list(range(1, len(turns) + 1)), turns)
    if axes.lines:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        figure.legend(frameon=False, ncols=6, loc="outside upper center", fontsize=9, handlelength=1)
    return figure


def _growth_within_a_turn(results: Results) -> Figure:
    """Milliseconds of processor time of each round of one long turn."""
    figure, axes = _lines("round of one turn: the model calls a tool, the tool returns", "processor time, ms")
    found = results.figure("long-turn-growth")
    if found and found["series"]:
        numbers, milliseconds = zip(*found["series"], strict=True)
        _line(axes, OURS, numbers, milliseconds)
    axes.set_ylim(bottom=0)
    return figure


def _lines(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y")
    return figure, axes


def _line(axes: Axes, name: str, x: Sequence[float], y: Sequence[float]) -> None:
    """A line of medians, so that single late turns do not hide what grows."""
    step = max(1, -(-len(x) // POINTS))
    groups = range(0, len(x), step)
    axes.plot(
        [median(x[start : start + step]) for start in groups],
        [median(y[start : start + step]) for start in groups],
        color=COLOURS.get(name, TEXT),
        label=name,
        linewidth=1.5,
    )


def _save(figure: Figure, file: Path) -> None:
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
