"""Draws the table: a picture for those who want to see it, and a page that answers "what if" for every pair.

The table is the truth, and whatever else tells about it is made from it, so picture and page cannot fall behind: a
check fails while `docs/machine.md` is not what the table gives. The functions are pure. Only the command opens a file:

    python -m turnwise.states.diagram                            print the picture, in Mermaid's language
    python -m turnwise.states.diagram --write docs/machine.md README.md    make the page, and the picture in another
    python -m turnwise.states.diagram --check docs/machine.md README.md    exit 1 unless they are fresh
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .events import DEADLINE_TIMER, EVENTS, Event, Opened
from .grammar import SAME, Branch, Entry, Junction, NoOp, Refusal, Row, Same, Target
from .states import STATES, Idle, State
from .table import TABLE

PICTURE = "<!-- drawn from states/table.py by `make docs` -->"
"""Where this line stands in a file, the picture follows it."""


@dataclass(frozen=True)
class Arrow:
    """One row of the table, or one branch of a junction, as the picture shows it."""

    source: str
    target: str
    cause: str
    """The event of the row; for a branch the name of its junction, as Mermaid writes nothing on a diamond."""
    guard: str
    """`[guard]`, `[else]` behind rows with a guard, or nothing."""


# --- the picture


def mermaid() -> str:
    """The table as a Mermaid `stateDiagram-v2`: states as boxes, junctions as diamonds. `Pure.`

    A row that stays where it is stands inside its box, and rows between the same two nodes share an arrow: so the
    picture stays readable. Refusals and no-ops are left to the page. The order of the lines matters: Mermaid lays out
    from the first line on, so the conversation runs from the top to the bottom.
    """
    lines = [
        f"[*] --> {Idle.__name__} : {Opened.__name__}",
        *(f"state {junction.name} <<choice>>" for junction in _junctions()),
        *_boxes(),
        *_drawn(),
        *(f"{state.__name__} --> [*]" for state in STATES if not _rows(state)),
        "classDef person fill:#fde68a,stroke:#b45309,color:#111827",
        *(f"class {state.__name__} person" for state in STATES if _waits_for_person(state)),
    ]
    return "".join(["stateDiagram-v2\n", *(f"    {line}\n" for line in lines)])


def _boxes() -> Iterator[str]:
    for state in STATES:
        name = state.__name__
        yield f"{name} : {name}"
        for row in _rows(state):
            if row.to is SAME:
                yield f"{name} : stays on {row.event.__name__} {_guard(row, _siblings(state, row))}".rstrip()


def _drawn() -> Iterator[str]:
    between: dict[tuple[str, str], list[Arrow]] = {}
    for arrow in _arrows():
        between.setdefault((arrow.source, arrow.target), []).append(arrow)
    for (source, target), arrows in between.items():
        yield f"{source} --> {target} : {_label(arrows)}"


def _arrows() -> Iterator[Arrow]:
    for state in STATES:
        for row in _rows(state):
            if row.to is not SAME:
                guard = _guard(row, _siblings(state, row))
                yield Arrow(state.__name__, _name(row.to), row.event.__name__, guard)
    for junction in _junctions():
        for branch in junction.branches:
            yield Arrow(junction.name, _name(branch.to), junction.name, _guard(branch, junction.branches))


def _label(arrows: Sequence[Arrow]) -> str:
    """A line for each cause; causes with the same guards share one, with each guard on a line of its own below it."""
    guards_of: dict[str, tuple[str, ...]] = {}
    for arrow in arrows:
        guards_of[arrow.cause] = (*guards_of.get(arrow.cause, ()), arrow.guard)
    causes_of: dict[tuple[str, ...], list[str]] = {}
    for cause, guards in guards_of.items():
        causes_of.setdefault(guards, []).append(cause)
    lines: list[str] = []
    for guards, causes in causes_of.items():
        lines += causes if guards == ("",) else [", ".join(causes), *guards]
    return "<br>".join(lines)


def _siblings(state: type[State], row: Row) -> list[Row]:
    """The rows that the picture shows for one event."""
    return [other for other in _rows(state) if other.event is row.event]


def _waits_for_person(state: type[State]) -> bool:
    """Whether nothing but a person, or the end of the time to do it, leads out of here."""
    return bool(_rows(state)) and set(state.AWAITS) <= set(DEADLINE_TIMER)


# --- the page


def markdown() -> str:
    """The page `docs/machine.md`: the picture, every pair of state and event, the junctions and the guards. `Pure.`"""
    parts = [
        "# The machine",
        "A conversation rests in a state until an event happens; this page shows, for every state and every event, "
        "what comes of it. It is made from `states/table.py` by `make docs`: change the table, never this page.",
        f"```mermaid\n{mermaid()}```",
        "Yellow states wait for a person. Diamonds are junctions: choices that several rows share, each named on the "
        "arrows that leave it. In brackets below an event stands a guard, a question that must be answered with yes; "
        "guards are asked in the order of the table below, and `[else]` holds when none of them did.",
        "## Every state, every event",
        "Requests come first, then answers. `stays` changes something, and rests in the same state. `refused` raises "
        "an error with this code, `no-op` and `ignored` do nothing: a request that has nothing to act on, and an "
        "answer that nobody waits for. An answer that comes late or twice is ignored in every state.",
        "\n".join(_pairs()),
        "## Junctions",
        *("\n".join(_branches(junction)) for junction in _junctions()),
        "## Guards and reasons",
        "\n".join(f"- `{function.__name__}`: {_in_short(function)}" for function in _named()),
    ]
    return "\n\n".join(parts) + "\n"


def _pairs() -> Iterator[str]:
    yield _line(["", *(state.__name__ for state in STATES)])
    yield _line(["---"] * (len(STATES) + 1))
    for event in EVENTS:
        yield _line([f"**{event.__name__}**", *(_cell(state, event) for state in STATES)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(state: type[State], event: type[Event]) -> str:
    entries = [entry for entry in TABLE[state] if entry.event is event]
    said = [f"{_guard(entry, entries)} {_outcome(entry)}".strip() for entry in entries]
    return "<br>".join(said) or "ignored"


def _outcome(entry: Entry) -> str:
    match entry:
        case Row(to=Same()):
            return "stays"
        case Row(to=target):
            return f"→ {_name(target)}"
        case Refusal(why=why):
            return f"refused, see `{why.__name__}`" if callable(why) else f"refused `{why}`"
        case NoOp():
            return "no-op"


def _branches(junction: Junction) -> Iterator[str]:
    yield f"### {junction.name}\n"
    for branch in junction.branches:
        done = "" if branch.then is None else f": {_in_short(branch.then)}"
        guard = f"{_guard(branch, junction.branches)} ".lstrip()
        yield f"- {guard}→ {_name(branch.to)}{done}"


# --- reading the table


def _rows(state: type[State]) -> list[Row]:
    return [entry for entry in TABLE[state] if isinstance(entry, Row)]


def _junctions() -> list[Junction]:
    """Every junction once, in the order in which the table comes to them."""
    found: dict[str, Junction] = {}
    waiting = [row.to for state in STATES for row in _rows(state)]
    while waiting:
        target = waiting.pop(0)
        if isinstance(target, Junction) and target.name not in found:
            found[target.name] = target
            waiting += [branch.to for branch in target.branches]
    return list(found.values())


def _named() -> list[Callable[..., Any]]:
    """The functions that the page names: first the guards, in the order of the table, then the reasons to refuse."""
    entries = [entry for state in STATES for entry in TABLE[state]]
    branches = [branch for junction in _junctions() for branch in junction.branches]
    guards = [choice.when for choice in (*entries, *branches) if choice.when is not None]
    reasons = [entry.why for entry in entries if isinstance(entry, Refusal) and callable(entry.why)]
    return list(dict.fromkeys([*guards, *reasons]))


def _name(target: Target) -> str:
    assert not isinstance(target, Same), "who stays has no other end"
    return target.name if isinstance(target, Junction) else target.__name__


def _guard(choice: Entry | Branch, siblings: Sequence[Entry | Branch]) -> str:
    if choice.when is not None:
        return f"[{choice.when.__name__}]"
    return "[else]" if len(siblings) > 1 else ""


def _in_short(function: Callable[..., Any]) -> str:
    """The first sentence of what a function says about itself, or else its name in words."""
    if function.__doc__ is None:
        return f"{function.__name__.replace('_', ' ').capitalize()}."
    return re.split(r"(?<=\.)\s", " ".join(function.__doc__.split()), maxsplit=1)[0]


# --- the command


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the picture, or write or check the page. Returns the exit status: 0, or 1 with a sentence on stderr."""
    parser = argparse.ArgumentParser(prog="python -m turnwise.states.diagram", description="Draw the table.")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", metavar="FILE", type=Path, nargs="+", help="make these pages")
    action.add_argument("--check", metavar="FILE", type=Path, nargs="+", help="exit 1 unless these pages are fresh")
    wanted = parser.parse_args(arguments)
    if wanted.write is not None:
        return max(_write(page) for page in wanted.write)
    if wanted.check is not None:
        return max(_check(page) for page in wanted.check)
    print(mermaid(), end="")
    return 0


def _fresh(page: Path) -> str:
    """What the file should say: a page that shows the picture among other things keeps them, any other is all ours."""
    text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    before, picture, after = text.partition(PICTURE)
    if not picture:
        return markdown()
    _, _, rest = after.partition("\n```\n")
    return f"{before}{PICTURE}\n```mermaid\n{mermaid()}```\n{rest}"


def _write(page: Path) -> int:
    try:
        page.write_text(_fresh(page), encoding="utf-8", newline="\n")
    except OSError as error:
        return _complain(f"{page} cannot be written: {error.strerror}.")
    return 0


def _check(page: Path) -> int:
    if page.is_file() and page.read_text(encoding="utf-8", errors="replace") == _fresh(page):
        return 0
    return _complain(f"{page} is not what the table gives; run `make docs`.")


def _complain(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
