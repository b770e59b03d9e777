"""What a conversation chooses of its engine: models, tools and rules, and what is refused there."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    ConfigurationError,
    Engine,
    InvalidInput,
    Limits,
    ModelSpec,
    Policy,
    Profile,
    Recent,
    Speech,
    presets,
    tool,
)
from turnwise.effects.dispatcher import InProcessDispatcher
from turnwise.engine import choices
from turnwise.engine.models import CHECK_AGAIN, Models
from turnwise.persistence.opening import open_store
from turnwise.states import Opened, PolicyChanged, RecallMemory, RequestLlm
from turnwise.testing import FunctionLlm, ManualClock, ScriptedLlm, failure

from ..support.agents.teams import MAIL_TOOLS, tells_user
from ..support.cases import holds_for
from ..support.engine_scenarios import Gate, until
from ..support.memories.unsearchable_store import UnsearchableStore
from ..support.servers.openai_server import OpenAiServer, says

# --- What a conversation chooses of its engine: models and tools, when it is created and later.


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


# --- The models of an engine: which are given, and which of them a conversation asks.


class TestChecking:
    """`engine.check()` makes sure that the models could be asked."""

    @pytest.mark.parametrize("where", ["model", "fallback_models", "models"])
    async def test_every_registered_model_is_checked(self, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also those that a conversation has yet to choose. A blank key is a missing one."""
        monkeypatch.setenv("OPENAI_API_KEY", "")
        options: dict[str, Any] = {"model": ScriptedLlm([])}
        options[where] = "openai/gpt-4.1-mini" if where == "model" else ["openai/gpt-4.1-mini"]

        with pytest.raises(ConfigurationError) as caught:
            await Engine.open("sqlite://", **options).check()

        assert caught.value.sentence == "There is no key for the model 'openai/gpt-4.1-mini': set OPENAI_API_KEY."


class TestGivenModels:
    """`Engine.open(model=…, fallback_models=[…], models=[…])`."""

    def test_those_beside_the_chain_are_registered(self) -> None:
        """They are known by name and not asked by default; a model that is repeated is one model."""
        first = ScriptedLlm([], name="first")

        models = Models.of(first, ["rehearsal"], [first, "rehearsal", ModelSpec(name="openai/x", window=900)])

        assert list(models.by_name) == ["first", "rehearsal", "openai/x"]
        assert [spec.name for spec in models.chain] == ["first", "rehearsal"]
        assert models.specs["openai/x"].window == 900

    @holds_for(
        ("options", "sentence"),
        [
            ({"models": [ScriptedLlm([], name="rehearsal")]}, "Two models are called rehearsal."),
            ({"models": ["openai/x", "openai/x"]}, "Two models are called openai/x."),
            ({"fallback_models": ["rehearsal"]}, "Two models are called rehearsal."),
            ({"models": "openai/x"}, "The models are given as a list."),
            ({"models": ModelSpec(name="openai/x")}, "The models are given as a list."),
            ({"models": {"openai/x": "openai/y"}}, "The models are given as a list."),
            ({"fallback_models": {"openai/x": "openai/y"}}, "The models to fall back to are given as a list."),
            ({"models": 5}, "The models are given as a list."),
            ({"fallback_models": "openai/x"}, "The models to fall back to are given as a list."),
            ({"models": [5]}, "A model is a name that litellm knows, or an object with the method `complete`."),
            ({"models": [" "]}, "A model needs a name."),
        ],
    )
    def test_what_cannot_be_asked_is_refused(self, options: dict[str, Any], sentence: str) -> None:
        """At once, before anything is opened."""
        with pytest.raises(ConfigurationError) as caught:
            Engine.open("sqlite://", **options)

        assert caught.value.sentence == sentence


# --- Models that this engine cannot ask, because their key is missing or they are not known.


MODEL = "openai/gpt-4.1-mini"
NO_KEY = f"There is no key for the model '{MODEL}': set OPENAI_API_KEY."


@pytest.fixture
def _without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.usefixtures("_without_key")
async def test_a_message_is_refused_and_nothing_is_stored(database: Path) -> None:
    """The sender gets the sentence; the conversation stays as it was, and takes the message once there is a key."""
    async with Engine.open(database, model=MODEL) as engine:
        conversation = await engine.create()
        with pytest.raises(ConfigurationError) as caught:
            await conversation.send("Hello", message_id="m-1")
        state, seq = conversation.state.type, conversation.state.book.seq

    assert (caught.value.sentence, state, seq) == (NO_KEY, "idle", 1)
    async with Engine.open(database, model=FunctionLlm(lambda _: "Yes.")) as engine:
        assert (await (await engine.get(conversation.id)).send("Hello", message_id="m-1")).reply == "Yes."


@pytest.mark.usefixtures("_without_key")
async def test_the_model_that_is_asked_first_counts(database: Path) -> None:
    """A fallback without a key does not matter, and one with a key does not help: nothing falls back for this."""
    other = FunctionLlm(lambda _: "Yes.")
    async with Engine.open(database, model=other, fallback_models=[MODEL]) as engine:
        conversation = await engine.create()
        assert (await conversation.send("Hello")).reply == "Yes."
    async with Engine.open(database, model=MODEL, fallback_models=[other]) as engine:
        with pytest.raises(ConfigurationError):
            await (await engine.get(conversation.id)).send("And now?")


@pytest.mark.usefixtures("_without_key")
async def test_a_turn_that_was_left_waits_for_its_model(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However often engines without the key are opened, it neither fails nor counts as tried. They say once that it
    waits, and the engine with the model ends it."""
    gate = Gate()

    async def answer(_: object) -> str:
        await gate()
        return "Yes."

    engine = await Engine.open(database, model=FunctionLlm(answer, name=MODEL))
    conversation = await engine.create()
    waiting = asyncio.ensure_future(conversation.send("Hello"))
    await gate.arrived.wait()
    before = await conversation.events()
    await engine.close()
    await asyncio.gather(waiting, return_exceptions=True)
    caplog.set_level(logging.WARNING)

    for _ in range(4):
        async with Engine.open(database, model=MODEL) as engine:
            found = await engine.get(conversation.id)
            assert engine.server_faults == (f"A turn waits for its model. {NO_KEY}",)
            assert await found.events() == before
    gate.opened.set()
    async with Engine.open(database, model=FunctionLlm(answer, name=MODEL)) as engine:
        turn = await (await engine.get(conversation.id)).wait()

    assert (turn.status, turn.reply) == ("completed", "Yes.")
    assert len([record for record in caplog.records if NO_KEY in record.getMessage()]) == 4


@pytest.mark.usefixtures("_without_key")
async def test_a_turn_that_was_left_waits_for_the_model_of_its_profile(database: Path) -> None:
    """Although the model that the conversation asks without a profile is there."""
    gate = Gate()

    async def answer(_: object) -> str:
        await gate()
        return "Yes."

    others = FunctionLlm(lambda _: "careful", name="other")
    profiles = [Profile(name="careful", model=ModelSpec(name=MODEL)), Profile(name="quick")]
    engine = await Engine.open(database, model=others, models=[FunctionLlm(answer, name=MODEL)], profiles=profiles)
    conversation = await engine.create()
    waiting = asyncio.ensure_future(conversation.send("Hello"))
    await gate.arrived.wait()
    await engine.close()
    await asyncio.gather(waiting, return_exceptions=True)

    async with Engine.open(database, model=others, models=[MODEL]) as engine:
        assert engine.server_faults == (f"A turn waits for its model. {NO_KEY}",)
        assert (await engine.get(conversation.id)).state.type == "llm_requesting"
    gate.opened.set()
    async with Engine.open(database, model=others, models=[FunctionLlm(answer, name=MODEL)]) as engine:
        turn = await (await engine.get(conversation.id)).wait()

    assert (turn.status, turn.reply) == ("completed", "Yes.")


def told(caplog: pytest.LogCaptureFixture) -> int:
    """How often the log says that the key is missing."""
    return len([record for record in caplog.records if NO_KEY in record.getMessage()])


@pytest.mark.usefixtures("_without_key")
class TestATurnThatNobodySentAMessageFor:
    """It passes no door at which a sender could be told, so it waits where its model would be asked."""

    async def left_by_schedule(self, database: Path, clock: ManualClock, **options: Any) -> str:
        """Have a schedule begin a turn in an engine without the key, and return the id of its conversation."""
        async with Engine.open(database, model=MODEL, clock=clock, **options) as engine:
            scout = await engine.create(role="background", every=60, task="Look around.")
            await clock.advance(60)
            await until(lambda: bool(engine.server_faults))

            assert engine.server_faults == (f"A turn waits for its model. {NO_KEY}",)
            assert scout.state.type != "failed"
        return scout.id

    async def test_of_a_schedule(self, database: Path, caplog: pytest.LogCaptureFixture) -> None:
        """However many engines without the key are opened: the engine that has it does all of the turn."""
        clock = ManualClock()
        options: dict[str, Any] = {"policy": Policy(recall=True), "clock": clock}
        scout = await self.left_by_schedule(database, **options)
        for _ in range(3):
            async with Engine.open(database, model=MODEL, **options) as engine:
                assert (await engine.get(scout)).state.type != "failed"

        async with Engine.open(database, model=FunctionLlm(lambda _: "Seen.", name=MODEL), **options) as engine:
            turn = await (await engine.get(scout)).wait()

        assert (turn.status, turn.final_content) == ("completed", "Seen.")
        assert told(caplog) == 4

    async def test_of_a_message_that_is_to_be_passed_on(self, database: Path) -> None:
        """The agent that writes it has a key and goes on; the one that is to pass it on chose a model without one."""
        writes = ScriptedLlm([tells_user("Table 4 is free."), "Sent."], name="writer")
        async with Engine.open(database, model=writes, models=[MODEL], tools=MAIL_TOOLS) as engine:
            front = await engine.create(model=MODEL, policy=presets.foreground())
            back = await engine.create(model="writer", role="background", works_for=front)
            turn = await back.send("Find a table.")
            await until(lambda: bool(engine.server_faults))

            assert (turn.final_content, front.state.type) == ("Sent.", "llm_requesting")
        answers = FunctionLlm(lambda _: "Table 4 is yours.", name=MODEL)
        async with Engine.open(database, model=answers, models=[writes], tools=MAIL_TOOLS) as engine:
            assert (await (await engine.get(front.id)).wait()).reply == "Table 4 is yours."

    @pytest.mark.parametrize("is_left", [False, True], ids=["begun here", "left by another process"])
    async def test_goes_on_when_the_key_is_set(
        self, database: Path, monkeypatch: pytest.MonkeyPatch, is_left: bool
    ) -> None:
        """In the same process, without another engine."""
        clock = ManualClock()
        scout = await self.left_by_schedule(database, clock) if is_left else ""
        async with OpenAiServer([says("Seen.")]) as server, Engine.open(database, model=MODEL, clock=clock) as engine:
            if not is_left:
                scout = (await engine.create(role="background", every=60, task="Look around.")).id
                await clock.advance(60)
            await until(lambda: bool(engine.server_faults))
            monkeypatch.setenv("OPENAI_API_KEY", "test")
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            await clock.advance(CHECK_AGAIN)
            turn = await (await engine.get(scout)).wait()

            assert (turn.status, turn.final_content, engine.server_faults) == ("completed", "Seen.", ())
            assert len(server.requests) == 1

    async def test_can_be_cancelled(self, database: Path) -> None:
        """Where it was begun, and where it was left."""
        clock = ManualClock()
        scout = await self.left_by_schedule(database, clock)
        async with Engine.open(database, model=MODEL, clock=clock) as engine:
            conversation = await engine.get(scout)
            await conversation.cancel(wait=False)
            await clock.advance(Policy().cancel_deadline)
            await until(lambda: conversation.state.type == "idle")
            await clock.advance(60)
            await until(lambda: conversation.state.type != "idle")
            await conversation.cancel()
            await until(lambda: conversation.state.type == "idle")

    async def test_is_forgotten_with_its_conversation(self, database: Path) -> None:
        """Nothing waits for it afterwards."""
        clock = ManualClock()
        scout = await self.left_by_schedule(database, clock)
        async with Engine.open(database, model=MODEL, clock=clock) as engine:
            await engine.delete(scout)
            await until(lambda: not engine.server_faults)


# --- A rule that its engine cannot carry out is refused where it is chosen, and logged where it is stored already.


SILENT = choices.SILENT.format(of="")
ENDLESS = choices.ENDLESS.format(of="")
PROFILES = (Profile(name="home"), Profile(name="work"))


@tool(acts=("speech",))
async def announce(text: str) -> Speech:
    """Say something, by a tool of the host's own."""
    return Speech(text=text, when="now")


async def nothing(effect: Any, context: Any) -> Any:
    """A performer that is never asked."""


class Unpriced(ScriptedLlm):
    """A model whose answers tell no cost."""

    is_priced = False


def unpriced(model: str) -> str:
    """Return the sentence about a model without a price."""
    return f"The cost of a turn cannot be limited, because the price of the model {model} is not known."


SCRIPTED = ModelSpec(name="scripted")

REFUSED: list[tuple[Policy, list[Any], str]] = [
    (presets.talk(), [], SILENT),
    (presets.talk(), ["mark_work_complete"], SILENT),
    (presets.background(), [], SILENT),
    (presets.explicit_response(), ["respond_to_user"], ENDLESS),
    (
        presets.talk().replace(profiles=(Profile(name="mute", tools=()),)),
        ["talk"],
        choices.SILENT.format(of=" of the profile mute"),
    ),
    (
        Policy(profiles=(Profile(name="cook", tools=("gone",)),)),
        ["talk"],
        "There is no tool called gone. Known: talk. The list of tools of the profile cook names it.",
    ),
    (
        Policy(profiles=(Profile(name="cook", model=ModelSpec(name="gone")),)),
        [],
        "This engine has no model called gone. Known: scripted.",
    ),
]

CARRIED_OUT: list[tuple[Policy, list[Any]]] = [
    (presets.assistant(), []),
    (presets.talk(), ["talk"]),
    (presets.talk(), [announce]),
    (presets.talk().replace(silent="fallback"), []),
    (presets.explicit_response(), ["mark_work_complete"]),
    (Policy(route=True, profiles=PROFILES), []),
    (presets.reply_flow(), []),
    (
        Policy(profiles=(Profile(name="cook", tools=("speak_to_user",), model=ModelSpec(name="scripted")),)),
        ["respond_to_user"],
    ),
    (Policy(limits=Limits(cost=1.0)), []),
    (Policy(recall=True, documents=True, dialogue=Recent()), []),
]


class TestChoosing:
    """`create` and `set_policy` refuse what would have no effect."""

    @pytest.mark.parametrize(("policy", "tools", "sentence"), REFUSED)
    async def test_a_rule_that_cannot_be_carried_out_is_refused(
        self, policy: Policy, tools: list[Any], sentence: str
    ) -> None:
        """B6, S10: else a model that was given no tool looks like one that has nothing to say, or never ends."""
        async with Engine.open("sqlite://", model=ScriptedLlm([]), tools=tools) as engine:
            with pytest.raises(ConfigurationError) as at_creation:
                await engine.create(policy=policy)
            conversation = await engine.create()
            with pytest.raises(ConfigurationError) as later:
                await conversation.set_policy(policy)

            assert (at_creation.value.sentence, later.value.sentence) == (sentence, sentence)
            assert len(await engine.list()) == len(await conversation.events()) == 1

    @pytest.mark.parametrize(("policy", "tools"), CARRIED_OUT)
    async def test_other_rules_are_taken(
        self, policy: Policy, tools: list[Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without a word."""
        async with Engine.open("sqlite://", model=ScriptedLlm([]), tools=tools) as engine:
            await engine.create(policy=policy)
            await (await engine.create()).set_policy(policy)

        assert caplog.records == []

    async def test_the_tools_are_those_of_the_conversation(self) -> None:
        """Those of the engine that it did not choose do not count."""
        async with Engine.open("sqlite://", model=ScriptedLlm([]), tools=["talk", announce]) as engine:
            with pytest.raises(ConfigurationError) as caught:
                await engine.create(policy=presets.talk(), tools=[])
            await engine.create(policy=presets.talk(), tools=["announce"])

        assert caught.value.sentence == SILENT

    async def test_the_policy_of_the_engine_is_checked_where_it_is_used(self) -> None:
        """A conversation that is created without a policy has that one."""
        async with Engine.open("sqlite://", model=ScriptedLlm([]), policy=presets.talk()) as engine:
            with pytest.raises(ConfigurationError) as caught:
                await engine.create()

        assert caught.value.sentence == SILENT


class TestWhatTheApplicationBrings:
    """Performers and dispatchers of the application may carry out what the engine cannot."""

    @pytest.mark.parametrize("policy", [Policy(recall=True), Policy(dialogue=Recent())])
    async def test_a_performer_of_recalls(self, policy: Policy) -> None:
        """It searches older conversations, and looks up the last minutes."""
        async with Engine.open("sqlite://", performers={RecallMemory: nothing}) as engine:
            await engine.create(policy=policy)

    async def test_a_performer_of_requests_may_offer_tools_of_its_own(self) -> None:
        """Nothing is known of these tools, nor of the prices of its models."""
        policy = presets.talk().replace(limits=Limits(cost=1.0), profiles=(Profile(name="cook", tools=("wok",)),))
        async with Engine.open("sqlite://", model=Unpriced([]), performers={RequestLlm: nothing}) as engine:
            await engine.create(policy=policy)

    async def test_a_dispatcher_may_have_anything_carried_out(self) -> None:
        """Somewhere else."""
        policy = Policy(recall=True, route=True, profiles=PROFILES, text="thought")
        async with Engine.open("sqlite://", dispatcher=lambda *given: InProcessDispatcher(*given)) as engine:
            await engine.create(policy=policy)

            with pytest.raises(ConfigurationError):
                await engine.create(policy=Policy(models=(ModelSpec(name="gone"),)))


class TestStores:
    """A store of the application need not be able to search."""

    @pytest.mark.parametrize(
        ("policy", "sentence"),
        [(Policy(recall=True), choices.RECALL), (Policy(dialogue=Recent()), choices.RECENT)],
    )
    async def test_without_a_search_nothing_is_recalled(self, database: Path, policy: Policy, sentence: str) -> None:
        """J3, J4: the rule is refused in a sentence; documents come from elsewhere."""
        store: Any = UnsearchableStore(await open_store(database))
        async with Engine.open(store=store) as engine:
            with pytest.raises(ConfigurationError) as caught:
                await engine.create(policy=policy)
            await engine.create(policy=Policy(documents=True))
        await store.close()

        assert caught.value.sentence == sentence

    async def test_a_performer_of_the_application_may_search_elsewhere(self, database: Path) -> None:
        """Then the store need not."""
        store: Any = UnsearchableStore(await open_store(database))
        async with Engine.open(store=store, performers={RecallMemory: nothing}) as engine:
            await engine.create(policy=Policy(recall=True, dialogue=Recent()))
        await store.close()


class TestCosts:
    """A limit on the cost of a turn needs the prices of all models that the turn may ask."""

    LIMITED = Policy(limits=Limits(cost=0.5))

    @pytest.mark.parametrize(
        ("options", "model"),
        [
            ({"model": "openai/qwen3"}, "openai/qwen3"),
            ({"model": "openai/gpt-4.1-mini", "fallback_models": ["openai/qwen3"]}, "openai/qwen3"),
            ({"model": Unpriced([], name="mine")}, "mine"),
        ],
    )
    async def test_it_is_refused_without_a_price(self, options: dict[str, Any], model: str) -> None:
        """Of the first model or of one to fall back to: the limit would never be reached."""
        async with Engine.open("sqlite://", **options) as engine:
            with pytest.raises(ConfigurationError) as caught:
                await engine.create(policy=self.LIMITED)

        assert caught.value.sentence == unpriced(model)

    @pytest.mark.parametrize("model", ["openai/gpt-4.1-mini", "rehearsal", "ollama/llama3", ScriptedLlm([])])
    async def test_it_is_taken_with_one(self, model: Any) -> None:
        """Of litellm's list, also where it is zero; rehearsing is free; a model of the application counts as priced."""
        async with Engine.open("sqlite://", model=model) as engine:
            await engine.create(policy=self.LIMITED)

    async def test_the_model_of_a_profile_needs_one_too(self) -> None:
        """It is asked first in turns with that profile."""
        policy = self.LIMITED.replace(profiles=(Profile(name="cook", model=ModelSpec(name="mine")),))
        async with Engine.open("sqlite://", models=[Unpriced([], name="mine")]) as engine:
            with pytest.raises(ConfigurationError) as caught:
                await engine.create(policy=policy)

        assert caught.value.sentence == unpriced("mine")

    async def test_only_the_models_of_the_conversation_count(self) -> None:
        """Others may have no price."""
        async with Engine.open("sqlite://", model=Unpriced([], name="mine"), models=["rehearsal"]) as engine:
            with pytest.raises(ConfigurationError):
                await engine.create(policy=self.LIMITED)
            await engine.create(policy=self.LIMITED, model="rehearsal")


class TestStoredConversations:
    """Rules that are stored are not refused: their conversation opens and goes on."""

    async def test_it_goes_on_and_the_log_says_what_is_missing(
        self, database: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Once for each rule, however often conversations with it are read."""
        async with Engine.open(database, tools=["talk"]) as engine:
            begun = [await engine.create(policy=presets.talk().replace(recall=True)) for _ in range(2)]

        store: Any = UnsearchableStore(await open_store(database))
        async with Engine.open(store=store, model=ScriptedLlm(["Hm.", "Hm."])) as engine:
            for conversation in begun:
                turn = await (await engine.get(conversation.id)).send("Hi")
                assert turn.status == "completed"
        await store.close()

        logged = [record.message for record in caplog.records if record.name == "turnwise.engine"]
        assert logged == [f"In the conversation {begun[0].id}: {fault}" for fault in (choices.RECALL, SILENT)]
