"""Updates are made for those who watch, and made again from the log; a JSON schema describes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator, ValidationError

from turnwise import Conversation, Engine, Update, tool, update_schema
from turnwise.engine.projection import ConversationProjection
from turnwise.engine.updates import StateType, StepUpdates, Streaming, live_update, repeated_step, snapshot
from turnwise.persistence.errors import Damaged
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import Context, LlmResponse, LogEntry, Opened, State, StoreError, UserMessage, begin, transition
from turnwise.states.states import STATES, pending
from turnwise.states.transcript import Transcript
from turnwise.testing import FunctionLlm, Trace, call, observe, strategies
from turnwise.testing.doubles import NOON
from turnwise.testing.history import NOTHING

from ..support.engine_scenarios import Watcher, until
from ..support.kept_walks import WALKS
from ..support.planted.stores import WrappedStore
from ..support.walks import Walk
from ..walking import RecordedChoices, opening_of, read_walks, walk

# --- Updates are made for those who watch, and made again from the log for those who come later; a step that another
# loop has stored is made again, too, and must be the same.


def newest_step(walk: Walk) -> tuple[LogEntry, State, Context]:
    """The newest step of a conversation as its log holds it, and what was before it."""
    (_, before), (event, step) = walk.steps[-2:]
    return LogEntry.of(event, step), before.state, walk.context


@tool(crash="pure")
async def find_table(party: int) -> str:
    """Look for free tables."""
    return "Kikunoi at 6:30 PM."


def answer(request: Any) -> Any:
    """A call of the tool, then a reply."""
    return "There is one." if request.messages[-1]["role"] == "tool" else call("find_table", party=2)


class CountingStore(WrappedStore):
    """A store that counts how often steps are read."""

    reads = 0

    async def entries(self, conversation_id: str, after: int = 0, up_to: int | None = None) -> Any:
        """Count, and read."""
        self.reads += 1
        return await self.store.entries(conversation_id, after, up_to)


async def collected(conversation: Conversation, after: str, turns: int) -> list[Update]:
    """The stored updates after this one, until so many turns have ended."""
    updates: list[Update] = []
    async with aclosing(conversation.updates(after)) as source:
        while [update.type for update in updates].count("turn_ended") < turns:
            updates.append(await anext(source))
    return [update for update in updates if update.id is not None]


async def no_log(after: int = 0, up_to: int | None = None) -> Sequence[LogEntry]:
    """Fail: nothing is to be read from the store."""
    raise AssertionError("the store was read")


def test_it_is_the_step_that_was_stored() -> None:
    """With the state, the effects and the end of the turn."""
    walk = Walk().say().answer(LlmResponse, content="Sakura has one.")

    assert repeated_step(*newest_step(walk)) == walk.steps[-1][1]


@pytest.mark.parametrize("distance", [-1, 1])
def test_an_entry_that_does_not_follow_is_damage(distance: int) -> None:
    """A step is missing, or stands twice."""
    entry, state, context = newest_step(Walk().say())

    with pytest.raises(Damaged, match=f"Step {entry.seq + distance} does not follow step {entry.seq - 1}"):
        repeated_step(replace(entry, seq=entry.seq + distance), state, context)


def test_a_step_that_the_machine_does_not_make_is_refused() -> None:
    """Another version stored other effects, took an event that is refused now, or one that is ignored now."""
    entry, state, context = newest_step(Walk().say())
    late, _, _ = newest_step(Walk().say().answer(LlmResponse, content="Sakura has one."))
    again, _, _ = newest_step(Walk().say())
    closed = Walk().say().state

    for stored, rests in (
        (replace(entry, effects=()), state),
        (replace(late, seq=entry.seq), state),
        (replace(again, seq=closed.book.seq + 1, effects=()), closed),
    ):
        with pytest.raises(StoreError, match=f"Step {stored.seq} was made by another version"):
            repeated_step(stored, rests, context)


@pytest.mark.slow
@given(trace=strategies.traces(max_size=25))
def test_those_of_steps_that_follow_each_other_are_those_of_each_step(trace: Trace) -> None:
    """The view of the state before a step is not made again, and is the same."""
    updates, transcript, other = StepUpdates(), Transcript(), Transcript()

    for one in trace:
        if one.step is not None and not one.step.ignored:
            entry = LogEntry.of(one.event, one.step)
            expected = StepUpdates().add(entry, one.before, one.after, other, one.context)
            assert updates.add(entry, one.before, one.after, transcript, one.context) == expected


class TestWhileNobodyWatches:
    """No update is made, and none is missing afterwards."""

    def test_a_step_has_no_updates(self) -> None:
        """What was said is known all the same."""
        opened = Opened(event_id="opened", at=NOON)
        message = UserMessage(event_id="m1", at=NOON, text="Hi")
        first, context = begin(opened), Context().after(opened)
        projection = ConversationProjection(first.state, context, no_log, (LogEntry.of(opened, first),))
        step = transition(first.state, message, context)

        assert projection.advance(LogEntry.of(message, step), step.state, is_watched=False) is None
        assert [one.text for one in projection.transcript.messages] == ["Hi"]

    async def test_whoever_comes_later_is_shown_what_a_watcher_saw(self, store: SqliteStore) -> None:
        """Under the same ids, each once: also one that has watched before and comes back."""
        async with Engine.open(store=store, model=FunctionLlm(answer), tools=[find_table]) as engine:
            conversation, other = await engine.create(), await engine.create()
            watchers = [Watcher(conversation), Watcher(other)]
            await until(lambda: all(watcher.updates for watcher in watchers))
            await conversation.send("For two")
            await other.send("For two")
            await watchers[0].until("turn_ended")
            await watchers[0].stop()
            await conversation.send("For two")
            await other.send("For two")
            await watchers[1].until("turn_ended", 2)
            await watchers[1].stop()

            before = [update for update in watchers[0].updates[1:] if update.id is not None]
            missed = await collected(conversation, str(before[-1].id), turns=1)

        watched_all = [(one.id, one.type) for one in watchers[1].updates[1:] if one.id is not None]
        assert [(one.id, one.type) for one in before + missed] == watched_all

    async def test_a_stream_does_not_read_the_log(self, store: SqliteStore) -> None:
        """It watches from before its message is sent, so the updates of every step are kept for it."""
        counting = CountingStore(store)
        async with Engine.open(store=counting, model=FunctionLlm(answer), tools=[find_table]) as engine:
            conversation = await engine.create()
            await conversation.send("For two")
            before = counting.reads
            shown = [update.type async for update in conversation.stream("For two")]

        assert shown[-1] == "turn_ended"
        assert counting.reads == before


# --- The JSON schema of updates describes every update, and nothing that no update has.


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
        yield live_update("output", {"value": {"title": "Hel"}}, effect_id, state)
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
