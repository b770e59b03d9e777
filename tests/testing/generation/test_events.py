"""Generated events fit the states that they are generated for, and other types are generated from what they declare."""

from __future__ import annotations

import pytest
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

from ...support.cases import holds_for

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
