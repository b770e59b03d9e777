"""The page about the machine has an answer for every state and every event."""

import re
from functools import cache

from generator.machine_page import markdown
from generator.pages import ROOT
from turnwise.hosts.diagrams.mermaid import mermaid
from turnwise.states.events import EVENTS, REPORTS, REQUESTS, Event
from turnwise.states.grammar import SAME, Entry, Junction, NoOp, Refusal, Row
from turnwise.states.states import State

from ...support.cases import holds_for
from ...support.table_reading import JUNCTIONS, PAIRS, entries, guard, name


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
        """`docs/machine.md` is what is generated from the table."""
        assert (ROOT / "docs" / "machine.md").read_text(encoding="utf-8") == markdown(mermaid()), "run `make docs`"
