"""From a query to the reply, under the whole preset: over litellm and a real socket, with a real database.

Secrets are removed, a profile is chosen, older conversations are searched, and each request states the time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from turnwise import Conversation, Engine, LiteLlm, Profile, presets, tool
from turnwise.testing import ManualClock

from ..support.reply_flow import CONTEXT, HISTORY, ReplyFlowServer, dialogue_of, system_of, text_of
from ..support.servers.openai_server import calls, says

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
            assert HISTORY not in system_of(body)
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
        assert HISTORY in system_of(asked) and "My sister lives in Turku." in system_of(asked)
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
