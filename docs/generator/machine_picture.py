"""Writes docs/images/machine.svg, the machine as README.md shows it.

It is the map that the page of `turnwise serve` draws, without a conversation in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from turnwise.hosts.diagrams.machine_map import MachineMap, MapLine, MapState, machine_map

_STYLE = """
    rect, path { fill: none; stroke: #6b7280; stroke-width: 1.2 }
    text { font: 12px system-ui, sans-serif; text-anchor: middle; fill: #1f2328 }
    .frame { fill: #f2f4f7; stroke-dasharray: 4 3 }
    .note { text-anchor: start; fill: #59636e; font-size: 11px }
    .rest, .end { fill: #dbe4ff; stroke: #2f54c8 }
    .busy { fill: #ffffff }
    .person { fill: #fdf1dc; stroke: #9a5b00 }
    .arrow { fill: #6b7280; stroke: none }
    @media (prefers-color-scheme: dark) {
      rect, path { stroke: #9198a1 }
      text { fill: #f0f6fc }
      .frame { fill: #1a2028 }
      .note { fill: #9198a1 }
      .rest, .end { fill: #23335f; stroke: #7b9bff }
      .busy { fill: #0d1117 }
      .person { fill: #3b2b10; stroke: #d79a35 }
      .arrow { fill: #9198a1 }
    }
"""
"""The colours, for light and for dark pages."""

_LEGEND = {"rest": "at rest", "busy": "busy", "person": "a person can act"}
"""What the kinds of boxes mean. The end, `Closed`, looks like the states at rest."""

_LEGEND_HEIGHT = 24
_LINE_HEIGHT = 14
_BASELINE = 4
"""How far below its middle a line of text has its baseline."""


def machine_picture() -> str:
    """Return the drawing as SVG. `Pure.`"""
    drawn = machine_map()
    height = drawn.height + _LEGEND_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawn.width} {height}" width="{drawn.width}" '
        f'height="{height}" role="img">',
        f"  <title>The {len(drawn.states)} states of a conversation, and the ways between them</title>",
        f"  <style>{_STYLE}  </style>",
        '  <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path class="arrow" d="M0 0 8 4 0 8z"/></marker>',
        *_frame(drawn),
        *map(_line, drawn.lines),
        *(line for state in drawn.states for line in _box(drawn, state)),
        *_legend(drawn),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _frame(drawn: MachineMap) -> Iterator[str]:
    points = " ".join(f"{x} {y}" for x, y in drawn.frame.points)
    (x, y), *_ = drawn.frame.points
    yield f'  <path class="frame" d="M{points}z"/>'
    yield f'  <text class="note" x="{x + 10}" y="{y + 18}">{escape(drawn.frame.title)}</text>'


def _line(line: MapLine) -> str:
    points = " ".join(f"{x} {y}" for x, y in line.points)
    back = ' marker-start="url(#tip)"' if line.both else ""
    return f'  <path d="M{points}" marker-end="url(#tip)"{back}/>'


def _box(drawn: MachineMap, state: MapState) -> Iterator[str]:
    width, height = drawn.box_width, drawn.box_height
    yield _rectangle(state.kind, state.x - width // 2, state.y - height // 2, width, height)
    words = state.title.split(" ")
    lines = [state.title] if len(state.title) <= 12 or len(words) == 1 else [words[0], " ".join(words[1:])]
    top = state.y + _BASELINE - (len(lines) - 1) * _LINE_HEIGHT // 2
    for number, text in enumerate(lines):
        yield f'  <text x="{state.x}" y="{top + number * _LINE_HEIGHT}">{escape(text)}</text>'


def _rectangle(kind: str, x: int, y: int, width: int, height: int) -> str:
    radius = height // 2 if kind in ("rest", "end") else 6
    return f'  <rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>'


def _legend(drawn: MachineMap) -> Iterator[str]:
    width = drawn.width // len(_LEGEND)
    for number, (kind, meaning) in enumerate(_LEGEND.items()):
        x, y = 20 + number * width, drawn.height
        yield _rectangle(kind, x, y, 20, 12)
        yield f'  <text class="note" x="{x + 28}" y="{y + 10}">{meaning}</text>'
