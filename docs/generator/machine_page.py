"""Writes docs/reference/machine.md, the page that says what every event does in every state.

A table of all pairs would be too wide to read and would repeat itself. So each state has a section with only its own
answers and refers to one section for what most busy states have in common. What no section names is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from turnwise.hosts.diagrams.mermaid import (
    ANY_BUSY_STATE,
    BUSY_STATES,
    common,
    entries,
    guard,
    junctions,
    name,
    waits_for_person,
)
from turnwise.states.events import ANSWERS, EVENTS, REPORTS, REQUESTS, Event
from turnwise.states.grammar import Branch, Entry, Junction, NoOp, Refusal, Row, Same, Target
from turnwise.states.states import STATES, State
from turnwise.states.table import TABLE


def markdown(picture: str) -> str:
    """Return the page around the full picture: events, every pair of state and event, junctions, guards. `Pure.`"""
    parts = [
        "# The machine",
        "A conversation rests in a state until an event happens. This page says what every event does in every state. "
        "`make docs` writes it from `states/table.py`: change the table, not this page.",
        *_legend(picture),
        *_about_events(),
        *_about_states(),
        "## Junctions",
        "A junction is a choice that several rows share: the first branch whose guard says yes is taken.",
        *_about_junctions(),
        "## Guards and reasons",
        "\n".join(f"- `{function.__name__}`: {_in_short(function)}" for function in _named()),
    ]
    return "\n\n".join(parts) + "\n"


def _legend(picture: str) -> Iterator[str]:
    yield f"```mermaid\n{picture}```"
    yield (
        "Read each line from left to right; a dashed name refers to another line. Boxes are states, yellow where a "
        "person can act. Hexagons are [junctions](#junctions): choices that several rows share. An arrow is "
        "labelled with its events. Below an event its guard stands in brackets: the arrow is taken if the guard "
        "says yes, and `[else]` if no guard before it did. Where all choices lead the same way, no guard is shown. "
        "A busy state does what any busy state does, unless it shows something else for the same event."
    )


# --- events


def _about_events() -> Iterator[str]:
    yield "## Events"
    yield (
        "**Requests** come from people and programs. Every state takes a request, refuses it with an error that has "
        "a code, or has nothing to act on."
    )
    yield _explained(REQUESTS)
    yield (
        "**Answers** are the outcomes of effects, which they name. A state takes one answer to each effect that it "
        "waits for; an answer that comes late or twice is ignored."
    )
    yield _explained(ANSWERS)
    yield (
        "**Reports** come from the process that takes over a conversation after another one died. They answer nothing: "
        "they say what the crash interrupted, so that it is started again, asked about, or given up. A report about "
        "anything else is ignored."
    )
    yield _explained(REPORTS)


def _explained(events: Sequence[type[Event]]) -> str:
    return "\n".join(f"- `{event.__name__}`: {_in_short(event)}" for event in events)


# --- states


def _about_states() -> Iterator[str]:
    yield "## Every state, every event"
    yield (
        "The entries for an event are tried from top to bottom; the first one whose guard says yes is taken. "
        "*stays* changes something and rests in the same state. *refused* raises an error with this code. *nothing* "
        "and *ignored* mean that nothing happens: the request has nothing to act on, or nobody waits for the answer "
        "or the report."
    )
    shared = common(_answers)
    yield f"### {ANY_BUSY_STATE.capitalize()}"
    yield (
        f"What most of the {len(BUSY_STATES)} busy states do, in which something is under way: "
        f"{', '.join(map(_link, BUSY_STATES))}. Their own sections show where one of them differs."
    )
    yield "\n".join(_table(shared))
    for state in STATES:
        yield from _about_state(state, dict(shared) if state in BUSY_STATES else {})


def _about_state(state: type[State], shared: dict[type[Event], tuple[Entry, ...]]) -> Iterator[str]:
    answers = _answers(state)
    own = [(event, answer) for event, answer in answers if shared.get(event) != answer]
    alike = [event for event in EVENTS if event in shared and shared[event] == entries(state, event)]
    yield f"### {state.__name__}"
    yield _in_short(state) + (" A person can act here." if waits_for_person(state) else "")
    yield "\n".join(_table(own))
    if alike:
        yield f"As [{ANY_BUSY_STATE}](#{ANY_BUSY_STATE.replace(' ', '-')}): {_listed(alike)}."
    yield "Every other answer and report is ignored."


def _answers(state: type[State]) -> list[tuple[type[Event], tuple[Entry, ...]]]:
    """The entries of the table, for each event that the state mentions."""
    return [(event, entries(state, event)) for event in dict.fromkeys(entry.event for entry in TABLE[state])]


def _table(answers: Sequence[tuple[type[Event], tuple[Entry, ...]]]) -> Iterator[str]:
    """One table row for each entry. Events with the same entries share theirs."""
    events_of: dict[tuple[str, ...], list[type[Event]]] = {}
    for event, answer in answers:
        events_of.setdefault(tuple(_cells(entry, answer) for entry in answer), []).append(event)
    yield "| event | guard | what comes of it | in words |"
    yield "| --- | --- | --- | --- |"
    for rows, events in events_of.items():
        for first, row in enumerate(rows):
            yield f"| {'' if first else _listed(events)} | {row} |"


def _cells(entry: Entry, siblings: Sequence[Entry]) -> str:
    done = _in_short(entry.then) if isinstance(entry, Row) and entry.then else ""
    return f"{guard(entry, siblings)} | {_outcome(entry)} | {done}"


def _outcome(entry: Entry) -> str:
    match entry:
        case Row(to=Same()):
            return "stays"
        case Row(to=target):
            return f"→ {_link(target)}"
        case Refusal(why=why):
            return f"refused, see `{why.__name__}`" if callable(why) else f"refused: `{why}`"
        case NoOp():
            return "nothing"


# --- junctions and guards


def _about_junctions() -> Iterator[str]:
    for junction in junctions():
        yield f"### {junction.name}"
        yield "\n".join(_way(branch, junction) for branch in junction.branches)


def _way(branch: Branch, junction: Junction) -> str:
    done = f": {_in_short(branch.then)}" if branch.then else ""
    return f"- {guard(branch, junction.branches)} → {_link(branch.to)}{done}"


def _named() -> list[Callable[..., Any]]:
    """The functions that the page names: the guards in the order of the table, then the reasons of refusals."""
    said = [entry for state in STATES for entry in TABLE[state]]
    branches = [branch for junction in junctions() for branch in junction.branches]
    guards = [choice.when for choice in (*said, *branches) if choice.when is not None]
    reasons = [entry.why for entry in said if isinstance(entry, Refusal) and callable(entry.why)]
    return list(dict.fromkeys([*guards, *reasons]))


# --- words


def _link(target: Target) -> str:
    return f"[{name(target)}](#{name(target).lower()})"


def _listed(events: Sequence[type[Event]]) -> str:
    return ", ".join(f"`{event.__name__}`" for event in events)


def _in_short(thing: Callable[..., Any]) -> str:
    """The first sentence of the docstring, or the name in words if there is none."""
    if thing.__doc__ is None:
        return f"{thing.__name__.replace('_', ' ').capitalize()}."
    return re.split(r"(?<=\.)\s", " ".join(thing.__doc__.split()), maxsplit=1)[0]
