"""Pictures and page show the whole table, and nothing that is not in it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from turnwise.hosts.diagrams.machine_page import markdown
from turnwise.hosts.diagrams.mermaid import PICTURE, main, mermaid
from turnwise.hosts.diagrams.overview import overview
from turnwise.states import table
from turnwise.states.events import EVENTS, REPORTS, REQUESTS, Event
from turnwise.states.grammar import SAME, Branch, Entry, Junction, NoOp, Refusal, Row, Target
from turnwise.states.machine import MACHINE, Edge, edges
from turnwise.states.states import STATES, Busy, Closed, Failed, Idle, State

PAGE = Path(__file__).resolve().parent.parent.parent.parent / "docs" / "machine.md"
TABLE = table.TABLE
JUNCTIONS = [value for value in vars(table).values() if isinstance(value, Junction)]
BUSY = [state for state in STATES if issubclass(state, Busy)]
WAITING_FOR_A_PERSON = {"Idle", "AwaitingUserResponse", "AwaitingApproval", "InDoubt", "Failed"}
PAIRS = [pytest.param(state, event, id=f"{state.__name__}-{event.__name__}") for state in STATES for event in EVENTS]

Way = tuple[str, str]
"""When, and where to: what is drawn for an event, or for a junction."""


# --- what the table says


def name(target: Target) -> str:
    """How pictures and page call the end of a row."""
    if isinstance(target, Junction):
        return target.name
    assert isinstance(target, type)
    return target.__name__


def guard(choice: Entry | Branch, siblings: int) -> str:
    """What must stand in brackets for a choice that has so many siblings, itself included."""
    if choice.when is not None:
        return f"[{choice.when.__name__}]"
    return "[else]" if siblings > 1 else ""


def entries(state: type[State], event: type[Event]) -> list[Entry]:
    """What the table says about a pair."""
    return [entry for entry in TABLE[state] if entry.event is event]


def end(choice: Entry | Branch) -> str:
    """Where a choice leads; what leads nowhere is told apart by its kind."""
    if isinstance(choice, Row | Branch):
        return "stays" if choice.to is SAME else name(choice.to)
    return type(choice).__name__


def ways(choices: list[Entry] | list[Branch]) -> set[Way]:
    """What must be drawn for these: where each row or branch leads, and when, if not all lead the same way."""
    decided = len({end(choice) for choice in choices}) > 1
    return {
        (guard(choice, len(choices)) if decided else "", end(choice))
        for choice in choices
        if isinstance(choice, Row | Branch)
    }


# --- what the full picture shows


@cache
def drawn() -> dict[tuple[str, str], set[Way]]:
    """Everything that is drawn, by node and event; for a junction the event is empty."""
    found: dict[tuple[str, str], set[Way]] = {}
    for node, cause, when, target in (*arrows(), *stays()):
        found.setdefault((node, cause), set()).add((when, target))
    return found


def arrows() -> Iterator[tuple[str, str, str, str]]:
    """The rows and branches that the arrows stand for: where from, on what, when, where to."""
    for source, label, copy, target in re.findall(
        r'^ {4}(\w+) -->\|"(.+)"\| (?:\w+\(\[(\w+)\]\):::elsewhere|(\w+))$', mermaid(), flags=re.MULTILINE
    ):
        for cause, when in label_of(label):
            yield source, cause, when, copy or target


def label_of(label: str) -> Iterator[tuple[str, str]]:
    """Events and guards: guards stand below their events, and events that share them are joined by commas."""
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
    """What a reader finds: what the box of the state says about the event, or else, if busy, that of any busy state."""
    own = drawn().get((state.__name__, event.__name__))
    if own is not None or state not in BUSY or f"does nothing on {event.__name__}" in boxes()[state.__name__]:
        return own or set()
    return drawn().get(("AnyBusyState", event.__name__), set())


class TestPicture:
    """`mermaid()`: the full picture."""

    @pytest.mark.parametrize(("state", "event"), PAIRS)
    def test_every_row_is_drawn(self, state: type[State], event: type[Event]) -> None:
        """Box and arrows of a state, or of any busy state, show each row of the table, and no other."""
        assert shown(state, event) == ways(entries(state, event))

    @pytest.mark.parametrize("junction", JUNCTIONS, ids=lambda junction: junction.name)
    def test_every_branch_is_drawn(self, junction: Junction) -> None:
        """The arrows that leave a junction are its branches with their guards."""
        assert drawn()[junction.name, ""] == ways(list(junction.branches))

    def test_every_state_is_one_box(self) -> None:
        """Every state has one box under its own name, and so has what any busy state does."""
        titles = [text.split("</b>")[0] for text in boxes().values()]

        assert sorted(titles) == sorted([*(state.__name__ for state in STATES), "any busy state"])

    def test_every_junction_is_one_hexagon(self) -> None:
        """Every junction of the table is drawn, and drawn once, however many rows end in it."""
        hexagons = re.findall(r"^ {4}(\w+)\{\{\1\}\}:::junction$", mermaid(), flags=re.MULTILINE)

        assert sorted(hexagons) == sorted(junction.name for junction in JUNCTIONS)

    @pytest.mark.parametrize("state", BUSY, ids=lambda state: state.__name__)
    def test_what_busy_states_share_is_drawn_once(self, state: type[State]) -> None:
        """A busy state draws nothing for an event that any busy state draws in the same way."""
        own = {cause: found for (node, cause), found in drawn().items() if node == state.__name__}

        assert not [cause for cause in own if drawn().get(("AnyBusyState", cause)) == own[cause]]

    def test_two_nodes_have_one_arrow_in_each_direction(self) -> None:
        """However many rows lead from one node to another, they share an arrow."""
        ends = re.findall(r"^ {4}(\w+) -->.* (\S+)$", mermaid(), flags=re.MULTILINE)

        assert len(ends) == len(set(ends))

    def test_it_begins_at_idle(self) -> None:
        """A conversation opens into `Idle`, whose line comes first."""
        lines = mermaid().splitlines()

        assert "    start(( )) -->|Opened| start_Idle([Idle]):::elsewhere" in lines
        assert lines[2].startswith("    order[ ]:::hidden ~~~ start & Idle & ")

    def test_the_states_in_which_a_person_can_act_are_marked(self) -> None:
        """Where a person can move it on, the picture is yellow."""
        assert set(re.findall(r"^ {4}(\w+)\(.*:::person$", mermaid(), flags=re.MULTILINE)) == WAITING_FOR_A_PERSON


# --- what the overview shows


def roads() -> list[tuple[str, str, str, list[str]]]:
    """Where from, how drawn, where to, and the names on it."""
    found = re.findall(r"^ {4}(\w+) (<?-->)(?:\|(.+)\|)? (\w+)$", overview(), flags=re.MULTILINE)
    return [(source, line, target, label.split("<br>") if label else []) for source, line, label, target in found]


def stops(edge: Edge) -> list[str]:
    """The nodes that a way through the machine passes, its first state included."""
    return [edge.source.__name__, *(name(step.to) for step in (edge.row, *edge.branches) if step.to is not SAME)]


def events_between(source: str, target: str) -> set[str]:
    """The events on which the machine can come from one node to another without a rest between them."""
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
        """Every state is one box, something leads to it, and something leads on, except from the end."""
        named = re.findall(r"^ {4}(\w+)\(\[\1\]\)(?::::person)?$", overview(), flags=re.MULTILINE)
        both = [(target, source) for source, line, target, _ in roads() if line == "<-->"]
        steps = {(source, target) for source, _, target, _ in roads()} | set(both)

        assert sorted(named) == sorted(state.__name__ for state in STATES)
        assert {"Idle", *(target for _, target in steps)} >= set(named)
        assert set(named) - {source for source, _ in steps} == {Closed.__name__}

    def test_every_arrow_is_a_way_of_the_machine(self) -> None:
        """On every event that an arrow names, the machine can go from its one end to its other."""
        for source, line, target, label in roads():
            there, back = events_between(source, target), events_between(target, source)
            possible = there | back if line == "<-->" else there

            assert there
            assert back or line == "-->"
            assert set(label) - {"…"} <= possible, (source, target)

    def test_it_says_nothing_of_guards_and_crashes(self) -> None:
        """Arrows are labelled with events, and not with reports."""
        names = {one for *_, label in roads() for one in label}

        assert names <= {event.__name__ for event in EVENTS if event not in REPORTS} | {"…"}

    def test_what_busy_states_share_is_drawn_once(self) -> None:
        """A cancel leads on from any busy state, and is drawn nowhere else."""
        cancelled = [(source, target) for source, _, target, label in roads() if "UserCancel" in label]

        assert cancelled == [("AnyBusyState", "Cancelling")]

    def test_the_words_beside_it_hold(self) -> None:
        """All states but three are busy, and what `Idle` takes `Failed` takes too, though it is not drawn there."""
        leading = {
            state: {(row.event, name(row.to)) for row in TABLE[state] if isinstance(row, Row) and row.to is not SAME}
            for state in (Idle, Failed)
        }

        assert set(STATES) - set(BUSY) == {Idle, Failed, Closed}
        assert leading[Idle] < leading[Failed]

    def test_the_states_in_which_a_person_can_act_are_marked(self) -> None:
        """Where a person can move it on, the overview is yellow."""
        assert set(re.findall(r"^ {4}(\w+)\(.*:::person$", overview(), flags=re.MULTILINE)) == WAITING_FOR_A_PERSON

    def test_it_fits_a_newcomer(self) -> None:
        """It is small enough to be taken in: not many more arrows than states."""
        assert len(roads()) <= 2 * len(STATES)


# --- what the page says


@cache
def page() -> str:
    """The page around a picture that is not there."""
    return markdown("")


def section(title: str) -> str:
    """What stands below a heading."""
    return page().split(f"\n### {title}\n")[1].split("\n#")[0]


@cache
def cells(title: str) -> dict[str, list[tuple[str, str]]]:
    """What the table of a section says, by event: what comes of it, and in words."""
    found: dict[str, list[tuple[str, str]]] = {}
    events: list[str] = []
    for line in re.findall(r"^\| (?!event|---)(.*) \|$", section(title), flags=re.MULTILINE):
        named, when, outcome, words = (cell.strip() for cell in f" {line} ".split(" | "))
        events = re.findall(r"`(\w+)`", named) or events
        for event in events:
            what = re.sub(r"\[(\w+)\]\(#\w+\)", r"\1", f"{when} {outcome}".strip())
            found.setdefault(event, []).append((what, words))
    return found


def answered(state: type[State], event: type[Event]) -> list[tuple[str, str]]:
    """What a reader finds about a pair: in the state's own table, in that of any busy state, or that it is ignored."""
    own, text = cells(state.__name__), section(state.__name__)
    alike = re.search(r"^As \[any busy state\]\(#any-busy-state\): (.+)\.$", text, flags=re.MULTILINE)
    if event.__name__ in own:
        return own[event.__name__]
    if alike and f"`{event.__name__}`" in alike[1].split(", "):
        return cells("Any busy state")[event.__name__]
    assert "Every other answer and report is ignored." in text
    assert event not in REQUESTS
    return [("ignored", "")]


def outcome(entry: Entry) -> str:
    """What the page must say about one entry, apart from its guard."""
    match entry:
        case Row():
            return "stays" if entry.to is SAME else f"→ {name(entry.to)}"
        case NoOp():
            return "nothing"
        case Refusal():
            return f"refused, see `{entry.why.__name__}`" if callable(entry.why) else f"refused: `{entry.why}`"


class TestPage:
    """`markdown()`."""

    def test_it_shows_the_full_picture(self) -> None:
        """The page holds the picture that it is given."""
        assert "```mermaid\nflowchart LR\n```\n" in markdown("flowchart LR\n")

    @pytest.mark.parametrize(("state", "event"), PAIRS)
    def test_every_pair_has_its_answer(self, state: type[State], event: type[Event]) -> None:
        """For every state and every event the page says what each entry of the table does, in the table's order."""
        said = entries(state, event)
        expected = [f"{guard(entry, len(said))} {outcome(entry)}".strip() for entry in said] or ["ignored"]

        assert [what for what, _ in answered(state, event)] == expected

    @pytest.mark.parametrize(("state", "event"), PAIRS)
    def test_every_row_is_told_in_words(self, state: type[State], event: type[Event]) -> None:
        """Beside each row stands the first sentence of what its handler says about itself."""
        for entry, (_, words) in zip(entries(state, event), answered(state, event), strict=False):
            handler = entry.then if isinstance(entry, Row) else None

            assert " ".join((handler.__doc__ if handler and handler.__doc__ else "").split()).startswith(words)
            assert bool(words) == (handler is not None)

    @pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
    def test_every_event_is_explained(self, event: type[Event]) -> None:
        """Each event has a sentence, below the kind that it is of."""
        kind = "Requests" if event in REQUESTS else "Reports" if event in REPORTS else "Answers"
        explained = page().split(f"**{kind}**")[1].split("\n\n")[1]

        assert re.search(rf"^- `{event.__name__}`: [A-Z].*\.$", explained, flags=re.MULTILINE)

    @pytest.mark.parametrize("junction", JUNCTIONS, ids=lambda junction: junction.name)
    def test_every_junction_lists_its_branches(self, junction: Junction) -> None:
        """Below the name of a junction stand its branches, in the order in which they are asked."""
        branches = re.findall(r"^- (?:(\[\w+\]) )?→ \[(\w+)\]", section(junction.name), flags=re.MULTILINE)

        siblings = len(junction.branches)
        assert branches == [(guard(branch, siblings), name(branch.to)) for branch in junction.branches]

    def test_every_name_in_brackets_is_explained(self) -> None:
        """Each guard that the page names, and each reason that it sends the reader to, has a sentence."""
        named = set(re.findall(r"\[(\w+)\](?!\()", page())) - {"else"} | set(re.findall(r"see `(\w+)`", page()))

        explained = re.findall(r"^- `(\w+)`: [A-Z].*\.$", page().split("## Guards and reasons")[1], flags=re.MULTILINE)

        assert sorted(explained) == sorted(named)

    def test_every_link_leads_to_a_heading(self) -> None:
        """Whoever follows a name comes to its section."""
        headings = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", page(), flags=re.MULTILINE)}

        assert set(re.findall(r"\]\(#([^)]+)\)", page())) <= headings

    def test_the_page_in_the_tree_is_fresh(self) -> None:
        """`docs/machine.md` is what the table gives."""
        assert PAGE.read_text(encoding="utf-8") == markdown(mermaid()), "run `make docs`"


class TestCommand:
    """`python -m turnwise.hosts.diagrams.mermaid`."""

    def test_without_arguments_it_prints_the_picture(self, capsys: pytest.CaptureFixture[str]) -> None:
        """It is the full picture, and can be handed to Mermaid as it is."""
        status = main([])

        assert (status, capsys.readouterr().out) == (0, mermaid())

    def test_what_it_writes_is_fresh(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A page just written passes the check, and neither says a word."""
        page = tmp_path / "machine.md"

        statuses = main(["--write", str(page)]), main(["--check", str(page)])

        assert statuses == (0, 0)
        assert page.read_bytes() == markdown(mermaid()).encode()
        assert capsys.readouterr() == ("", "")

    def test_a_file_with_the_marker_keeps_its_words(self, tmp_path: Path) -> None:
        """Where the marker stands, the overview takes the place of the picture below it, and all else stays."""
        readme = tmp_path / "README.md"
        readme.write_text(f"Before.\n\n{PICTURE}\n```mermaid\nold\n```\n\nAfter.\n", encoding="utf-8")

        stale = main(["--check", str(readme)])
        statuses = main(["--write", str(readme)]), main(["--check", str(readme)])

        assert (stale, *statuses) == (1, 0, 0)
        expected = f"Before.\n\n{PICTURE}\n```mermaid\n{overview()}```\n\nAfter.\n"
        assert readme.read_text(encoding="utf-8") == expected

    @pytest.mark.parametrize(
        "content", [b"", b"# The machine\n", b"\xff", None], ids=["empty", "old", "binary", "none"]
    )
    def test_a_stale_page_fails_the_check(
        self, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A page that is not what the table gives, or not there, exits 1 with one sentence that says what to do."""
        page = tmp_path / "machine.md"
        if content is not None:
            page.write_bytes(content)

        status = main(["--check", str(page)])

        assert status == 1
        assert capsys.readouterr() == ("", f"{page} is not what the code gives; run `make docs`.\n")

    def test_a_page_that_cannot_be_written_is_told_in_a_sentence(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A folder that is not there gives a sentence, and no traceback."""
        page = tmp_path / "nowhere" / "machine.md"

        status = main(["--write", str(page)])

        assert status == 1
        assert capsys.readouterr() == ("", f"{page} cannot be written: No such file or directory.\n")

    @pytest.mark.parametrize("seed", ["1", "2"])
    def test_another_process_makes_the_same_page(self, seed: str) -> None:
        """The text depends on the table alone, not on how a process happens to order its sets."""
        command = [sys.executable, "-m", "turnwise.hosts.diagrams.mermaid", "--check", str(PAGE)]

        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True)

        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
