"""What is read of a conversation over HTTP: what was said, its turns, its steps, what a model was sent."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import pytest

from turnwise import Engine
from turnwise.testing import RecordingChannel, ScriptedLlm, call, reply

from ...support.http.documented_client import serving_here
from ...support.http.obedient_model import Conversations, obedient_engine


class TestWhatWasSaid:
    """/transcript, /messages, /turns and /usage."""

    async def test_is_what_the_engine_says(self) -> None:
        """The transcript is that of a snapshot; the messages, the turns and the usage are those of the handle."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).approving()
            shown = [
                await api.result(name, conversation_id=conversation.id)
                for name in ("getTranscript", "getMessages", "listTurns", "getUsage")
            ]
            async with aclosing(conversation.updates()) as updates:
                snapshot = await anext(updates)
            turns = await conversation.turns()
            expected = [
                {"messages": snapshot.data["transcript"]},
                {"messages": await conversation.messages()},
                {"turns": [turn.data for turn in turns]},
                (await conversation.usage()).model_dump(mode="json"),
            ]

        assert shown == expected

    async def test_is_shown_however_deep_a_model_nests_arguments(self) -> None:
        """Arguments that no client could read are shown as the text that the model wrote."""
        deep: Any = None
        for _ in range(300):
            deep = [deep]
        engine = Engine.open("sqlite://", model=ScriptedLlm([call("look", at=deep), "Done."]))
        async with serving_here(engine) as api:
            conversation = await engine.create()
            await conversation.send("Hello")
            shown = await api.result("getTranscript", conversation_id=conversation.id)

        (called,) = (one for message in shown["messages"] for one in message.get("tool_calls", ()))
        assert (called["arguments"], json.loads(called["raw_arguments"])) == ({}, {"at": deep})


class TestTheLog:
    """/log, /log/{seq}/request, /replay and /outbox."""

    @pytest.mark.slow
    async def test_pages_follow_each_other(self) -> None:
        """`next` is the `after` of the next page; together the pages are all steps."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).asking()
            pages = [await api.result("getLog", conversation_id=conversation.id, limit=2)]
            while pages[-1]["next"] is not None:
                following = pages[-1]["next"]
                pages.append(await api.result("getLog", conversation_id=conversation.id, limit=2, after=following))
            steps = [step for page in pages for step in page["steps"]]

        assert [step["seq"] for step in steps] == [*range(1, conversation.state.book.seq + 1)]
        assert steps[-1]["state"]["type"] == "awaiting_user_response"

    async def test_the_outbox_names_the_channels(self) -> None:
        """A client tells an outbox in which everything is delivered from one into which nothing comes."""
        for channels in ([RecordingChannel(name="sms")], []):
            engine = Engine.open("sqlite://", model=ScriptedLlm([]), channels=channels)
            async with serving_here(engine) as api:
                conversation = await engine.create()
                outbox = await api.result("getOutbox", conversation_id=conversation.id)

            assert outbox == {"deliveries": [], "channels": [one.name for one in channels]}

    async def test_the_request_of_a_step_is_shown(self) -> None:
        """The step that asked the model leads to the request that it was sent, exactly."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).idle()
            log = await api.result("getLog", conversation_id=conversation.id)
            asked = next(step for step in log["steps"] if step["requests"])
            request = await api.result("getModelRequest", conversation_id=conversation.id, seq=asked["seq"])

        assert [message["content"] for message in request["messages"]] == ["Hello"]
        assert (request["is_exact"], [request["effect_id"]]) == (True, asked["requests"])

    async def test_a_replay_finds_nothing_in_a_log_of_this_version(self) -> None:
        """Every step comes out as it was stored."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).asking()
            replayed = await api.result("replayConversation", conversation_id=conversation.id)

        assert replayed == {"events": conversation.state.book.seq, "divergence": None}


class TestSubAgents:
    """Conversations that a turn has started: their ids hold slashes."""

    async def test_are_listed_and_read_by_their_ids(self) -> None:
        """A slash in an id is written as %2F; every endpoint of a sub-agent is found."""
        model = ScriptedLlm([call("spawn_agents", tasks=["Look."]), reply("Seen."), reply("Done.")])
        engine = Engine.open("sqlite://", model=model, tools=["spawn_agents"])
        async with serving_here(engine) as api:
            conversation = await engine.create(owner="ann")
            await conversation.send("Go.")
            (child,) = (await api.result("listChildren", conversation_id=conversation.id))["conversations"]
            shown = await api.result("getConversation", conversation_id=child["id"])
            said = await api.result("getTranscript", conversation_id=child["id"])
            unknown = await api.problem("getTranscript", conversation_id=f"{conversation.id}/99")

        assert child["id"].startswith(f"{conversation.id}/")
        assert (shown["role"], shown["parent"], shown["owner"]) == ("sub_agent", conversation.id, "ann")
        assert said["messages"][-1]["text"] == "Seen."
        assert unknown == (404, "unknown_conversation")
