"""An application creates agents with a user, and agents that work for one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    ConfigurationError,
    Engine,
    InvalidInput,
    Limits,
    Policy,
    Refused,
    TurnwiseError,
    UnknownConversation,
    presets,
    tool,
)
from turnwise.states import Opened
from turnwise.testing import ScriptedLlm, reply

from ..support.cases import holds_for


@tool(crash="pure")
async def find_table(party: int = 2) -> str:
    """Look for a free table."""
    return f"Table 4 seats {party}."


class TestRoles:
    """What is stored of a conversation's role."""

    async def test_a_conversation_has_a_user_unless_it_says_otherwise(self) -> None:
        """The role is "foreground", it works for nobody, and no turn started it."""
        async with Engine.open("sqlite://") as engine:
            made = await engine.create()

        assert (made.role, made.works_for, made.parent) == ("foreground", None, None)

    async def test_a_background_agent_works_for_a_conversation_and_has_its_owner(self, database: Path) -> None:
        """Both stand in its first event, so they are there after the engine was opened again."""
        async with Engine.open(database) as engine:
            user = await engine.create(owner="ada")
            made = await engine.create(role="background", works_for=user)
        async with Engine.open(database) as engine:
            again = await engine.get(made.id)
            first = (await again.events())[0].event

        assert (again.role, again.works_for, again.owner) == ("background", user.id, "ada")
        assert isinstance(first, Opened)
        assert (first.role, first.works_for, first.owner, first.parent) == ("background", user.id, "ada", None)

    async def test_the_conversation_is_also_named_by_its_id_or_its_summary(self) -> None:
        """Whatever has the id will do."""
        async with Engine.open("sqlite://") as engine:
            user = await engine.create(owner="ada")
            (summary,) = await engine.list()
            made = [await engine.create(role="background", works_for=given) for given in (user.id, summary)]

        assert [(one.works_for, one.owner) for one in made] == [(user.id, "ada")] * 2

    async def test_a_background_agent_may_work_for_another_one(self) -> None:
        """And has the same owner."""
        async with Engine.open("sqlite://") as engine:
            first = await engine.create(role="background", works_for=await engine.create(owner="ada"))
            second = await engine.create(role="background", works_for=first, owner="ada")

        assert (second.works_for, second.owner) == (first.id, "ada")

    async def test_it_may_work_for_nobody_in_particular(self) -> None:
        """D3: then it serves the conversation that its owner used last."""
        async with Engine.open("sqlite://") as engine:
            made = await engine.create(role="background", owner="ada")

        assert (made.role, made.works_for, made.owner) == ("background", None, "ada")

    async def test_a_copy_keeps_its_role(self) -> None:
        """A fork of a background agent is one."""
        async with Engine.open("sqlite://", model=ScriptedLlm([])) as engine:
            made = await engine.create(role="background", works_for=await engine.create())
            copied = await made.fork()

        assert (copied.role, copied.works_for) == ("background", made.works_for)

    def test_programs_without_an_event_loop_do_the_same(self) -> None:
        """A blocking handle names the conversation, too."""
        with Engine.open_blocking("sqlite://", model=ScriptedLlm([reply("Noted.")])) as engine:
            user = engine.create(owner="ada")
            made = engine.create(role="background", works_for=user)
            turn = made.send("Look for a table")

            assert (user.role, user.works_for, user.parent) == ("foreground", None, None)
            assert (made.role, made.works_for, made.parent, made.owner) == ("background", user.id, None, "ada")
        assert (turn.status, turn.reply, turn.silent) == ("completed", "", True)


class TestFaults:
    """What cannot be created raises a typed error of one sentence, and nothing is stored."""

    @holds_for(
        ("chosen", "error"),
        [
            ({"role": "sub_agent"}, ConfigurationError),
            ({"role": "sub_agent", "works_for": "?"}, ConfigurationError),
            ({"role": "boss"}, ConfigurationError),
            ({"role": ""}, ConfigurationError),
            ({"role": None}, ConfigurationError),
            ({"role": ["background"]}, ConfigurationError),
            ({"works_for": "?"}, ConfigurationError),
            ({"role": "background", "works_for": 5}, InvalidInput),
            ({"role": "background", "works_for": []}, InvalidInput),
            ({"role": "background", "works_for": "\ud83c"}, InvalidInput),
            ({"role": "background", "works_for": "x" * 100_000}, InvalidInput),
            ({"role": "background", "works_for": ""}, UnknownConversation),
            ({"role": "background", "works_for": "nobody"}, UnknownConversation),
        ],
    )
    async def test_a_role_or_a_conversation_that_cannot_be(
        self, chosen: dict[str, Any], error: type[TurnwiseError]
    ) -> None:
        """Roles that an application cannot choose, and conversations that there are not."""
        async with Engine.open("sqlite://") as engine:
            with pytest.raises(error) as raised:
                await engine.create(**chosen)

            assert await engine.list() == ()
        assert "\n" not in raised.value.sentence
        assert raised.value.sentence.endswith(".")
        assert len(raised.value.sentence) < 300

    async def test_a_closed_conversation_gets_no_background_agent(self) -> None:
        """Nobody would present what it finds."""
        async with Engine.open("sqlite://") as engine:
            user = await engine.create()
            await user.close()
            with pytest.raises(Refused) as refused:
                await engine.create(role="background", works_for=user)

        assert refused.value.code == "closed"

    async def test_a_deleted_conversation_gets_none_either(self) -> None:
        """A handle on it may still be held."""
        async with Engine.open("sqlite://") as engine:
            user = await engine.create()
            await engine.delete(user.id)
            with pytest.raises(UnknownConversation):
                await engine.create(role="background", works_for=user)

    @pytest.mark.parametrize(("owner", "other"), [("ada", "grace"), (None, "grace")])
    async def test_owners_never_mix(self, owner: str | None, other: str) -> None:
        """An agent that works for a conversation has its owner, and no other."""
        async with Engine.open("sqlite://") as engine:
            user = await engine.create(owner=owner)
            with pytest.raises(InvalidInput):
                await engine.create(role="background", works_for=user, owner=other)


class TestRules:
    """Which policy an agent without a user has, and which rules concern it."""

    async def test_without_a_policy_it_has_those_of_the_engine_but_for_the_user(self) -> None:
        """D12: its text reaches nobody; general rules are the engine's."""
        policy = presets.explicit_response().replace(limits=Limits(requests=7), parallel=3)
        async with Engine.open("sqlite://", policy=policy, tools=["mark_work_complete"]) as engine:
            made = await engine.create(role="background", works_for=await engine.create())

        assert (made.policy.text, made.policy.ends_on, made.policy.verify) == ("thought", "text", 0)
        assert (made.policy.limits.requests, made.policy.parallel) == (7, 3)

    async def test_a_given_policy_is_taken_as_it_is(self) -> None:
        """The application knows best; a role only decides about tools and about what reaches a user."""
        policy = Policy(on_failure="reply", parallel=2)
        async with Engine.open("sqlite://", model=ScriptedLlm([reply("Hm.")])) as engine:
            made = await engine.create(role="background", works_for=await engine.create(), policy=policy)
            turn = await made.send("Look")

        assert (made.policy.on_failure, made.policy.parallel, made.policy.text) == ("reply", 2, "auto")
        assert (turn.deliveries, turn.silent) == ((), True)

    async def test_it_needs_no_tool_to_speak(self) -> None:
        """Under rules by which a user hears only tools, an agent without a user is created all the same, and may change
        its rules and its tools."""
        async with Engine.open("sqlite://", tools=[find_table]) as engine:
            with pytest.raises(ConfigurationError):
                await engine.create(policy=presets.talk())
            made = await engine.create(role="background", policy=presets.talk())
            await made.set_policy(presets.background())
            await made.set_tools([])

        assert made.tools == ()

    async def test_it_follows_the_models_of_its_engine(self, database: Path) -> None:
        """As a conversation does that chose none."""
        async with Engine.open(database, model=ScriptedLlm([], name="one")) as engine:
            made = await engine.create(role="background", works_for=await engine.create())
        async with Engine.open(database, model=ScriptedLlm([reply("Noted.")], name="two")) as engine:
            again = await engine.get(made.id)
            turn = await again.send("Look")

        assert turn.status == "completed"
        assert [model.name for model in again.policy.models] == ["two"]
