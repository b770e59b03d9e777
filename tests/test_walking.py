"""A walk is made of a seed and of choices, and of nothing else."""

from itertools import pairwise
from random import Random

import pytest

from turnwise.states import Policy, transition

from .walking import Coverage, CuriousChooser, RecordedChoices, walk


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
