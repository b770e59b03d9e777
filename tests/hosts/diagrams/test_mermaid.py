"""The full diagram shows the whole table, and nothing else."""

import re
from collections.abc import Iterator
from functools import cache

from turnwise.hosts.diagrams.mermaid import mermaid
from turnwise.states.events import Event
from turnwise.states.grammar import Junction
from turnwise.states.states import STATES, State

from ...support.cases import holds_for
from ...support.table_reading import BUSY, JUNCTIONS, PAIRS, WAITING_FOR_A_PERSON, Way, entries, ways


@cache
def drawn() -> dict[tuple[str, str], set[Way]]:
    """Everything that is drawn, by node and event; for a junction the event is empty."""
    found: dict[tuple[str, str], set[Way]] = {}
    for node, cause, when, target in (*arrows(), *stays()):
        found.setdefault((node, cause), set()).add((when, target))
    return found


def arrows() -> Iterator[tuple[str, str, str, str]]:
    """The rows and branches of the arrows: source, event, guard, target."""
    for source, label, copy, target in re.findall(
        r'^ {4}(\w+) -->\|"(.+)"\| (?:\w+\(\[(\w+)\]\):::elsewhere|(\w+))$', mermaid(), flags=re.MULTILINE
    ):
        for cause, when in label_of(label):
            yield source, cause, when, copy or target


def label_of(label: str) -> Iterator[tuple[str, str]]:
    """The events and guards of a label. Guards stand below their events, and events with the same guards are joined by
    commas."""
    groups: list[tuple[list[str], list[str]]] = []
    for line in re.split(r"(?<!,)<br>", label):
        if not line.startswith("["):
            groups.append((line.split(",<br>"), []))
        else:
            groups = groups or [([""], [])]
            groups[-1][1].append(line)
    for causes, guards in groups:
        yield from ((cause, when) for cause in causes for when in guards or [""])


def stays() -> Iterator[tuple[str, str, str, str]]:
    """The rows that stand inside a box."""
    for node, text in boxes().items():
        for cause, when in re.findall(r"<br>stays on (\w+)(?: (\[\w+\]))?", text):
            yield node, cause, when, "stays"


@cache
def boxes() -> dict[str, str]:
    """The text of each box, by its name."""
    return dict(re.findall(r'^ {4}(\w+)\(\[?"<b>(.+)"\]?\)(?::::person)?$', mermaid(), flags=re.MULTILINE))


def shown(state: type[State], event: type[Event]) -> set[Way]:
    """The rows that a reader finds for a state and an event: those of the state's box, or those of any busy state."""
    own = drawn().get((state.__name__, event.__name__))
    if own is not None or state not in BUSY or f"does nothing on {event.__name__}" in boxes()[state.__name__]:
        return own or set()
    return drawn().get(("AnyBusyState", event.__name__), set())


class TestPicture:
    """`mermaid()`: the full diagram."""

    @holds_for(("state", "event"), PAIRS)
    def test_every_row_is_drawn(self, state: type[State], event: type[Event]) -> None:
        """The box and the arrows of a state, or of any busy state, show each row of the table, and no other."""
        assert shown(state, event) == ways(entries(state, event))

    @holds_for("junction", JUNCTIONS)
    def test_every_branch_is_drawn(self, junction: Junction) -> None:
        """The arrows that leave a junction are its branches with their guards."""
        assert drawn()[junction.name, ""] == ways(list(junction.branches))

    def test_every_state_is_one_box(self) -> None:
        """Every state has one box under its own name, and so have the busy states together."""
        titles = [text.split("</b>")[0] for text in boxes().values()]

        assert sorted(titles) == sorted([*(state.__name__ for state in STATES), "any busy state"])

    def test_every_junction_is_one_hexagon(self) -> None:
        """Every junction is drawn once, however many rows lead to it."""
        hexagons = re.findall(r"^ {4}(\w+)\{\{\1\}\}:::junction$", mermaid(), flags=re.MULTILINE)

        assert sorted(hexagons) == sorted(junction.name for junction in JUNCTIONS)

    @holds_for("state", BUSY)
    def test_what_busy_states_share_is_drawn_once(self, state: type[State]) -> None:
        """A busy state draws no event that any busy state draws in the same way."""
        own = {cause: found for (node, cause), found in drawn().items() if node == state.__name__}

        assert not [cause for cause in own if drawn().get(("AnyBusyState", cause)) == own[cause]]

    def test_two_nodes_have_one_arrow_in_each_direction(self) -> None:
        """All rows from one node to another share an arrow."""
        ends = re.findall(r"^ {4}(\w+) -->.* (\S+)$", mermaid(), flags=re.MULTILINE)

        assert len(ends) == len(set(ends))

    def test_it_begins_at_idle(self) -> None:
        """A conversation opens into `Idle`, whose line comes first."""
        lines = mermaid().splitlines()

        assert "    start(( )) -->|Opened| start_Idle([Idle]):::elsewhere" in lines
        assert lines[2].startswith("    order[ ]:::hidden ~~~ start & Idle & ")

    def test_the_states_in_which_a_person_can_act_are_marked(self) -> None:
        """States in which a person can act are yellow."""
        assert set(re.findall(r"^ {4}(\w+)\(.*:::person$", mermaid(), flags=re.MULTILINE)) == WAITING_FOR_A_PERSON
