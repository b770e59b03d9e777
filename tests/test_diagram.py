"""The picture and the page show the whole table, and nothing that is not in it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.states import table
from turnwise.states.diagram import main, markdown, mermaid
from turnwise.states.events import EVENTS, Event
from turnwise.states.grammar import SAME, Branch, Entry, Junction, NoOp, Refusal, Row, Target
from turnwise.states.states import STATES, State

PAGE = Path(__file__).resolve().parent.parent / "docs" / "machine.md"
TABLE = table.TABLE
JUNCTIONS = [value for value in vars(table).values() if isinstance(value, Junction)]
ARROW = re.compile(r" {4}(\S+) --> (\S+) : (.+)")
PAIRS = [pytest.param(state, event, id=f"{state.__name__}-{event.__name__}") for state in STATES for event in EVENTS]

Way = tuple[str, str, str, str]
"""One row or branch: where from, on what, when, where to."""


# --- what the table says


def name(target: Target) -> str:
    """How picture and page call the end of a row."""
    if isinstance(target, Junction):
        return target.name
    assert isinstance(target, type)
    return target.__name__


def guard(choice: Entry | Branch, siblings: int) -> str:
    """What must stand in brackets for a choice that has so many siblings, itself included."""
    if choice.when is not None:
        return f"[{choice.when.__name__}]"
    return "[else]" if siblings > 1 else ""


def rows(state: type[State]) -> list[Row]:
    """The rows of a state."""
    return [entry for entry in TABLE[state] if isinstance(entry, Row)]


def ways_in_table() -> Iterator[Way]:
    """Every row that leaves its state, and every branch."""
    for state in STATES:
        for row in rows(state):
            if row.to is not SAME:
                siblings = sum(other.event is row.event for other in rows(state))
                yield state.__name__, row.event.__name__, guard(row, siblings), name(row.to)
    for junction in JUNCTIONS:
        for branch in junction.branches:
            yield junction.name, junction.name, guard(branch, len(junction.branches)), name(branch.to)


# --- what is drawn


def picture() -> list[str]:
    """The lines of the picture."""
    return mermaid().splitlines()


def ways_in_label(source: str, target: str, label: str) -> Iterator[Way]:
    """The rows that one arrow stands for: guards belong to the events on the line above them."""
    for group in re.findall(r"([^\[<]+)((?:<br>\[\w+\])*)(?:<br>|$)", label):
        for cause in group[0].split(", "):
            for asked in re.findall(r"\[\w+\]", group[1]) or [""]:
                yield source, cause, asked, target


def ways_in_picture() -> list[Way]:
    """Every row and branch that the picture shows, without the beginning."""
    arrows = [match.groups() for line in picture() if (match := ARROW.fullmatch(line))]
    return [way for arrow in arrows if arrow[0] != "[*]" for way in ways_in_label(*arrow)]


def cells() -> dict[tuple[str, str], str]:
    """The cells of the page's table, by the names of state and event."""
    lines = [line.strip("| ").split(" | ") for line in markdown().splitlines() if line.startswith("|")]
    states, _, *body = lines
    return {
        (state, event.strip("*")): cell for event, *filled in body for state, cell in zip(states, filled, strict=True)
    }


def outcome(entry: Entry) -> str:
    """What the page must say about one entry, apart from its guard."""
    match entry:
        case Row():
            return "stays" if entry.to is SAME else f"→ {name(entry.to)}"
        case NoOp():
            return "no-op"
        case Refusal():
            return f"refused, see `{entry.why.__name__}`" if callable(entry.why) else f"refused `{entry.why}`"


class TestPicture:
    """`mermaid()`."""

    def test_every_state_is_a_box(self) -> None:
        """Every state of the machine is a box under its own name."""
        boxes = {line.split(" : ")[1] for line in picture() if re.fullmatch(r" {4}(\w+) : \1", line)}

        assert boxes == {state.__name__ for state in STATES}

    def test_every_junction_is_one_diamond(self) -> None:
        """Every junction of the table is drawn, and drawn once, however many rows end in it."""
        diamonds = [line.split()[1] for line in picture() if line.endswith(" <<choice>>")]

        assert sorted(diamonds) == sorted(junction.name for junction in JUNCTIONS)

    def test_every_row_and_every_branch_is_drawn_once(self) -> None:
        """The arrows are the rows and branches of the table with their guards: none is missing, doubled or made up."""
        assert sorted(ways_in_picture()) == sorted(ways_in_table())

    def test_a_row_that_stays_stands_in_its_box(self) -> None:
        """A row that rests where it was has no arrow: its box says so."""
        staying = {
            f"    {state.__name__} : stays on {row.event.__name__}{f' [{row.when.__name__}]' if row.when else ''}"
            for state in STATES
            for row in rows(state)
            if row.to is SAME
        }

        assert staying == {line for line in picture() if " : stays on " in line}

    def test_two_nodes_have_one_arrow_in_each_direction(self) -> None:
        """However many rows lead from one node to another, they share an arrow."""
        ends = [match.groups()[:2] for line in picture() if (match := ARROW.fullmatch(line))]

        assert len(ends) == len(set(ends))

    def test_it_begins_at_idle_and_ends_at_closed(self) -> None:
        """A conversation opens into `Idle`, and only `Closed` is an end."""
        ends = [line.strip() for line in picture() if "[*]" in line]

        assert ends == ["[*] --> Idle : Opened", "Closed --> [*]"]

    def test_the_states_that_wait_for_a_person_are_marked(self) -> None:
        """Where only a person leads on, the picture is yellow."""
        marked = {line.split()[1] for line in picture() if line.endswith(" person")}

        assert marked == {"Idle", "AwaitingUserResponse", "AwaitingApproval", "Failed"}


class TestPage:
    """`markdown()`."""

    def test_it_shows_the_picture(self) -> None:
        """The page holds the same picture that the command prints."""
        assert f"```mermaid\n{mermaid()}```\n" in markdown()

    @pytest.mark.parametrize(("state", "event"), PAIRS)
    def test_every_pair_has_its_answer(self, state: type[State], event: type[Event]) -> None:
        """For every state and every event the page says what each entry of the table does, in the table's order."""
        entries = [entry for entry in TABLE[state] if entry.event is event]
        expected = [f"{guard(entry, len(entries))} {outcome(entry)}".strip() for entry in entries] or ["ignored"]

        cell = cells()[state.__name__, event.__name__]

        assert cell.split("<br>") == expected

    @pytest.mark.parametrize("junction", JUNCTIONS, ids=lambda junction: junction.name)
    def test_every_junction_lists_its_branches(self, junction: Junction) -> None:
        """Below the name of a junction stand its branches, in the order in which they are asked."""
        section = markdown().split(f"### {junction.name}\n")[1].split("\n#")[0]

        branches = re.findall(r"^- (?:(\[\w+\]) )?→ (\w+)", section, flags=re.MULTILINE)

        siblings = len(junction.branches)
        assert branches == [(guard(branch, siblings), name(branch.to)) for branch in junction.branches]

    def test_every_name_in_brackets_is_explained(self) -> None:
        """Each guard that the page names, and each reason that it sends the reader to, has a sentence."""
        page = markdown()
        named = set(re.findall(r"\[(\w+)\]", page)) - {"else"} | set(re.findall(r"see `(\w+)`", page))

        explained = re.findall(r"^- `(\w+)`: [A-Z].*\.$", page, flags=re.MULTILINE)

        assert sorted(explained) == sorted(named)

    def test_the_page_in_the_tree_is_fresh(self) -> None:
        """`docs/machine.md` is what the table gives."""
        assert PAGE.read_text(encoding="utf-8") == markdown(), "run `make docs`"


class TestCommand:
    """`python -m turnwise.states.diagram`."""

    def test_without_arguments_it_prints_the_picture(self, capsys: pytest.CaptureFixture[str]) -> None:
        """What it prints can be handed to Mermaid as it is."""
        status = main([])

        assert (status, capsys.readouterr().out) == (0, mermaid())

    def test_what_it_writes_is_fresh(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A page just written passes the check, and neither says a word."""
        page = tmp_path / "machine.md"

        statuses = main(["--write", str(page)]), main(["--check", str(page)])

        assert statuses == (0, 0)
        assert page.read_bytes() == markdown().encode()
        assert capsys.readouterr() == ("", "")

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
        assert capsys.readouterr() == ("", f"{page} is not what the table gives; run `make docs`.\n")

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
        command = [sys.executable, "-m", "turnwise.states.diagram", "--check", str(PAGE)]

        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True)

        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
