"""Walks through the table, and the command by which a developer looks for more of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from turnwise.states import Policy, transition

from .walking import Coverage, CuriousChooser, RecordedChoices, main, read_walks, take, walk, write_walks

# --- A walk is made of a seed and of choices, and of nothing else.


def test_the_same_seed_and_choices_give_the_same_walk() -> None:
    """So a walk can be stored in one line."""
    curious = CuriousChooser(Coverage(), Random(1))
    first = [(step.state, step.event) for step in walk(7, curious)]

    again = [(step.state, step.event) for step in walk(7, RecordedChoices(curious.choices))]

    assert again == first


def test_its_strides_are_what_the_machine_does() -> None:
    """Each state is the one that `transition` returned for the step before."""
    steps = list(walk(3, CuriousChooser(Coverage(), Random(3))))

    for before, after in pairwise(steps):
        assert transition(before.state, before.event, before.context).state == after.state


def test_choices_that_no_longer_fit_end_it() -> None:
    """A walk that was stored before a change may be shorter, but it is not wrong."""
    assert list(walk(7, RecordedChoices((35,)))) == []


@pytest.mark.slow
def test_the_rules_differ_from_walk_to_walk() -> None:
    """With one policy, most of the table could not be reached."""
    contexts = [next(walk(seed, CuriousChooser(Coverage(), Random(0)))).context for seed in range(20)]

    assert len({context.policy for context in contexts} - {Policy()}) > 10


# --- `python -m tests.walking`, by which a developer looks for more walks.


@pytest.mark.slow
def test_it_tells_what_is_covered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints the rows and the pairs in one line."""
    write_walks(tmp_path / "walks.txt", [(7, (0, 0, 0))])

    status = main([str(tmp_path / "walks.txt")])

    assert status == 0
    assert capsys.readouterr().out.startswith("1 walks cover ")


@pytest.mark.slow
def test_a_search_keeps_what_it_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It writes the walks that it found; taken again, they cover the same."""
    file = tmp_path / "walks.txt"

    status = main([str(file), "--search", "0.5"])

    found = read_walks(file)
    assert status == 1
    assert f"{len(found)} walks cover {take(found)}" in capsys.readouterr().out
