"""The diagram for newcomers shows only transitions that the machine can make."""

import re

from generator.overview import overview
from turnwise.states.events import EVENTS, REPORTS
from turnwise.states.grammar import SAME, Row
from turnwise.states.machine import MACHINE, Edge, edges
from turnwise.states.states import STATES, Closed, Failed, Idle

from ...support.table_reading import BUSY, TABLE, WAITING_FOR_A_PERSON, name


def roads() -> list[tuple[str, str, str, list[str]]]:
    """The arrows: source, style, target, and the events on it."""
    found = re.findall(r"^ {4}(\w+) (<?-->)(?:\|(.+)\|)? (\w+)$", overview(), flags=re.MULTILINE)
    return [(source, line, target, label.split("<br>") if label else []) for source, line, label, target in found]


def stops(edge: Edge) -> list[str]:
    """The nodes that an edge of the machine passes, its source included."""
    return [edge.source.__name__, *(name(step.to) for step in (edge.row, *edge.branches) if step.to is not SAME)]


def events_between(source: str, target: str) -> set[str]:
    """The events on which the machine can come from one node to another without a state in between."""
    found = set()
    for edge in edges(MACHINE):
        passed = stops(edge)
        sources = ["AnyBusyState"] if source == "AnyBusyState" and edge.source in BUSY else passed
        if source in sources and target in passed[(passed.index(source) + 1) if source in passed else 1 :]:
            found.add(edge.row.event.__name__)
    return found


class TestOverview:
    """`overview()`: the picture for newcomers."""

    def test_every_state_is_shown(self) -> None:
        """Every state is one box with an arrow to it and, except for the last, an arrow from it."""
        named = re.findall(r"^ {4}(\w+)\(\[\1\]\)(?::::person)?$", overview(), flags=re.MULTILINE)
        both = [(target, source) for source, line, target, _ in roads() if line == "<-->"]
        steps = {(source, target) for source, _, target, _ in roads()} | set(both)

        assert sorted(named) == sorted(state.__name__ for state in STATES)
        assert {"Idle", *(target for _, target in steps)} >= set(named)
        assert set(named) - {source for source, _ in steps} == {Closed.__name__}

    def test_every_arrow_is_a_way_of_the_machine(self) -> None:
        """On each event that an arrow names, the machine can go from one end to the other."""
        for source, line, target, label in roads():
            there, back = events_between(source, target), events_between(target, source)
            possible = there | back if line == "<-->" else there

            assert there
            assert back or line == "-->"
            assert set(label) - {"…"} <= possible, (source, target)

    def test_it_says_nothing_of_guards_and_crashes(self) -> None:
        """Arrows name events, and no reports."""
        names = {one for *_, label in roads() for one in label}

        assert names <= {event.__name__ for event in EVENTS if event not in REPORTS} | {"…"}

    def test_what_busy_states_share_is_drawn_once(self) -> None:
        """A cancel is possible in every busy state, so it is drawn once."""
        cancelled = [(source, target) for source, _, target, label in roads() if "UserCancel" in label]

        assert cancelled == [("AnyBusyState", "Cancelling")]

    def test_the_words_beside_it_hold(self) -> None:
        """All states but three are busy, and `Failed` takes whatever `Idle` takes, though it is not drawn there."""
        leading = {
            state: {(row.event, name(row.to)) for row in TABLE[state] if isinstance(row, Row) and row.to is not SAME}
            for state in (Idle, Failed)
        }

        assert set(STATES) - set(BUSY) == {Idle, Failed, Closed}
        assert leading[Idle] < leading[Failed]

    def test_the_states_in_which_a_person_can_act_are_marked(self) -> None:
        """States in which a person can act are yellow."""
        assert set(re.findall(r"^ {4}(\w+)\(.*:::person$", overview(), flags=re.MULTILINE)) == WAITING_FOR_A_PERSON

    def test_it_fits_a_newcomer(self) -> None:
        """It has few more arrows than states."""
        assert len(roads()) <= 2 * len(STATES)
