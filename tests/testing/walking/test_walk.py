"""A walk is made of a seed and of choices, and of nothing else."""

from itertools import pairwise
from random import Random

from turnwise.states import Policy, transition
from turnwise.testing.walking import Coverage, Curious, Recorded, walk


def test_the_same_seed_and_choices_give_the_same_walk() -> None:
    """So a walk can be stored in one line."""
    curious = Curious(Coverage(), Random(1))
    first = [(stride.state, stride.event) for stride in walk(7, curious)]

    again = [(stride.state, stride.event) for stride in walk(7, Recorded(curious.choices))]

    assert again == first


def test_its_strides_are_what_the_machine_does() -> None:
    """Each state is the one that `transition` returned for the stride before."""
    strides = list(walk(3, Curious(Coverage(), Random(3))))

    for before, after in pairwise(strides):
        assert transition(before.state, before.event, before.context).state == after.state


def test_choices_that_no_longer_fit_end_it() -> None:
    """A walk that was stored before a change may be shorter, but it is not wrong."""
    assert list(walk(7, Recorded((35,)))) == []


def test_the_rules_differ_from_walk_to_walk() -> None:
    """With one policy, most of the table could not be reached."""
    contexts = [next(walk(seed, Curious(Coverage(), Random(0)))).context for seed in range(20)]

    assert len({context.policy for context in contexts} - {Policy()}) > 10
