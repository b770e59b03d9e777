"""Every pair of rows that can be taken in sequence is taken by some walk, and the laws hold along all of them."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from turnwise.states import Context, Policy, WorkVerified, transition
from turnwise.testing import Trace, check_laws, observe
from turnwise.testing.laws import checks_what_is_delivered
from turnwise.testing.observation import NOTHING
from turnwise.testing.walking import Coverage, Curious, Recorded, possible_pairs, read_walks, walk, write_walks
from turnwise.testing.walking.__main__ import main, needed, take
from turnwise.testing.walking.opening import opening_of
from turnwise.testing.walking.pairs import rows
from turnwise.testing.walking.walk import Stride

from ..conftest import SUMMARY_LINES
from ..support.kept_walks import WALKS, survey

pytestmark = pytest.mark.xdist_group("walks")  # so that one worker takes them all, once

EVERY_PAIR = 4_543
"""What the longest search so far has found; a longer one that finds more keeps its walks, and raises this."""


@pytest.fixture(scope="module")
def coverage(pytestconfig: pytest.Config) -> Coverage:
    """What the kept walks take, which is also printed at the end of the run."""
    covered = survey().coverage
    pytestconfig.stash[SUMMARY_LINES].append(f"Walks through the table take {covered}.")
    return covered


def along(seed: int, strides: Iterable[Stride]) -> Trace:
    """What was observed along a walk."""
    first = observe(NOTHING, opening_of(seed), Context())
    return first, *(observe(stride.state, stride.event, stride.context) for stride in strides)


class TestTheKeptWalks:
    """What the file of walks is for."""

    def test_they_take_every_row(self, coverage: Coverage) -> None:
        """No row of the table is one that no conversation ever takes."""
        assert {row for _, row in coverage.seen} == set(rows())

    def test_they_take_every_pair_that_was_ever_seen(self, coverage: Coverage) -> None:
        """A row behind each row that can be taken before it. A change of the table, or of what can happen, makes walks
        end early; then search again: `python -m turnwise.testing.walking tests/fixtures/walks.txt --search 600`."""
        assert len(coverage.seen) >= EVERY_PAIR

    def test_they_take_no_pair_that_the_table_does_not_allow(self, coverage: Coverage) -> None:
        """What a walk takes is what the table says."""
        taken = {pair for pair in coverage.seen if pair[0] is not None}

        assert taken <= possible_pairs()

    @pytest.mark.parametrize("part", range(4))
    def test_the_laws_hold_along_them(self, part: int) -> None:
        """Every thirtieth walk is held to every law, step by step."""
        for seed, choices in read_walks(WALKS)[part * 30 :: 120]:
            check_laws(along(seed, walk(seed, Recorded(choices))))

    def test_each_claim_is_checked_by_what_is_delivered(self) -> None:
        """Law 11, case S11: along every walk that leads through a check, since those are few."""
        ends = 0
        for seed, choices in survey().checked:
            strides = list(walk(seed, Recorded(choices)))
            check_laws(along(seed, strides), checks_what_is_delivered)
            ends += sum(isinstance(stride.event, WorkVerified) and stride.event.passed for stride in strides)

        assert ends > 10

    def test_none_of_them_is_idle(self) -> None:
        """Each covers something that no longer one does."""
        pairs = survey().pairs

        assert len(list(needed([*pairs], pairs.__getitem__))) == len(pairs)


class TestAWalk:
    """It is made of a seed and of choices, and of nothing else."""

    def test_the_same_seed_and_choices_give_the_same_walk(self) -> None:
        """So a walk can be kept in a line."""
        curious = Curious(Coverage(), Random(1))
        first = [(stride.state, stride.event) for stride in walk(7, curious)]

        again = [(stride.state, stride.event) for stride in walk(7, Recorded(curious.choices))]

        assert again == first

    def test_its_strides_are_what_the_machine_does(self) -> None:
        """Each state is what `transition` made of the one before."""
        strides = list(walk(3, Curious(Coverage(), Random(3))))

        for before, after in pairwise(strides):
            assert transition(before.state, before.event, before.context).state == after.state

    def test_choices_that_no_longer_fit_end_it(self) -> None:
        """An old walk is shorter, not wrong."""
        assert list(walk(7, Recorded((35,)))) == []

    def test_the_rules_differ_from_walk_to_walk(self) -> None:
        """Or most of the table would stay out of reach."""
        contexts = [next(walk(seed, Curious(Coverage(), Random(0)))).context for seed in range(20)]

        assert len({context.policy for context in contexts} - {Policy()}) > 10


class TestTheCommand:
    """What a developer types."""

    def test_it_tells_what_is_covered(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Rows and pairs, in one line."""
        write_walks(tmp_path / "walks.txt", [(7, (0, 0, 0))])

        status = main([str(tmp_path / "walks.txt")])

        assert status == 0
        assert capsys.readouterr().out.startswith("1 walks cover ")

    def test_a_search_keeps_what_it_finds(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The walks found are written down, and taken again they cover the same."""
        file = tmp_path / "walks.txt"

        status = main([str(file), "--search", "0.2"])

        found = read_walks(file)
        assert status == 1
        assert f"{len(found)} walks cover {take(found)}" in capsys.readouterr().out
