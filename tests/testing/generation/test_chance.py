"""The source of choices: what each kind of choice promises, by a seed and by Hypothesis."""

from __future__ import annotations

from collections import Counter

from hypothesis import find
from hypothesis import strategies as st

from turnwise.testing.generation.chance import Seeded
from turnwise.testing.strategies import Drawn, strategy_of


class TestBySeed:
    """`Seeded`."""

    def test_the_same_seed_makes_the_same_choices(self) -> None:
        """Whatever kinds of choices are mixed."""

        def choices(seed: int) -> list[object]:
            chance = Seeded(seed)
            return [chance.below(9), chance.text(), chance.shuffled("abcdef"), chance.flags(4), chance.probably(0.5)]

        assert [choices(seed) for seed in range(20)] == [choices(seed) for seed in range(20)]
        assert len({repr(choices(seed)) for seed in range(20)}) > 15

    def test_a_sample_takes_each_value_at_most_once(self) -> None:
        """In any order, and any of them."""
        samples = [Seeded(seed).sample("abcdef", 3) for seed in range(200)]

        assert all(len(set(sample)) == 3 for sample in samples)
        assert set("abcdef") == {value for sample in samples for value in sample}
        assert len({tuple(sample) for sample in samples}) > 60

    def test_a_shuffle_keeps_every_value(self) -> None:
        """And every order comes up."""
        orders = {tuple(Seeded(seed).shuffled("abc")) for seed in range(200)}

        assert len(orders) == 6
        assert all(sorted(order) == ["a", "b", "c"] for order in orders)

    def test_weights_say_how_often_a_value_is_chosen(self) -> None:
        """One of weight 0 never is."""
        chance = Seeded(0)

        chosen = Counter(chance.weighted({"often": 9, "never": 0, "seldom": 1}) for _ in range(2_000))

        assert chosen["never"] == 0
        assert 100 < chosen["seldom"] < 300

    def test_words_are_never_blank(self) -> None:
        """Although texts may be."""
        chance = Seeded(0)

        assert all(chance.words().strip() for _ in range(200))
        assert not all(chance.text().strip() for _ in range(200))


@strategy_of
def number(chance: Drawn, count: int) -> int:
    """A number that a generator chooses."""
    return chance.below(count)


class TestByHypothesis:
    """`Drawn`."""

    def test_a_choice_shrinks_to_the_first_value(self) -> None:
        """So plain values come first everywhere."""
        assert find(number(100), lambda found: found >= 10) == 10

    def test_what_is_probable_shrinks_to_false(self) -> None:
        """However probable it is."""

        @st.composite
        def answers(draw: st.DrawFn) -> list[bool]:
            chance = Drawn(draw)
            return [chance.probably(0.9) for _ in range(5)]

        assert find(answers(), lambda found: True) == [False] * 5
