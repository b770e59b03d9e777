"""The engine with litellm over a real socket: what a provider may do to a conversation, and what becomes of it."""

import asyncio
from pathlib import Path

import pytest

from turnwise import Conversation, Engine, LiteLlm, Policy, Retry, Settings, tool

from ..support.servers.openai_server import (
    OpenAiServer,
    calls,
    drops_after,
    fails,
    hangs,
    has_no_choices,
    never_ends,
    says,
    sends,
)

QUICK = Policy(retry=Retry(base=0.01))
QUESTION = {"question": "When?", "options": [{"label": "6:30 PM"}, {"label": "8:15 PM"}]}


@tool(crash="pure")
async def find_table(cuisine: str, party: int) -> list[str]:
    """Look for free tables."""
    return [f"{cuisine} for {party} at 6:30 PM", f"{cuisine} for {party} at 8:15 PM"]


def model_at(server: OpenAiServer, name: str = "openai/test") -> LiteLlm:
    """Return a model that is served by the server."""
    return LiteLlm(name, api_base=server.url, api_key="test")


async def roles(conversation: Conversation) -> list[str]:
    """Return the roles, in order."""
    return [message.role for message in await conversation.transcript()]


async def test_a_conversation_end_to_end(database: Path) -> None:
    """Streamed text, tool calls in fragments, a question in the middle of a round, the answer, the reply (P13, P14)."""
    first = calls(
        ("find_table", {"cuisine": "Sushi", "party": 2}),
        ("ask_user_question", {"questions": [QUESTION]}),
        ("find_table", {"cuisine": "Ramen", "party": 2}),
        text="Let me look.",
    )
    async with (
        OpenAiServer([first, says("Booked ", "for 6:30.")]) as server,
        Engine.open(database, model=model_at(server), tools=[find_table, "ask_user_question"]) as engine,
    ):
        conversation = await engine.create(system="You book tables.")
        asked = await conversation.send("A table for two")
        turn = await conversation.answer({"When?": "6:30 PM"})

        assert asked.status == "awaiting_user"
        assert turn.reply == "Booked for 6:30."
        assert await roles(conversation) == ["user", "assistant", "tool", "tool", "tool", "assistant"]
        assert (await conversation.replay()).divergence is None
        assert turn.usage.tokens == 30


async def test_ids_that_repeat_on_the_wire(database: Path) -> None:
    """P29: repeated and empty call ids, also within one response: the strict server accepts every request."""
    wanted = ("find_table", {"cuisine": "Sushi", "party": 2})
    script = [
        calls(wanted, wanted, ids=["call_0", "call_0"]),
        says("One."),
        calls(wanted, wanted, ids=["", ""]),
        says("Two."),
    ]
    async with (
        OpenAiServer(script) as server,
        Engine.open(database, model=model_at(server), tools=[find_table]) as engine,
    ):
        conversation = await engine.create()
        first, second = await conversation.send("Once"), await conversation.send("Twice")
        ids = [m.tool_call_id for m in await conversation.transcript() if m.role == "tool"]

        assert (first.reply, second.reply) == ("One.", "Two.")
        assert len(set(ids)) == 4


async def test_a_cancel_closes_the_connection(database: Path) -> None:
    """P8: after a cancel the connection is closed, no half message is stored, and the next turn has its own request."""
    script = [hangs("half a "), says("Whole.")]
    async with OpenAiServer(script) as server, Engine.open(database, model=model_at(server)) as engine:
        conversation = await engine.create()
        turn = asyncio.ensure_future(conversation.send("Hi"))
        await server.asked()
        async for update in conversation.updates():
            if update.type == "token":
                break
        await conversation.cancel()
        await server.left()
        again = await conversation.send("Again")

        assert (await turn).status == "cancelled"
        assert again.reply == "Whole."
        assert [m.text for m in await conversation.transcript()] == ["Hi", "Again", "Whole."]


@pytest.mark.parametrize(
    "passing",
    [fails(429, retry_after="0.02"), fails(500), drops_after("Half an ans"), has_no_choices(), sends("<html>")],
    ids=["429", "500", "dropped", "empty choices", "garbage"],
)
async def test_what_passes_is_tried_again(database: Path, passing: object) -> None:
    """P11: after one transient failure there is one answer, and nothing of the first attempt."""
    async with (
        OpenAiServer([passing, says("Here.")]) as server,  # type: ignore[list-item]
        Engine.open(database, model=model_at(server), policy=QUICK) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("Hi")

        assert turn.reply == "Here."
        assert [m.text for m in await conversation.transcript()] == ["Hi", "Here."]
        assert len(server.requests) == 2


async def test_the_next_model_takes_over(database: Path) -> None:
    """P11: after three failures of the first model the second one is used until the end of the turn."""
    async with (
        OpenAiServer([fails(503)] * 3) as first,
        OpenAiServer([calls(("find_table", {"cuisine": "Sushi", "party": 2})), says("Second here.")]) as second,
        Engine.open(
            database,
            model=model_at(first, "openai/first"),
            fallback_models=[model_at(second, "openai/second")],
            tools=[find_table],
            policy=QUICK,
        ) as engine,
    ):
        turn = await (await engine.create()).send("Hi")

        assert turn.reply == "Second here."
        assert (len(first.requests), len(second.requests)) == (3, 2)


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_what_cannot_pass_fails_at_once(database: Path, status: int) -> None:
    """P11, P33: a permanent failure makes one request, and its sentence holds nothing of the provider's payload."""
    refusal = fails(status, "the secret detail {'error': 1}")
    async with (
        OpenAiServer([refusal, says("Better.")]) as server,
        Engine.open(database, model=model_at(server)) as engine,
    ):
        conversation = await engine.create()
        failed = await conversation.send("Hi")
        again = await conversation.send("Once more")

        assert failed.status == "failed"
        assert failed.failure is not None
        assert "secret" not in failed.failure
        assert "\n" not in failed.failure
        assert again.reply == "Better."


async def test_a_slow_answer_runs_into_the_deadline(database: Path) -> None:
    """The deadline limits the whole call, however slowly the pieces come: the connection is closed and it retries."""
    settings = Settings(llm_chat_timeout_sec=0.3)
    async with (
        OpenAiServer([never_ends(), says("In time.")]) as server,
        Engine.open(database, model=model_at(server), policy=QUICK, settings=settings) as engine,
    ):
        turn = await (await engine.create()).send("Hi")
        await server.left()

        assert turn.reply == "In time."


async def test_a_cut_off_response(database: Path) -> None:
    """P41: cut-off calls have results that say so, and the model is asked again; a cut-off text ends the turn."""
    cut = calls(("find_table", '{"cuisine": "Su'), finish_reason="length")
    async with (
        OpenAiServer([cut, says("As far as I", finish_reason="length")]) as server,
        Engine.open(database, model=model_at(server), tools=[find_table]) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("Hi")
        said = await conversation.transcript()

        assert (turn.reply, turn.truncated) == ("As far as I", True)
        assert "cut off" in said[2].text
        assert said[2].error


async def test_half_characters_cannot_get_in(database: Path) -> None:
    """A lone surrogate is replaced, and an emoji that was cut in two pieces is joined."""
    async with (
        OpenAiServer([says("a\ud83d", "\ude00b\ud800")]) as server,
        Engine.open(database, model=model_at(server)) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("Hi")

        assert turn.reply == "a😀b�"
        assert (await conversation.replay()).divergence is None
