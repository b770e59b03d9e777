"""What a conversation chooses of its engine: models and tools, when it is created and later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, InvalidInput, ModelSpec, Policy, Profile, presets, tool
from turnwise.states import Opened, PolicyChanged
from turnwise.testing import FunctionLlm, ScriptedLlm, failure


@tool(crash="pure")
async def find_table(party: int) -> str:
    """Look for a free table."""
    return f"Table 4 seats {party}."


B: Any = "b"
GONE = Policy(models=(ModelSpec(name="gone"),))


async def check_weather(day: str) -> str:
    """Say what the weather will be."""
    return "Sunny."


def model(name: str, **attributes: Any) -> FunctionLlm:
    """Return a model that says its name."""
    made = FunctionLlm(lambda request: name, name=name)
    for attribute, value in attributes.items():
        setattr(made, attribute, value)
    return made


def names(policy: Policy) -> list[str]:
    """Return the names of the models of a policy."""
    return [spec.name for spec in policy.models]


class TestModels:
    """`create(model=…)` and `Policy.models`."""

    async def test_the_chosen_model_is_asked_first(self) -> None:
        """Then the engine's models to fall back to, each once."""
        options: dict[str, Any] = {
            "model": model("a"),
            "fallback_models": [model("f"), model("b")],
            "models": [model("c")],
        }
        async with Engine.open("sqlite://", **options) as engine:
            for chosen, expected in ((None, ["a", "f", "b"]), ("c", ["c", "f", "b"]), ("b", ["b", "f"])):
                conversation = await engine.create(model=chosen)

                assert names(conversation.policy) == expected
                assert (await conversation.send("Hi")).reply == expected[0]

    async def test_a_policy_may_name_them(self) -> None:
        """With the windows that it leaves out; those that it gives are kept."""
        big, small = ModelSpec(name="b"), ModelSpec(name="a", window=500)
        policy = Policy(models=(big, small), profiles=(Profile(name="cook", model=B),))
        async with Engine.open("sqlite://", model=model("a", window=9_000), models=[model("b", window=700)]) as engine:
            conversation = await engine.create(policy=policy)
            (opened,) = await conversation.events()
            reply = (await conversation.send("Hi")).reply

        assert isinstance(opened.event, Opened) and opened.event.chose_models
        assert conversation.policy.models == (ModelSpec(name="b", window=700), small)
        assert conversation.policy.profiles[0].model == ModelSpec(name="b", window=700)
        assert reply == "b"

    async def test_a_model_of_its_own_goes_before_those_of_its_policy(self) -> None:
        """`model=` is the nearer choice."""
        async with Engine.open("sqlite://", model=model("a"), models=[model("b"), model("c")]) as engine:
            conversation = await engine.create(model="c", policy=Policy(models=(ModelSpec(name="b"),)))

        assert names(conversation.policy) == ["c"]

    async def test_the_models_in_the_policy_of_the_engine_do_not_count(self) -> None:
        """They are given beside it."""
        policy = Policy(models=(ModelSpec(name="gone"),))
        async with Engine.open("sqlite://", model=model("a"), policy=policy) as engine:
            conversation = await engine.create()

        assert names(conversation.policy) == ["a"]

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"model": "gone"}, "This engine has no model called gone. Known: a, b."),
            ({"policy": GONE}, "This engine has no model called gone. Known: a, b."),
            ({"model": model("a")}, "A conversation chooses its model by name."),
        ],
    )
    async def test_an_unknown_model_is_refused(self, options: dict[str, Any], sentence: str) -> None:
        """With the names of those that there are, and nothing is created."""
        async with Engine.open("sqlite://", model=model("a"), models=[model("b")]) as engine:
            with pytest.raises(ConfigurationError) as caught:
                await engine.create(**options)

            assert caught.value.sentence == sentence
            assert await engine.list() == ()

    async def test_a_failed_model_falls_back(self) -> None:
        """From the chosen model to the engine's fallback model."""
        chosen = FunctionLlm(lambda request: failure("server_error"), name="c")
        options: dict[str, Any] = {"model": model("a"), "fallback_models": [model("f")], "models": [chosen]}
        policy = Policy().replace(retry=Policy().retry.replace(attempts=1))
        async with Engine.open("sqlite://", **options, policy=policy) as engine:
            turn = await (await engine.create(model="c")).send("Hi")

        assert turn.reply == "f"


class TestChangingModels:
    """`set_policy` honours the models of the policy."""

    async def test_it_changes_them_from_the_next_turn_on(self) -> None:
        """And a policy without models leaves them."""
        async with Engine.open("sqlite://", model=model("a"), models=[model("b")]) as engine:
            conversation = await engine.create()
            replies = [(await conversation.send("One")).reply]
            for policy in (Policy(models=(ModelSpec(name="b"),)), Policy(parallel=2)):
                await conversation.set_policy(policy)
                replies.append((await conversation.send("More")).reply)

        assert replies == ["a", "b", "b"]
        assert conversation.policy.parallel == 2

    async def test_an_unknown_model_is_refused(self) -> None:
        """The conversation goes on as before."""
        async with Engine.open("sqlite://", model=model("a")) as engine:
            conversation = await engine.create()
            with pytest.raises(ConfigurationError, match=r"This engine has no model called gone\. Known: a\."):
                await conversation.set_policy(Policy(models=(ModelSpec(name="gone"),)))

            assert (await conversation.send("Hi")).reply == "a"

    @pytest.mark.parametrize("chosen", [None, "b"])
    async def test_changing_another_rule_chooses_no_models(self, chosen: str | None) -> None:
        """`conversation.policy` has the models of the conversation; replaced with one rule changed it is no choice."""
        async with Engine.open("sqlite://", model=model("a"), models=[model("b")]) as engine:
            conversation = await engine.create(model=chosen)
            await conversation.set_policy(conversation.policy.replace(parallel=2))
            *_, changed = await conversation.events()

        assert isinstance(changed.event, PolicyChanged)
        assert changed.event.chose_models is (chosen is not None)
        assert names(changed.event.policy) == [chosen or "a"]

    async def test_a_repeated_change_changes_nothing(self, database: Path) -> None:
        """Under its id, with models and without, also after a restart."""
        policies = {"p1": Policy(models=(ModelSpec(name="b"),)), "p2": presets.assistant()}
        for window in (800, 900):  # the window of the model changes meanwhile
            options: dict[str, Any] = {"model": model("a", window=window), "models": [model("b", window=800)]}
            async with Engine.open(database, **options) as engine:
                known = await engine.list()
                conversation = await (engine.get(known[0].id) if known else engine.create())
                for request_id, policy in policies.items():
                    for _ in range(5):
                        await conversation.set_policy(policy, request_id=request_id)

                assert len(await conversation.events()) == 3


class TestAdoption:
    """An engine may be opened with other models than before."""

    async def begin(self, database: Path, **options: Any) -> str:
        """Create a conversation on an engine with the models a, b and f, and return its id."""
        models: dict[str, Any] = {"model": model("a"), "fallback_models": [model("f")], "models": [model("b")]}
        async with Engine.open(database, **models) as engine:
            return (await engine.create(**options)).id

    async def test_a_conversation_that_chose_none_follows_the_engine(self, database: Path) -> None:
        """When it begins a turn."""
        begun = await self.begin(database)

        async with Engine.open(database, model=model("x")) as engine:
            conversation = await engine.get(begun)
            assert (await conversation.send("Hi")).reply == "x"
            assert names(conversation.policy) == ["x"]

    async def test_one_that_chose_keeps_its_models(self, database: Path) -> None:
        """As long as the engine knows them, whatever else that has by default."""
        begun = await self.begin(database, model="b")

        async with Engine.open(database, model=model("x"), models=[model("b"), model("f")]) as engine:
            conversation = await engine.get(begun)
            assert (await conversation.send("Hi")).reply == "b"
            assert names(conversation.policy) == ["b", "f"]
            assert len(await conversation.events()) == 3

    async def test_one_whose_model_is_gone_follows_the_engine_from_then_on(self, database: Path) -> None:
        """Also when it is back: the log says that the choice is over."""
        begun = await self.begin(database, model="b")

        replies = []
        for default, others in (("x", ()), ("y", ("b", "f"))):
            async with Engine.open(database, model=model(default), models=map(model, others)) as engine:
                conversation = await engine.get(begun)
                replies.append((await conversation.send("Hi")).reply)
                assert (await conversation.replay()).divergence is None

        assert replies == ["x", "y"]

    async def test_a_profile_loses_a_model_that_is_gone(self, database: Path) -> None:
        """The models of the policy are asked instead."""
        profile = Profile(name="cook", prompt="You cook.", model=B)
        begun = await self.begin(database, policy=Policy(profiles=(profile,)))

        async with Engine.open(database, model=model("a"), fallback_models=[model("f")]) as engine:
            conversation = await engine.get(begun)
            assert (await conversation.send("Hi")).reply == "a"

        assert conversation.policy.profiles == (profile.replace(model=None),)


class TestTools:
    """`create(tools=…)`."""

    @pytest.mark.parametrize(
        ("given", "chosen"),
        [
            (None, None),
            ([], ()),
            (["find_table"], ("find_table",)),
            ([find_table, check_weather], ("find_table", "check_weather")),
            (("check_weather", "find_table", find_table), ("check_weather", "find_table")),
            (["speak_to_user", "x:respond_to_user"], ("respond_to_user",)),
            (iter(["find_table"]), ("find_table",)),
        ],
    )
    async def test_they_are_chosen_by_name_or_as_functions(self, given: Any, chosen: Any) -> None:
        """The log holds the names under which they are offered."""
        tools: list[Any] = [find_table, check_weather, "respond_to_user"]
        async with Engine.open("sqlite://", model=ScriptedLlm([]), tools=tools) as engine:
            (opened,) = await (await engine.create(tools=given)).events()

        assert isinstance(opened.event, Opened)
        assert opened.event.tools == chosen

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            (["gone"], "There is no tool called gone. Known: find_table."),
            ([check_weather], "There is no tool called check_weather. Known: find_table."),
            ([5], "There is no tool called 5. Known: find_table."),
            ("find_table", "The tools of a conversation are given as a list of names."),
            ({"find_table": find_table}, "The tools of a conversation are given as a list of names."),
            (5, "The tools of a conversation are given as a list of names."),
        ],
    )
    async def test_what_the_engine_does_not_have_is_refused(self, given: Any, sentence: str) -> None:
        """With the names of those that it has, and nothing is created."""
        async with Engine.open("sqlite://", model=ScriptedLlm([]), tools=[find_table]) as engine:
            with pytest.raises(ConfigurationError) as caught:
                await engine.create(tools=given)

            assert caught.value.sentence == sentence
            assert await engine.list() == ()


class TestDetails:
    """Owner, title and metadata are the application's own."""

    async def test_they_stand_in_the_first_event(self) -> None:
        """As they were given."""
        async with Engine.open("sqlite://", model=ScriptedLlm([])) as engine:
            conversation = await engine.create(owner="ada", title="Dinner", metadata={"tags": ["food"], "n": 1})
            (opened,) = await conversation.events()

        assert isinstance(opened.event, Opened)
        details = (opened.event.owner, opened.event.title, opened.event.metadata)
        assert details == ("ada", "Dinner", {"tags": ["food"], "n": 1})

    @pytest.mark.parametrize(
        "details", [{"owner": 5}, {"title": "\ud800"}, {"metadata": {"x": object()}}, {"metadata": 5}]
    )
    async def test_what_the_log_cannot_hold_is_refused(self, details: dict[str, Any]) -> None:
        """In one sentence that names the field, and nothing is created."""
        async with Engine.open("sqlite://", model=ScriptedLlm([])) as engine:
            with pytest.raises(InvalidInput, match=next(iter(details))):
                await engine.create(**details)

            assert await engine.list() == ()
