"""A rule that its engine cannot carry out is refused where it is chosen, and logged where it is stored already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, Limits, ModelSpec, Policy, Profile, Recent, Speech, presets, tool
from turnwise.effects.dispatcher import InProcessDispatcher
from turnwise.engine import choices
from turnwise.persistence.opening import open_store
from turnwise.states import RecallMemory, RequestLlm
from turnwise.testing import ScriptedLlm

from ..support.memories.unsearchable_store import UnsearchableStore

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
