"""A stopped answer is kept: in the turn, the transcript, what watchers see, the export, and the next request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from turnwise import Conversation, Engine, Policy, Recent, presets
from turnwise.effects.model.port import ModelAnswer, ModelRequest, Token
from turnwise.engine.turns import Turn
from turnwise.states import Usage
from turnwise.testing import RecordingChannel, ScriptedLlm, call, calls, reply

from ..support.databases import BOTH_STORES, Database

pytestmark = BOTH_STORES


class StreamingLlm:
    """A model that shows these tokens and then hangs; later requests get the answers."""

    def __init__(self, *tokens: Token | str, answers: tuple[str, ...] = ()) -> None:
        self.name = "streaming"
        self.requests: list[ModelRequest] = []
        self.has_shown = asyncio.Event()
        self.has_ended = asyncio.Event()
        self._tokens = tokens
        self.answers = [*answers]

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Show the tokens, or answer."""
        self.requests.append(request)
        if len(self.requests) > 1:
            return ModelAnswer(self.answers.pop(0))
        for token in self._tokens:
            show(token if isinstance(token, Token) else Token(token))
        self.has_shown.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.has_ended.set()
        raise AssertionError("nobody sets this event")


async def stopped(conversation: Conversation, llm: StreamingLlm) -> Turn:
    """Return the turn of a message whose answer is stopped in the middle."""
    turn = asyncio.ensure_future(conversation.send("Hi"))
    await llm.has_shown.wait()
    await conversation.cancel()
    return await turn


async def test_what_was_streamed_is_kept(database: Database) -> None:
    """P8: in the turn, in the transcript, in the export, in the next request, and after a restart; nothing of it is
    delivered."""
    llm, channel = StreamingLlm("A table ", "for ", Token("Two?", "thinking"), answers=("Booked.",)), RecordingChannel()
    async with Engine.open(database, model=llm, channels=[channel]) as engine:
        conversation = await engine.create()
        turn = await stopped(conversation, llm)
        await conversation.send("For three")
        said, exported = await conversation.transcript(), await conversation.messages()
        report = await conversation.replay()

    assert llm.has_ended.is_set()
    assert (turn.status, turn.final_content, turn.reply, turn.deliveries) == ("cancelled", "A table for ", "", ())
    assert [(one.text, one.thinking, one.stopped) for one in said[1:2]] == [("A table for ", "Two?", "cancelled")]
    assert exported[1] == {"role": "assistant", "content": "A table for "}
    assert [(one["role"], one["content"]) for one in llm.requests[-1].messages] == [
        ("user", "Hi"),
        ("assistant", "A table for "),
        ("user", "(The user stopped your answer here.)\n\nFor three"),
    ]
    assert [one.text for one in channel.deliveries] == ["Booked."]
    assert report.divergence is None
    async with Engine.open(database, model=ScriptedLlm([])) as engine:
        again = await engine.get(conversation.id)
        assert await again.transcript() == said
        assert (await again.turns())[0].final_content == "A table for "


@pytest.mark.parametrize(
    "policy",
    [Policy(dialogue=Recent()), Policy(fresh_context=True), Policy(dialogue=Recent(), fresh_context=True)],
    ids=["recent", "fresh context", "both"],
)
async def test_the_next_request_shows_it_under_all_rules(database: Database, policy: Policy) -> None:
    """P8: also where it holds only the texts of the last minutes, and where it ends with a message that is made for
    it."""
    llm = StreamingLlm("A table ", answers=("Booked.",))
    async with Engine.open(database, model=llm) as engine:
        conversation = await engine.create(policy=policy)
        await stopped(conversation, llm)
        await conversation.send("For three")

    said = [(one["role"], str(one["content"])) for one in llm.requests[-1].messages if one["role"] != "system"]
    assert said[:2] == [("user", "Hi"), ("assistant", "A table ")]
    assert said[2][0] == "user" and "For three" in said[2][1]


@pytest.mark.parametrize("heard", ["A table", "", "Something else"])
async def test_the_dialogue_of_the_last_minutes_has_what_was_heard(database: Database, heard: str) -> None:
    """P8: of an answer that was stopped, of one that was complete, and of what a tool has said. What nobody said cuts
    nothing."""
    llm = StreamingLlm("A table for")
    rules = Policy(dialogue=Recent(), text="reply", nudges=0)
    wanted = {"A table": "A table", "": "", "Something else": None}[heard]

    async def dialogue(conversation: Conversation) -> list[str]:
        await conversation.send("And?")
        roles = [str(one["content"]) for one in llm.requests[-1].messages if one["role"] == "assistant"]
        return roles

    async with Engine.open(database, model=llm) as engine:
        conversation = await engine.create(policy=rules)
        await stopped(conversation, llm)
        await conversation.cancel(heard=heard)
        llm.answers += ["A table for two."]
        first = await dialogue(conversation)
        await conversation.cancel(heard=heard)
        llm.answers += ["Yes."]
        second = await dialogue(conversation)

    assert first == [text for text in ["A table for" if wanted is None else wanted] if text]
    assert second == first + [text for text in ["A table for two." if wanted is None else wanted] if text]


async def test_what_a_tool_has_said_is_heard_in_part(database: Database) -> None:
    """P8: the first of two speeches, and half of the second."""
    said = [calls(call("talk", message="It rains."), call("talk", message="It snows, too.")), reply("")]
    model = ScriptedLlm([*said, reply("")])
    async with Engine.open(database, model=model, tools=["talk"]) as engine:
        conversation = await engine.create(policy=presets.talk().replace(dialogue=Recent()))
        await conversation.send("Weather?")
        await conversation.cancel(heard="It rains. It snows")
        await conversation.send("And?")

    told = [str(one["content"]) for one in model.requests[-1].messages if one["role"] == "assistant"]
    assert told == ["It rains.\n\nIt snows,"]


async def test_what_it_has_cost_is_estimated(database: Database) -> None:
    """P8: where the model has not told."""
    llm = StreamingLlm("twelve chars")
    async with Engine.open(database, model=llm) as engine:
        conversation = await engine.create()
        turn = await stopped(conversation, llm)

        assert turn.usage == Usage(input_tokens=1, output_tokens=3, estimated=True)
        assert await conversation.usage() == turn.usage


async def test_what_the_model_has_told_of_its_cost_counts(database: Database) -> None:
    """P8: the last that was known."""
    spent = Usage(input_tokens=40, output_tokens=2)
    llm = StreamingLlm("twelve chars", Token("", usage=Usage(input_tokens=40)), Token("", usage=spent))
    async with Engine.open(database, model=llm) as engine:
        turn = await stopped(await engine.create(), llm)

    assert turn.usage == spent


async def test_watchers_see_the_message_before_the_turn_ends(database: Database) -> None:
    """P8: tokens, the message as it is kept, and the end."""
    llm = StreamingLlm("A table ")
    async with Engine.open(database, model=llm) as engine:
        conversation = await engine.create()

        async def seen() -> list[tuple[str, object]]:
            shown = []
            async for update in conversation.stream("Hi"):
                shown.append((update.type, update.data))
                if update.type == "token":
                    cancelling = asyncio.ensure_future(conversation.cancel())
            await cancelling
            return shown

        shown = await seen()

    kept = {"role": "assistant", "text": "A table ", "turn": 1, "stopped": True}
    assert shown[-3] == ("message", kept)
    assert [kind for kind, _ in shown[-5:]] == ["token", "state_change", "message", "state_change", "turn_ended"]


async def test_a_close_keeps_it(database: Database) -> None:
    """P8: the conversation is closed when the model has stopped."""
    llm = StreamingLlm("A table ")
    async with Engine.open(database, model=llm) as engine:
        conversation = await engine.create()
        turn = asyncio.ensure_future(conversation.send("Hi"))
        await llm.has_shown.wait()
        await conversation.close()

        assert conversation.state.type == "closed"
        assert (await turn).final_content == "A table "


async def test_an_engine_that_closes_stops_nothing(database: Database) -> None:
    """P27: the process ends, nobody has cancelled: the request is sent again by the next one, and nothing of the first
    attempt is kept."""
    llm = StreamingLlm("A table ")
    async with Engine.open(database, model=llm) as engine:
        conversation = await engine.create()
        await conversation.send("Hi", wait=False)
        await llm.has_shown.wait()

    async with Engine.open(database, model=ScriptedLlm(["Booked."], name="streaming")) as engine:
        again = await engine.get(conversation.id)
        turn = await again.wait()
        texts = [message.text for message in await again.transcript()]

    assert turn.status == "completed"
    assert texts == ["Hi", "Booked."]


async def test_a_text_that_is_a_thought_is_kept_as_one(database: Database) -> None:
    """B1: where the model's text never reaches the user, it is shown as a thought, stopped or not."""
    llm = StreamingLlm("They are two.")
    async with Engine.open(database, model=llm, tools=["talk"], policy=presets.talk()) as engine:
        conversation = await engine.create()
        shown = []
        async for update in conversation.stream("Hi"):
            shown.append((update.type, update.data.get("text")))
            if update.type == "token":
                cancelling = asyncio.ensure_future(conversation.cancel())
        await cancelling

    assert ("thought", "They are two.") in shown
    assert ("message", "They are two.") not in shown


async def test_secrets_in_it_are_redacted(database: Database) -> None:
    """J1: as in any other text."""
    llm = StreamingLlm("The key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD ")
    async with Engine.open(database, model=llm, policy=Policy(redact=True)) as engine:
        turn = await stopped(await engine.create(), llm)

    assert turn.final_content is not None
    assert "abcdefghij" not in turn.final_content
