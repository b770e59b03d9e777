"""What is generated: each choice is what it promises, and each event fits the state that it is generated for."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import find
from hypothesis import strategies as st
from pydantic import TypeAdapter

from turnwise.states import Answer, Context, Event, Refused, Request, State, begin, transition
from turnwise.states.effects import EFFECTS, AnyEffect, Effect
from turnwise.states.events import EVENTS, AnyEvent, Opened
from turnwise.states.states import STATES, AnyState
from turnwise.testing.generation import states
from turnwise.testing.generation.chance import NOON, CannotBeGenerated, Seeded, from_type
from turnwise.testing.generation.events import (
    any_event,
    awaited_answer,
    candidates,
    late_answer,
    person_request,
    request,
)
from turnwise.testing.generation.states import EXTREME
from turnwise.testing.generation.vocabulary import PLAIN
from turnwise.testing.strategies import Drawn, strategy_of

from ..support.cases import holds_for

# --- The source of choices: what each kind of choice promises, by a seed and by Hypothesis.


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


# --- Generated events fit the states that they are generated for, and other types are generated from what they
# declare.


SEEDS = range(30)


def opened(seed: int) -> tuple[State, Context]:
    """The state and context of a new conversation."""
    opening = request(Seeded(seed), PLAIN, Opened, "opened", NOON)
    return begin(opening).state, Context().after(opening)


class TestFitting:
    """Events for a state."""

    @holds_for("kind", STATES)
    def test_an_awaited_answer_is_awaited(self, kind: type[State]) -> None:
        """In every state that awaits something, and a late answer is not."""
        for seed in SEEDS:
            chance = Seeded(seed)
            state = states.a_state(chance, kind)
            late = late_answer(chance, EXTREME, state)
            assert type(late) not in state.awaited().get(late.effect_id, ())
            if state.awaited():
                answer = awaited_answer(chance, EXTREME, state)
                assert type(answer) in state.awaited()[answer.effect_id]

    @holds_for("kind", STATES)
    def test_what_a_person_is_to_do_is_taken(self, kind: type[State]) -> None:
        """A plain request of the type that the state waits for."""
        for seed in SEEDS:
            chance = Seeded(seed)
            state = states.a_state(chance, kind)
            wanted = person_request(state)
            if wanted is not None:
                event = request(chance, PLAIN, wanted, "request", NOON, state)
                assert not transition(state, event, states.context_for(chance, state)).ignored

    def test_candidates_lead_through_conversations(self) -> None:
        """Most plain candidates are taken, and together they reach most types of state."""
        reached, refused = set(), 0
        for seed in SEEDS:
            chance, (state, context) = Seeded(seed), opened(seed)
            for _ in range(40):
                event = candidates(chance, PLAIN, state, NOON)[0]
                try:
                    step = transition(state, event, context)
                except Refused:
                    refused += 1
                    continue
                state, context = step.state, context.after(event)
                reached.add(type(state))

        assert len(reached) > len(STATES) / 2
        assert refused < 40 * len(SEEDS) / 2


class TestFromTypes:
    """Values of types that have no generator of their own."""

    @pytest.mark.slow
    @holds_for("kind", EVENTS)
    def test_every_event_can_be_generated(self, kind: type[Event]) -> None:
        """By its generator and from its type; both read back equal from JSON."""
        for seed in SEEDS:
            for event in (any_event(Seeded(seed), EXTREME, kind), from_type(kind, Seeded(seed))):
                assert TypeAdapter(AnyEvent).validate_json(event.to_json()) == event

    @pytest.mark.slow
    @holds_for("kind", EFFECTS)
    def test_every_effect_can_be_generated(self, kind: type[Effect]) -> None:
        """It reads back equal from JSON."""
        for seed in SEEDS:
            effect = from_type(kind, Seeded(seed))
            assert TypeAdapter(AnyEffect).validate_json(effect.to_json()) == effect

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", STATES)
    def test_every_state_can_be_generated(self, kind: type[State], monkeypatch: pytest.MonkeyPatch) -> None:
        """Also without a line in `GENERATORS`."""
        for generators in (states.GENERATORS, {}):
            monkeypatch.setattr(states, "GENERATORS", generators)
            for seed in SEEDS:
                state = states.a_state(Seeded(seed), kind)
                assert type(state) is kind
                assert TypeAdapter(AnyState).validate_json(state.to_json()) == state

    def test_given_fields_are_kept(self) -> None:
        """The others are generated."""
        for kind in EVENTS:
            if issubclass(kind, Request):
                assert from_type(kind, Seeded(0), event_id="mine").event_id == "mine"
            elif issubclass(kind, Answer):
                assert from_type(kind, Seeded(0), effect_id=7).effect_id == 7

    def test_a_type_without_any_generator_is_reported(self) -> None:
        """With its name."""

        class Strange(Effect):
            type: str = "strange"
            thing: complex

        with pytest.raises(CannotBeGenerated, match="complex"):
            from_type(Strange, Seeded(0))
