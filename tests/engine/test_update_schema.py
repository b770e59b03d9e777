"""The JSON schema of updates describes every update, and nothing that no update has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator, ValidationError

from turnwise import Update, update_schema
from turnwise.engine.updates import StateType, StepUpdates, Streaming, live_update, snapshot
from turnwise.states import Context, LogEntry, State
from turnwise.states.states import STATES, pending
from turnwise.states.transcript import Transcript
from turnwise.testing import Trace, observe, strategies
from turnwise.testing.history import NOTHING

from ..support.kept_walks import WALKS
from ..walking import RecordedChoices, opening_of, read_walks, walk

NAMES = {"type", "status", "role", "kind", "limit"}
"""The keys whose values are one of a few names."""


def closed(schema: Any) -> Any:
    """The schema with every object restricted to the keys that it names: a key of an update that the schema does not
    have is an error then."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    restricted = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **restricted} if "properties" in schema else restricted


VALIDATOR = Draft202012Validator(closed(update_schema()))


def on_the_wire(update: Update) -> dict[str, Any]:
    """The update as a server sends it."""
    sent = {"type": update.type, "id": update.id, "data": update.data}
    received: dict[str, Any] = json.loads(json.dumps(sent, allow_nan=False, ensure_ascii=False).encode())
    return received


def shape(value: Any, key: str = "") -> Any:
    """The value without its texts and numbers: updates of one shape are valid together."""
    if isinstance(value, dict):
        return tuple((name, "" if key == "arguments" else shape(one, name)) for name, one in value.items())
    if isinstance(value, list):
        return frozenset(shape(one) for one in value)
    return value if key in NAMES else type(value)


def all_updates(trace: Trace) -> Iterator[Update]:
    """Every update that watchers of this conversation could be shown: of each step, a snapshot at the end, and what
    performers may report meanwhile."""
    transcript, context, state = Transcript(), Context(), NOTHING
    for one in trace:
        if one.step is not None:
            entry = LogEntry.of(one.event, one.step)
            yield from StepUpdates().add(entry, one.before, one.after, transcript, one.context)
            state, context = one.after, one.context.after(one.event)
            yield from live_updates(state)
    for request in (None, *pending(state)):
        streaming = None if request is None else Streaming("Hel", "Hm", state.book.turn, request, 1)
        yield snapshot(state, transcript, context.policy, streaming)


def live_updates(state: State) -> Iterator[Update]:
    """What performers may report of the effects that this state awaits."""
    delivery = {"key": "c/1", "channel": "speech", "turn": state.book.turn, "ordinal": 1}
    for effect_id in pending(state):
        yield live_update("token", {"text": "Hel", "kind": "text"}, effect_id, state)
        yield live_update("tool_progress", {"call_id": "call_1_0", "text": "half way"}, effect_id, state)
        yield live_update("delivered", delivery, effect_id, state)
        yield live_update("delivery_failed", {**delivery, "sentence": "No."}, effect_id, state)


def assert_valid(updates: Iterable[Update], seen: set[Any]) -> None:
    """Validate each update that has a shape of its own."""
    for update in updates:
        sent = on_the_wire(update)
        if (one := shape(sent)) not in seen:
            seen.add(one)
            VALIDATOR.validate(sent)


class TestTheSchema:
    """`update_schema()`."""

    def test_is_a_schema(self) -> None:
        """It is valid itself, and open: a client takes what a later version adds."""
        Draft202012Validator.check_schema(update_schema())

        sent = {"type": "thought", "id": "1.1", "data": {"text": "Hm", "turn": 1, "mood": "cheerful"}}
        assert Draft202012Validator(update_schema()).is_valid(sent)
        assert not VALIDATOR.is_valid(sent)

    def test_tells_updates_apart_by_their_type(self) -> None:
        """Its discriminator names every type."""
        discriminator = update_schema()["discriminator"]

        assert discriminator["propertyName"] == "type"
        assert set(discriminator["mapping"]) == {kind.type for kind in get_args(Update)}

    def test_names_every_state(self) -> None:
        """The types of states are those of the machine."""
        assert set(get_args(StateType)) == {state.model_fields["type"].default for state in STATES}

    @pytest.mark.parametrize(
        "sent",
        [
            {"type": "token", "id": "1.1", "data": {"text": "", "kind": "text", "turn": 1, "request": 1, "attempt": 1}},
            {"type": "token", "id": None, "data": {"text": "", "kind": "text"}},
            {"type": "thought", "id": None, "data": {"text": "", "turn": 1}},
            {"type": "thought", "id": "1", "data": {"text": "", "turn": 1}},
            {"type": "state_change", "id": "1.1", "data": {"type": "sleeping", "data": {"turn": 1}}},
            {"type": "unknown", "id": "1.1", "data": {}},
        ],
    )
    def test_refuses_what_is_no_update(self, sent: dict[str, Any]) -> None:
        """A live update has no id, a stored one has one; the fields of a type are required."""
        with pytest.raises(ValidationError):
            Draft202012Validator(update_schema()).validate(sent)


class TestEveryUpdate:
    """What watchers are shown is valid, without a key that the schema does not have."""

    @pytest.mark.slow
    def test_of_kept_walks(self) -> None:
        """Every tenth of the kept walks."""
        seen: set[Any] = set()
        for seed, choices in read_walks(WALKS)[::10]:
            steps = walk(seed, RecordedChoices(choices))
            first = observe(NOTHING, opening_of(seed), Context())
            trace = (first, *(observe(step.state, step.event, step.context) for step in steps))
            assert_valid(all_updates(trace), seen)

        types = {dict(one)["type"] for one in seen}
        assert types == {kind.type for kind in get_args(Update)}

    @pytest.mark.slow
    @given(trace=strategies.traces(max_size=30))
    def test_of_any_conversation(self, trace: Trace) -> None:
        """Whatever is said and done, however odd the texts."""
        assert_valid(all_updates(trace), set())
