"""Conversations whose ids the application chooses: each is created once, however often it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    ConfigurationError,
    Conversation,
    Engine,
    InvalidInput,
    ModelSpec,
    Policy,
    Refused,
    StoreError,
    presets,
)
from turnwise.testing import FunctionLlm, ManualClock, reply

from ..support.cases import holds_for
from ..support.engine_scenarios import full_disk

HISTORY = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]

CHOICES: dict[str, Mapping[str, Any]] = {
    "nothing": {},
    "system": {"system": "Be brief."},
    "policy": {"policy": presets.talk()},
    "policy with models": {"policy": Policy(models=(ModelSpec(name="one"),), cancel_deadline=3.0)},
    "model": {"model": "two"},
    "model and policy": {"model": "two", "policy": Policy(when_busy="steer")},
    "tools": {"tools": ["talk"]},
    "no tools": {"tools": []},
    "messages": {"messages": HISTORY},
    "owner": {"owner": "ann"},
    "title": {"title": "Dinner"},
    "metadata": {"metadata": {"table": 4}},
    "other metadata": {"metadata": {"table": 4.5}},
    "metadata that Python takes for the same": {"metadata": {"table": True}},
    "metadata like that": {"metadata": {"table": 1}},
    "every": {"every": 60, "task": "Look."},
    "cron": {"every": 90, "task": "Look."},
    "background": {"role": "background"},
    "secrets": {"system": "Be brief.", "policy": Policy(redact=True), "metadata": {"card": "4111 1111 1111 1111"}},
}
"""What an application may choose for a new conversation; no two are the same."""


def engine_at(database: Path | str, *, models: tuple[str, ...] = ("one", "two"), **options: Any) -> Engine:
    """An engine with models of these names."""
    first, *others = (FunctionLlm(lambda _: reply("Hello."), name=name) for name in models)
    return Engine.open(database, model=first, models=others, tools=["talk"], **options)


async def outcome(engine: Engine, conversation_id: str, choice: Mapping[str, Any]) -> str:
    """Create a conversation, and return its id or the code of the refusal."""
    try:
        return (await engine.create(conversation_id=conversation_id, **choice)).id
    except Refused as refused:
        return refused.code


async def length(conversation: Conversation) -> int:
    """Return the number of steps in the log."""
    return len(await conversation.events())


class TestAskedForAgain:
    """The first answer may be lost on its way, so a client asks again."""

    @pytest.mark.slow
    @pytest.mark.parametrize("name", CHOICES)
    async def test_the_same_conversation_is_returned(self, name: str, database: Path) -> None:
        """At once, after it has gone on and was renamed, and after a restart with another default model."""
        choice = CHOICES[name]
        async with engine_at(database, clock=ManualClock()) as engine:
            first = await engine.create(conversation_id="mine", **choice)
            assert await outcome(engine, "mine", choice) == first.id == "mine"
            await first.set_title("Another title")
            await first.set_policy(Policy(when_busy="steer"))
            steps = await length(first)

            again = await engine.create(conversation_id="mine", **choice)

            assert (again.title, await length(again)) == ("Another title", steps)
        async with engine_at(database, models=("two", "one"), policy=Policy(when_busy="steer")) as engine:
            assert await outcome(engine, "mine", choice) == "mine"
            assert len(await engine.list()) == 1

    @pytest.mark.slow
    async def test_with_other_choices_it_is_refused(self) -> None:
        """Each choice against each other one, and nothing is changed by that. Rules and a model that are left to the
        engine are no choice."""
        async with engine_at("sqlite://") as engine:
            for number, (name, choice) in enumerate(CHOICES.items()):
                await engine.create(conversation_id=f"c{number}", **choice)
                for other, asked in CHOICES.items():
                    chosen = {key: choice[key] for key in choice if key not in ("policy", "model") or key in asked}
                    is_same = repr(chosen) == repr(asked)  # to Python, 1 equals True
                    expected = f"c{number}" if is_same else "event_id_reused"
                    assert await outcome(engine, f"c{number}", asked) == expected, (name, other)

            assert {summary.seq for summary in await engine.list()} == {1}

    async def test_asked_for_many_times_at_once(self, database: Path) -> None:
        """One is created, and all callers hold it; one who wants something else is refused."""
        async with engine_at(database) as engine:
            asking = [outcome(engine, "mine", {"title": "Dinner"}) for _ in range(10)]

            outcomes = await asyncio.gather(*asking, outcome(engine, "mine", {}))

            assert sorted(outcomes) == ["event_id_reused", *["mine"] * 10]
            assert [summary.title for summary in await engine.list()] == ["Dinner"]

    async def test_by_two_engines_over_one_store(self) -> None:
        """The store decides who was first."""
        model = FunctionLlm(lambda _: reply("Hello."))
        async with Engine.open("sqlite://", model=model) as one, Engine.open(store=one.store, model=model) as other:
            outcomes = await asyncio.gather(*(outcome(engine, "mine", {}) for engine in (one, other, one, other)))

            assert outcomes == ["mine"] * 4

    async def test_a_full_disk_creates_nothing(self, database: Path) -> None:
        """The error is that of any `create`; asked for again, the conversation is there."""
        async with engine_at(database) as engine:
            async with full_disk(engine):
                with pytest.raises(StoreError):
                    await engine.create(conversation_id="mine")

            assert await engine.list() == ()
            assert await outcome(engine, "mine", {}) == "mine"

    async def test_a_deleted_one_is_created_anew(self, database: Path) -> None:
        """Nothing is left by which it could be known."""
        async with engine_at(database) as engine:
            first = await engine.create(conversation_id="mine", title="Dinner")
            await first.send("Hello")
            await engine.delete("mine")

            again = await engine.create(conversation_id="mine")

            assert (again.title, await length(again)) == (None, 1)

    async def test_one_that_is_created_while_the_old_one_is_deleted_goes_on(self, database: Path) -> None:
        """The old one is gone for everybody long before its last steps are overwritten. What ends the deletion then
        concerns nothing of the new one, which has its id and is in the middle of a turn."""
        async with engine_at(database) as engine:
            old = await engine.create(conversation_id="mine")
            for _ in range(40):
                await old.send("x" * 20_000)

        deleted = asyncio.Event()

        async def answer(request: Any) -> Any:
            await deleted.wait()
            return reply("Hello.")

        async with Engine.open(database, model=FunctionLlm(answer)) as engine:
            deleting = asyncio.ensure_future(engine.delete("mine"))
            deleting.add_done_callback(lambda _: deleted.set())
            while await engine.list():
                await asyncio.sleep(0)
            new = await engine.create(conversation_id="mine")
            turn = await asyncio.wait_for(new.send("Hello"), 10)

            assert (turn.status, turn.reply) == ("completed", "Hello.")
            assert await length(await engine.get("mine")) == 3

    async def test_an_agent_of_a_conversation_that_is_closed_by_now(self, database: Path) -> None:
        """It belongs to the owner of that conversation, and is returned although none could be created now."""
        async with engine_at(database) as engine:
            served = await engine.create(owner="ann")
            choice = {"role": "background", "works_for": served.id}
            agent = await engine.create(conversation_id="mine", **choice)  # type: ignore[arg-type]
            await served.close()

            assert (await outcome(engine, "mine", choice), agent.owner) == ("mine", "ann")
            assert await outcome(engine, "mine", {**choice, "owner": "bob"}) == "event_id_reused"
            assert await outcome(engine, "another", choice) == "closed"


class TestIds:
    """Which ids an application may choose."""

    @pytest.mark.parametrize("chosen", ["a", "7", "a" * 100, "550e8400-e29b-41d4-a716-446655440000", "a.b_c:d@e~f-"])
    async def test_one_that_can_stand_in_a_url(self, chosen: str) -> None:
        """Letters, digits and a few signs."""
        async with engine_at("sqlite://") as engine:
            assert (await engine.create(conversation_id=chosen)).id == chosen
            assert (await engine.get(chosen)).id == chosen

    @holds_for(
        "chosen", ["", " ", "a b", ".", "..", "-a", "a/1", "a\\b", "a%2f", "a?", "a#", "ä", "a\n", "\ud800", "a" * 101]
    )
    async def test_any_other_is_refused(self, chosen: str) -> None:
        """A slash above all, which is in the ids of sub-agents: nobody creates one of another conversation."""
        async with engine_at("sqlite://") as engine:
            with pytest.raises(InvalidInput, match="1 to 100 characters"):
                await engine.create(conversation_id=chosen)

            assert await engine.list() == ()

    @pytest.mark.parametrize("chosen", [5, b"a", ["a"], True])
    async def test_what_is_no_text_is_refused(self, chosen: Any) -> None:
        """With a sentence."""
        async with engine_at("sqlite://") as engine:
            with pytest.raises(InvalidInput, match="is a text"):
                await engine.create(conversation_id=chosen)

    async def test_the_id_of_a_copy_is_taken(self, database: Path) -> None:
        """It was not asked for by anybody, so no arguments are those by which it was opened."""
        async with engine_at(database) as engine:
            copy = await (await engine.create(conversation_id="mine")).fork()

            assert await outcome(engine, copy.id, {}) == "event_id_reused"

    async def test_what_the_engine_does_not_have_is_said_first(self) -> None:
        """An unknown model is a fault of the application, whether or not the id is taken."""
        async with engine_at("sqlite://") as engine:
            await engine.create(conversation_id="mine")

            with pytest.raises(ConfigurationError, match="no model called three"):
                await engine.create(conversation_id="mine", model="three")


def test_without_an_event_loop() -> None:
    """The blocking engine takes the id, too."""
    model = FunctionLlm(lambda _: reply("Hello."))
    with Engine.open_blocking("sqlite://", model=model) as engine:
        first = engine.create(conversation_id="mine")

        assert engine.create(conversation_id="mine").id == first.id == "mine"
