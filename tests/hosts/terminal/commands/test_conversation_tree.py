"""`turnwise list --tree`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.hosts.terminal.commands.database import MAX_LEVELS, Branch, arranged, tree_lines
from turnwise.persistence import Summary
from turnwise.states import Schedule

from ....support.terminal import InProcessRun, database_with
from ....support.walks import Walk

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
IDS = ["a", "b", "c", "d", "e"]


def summary(id_: str, upper: str | None = None, role: str = "sub_agent") -> Summary:
    """A conversation in a list, below another one."""
    return Summary(id_, "idle", False, AT, role=role, parent=upper)  # type: ignore[arg-type]


def drawn(*summaries: Summary, width: int | None = None) -> list[str]:
    """The lines up to the ids."""
    return [line.split("  idle")[0].rstrip() for line in tree_lines(summaries, False, {}, width)]


class TestTheTree:
    """How conversations are arranged."""

    def test_has_agents_below_those_that_they_belong_to(self) -> None:
        """Those side by side keep their order; lines connect them."""
        lines = drawn(
            summary("old"),
            summary("second", "root"),
            summary("below", "first"),
            summary("root"),
            summary("last", "second"),
            summary("first", "root"),
        )

        assert lines == ["old", "root", "├─ second", "│  └─ last", "└─ first", "   └─ below"]

    def test_has_background_agents_below_those_that_they_work_for(self) -> None:
        """What started a sub-agent comes before what it works for."""
        agent = replace(summary("agent", role="background"), works_for="root")
        both = replace(summary("both", "agent"), works_for="root")

        assert drawn(agent, both, summary("root")) == ["root", "└─ agent", "   └─ both"]

    def test_has_the_states_in_one_column(self) -> None:
        """Behind ids in full, with numbers of any usual length."""
        root, worker = "7b30c89a-99c8-43da-b6d7-acc514e66c44", "cecde3ba-90e0-4721-b954-32ff1ce04f02"
        children = [summary(f"{worker}/{number}", worker) for number in (4, 13, 1200)]

        lines = [*tree_lines([summary(root), summary(worker, root), *children], False, {}, None)]

        assert len(lines) == 5 and len({line.index("  idle (sub-agent)") for line in lines[1:]}) == 1

    def test_says_whose_an_agent_is_that_stands_alone(self) -> None:
        """Because the other conversation was deleted, or is not listed."""
        worker = replace(summary("worker", role="background"), works_for="somebody")
        lines = [*tree_lines([worker, summary("child", "gone")], False, {"gone": "go"}, None)]

        assert lines[0].endswith("works for somebody") and lines[1].endswith("started by go")
        assert "idle (background)  " in lines[0] and "idle (sub-agent)  " in lines[1]

    @given(st.dictionaries(st.sampled_from(IDS), st.sampled_from([*IDS, "gone", None])))
    def test_shows_each_conversation_once(self, uppers: Mapping[str, str | None]) -> None:
        """Whatever the data say: circles, conversations below themselves, parents that are missing."""
        branches = arranged([summary(id_, upper) for id_, upper in uppers.items()])

        assert sorted(branch.summary.id for branch in branches) == sorted(uppers)
        path: list[str] = []
        for branch in branches:
            path = [*path[: branch.depth], branch.summary.id]
            if branch.depth:
                assert uppers[branch.summary.id] == path[-2]
            elif uppers[branch.summary.id] in uppers:
                assert leads_into_a_circle(uppers, branch.summary.id)

    def test_may_be_deep_and_wide(self) -> None:
        """Only the innermost levels are drawn, fewer on a narrow terminal."""
        count = 5000
        chain = [summary(str(number), str(number - 1)) for number in range(1, count)]
        star = [summary(f"star {number}", "0") for number in range(count)]

        lines = drawn(summary("0"), *chain, *star)

        assert len(lines) == 2 * count
        assert lines[MAX_LEVELS] == "│  " + "   " * (MAX_LEVELS - 2) + f"└─ {MAX_LEVELS}"
        assert lines[count - 1] == "…  " + "   " * (MAX_LEVELS - 1) + f"└─ {count - 1}"
        assert drawn(summary("0"), *chain[:3], width=20)[3] == "…  └─ 3"

    def test_a_branch_below_another_one_is_a_level_deeper(self) -> None:
        """The root has no lines."""
        root = Branch(summary("root"))

        assert (root.lines(), root.upper_id) == ("", None)
        assert root.below(summary("child", "root"), is_last=True) == Branch(summary("child", "root"), 1, (True,))


def leads_into_a_circle(uppers: Mapping[str, str | None], id_: str | None) -> bool:
    """Whether there is no end to the parents of this conversation."""
    for _ in uppers:
        id_ = uppers.get(id_ or "")
    return id_ in uppers


class TestTheCommand:
    """On a real database."""

    @pytest.fixture(autouse=True)
    def a_tree(self, tmp_path: Path) -> None:
        """Store a conversation, a background agent that wakes up, and a sub-agent of each."""
        schedule = {"schedule": Schedule(every=3600, task="Look."), "next_wake": AT + timedelta(hours=1)}
        database_with(
            tmp_path,
            Walk("annas-conversation").turn("A \x1b[31mtable\nfor\u202e two").turn("again"),
            Walk("background-agent", role="background", works_for="annas-conversation", **schedule),
            Walk("annas-conversation/7", role="sub_agent", parent="annas-conversation").turn("Read."),
            Walk("background-agent/3", role="sub_agent", parent="background-agent").say("Read."),
        )

    def test_shows_roles_states_and_wake_ups(self, in_process: InProcessRun) -> None:
        """A line for each conversation, without control characters."""
        lines = in_process("list", "--tree").stdout.splitlines()

        heads = [line.split("  20")[0].rstrip() for line in lines]
        assert [" ".join(head.split()) for head in heads] == [
            "annas-conversation idle",
            "├─ annas-conversation/7 closed (sub-agent)",
            "└─ background-agent idle (background)",
            "└─ background-agent/3 interrupted (sub-agent)",
        ]
        assert lines[0].endswith("A table for two")
        assert "  wakes 2026-06-01 " in lines[2]
        assert all(line.isprintable() for line in lines)

    def test_has_depths_as_json(self, in_process: InProcessRun) -> None:
        """In the order of the tree."""
        listed = json.loads(in_process("list", "--tree", "--json").stdout)["conversations"]

        assert [(one["id"], one["depth"], one["role"]) for one in listed] == [
            ("annas-conversation", 0, "foreground"),
            ("annas-conversation/7", 1, "sub_agent"),
            ("background-agent", 1, "background"),
            ("background-agent/3", 2, "sub_agent"),
        ]
        assert listed[2]["works_for"] == listed[1]["parent"] == "annas-conversation"
        assert listed[2]["wakes_at"] == "2026-06-01T13:00:00+00:00"

    def test_a_part_of_the_list_is_a_tree_too(self, in_process: InProcessRun) -> None:
        """Without the conversations that are not in it."""
        (line,) = in_process("list", "--tree", "--limit", "1").stdout.splitlines()

        assert line.startswith("annas-conversation  ")
