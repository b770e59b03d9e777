"""Kept walks take every pair of rows that was ever seen in sequence, and the laws hold along them."""

from collections.abc import Iterable

import pytest

from turnwise.states import Context, WorkVerified
from turnwise.testing import Trace, check_laws, observe
from turnwise.testing.history import NOTHING
from turnwise.testing.laws import checks_what_is_delivered

from ..conftest import SUMMARY_LINES
from ..support.kept_walks import WALKS, survey
from ..walking import (
    Coverage,
    RecordedChoices,
    WalkStep,
    needed,
    opening_of,
    possible_pairs,
    read_walks,
    rows,
    walk,
)

pytestmark = pytest.mark.slow

EVERY_PAIR = 11_723
"""How many pairs the longest search so far has found. If a longer search finds more, keep its walks and raise this."""


@pytest.fixture(scope="module")
def coverage(pytestconfig: pytest.Config) -> Coverage:
    """What the kept walks take, which is also printed at the end of the run."""
    covered = survey().coverage
    pytestconfig.stash[SUMMARY_LINES].append(f"Walks through the table take {covered}.")
    return covered


def along(seed: int, steps: Iterable[WalkStep]) -> Trace:
    """The trace of a walk."""
    first = observe(NOTHING, opening_of(seed), Context())
    return first, *(observe(step.state, step.event, step.context) for step in steps)


class TestTheKeptWalks:
    """fixtures/walks.txt."""

    def test_they_take_every_row(self, coverage: Coverage) -> None:
        """So no row of the table is impossible."""
        assert {row for _, row in coverage.seen} == set(rows())

    def test_they_take_every_pair_that_was_ever_seen(self, coverage: Coverage) -> None:
        """After a change of the table, or of the generators, walks may end early, and pairs are missing. Then search
        again: `python -m tests.walking tests/fixtures/walks.txt --search 600`."""
        assert len(coverage.seen) >= EVERY_PAIR

    def test_they_take_no_pair_that_the_table_does_not_allow(self, coverage: Coverage) -> None:
        """Each row that follows another one leaves a state that the other may lead to."""
        taken = {pair for pair in coverage.seen if pair[0] is not None}

        assert taken <= possible_pairs()

    @pytest.mark.parametrize("part", range(4))
    def test_the_laws_hold_along_them(self, part: int) -> None:
        """Every thirtieth walk is checked against every law, step by step."""
        for seed, choices in read_walks(WALKS)[part * 30 :: 120]:
            check_laws(along(seed, walk(seed, RecordedChoices(choices))))

    def test_each_claim_is_checked_by_what_is_delivered(self) -> None:
        """Law 11, case S11: along every walk in which work is verified, since these are few."""
        ends = 0
        for seed, choices in survey().checked:
            steps = list(walk(seed, RecordedChoices(choices)))
            check_laws(along(seed, steps), checks_what_is_delivered)
            ends += sum(isinstance(step.event, WorkVerified) and step.event.passed for step in steps)

        assert ends > 10

    def test_none_of_them_is_idle(self) -> None:
        """Each walk covers a pair that no longer walk covers."""
        pairs = survey().pairs

        assert len(list(needed([*pairs], pairs.__getitem__))) == len(pairs)
