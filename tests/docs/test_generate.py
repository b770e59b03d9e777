"""What is made in the docs: the pages are fresh, and hold what the machine says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from generate import main
from generator.machine_page import markdown
from generator.pages import PRESETS, ROOT, RULES, TERMINAL
from generator.rules_page import rules, sets_of_rules
from generator.settings_page import terminal_settings
from turnwise import presets
from turnwise.hosts.diagrams.mermaid import mermaid
from turnwise.states import policy as turnwise_policy
from turnwise.states.events import EVENTS, REPORTS, REQUESTS, Event
from turnwise.states.grammar import SAME, Entry, Junction, NoOp, Refusal, Row
from turnwise.states.policy import Policy, Rules, Texts
from turnwise.states.states import State
from turnwise.states.values.value import Value

from ..support.cases import holds_for
from ..support.pages import Page, table
from ..support.table_reading import JUNCTIONS, PAIRS, entries, guard, name

# --- The command that writes the generated parts of the pages, and checks them.


class TestCommand:
    """`python docs/generate.py`."""

    def test_what_it_writes_is_fresh(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A page that was just written passes the check, and neither prints anything."""
        page = tmp_path / "machine.md"

        statuses = main([str(page)]), main(["--check", str(page)])

        assert statuses == (0, 0)
        assert page.read_bytes() == markdown(mermaid()).encode()
        assert capsys.readouterr() == ("", "")

    @pytest.mark.slow
    def test_a_file_with_a_marker_keeps_its_words(self, tmp_path: Path) -> None:
        """The table replaces the one below the marker, and everything else stays."""
        readme = tmp_path / "README.md"
        readme.write_text(f"Before.\n\n{TERMINAL}\n| old |\n\nAfter.\n", encoding="utf-8")

        stale = main(["--check", str(readme)])
        statuses = main([str(readme)]), main(["--check", str(readme)])

        assert (stale, *statuses) == (1, 0, 0)
        expected = f"Before.\n\n{TERMINAL}\n{terminal_settings()}\nAfter.\n"
        assert readme.read_text(encoding="utf-8") == expected

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "content", [b"", b"# The machine\n", b"\xff", None], ids=["empty", "old", "binary", "none"]
    )
    def test_a_stale_page_fails_the_check(
        self, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """If a page is missing, or differs from what is generated, the command exits with 1 and one sentence that says
        what to do."""
        page = tmp_path / "machine.md"
        if content is not None:
            page.write_bytes(content)

        status = main(["--check", str(page)])

        assert status == 1
        assert capsys.readouterr() == ("", f"{page} is not what the code gives; run `make docs`.\n")

    def test_a_page_that_cannot_be_written_is_told_in_a_sentence(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """For a folder that does not exist it prints a sentence without a traceback."""
        page = tmp_path / "nowhere" / "machine.md"

        status = main([str(page)])

        assert status == 1
        assert capsys.readouterr() == ("", f"{page} cannot be written: No such file or directory.\n")

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", ["1", "2"])
    def test_another_process_makes_the_same_pages(self, seed: str) -> None:
        """The pages of the repository are up to date, in whatever order a process iterates over its sets."""
        command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]

        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True)

        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- The page about the machine has an answer for every state and every event.


@cache
def page() -> str:
    """The page around an empty diagram."""
    return markdown("")


def section(title: str) -> str:
    """The text below a heading."""
    return page().split(f"\n### {title}\n")[1].split("\n#")[0]


@cache
def cells(title: str) -> dict[str, list[tuple[str, str]]]:
    """The table of a section, by event: outcome and description."""
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
    """What a reader finds about a state and an event: in the state's table, in the table of all busy states, or that
    the event is ignored."""
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
    """What the page must say about an entry, apart from its guard."""
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
        """The page contains the diagram that it is given."""
        assert "```mermaid\nflowchart LR\n```\n" in markdown("flowchart LR\n")

    @holds_for(("state", "event"), PAIRS)
    def test_every_pair_has_its_answer(self, state: type[State], event: type[Event]) -> None:
        """For every state and every event the page says what each entry of the table does, in the table's order."""
        said = entries(state, event)
        expected = [f"{guard(entry, len(said))} {outcome(entry)}".strip() for entry in said] or ["ignored"]

        assert [what for what, _ in answered(state, event)] == expected

    @holds_for(("state", "event"), PAIRS)
    def test_every_row_is_told_in_words(self, state: type[State], event: type[Event]) -> None:
        """Each row shows the first sentence of its handler's docstring."""
        for entry, (_, words) in zip(entries(state, event), answered(state, event), strict=False):
            handler = entry.then if isinstance(entry, Row) else None

            assert " ".join((handler.__doc__ if handler and handler.__doc__ else "").split()).startswith(words)
            assert bool(words) == (handler is not None)

    @holds_for("event", EVENTS)
    def test_every_event_is_explained(self, event: type[Event]) -> None:
        """Each event has a sentence, below its family."""
        kind = "Requests" if event in REQUESTS else "Reports" if event in REPORTS else "Answers"
        explained = page().split(f"**{kind}**")[1].split("\n\n")[1]

        assert re.search(rf"^- `{event.__name__}`: [A-Z].*\.$", explained, flags=re.MULTILINE)

    @holds_for("junction", JUNCTIONS)
    def test_every_junction_lists_its_branches(self, junction: Junction) -> None:
        """Below the name of a junction are its branches, in the order in which they are tried."""
        branches = re.findall(r"^- (?:(\[\w+\]) )?→ \[(\w+)\]", section(junction.name), flags=re.MULTILINE)

        siblings = len(junction.branches)
        assert branches == [(guard(branch, siblings), name(branch.to)) for branch in junction.branches]

    def test_every_name_in_brackets_is_explained(self) -> None:
        """Each guard and each reason that the page names has a sentence."""
        named = set(re.findall(r"\[(\w+)\](?!\()", page())) - {"else"} | set(re.findall(r"see `(\w+)`", page()))

        explained = re.findall(r"^- `(\w+)`: [A-Z].*\.$", page().split("## Guards and reasons")[1], flags=re.MULTILINE)

        assert sorted(explained) == sorted(named)

    def test_every_link_leads_to_a_heading(self) -> None:
        """Each link within the page leads to a section."""
        headings = {title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", page(), flags=re.MULTILINE)}

        assert set(re.findall(r"\]\(#([^)]+)\)", page())) <= headings

    def test_the_page_in_the_tree_is_fresh(self) -> None:
        """`docs/reference/machine.md` is what is generated from the table."""
        assert Page("docs/reference/machine.md").text == markdown(mermaid()), "run `make docs`"


# --- The tables of rules and presets in docs/reference/rules.md are those of the code.


PAGE = Page("docs/reference/rules.md")

KINDS = {
    "" if kind is Policy else f"{name}.": kind
    for name, kind in vars(turnwise_policy).items()
    if isinstance(kind, type) and issubclass(kind, Rules) and kind not in (Rules, Texts)
}
"""The rules, by what stands before the names of their fields."""


def written(value: object) -> str:
    """A default as it is written in the table."""
    if isinstance(value, tuple) and value:
        return '`(ModelSpec(name="default"),)`'
    if isinstance(value, Value):
        return f"`{type(value).__name__}()`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


class TestTheTablesOfRules:
    """The two tables that `docs/generator/rules_page.py` writes into docs/reference/rules.md."""

    @pytest.mark.slow
    def test_the_page_in_the_tree_is_fresh(self) -> None:
        """The tables in docs/reference/rules.md are what is generated from the code."""
        assert main(["--check", str(PAGE.path)]) == 0, "run `make docs`"

    def test_every_rule_says_what_it_means(self) -> None:
        """Each field of the policy has a row with a sentence and its default."""
        rows = table(PAGE.text, "rule")

        for prefix, kind in KINDS.items():
            for rule, field in kind.model_fields.items():
                default, _, meant = rows.pop(f"{prefix}{rule}")
                assert meant.endswith((".", "…")), rule
                assert field.is_required() or default == written(field.default)
        assert rows == {}

    def test_a_preset_is_made_of_the_rules_that_stand_beside_it(self) -> None:
        """A policy with the rules in the table equals the preset."""
        names = {**vars(turnwise_policy), "Texts": Texts}
        for preset, (_, changed) in table(PAGE.section("Presets"), "preset").items():
            rules = ", ".join(re.findall(r"`([^`]+)`", changed))

            assert eval(f"Policy({rules})", names) == eval(f"presets.{preset}", {"presets": presets})

    @pytest.mark.slow
    def test_what_stands_around_a_table_stays(self, tmp_path: Path) -> None:
        """Generating a table again changes nothing else on the page, even if the table ends it."""
        page = tmp_path / "page.md"
        page.write_text(f"Before.\n\n{PRESETS}\n| old |\n\nBetween.\n\n{RULES}\n| old |\n", encoding="utf-8")

        stale, *fresh = main(["--check", str(page)]), main([str(page)]), main(["--check", str(page)])

        assert (stale, fresh) == (1, [0, 0])
        expected = f"Before.\n\n{PRESETS}\n{sets_of_rules()}\nBetween.\n\n{RULES}\n{rules()}"
        assert page.read_text(encoding="utf-8") == expected
