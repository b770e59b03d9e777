"""From a query to the reply, under the whole preset, and how its turns end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Engine, LiteLlm, Profile, Settings, SpeechChannel, presets, tool
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import StoreError, Texts
from turnwise.testing import ManualClock

from ..support.reply_flow import CONTEXT, ReplyFlowServer, dialogue_of, recalled_of, system_of, text_of
from ..support.servers.openai_server import Body, calls, hangs, says, streams
from ..support.speech.voices import BREAKS, WRITES

# --- From a query to the reply, under the whole preset: over litellm and a real socket, with a real database.
#
# Secrets are removed, a profile is chosen, older conversations are searched, and each request states the time.


GUIDE = Profile(name="guide", description="Places and the weather.", prompt="You are a guide.")
BOOKER = Profile(
    name="booker", description="Tables and tickets.", prompt="You book.", tools=("checkAvailability",), recall=False
)
KEY = "sk-proj-" + "Qm4vT8xZr2LpW9sK" * 3


@tool(name="webSearch", crash="pure")
async def web_search(query: str) -> str:
    """Search the web."""
    return f"Found for {query}"


@tool(name="checkAvailability", crash="pure")
async def check_availability(cuisine: str, time: str, party: int) -> str:
    """Look up when a restaurant has a free table."""
    return "19:00 is fully booked; free: 18:30, 20:15"


@asynccontextmanager
async def opened(database: Path, server: ReplyFlowServer, **options: Any) -> AsyncIterator[Engine]:
    """Open an engine with both profiles and tools, whose model is at the server."""
    model = LiteLlm("openai/test", api_base=server.url, api_key="test")
    given = {"profiles": [GUIDE, BOOKER], "tools": [web_search, check_availability], "policy": presets.reply_flow()}
    async with Engine.open(database, model=model, **{**given, **options}) as engine:
        yield engine


async def assert_replays(conversation: Conversation) -> None:
    """Check that the log gives the same steps again."""
    assert (await conversation.replay()).divergence is None


class TestTheFlows:
    """J18: the seed's three flows."""

    async def test_a_single_tool(self, database: Path) -> None:
        """J18: "What's the weather in London?": a search, then the answer. Each of the two requests has one note on the
        time and the place, the profile's prompt and the protocol of tools; nothing older is searched."""
        search = calls(("webSearch", {"query": "London weather today"}))
        reply = "It's 18°C and sunny in London today with light winds."
        async with ReplyFlowServer([search, says(reply)]) as server, opened(database, server) as engine:
            conversation = await engine.create(owner="ada")
            turn = await conversation.send("What's the weather in London?")
            await assert_replays(conversation)

        assert (turn.status, turn.reply, turn.profile) == ("completed", reply, "guide")
        assert (len(server.choosing), len(server.conversing)) == (1, 2)
        for body in server.conversing:
            assert sum(text_of(message).count(CONTEXT) for message in body["messages"]) == 1
            assert system_of(body).startswith("You are a guide.")
            assert "Tools:\n- webSearch: Search the web." in system_of(body)
            assert not recalled_of(body)
        assert dialogue_of(server.conversing[1])[-1] == ("tool", "Found for London weather today")

    async def test_planning_with_an_alternative(self, database: Path) -> None:
        """J18, J10: "Book sushi for two tonight at seven": the table is taken, so the reply offers others and ends the
        turn. What the model thinks is in no reply and no memory; the next turn knows what was said."""
        look = calls(("checkAvailability", {"cuisine": "sushi", "time": "19:00", "party": 2}))
        offer = "7:00 is fully booked. Would you prefer 6:30 PM or 8:15 PM?"
        answers = [look, says(offer, thinking="7:00 is unavailable, I should offer alternatives"), says("Booked.")]
        async with ReplyFlowServer(answers, profile="booker") as server, opened(database, server) as engine:
            conversation = await engine.create(owner="ada")
            asked = await conversation.send("Book sushi for two tonight at seven")
            turn = await conversation.send("6:30 then")
            await assert_replays(conversation)

        assert (asked.reply, asked.profile, turn.reply) == (offer, "booker", "Booked.")
        assert dialogue_of(server.conversing[2]) == [
            ("user", "Book sushi for two tonight at seven"),
            ("assistant", offer),
            ("user", "6:30 then"),
        ]
        assert "unavailable" not in str(server.conversing[2])
        assert [each["function"]["name"] for each in server.conversing[0]["tools"]] == ["checkAvailability"]
        assert not server.searching  # the profile may not recall

    async def test_iterative_research(self, database: Path) -> None:
        """J18, J8: "Compare the latest iPhone models": three searches in a row, all of which run, then one answer."""
        queries = (
            "iPhone 15 models comparison 2024",
            "iPhone 15 Pro Max price official",
            "iPhone 15 Pro vs Pro Max reviews",
        )
        reply = "Here's a comprehensive comparison of the iPhone 15 models."
        searches = [calls(("webSearch", {"query": query})) for query in queries]
        async with ReplyFlowServer([*searches, says(reply)]) as server, opened(database, server) as engine:
            conversation = await engine.create(owner="ada")
            turn = await conversation.send("Compare the latest iPhone models")
            await assert_replays(conversation)

        assert turn.reply == reply
        results = [text for role, text in dialogue_of(server.conversing[3]) if role == "tool"]
        assert results == [f"Found for {query}" for query in queries]


class TestMemory:
    """What later turns and conversations know."""

    async def test_an_older_conversation_is_recalled_for_its_owner(self, database: Path) -> None:
        """J3, J4: after five minutes only recall reaches it; another owner's is never found."""
        clock = ManualClock()
        answers = [says("Noted."), says("Noted, too."), says("She lives in Turku.")]
        async with (
            ReplyFlowServer(answers, keywords=["sister"]) as server,
            opened(database, server, clock=clock) as engine,
        ):
            for owner, town in (("ada", "Turku"), ("bob", "Oulu")):
                await (await engine.create(owner=owner)).send(f"My sister lives in {town}.")
            await clock.advance(301)
            conversation = await engine.create(owner="ada")
            turn = await conversation.send("Where does my sister live?")
            await assert_replays(conversation)

        asked = server.conversing[2]
        assert turn.reply == "She lives in Turku."
        assert "My sister lives in Turku." in recalled_of(asked)
        assert "Oulu" not in str(asked)
        assert dialogue_of(asked) == [("user", "Where does my sister live?")]

    async def test_the_last_five_minutes_are_known_in_another_conversation(self, database: Path) -> None:
        """J3: of the same owner; 300 s are within."""
        clock = ManualClock()
        async with (
            ReplyFlowServer([says("Noted."), says("In Turku.")]) as server,
            opened(database, server, clock=clock) as engine,
        ):
            await (await engine.create(owner="ada")).send("My sister lives in Turku.")
            await clock.advance(300)
            await (await engine.create(owner="ada")).send("Where does she live?")

        assert dialogue_of(server.conversing[1]) == [
            ("user", "My sister lives in Turku."),
            ("assistant", "Noted."),
            ("user", "Where does she live?"),
        ]


class TestSecrets:
    """J1: what is removed is in no request and in no file."""

    async def test_a_secret_reaches_nobody(self, database: Path) -> None:
        """J1, J15: neither the user's nor the tool's nor the model's; both sides are remembered without it."""

        @tool(name="webSearch", crash="pure")
        async def leaking_search(query: str) -> str:
            """Search the web."""
            return f"Found for {query}: token={KEY}"

        search = calls(("webSearch", {"query": f"who uses {KEY}"}))
        answers = [search, says(f"The key {KEY} is yours."), says("Done.")]
        given = {"tools": [leaking_search], "profiles": [GUIDE]}
        async with ReplyFlowServer(answers) as server, opened(database, server, **given) as engine:
            conversation = await engine.create(owner="ada")
            turn = await conversation.send(f"Is {KEY} still valid? Ask ada@mailbox.example.")
            await conversation.send("Thanks")
            await assert_replays(conversation)

        assert KEY not in turn.reply and "is yours" in turn.reply
        assert KEY not in str(server.requests) and "ada@mailbox.example" not in str(server.requests)
        stored = b"".join(file.read_bytes() for file in database.parent.glob(f"{database.name}*"))
        assert KEY.encode() not in stored and b"ada@mailbox.example" not in stored


# --- How turns end under the whole preset: spoken, without a text, without a model, without a memory.


@tool(crash="pure")
async def look(place: str) -> str:
    """Look somewhere."""
    return f"A bird, {place}"


LOOK = calls(("look", {"place": "up"}))


def engine_of(server: ReplyFlowServer, database: Path | None, **options: Any) -> Engine:
    """Return an engine under the preset, whose model is at the server."""
    model = LiteLlm("openai/test", api_base=server.url, api_key="test")
    return Engine.open(database, model=model, **{"tools": [look], "policy": presets.reply_flow(), **options})


async def test_the_reply_is_spoken_once_and_opens_the_window_once(database: Path, tmp_path: Path) -> None:
    """J14: what was said before the tool is spoken, too, but only the end of the turn opens the window."""
    opened: list[str] = []
    channel = SpeechChannel(into=tmp_path, on_turn_spoken=lambda last: opened.append(last.text), voices=[WRITES])
    answers = [calls(("look", {"place": "up"}), text="I look."), says("A bird.")]
    async with ReplyFlowServer(answers) as server, engine_of(server, database, channels=[channel]) as engine:
        await (await engine.create()).send("What is up there?")
        await engine.delivered()
        await channel.drain()
        await asyncio.sleep(0)

    spoken = [file.read_text() for file in tmp_path.glob("*.wav")]
    assert spoken.count("A bird.") == 1
    assert opened == ["A bird."]


async def test_a_voice_that_fails_changes_nothing_else(database: Path, tmp_path: Path) -> None:
    """J14: the reply is returned, and remembered for the next turn; no window opens."""
    opened: list[str] = []
    channel = SpeechChannel(into=tmp_path, on_turn_spoken=lambda last: opened.append(last.text), voices=[BREAKS])
    async with (
        ReplyFlowServer([says("A bird."), says("Blue.")]) as server,
        engine_of(server, database, channels=[channel]) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("What is up there?")
        await conversation.send("Which colour?")
        await engine.delivered()
        await channel.drain()
        await asyncio.sleep(0)

    assert turn.reply == "A bird."
    assert dialogue_of(server.conversing[1])[:2] == [("user", "What is up there?"), ("assistant", "A bird.")]
    assert opened == []


async def test_a_memory_that_fails_changes_nothing_else(database: Path) -> None:
    """J15: the reply is returned, and the log has both sides."""

    class ForgetfulStore(SqliteStore):
        async def search(self, *arguments: Any, **named: Any) -> Any:
            raise StoreError("The index is damaged.")

        recent = search

    store = await ForgetfulStore.open(database)
    async with (
        ReplyFlowServer([says("A bird."), says("Blue.")], keywords=["bird"]) as server,
        engine_of(server, None, store=store) as engine,
    ):
        conversation = await engine.create()
        await conversation.send("What is up there?")
        turn = await conversation.send("Which colour?")
        said = [message.text for message in await conversation.transcript()]
    await store.close()

    assert (turn.status, turn.reply) == ("completed", "Blue.")
    assert said == ["What is up there?", "A bird.", "Which colour?", "Blue."]
    assert dialogue_of(server.conversing[1]) == [("user", "Which colour?")]


@pytest.mark.parametrize(("on_failure", "rests"), [("reply", "idle"), ("fail", "failed")])
async def test_a_model_that_never_answers(
    database: Path, on_failure: str, rests: str, caplog: pytest.LogCaptureFixture
) -> None:
    """J16: after the last attempt the turn ends with an error reply, or the conversation rests in Failed."""
    import litellm  # noqa: F401 - loaded before the deadline begins

    clock = ManualClock()
    policy = presets.reply_flow().replace(on_failure=on_failure)
    options = {"policy": policy, "clock": clock, "settings": Settings(llm_chat_timeout_sec=0.5)}
    async with (
        ReplyFlowServer([hangs()] * policy.retry.attempts) as server,
        engine_of(server, database, **options) as engine,
    ):
        conversation = await engine.create()
        sending = asyncio.ensure_future(conversation.send("Hello?"))
        for _ in range(policy.retry.attempts - 1):
            await clock.until_asleep()
            await clock.advance(policy.retry.cap)
        turn = await sending

    assert (turn.status, conversation.state.type) == ("failed", rests)
    assert turn.reply.startswith("I could not answer:") == (on_failure == "reply")
    timeouts = [record for record in caplog.records if "no piece of an answer within 0.5 s" in record.getMessage()]
    assert len(timeouts) == policy.retry.attempts
    assert len(server.conversing) <= policy.retry.attempts  # a busy machine may not send a request before its deadline


@pytest.mark.slow
@pytest.mark.parametrize("delta", [{"content": ""}, {"thinking": "Hm."}, {"reasoning": "Hm."}, {"content": "TOOL x"}])
async def test_a_model_that_never_says_anything_is_ended_by_the_limit(database: Path, delta: dict[str, str]) -> None:
    """J12: empty or thinking, from the first response on: after eight requests the user gets a sentence."""
    async with ReplyFlowServer([streams(delta)] * 9) as server, engine_of(server, database) as engine:
        conversation = await engine.create()
        turn = await conversation.send("What is up there?")
        assert (await conversation.replay()).divergence is None

    assert (turn.status, turn.reply, turn.limit) == ("incomplete", Texts().limit, "requests")
    assert len(server.conversing) == 8


def is_plain(body: Body) -> bool:
    """Whether a request holds neither tools nor results of tools."""
    return "tools" not in body and [message["role"] for message in body["messages"]] == ["system", "user"]


@pytest.mark.parametrize(("last", "status"), [("A bird.", "completed"), ("", "incomplete")])
async def test_the_last_try_is_plain(database: Path, last: str, status: str) -> None:
    """J20, J11: after two empty responses, the fallback prompt between them, one request has the system prompt and the
    message alone. Its text is the reply; without a text the turn ends with a sentence."""
    answers = [LOOK, says(), says(), says(last) if last else says()]
    async with ReplyFlowServer(answers) as server, engine_of(server, database) as engine:
        conversation = await engine.create(system="You look.")
        turn = await conversation.send("What is up there?")

    assert (turn.status, turn.reply) == (status, last or Texts().ending)
    assert [is_plain(body) for body in server.conversing] == [False, False, False, True]
    assert server.conversing[3]["messages"][0]["content"] == "You look."
    assert dialogue_of(server.conversing[3]) == [("user", "What is up there?")]
