"""Which profiles a conversation has, and which one a turn had."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    ConfigurationError,
    Conversation,
    Engine,
    ModelRequest,
    ModelSpec,
    Policy,
    Profile,
    Settings,
    TurnEndedUpdate,
    WaitsForAnswer,
    presets,
    tool,
)
from turnwise.states import Opened, PolicyChanged
from turnwise.testing import FunctionLlm, call, reply

# --- Which profiles a conversation has: its own, or those of its engine.


CHEF = Profile(name="chef", prompt="You are a chef.")
CLERK = Profile(name="clerk", prompt="You are a clerk.")
GUIDE = Profile(name="guide", prompt="You are a guide.")


def prompt(request: ModelRequest) -> Any:
    """Reply with the system prompt."""
    first = request.messages[0]
    return reply(first["content"] if first["role"] == "system" else "no prompt")


def opened(database: Any, **options: Any) -> Engine:
    """Open an engine whose model replies with its prompt."""
    return Engine.open(database, model=FunctionLlm(prompt, name="a"), **options)


def names(conversation: Conversation) -> list[str]:
    """Return the names of the profiles of a conversation."""
    return [profile.name for profile in conversation.policy.profiles]


@tool
async def wok(dish: str) -> str:
    """Cook."""
    return dish


@tool
async def oven(dish: str) -> str:
    """Bake."""
    return dish


class TestCreating:
    """`Engine.open(profiles=…)` and `Policy.profiles`."""

    async def test_a_policy_without_profiles_has_those_of_the_engine(self) -> None:
        """The first is the default; the log says that they were not chosen."""
        async with opened("sqlite://", profiles=[CHEF, CLERK]) as engine:
            conversation = await engine.create(policy=Policy(parallel=2))
            turn = await conversation.send("Hi")
            first, *_ = await conversation.events()

        assert names(conversation) == ["chef", "clerk"]
        assert turn.reply == "You are a chef."
        assert isinstance(first.event, Opened) and not first.event.chose_profiles

    async def test_a_policy_with_profiles_keeps_them(self) -> None:
        """The engine need not know them: they are data."""
        async with opened("sqlite://", profiles=[CHEF]) as engine:
            conversation = await engine.create(policy=Policy(profiles=(GUIDE,)))
            turn = await conversation.send("Hi")
            first, *_ = await conversation.events()

        assert turn.reply == "You are a guide."
        assert isinstance(first.event, Opened) and first.event.chose_profiles

    async def test_the_settings_may_bring_them(self) -> None:
        """J9: behind those of the code, which replace them by name."""
        settings = Settings(profiles={"clerk": {"prompt": "Not this one."}, "guide": {"prompt": "You guide."}})
        async with opened("sqlite://", profiles=[CHEF, CLERK], settings=settings) as engine:
            conversation = await engine.create()

        assert conversation.policy.profiles == (CHEF, CLERK, Profile(name="guide", prompt="You guide."))

    async def test_the_file_may_bring_them(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """J19: `[profiles.NAME]`; the first one in the file is the default."""
        monkeypatch.chdir(tmp_path)
        text = '[profiles.clerk]\nprompt = "You are a clerk."\n[profiles.chef]\nprompt = "You are a chef."\n'
        (tmp_path / "turnwise.toml").write_text(text, encoding="utf-8")
        async with opened("sqlite://") as engine:
            turn = await (await engine.create()).send("Hi")

        assert turn.reply == "You are a clerk."

    async def test_models_that_profiles_name_are_models_of_the_engine(self) -> None:
        """With their windows; nobody has to register them."""
        profile = CHEF.replace(model=ModelSpec(name="openai/x", window=900))
        async with opened("sqlite://", profiles=[profile]) as engine:
            conversation = await engine.create()
            specs = engine.choices.models.specs

        assert conversation.policy.profiles == (profile,)
        assert specs["openai/x"].window == 900

    async def test_a_tool_that_the_engine_lacks_is_refused(self) -> None:
        """Where a conversation would have the profile."""
        async with opened("sqlite://", profiles=[CHEF.replace(tools=("wok",))]) as engine:
            with pytest.raises(ConfigurationError, match=r"There is no tool called wok\."):
                await engine.create()

    def test_two_profiles_of_one_name_are_refused(self) -> None:
        """At once, before anything is opened."""
        with pytest.raises(ConfigurationError) as caught:
            opened("sqlite://", profiles=[CHEF, CLERK, CHEF])

        assert caught.value.sentence == "Two profiles are called chef."


class TestAllowedTools:
    """J19: `profile_allowed_tools` narrows the tools of profiles."""

    @pytest.mark.parametrize(
        ("own", "allowed", "left"),
        [
            (None, ["wok"], ("wok",)),
            (("oven", "wok"), ["wok", "gone"], ("wok",)),
            (("oven",), ["wok"], ()),
            (("oven",), [], ()),
        ],
    )
    async def test_a_profile_has_at_most_these(self, own: Any, allowed: list[str], left: tuple[str, ...]) -> None:
        """J9, J19: another one is not offered; profiles that are not named keep theirs."""
        offered: list[list[str]] = []

        def note(request: ModelRequest) -> Any:
            offered.append([one["function"]["name"] for one in request.tools])
            return reply("Done.")

        settings = Settings(profile_allowed_tools={"chef": allowed})
        options: dict[str, Any] = {"tools": [wok, oven], "profiles": [CHEF.replace(tools=own), CLERK]}
        async with Engine.open("sqlite://", model=FunctionLlm(note), settings=settings, **options) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")

        assert offered == [[name for name in ("wok", "oven") if name in left]]
        assert [profile.tools for profile in conversation.policy.profiles] == [left, None]


class TestChanging:
    """`set_policy` leaves the profiles alone, unless it names others."""

    @pytest.mark.parametrize("own", [(), (GUIDE,)])
    async def test_another_rule_chooses_no_profiles(self, own: tuple[Profile, ...]) -> None:
        """Neither a preset nor the rules of the conversation with one of them replaced."""
        async with opened("sqlite://", profiles=[CHEF]) as engine:
            conversation = await engine.create(policy=Policy(profiles=own))
            for policy in (Policy(parallel=2), conversation.policy.replace(parallel=3)):
                await conversation.set_policy(policy)
                *_, changed = await conversation.events()

                assert names(conversation) == (["guide"] if own else ["chef"])
                assert isinstance(changed.event, PolicyChanged)
                assert changed.event.chose_profiles is bool(own)

    async def test_other_profiles_are_chosen(self) -> None:
        """From the next turn on."""
        async with opened("sqlite://", profiles=[CHEF]) as engine:
            conversation = await engine.create()
            await conversation.set_policy(Policy(profiles=(GUIDE,)))

            assert (await conversation.send("Hi")).reply == "You are a guide."


class TestAdoption:
    """An engine may be opened with other profiles than before."""

    async def test_a_conversation_that_chose_none_follows_the_engine(self, database: Path) -> None:
        """When it begins a turn, however often; nothing is noted while the profiles are the same."""
        engines = [[CHEF], [CHEF], [CLERK, GUIDE], []]
        replies, lengths = [], []
        known = ""
        for profiles in engines:
            async with opened(database, profiles=profiles) as engine:
                conversation = await (engine.get(known) if known else engine.create())
                known = conversation.id
                replies.append((await conversation.send("Hi")).reply)
                lengths.append(len(await conversation.events()))
                assert (await conversation.replay()).divergence is None

        assert replies == ["You are a chef.", "You are a chef.", "You are a clerk.", "no prompt"]
        assert lengths == [3, 5, 8, 11]

    async def test_one_that_chose_keeps_its_profiles(self, database: Path) -> None:
        """Whatever the engine has."""
        async with opened(database, profiles=[CHEF]) as engine:
            begun = (await engine.create(policy=Policy(profiles=(GUIDE,)))).id
        async with opened(database, profiles=[CLERK]) as engine:
            turn = await (await engine.get(begun)).send("Hi")

        assert turn.reply == "You are a guide."

    async def test_a_profile_loses_a_model_that_a_later_engine_lacks(self, database: Path) -> None:
        """The models of the conversation are asked instead."""
        cook = GUIDE.replace(model=ModelSpec(name="b"))
        options: dict[str, Any] = {"models": [FunctionLlm(prompt, name="b")]}
        async with opened(database, **options) as engine:
            begun = (await engine.create(policy=Policy(profiles=(cook,)))).id
        async with opened(database) as engine:
            conversation = await engine.get(begun)
            turn = await conversation.send("Hi")

        assert turn.reply == "You are a guide."
        assert conversation.policy.profiles == (GUIDE,)


# --- Which profile a turn had, and which one the newest turn of a conversation has.


PROFILES = (Profile(name="chef"), Profile(name="clerk"))


class Router:
    """A model that chooses the profile that the message names, and then replies, or asks where the message asks."""

    def __init__(self) -> None:
        self.holds = asyncio.Event()
        self.holds.set()

    async def __call__(self, request: ModelRequest) -> Any:
        """Answer a request."""
        text = str([message["content"] for message in request.messages if message["role"] == "user"][-1])
        if request.purpose == "route":
            return reply(text.split()[0])
        await self.holds.wait()
        asks = text.endswith("?") and request.messages[-1]["role"] == "user"
        questions = [{"question": "When?", "header": "When", "options": [{"label": "6"}, {"label": "7"}]}]
        return call("ask_user_question", questions=questions) if asks else reply("Done.")


def profile_opened(database: Any, router: Router, **options: Any) -> Engine:
    """Open an engine that routes."""
    options = {"profiles": PROFILES, "policy": Policy(route=True), "tools": ["ask_user_question"], **options}
    return Engine.open(database, model=FunctionLlm(router, name="it"), **options)


async def test_every_turn_names_its_profile(database: Path) -> None:
    """`Turn.profile` in each kind of turn, in `turns()` and in the update of its end; `conversation.profile` is that of
    the newest turn."""
    router = Router()
    async with profile_opened(database, router) as engine:
        conversation = await engine.create()
        before = conversation.profile
        ended = await conversation.send("clerk it is")
        router.holds.clear()
        running = await conversation.send("chef it is", wait=False)
        updates = conversation.updates(after="0.0")
        while conversation.state.type != "llm_requesting":
            await anext(updates)
        under_way = conversation.profile
        router.holds.set()
        await conversation.wait()
        waiting = await conversation.send("clerk now?")
        rested = conversation.profile
        await conversation.cancel()
        turns = await conversation.turns()

    assert (before, ended.profile, running.status, under_way) == ("", "clerk", "running", "chef")
    assert isinstance(waiting, WaitsForAnswer)
    assert (waiting.profile, rested) == ("clerk", "clerk")
    assert [turn.profile for turn in turns] == ["clerk", "chef", "clerk"]


async def test_the_end_of_a_turn_says_it_in_the_updates() -> None:
    """Clients show who answered."""
    async with profile_opened("sqlite://", Router()) as engine:
        conversation = await engine.create()
        seen = [update async for update in conversation.stream("clerk please")]

    assert [update.profile for update in seen if isinstance(update, TurnEndedUpdate)] == ["clerk"]
    assert seen[-1].data["profile"] == "clerk"


async def test_it_is_known_after_a_restart(database: Path) -> None:
    """Also where other steps followed the turn."""
    async with profile_opened(database, Router()) as engine:
        conversation = await engine.create()
        empty = await engine.create()
        await conversation.send("chef")
        await conversation.send("clerk")
        for number in range(30):
            await conversation.set_title(f"Title {number}")

    async with profile_opened(database, Router()) as engine:
        again = await engine.get(conversation.id)

        assert again.profile == "clerk"
        assert (await engine.get(empty.id)).profile == ""
        await again.send("chef")
        assert again.profile == "chef"


async def test_without_profiles_it_is_empty(database: Path) -> None:
    """In turns and in the conversation."""
    async with profile_opened(database, Router(), profiles=(), policy=presets.assistant()) as engine:
        conversation = await engine.create()
        turn = await conversation.send("Hi")

        assert (turn.profile, conversation.profile) == ("", "")


def test_the_blocking_conversation_has_it() -> None:
    """Like its other properties."""
    model = FunctionLlm(lambda request: reply("Done."), name="it")
    with Engine.open_blocking("sqlite://", model=model, profiles=PROFILES) as engine:
        conversation = engine.create()
        turn = conversation.send("Hi")

        assert (turn.profile, conversation.profile) == ("chef", "chef")
