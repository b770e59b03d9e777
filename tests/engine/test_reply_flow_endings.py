"""How turns end under the whole preset: spoken, without a text, without a model, without a memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine, LiteLlm, Settings, SpeechChannel, presets, tool
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import StoreError, Texts
from turnwise.testing import ManualClock

from ..support.reply_flow import ReplyFlowServer, dialogue_of
from ..support.servers.openai_server import Body, calls, hangs, says, streams
from ..support.speech.voices import BREAKS, WRITES


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
