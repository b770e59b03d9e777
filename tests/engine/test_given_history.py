"""Conversations that begin with messages that were said elsewhere, also in other libraries."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from turnwise import Conversation, Engine, File, InvalidInput, LiteLlm, tool
from turnwise.effects.context import EffectContext
from turnwise.engine.requests import MAX_HISTORY
from turnwise.hosts.terminal.commands.database import transcript_lines
from turnwise.persistence.maintenance.doctor import examine
from turnwise.persistence.maintenance.export import export_all, first_line, import_records, last_line
from turnwise.persistence.maintenance.files import ImportedFiles, lines_of_files
from turnwise.persistence.maintenance.reading import read_export
from turnwise.states import Idle, MemoryRecalled, Policy, RecallMemory, Recent
from turnwise.testing import FunctionLlm, ScriptedLlm, call, reply
from turnwise.testing.strategies import NOON

from ..support.databases import BOTH_STORES, Database
from ..support.pictures import PNG, data_url
from ..support.scenarios.openai_histories import Given, any_histories, faults_in
from ..support.servers.openai_server import OpenAiServer, calls, says, violations

pytestmark = BOTH_STORES

# --- Conversations that begin with messages that were said elsewhere.


IMAGE = {"type": "image_url", "image_url": {"url": data_url("image/png", PNG)}}
HISTORY: list[Given] = [
    {"role": "system", "content": "You book tables."},
    {"role": "assistant", "content": "Welcome! What may I book?"},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Like here"}, IMAGE, {"type": "text", "text": "please."}],
        "name": "Ada",
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_7_0", "type": "function", "function": {"name": "find_table", "arguments": '{"party":  2}'}},
            {"id": "call_7_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_7_1", "content": "rain"},
    {"role": "tool", "tool_call_id": "call_7_0", "content": [{"type": "text", "text": "Sakura"}]},
    {"role": "assistant", "content": "Sakura has one."},
]
"""A valid history, with everything in it."""


@tool(crash="pure")
async def find_table(party: int) -> list[str | File]:
    """Look for a free table."""
    return [f"Takumi, for {party}", File(PNG)]


def said_of(request: Any) -> list[tuple[str, str]]:
    """The roles and texts of a request."""
    return [(message["role"], str(message["content"])) for message in request.messages]


async def go_on(conversation: Conversation) -> None:
    """A turn with a tool."""
    turn = await conversation.send("And for four?")
    assert turn.status == "completed"


class TestBeginning:
    """`create(messages=…)` stores a history, and the conversation goes on from it."""

    async def test_the_next_request_holds_the_whole_history(self, database: Database) -> None:
        """Nothing happens before somebody speaks; then the model sees everything, the system prompt first."""
        llm = ScriptedLlm([reply("Takumi has one.")])
        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create(messages=HISTORY)
            assert isinstance(conversation.state, Idle)
            assert await conversation.repairs() == ()
            turn = await conversation.send("And for four?")

        assert (turn.number, turn.reply) == (1, "Takumi has one.")
        roles = [role for role, _ in said_of(llm.requests[0])]
        assert roles == ["system", "assistant", "user", "assistant", "tool", "tool", "assistant", "user"]
        assert [text for role, text in said_of(llm.requests[0]) if role == "tool"] == ["Sakura", "rain"]
        assert [part["type"] for part in llm.requests[0].messages[2]["content"]] == ["text", "image_url", "text"]

    async def test_its_messages_are_given_back_with_what_was_said_since(self, database: Database) -> None:
        """First the history as it was given, then calls, results and images of this conversation; a new conversation
        can begin with all of it."""
        llm = ScriptedLlm([call("find_table", party=4), reply("Takumi has one."), reply("Again.")])
        async with Engine.open(database, model=llm, tools=[find_table]) as engine:
            conversation = await engine.create(messages=HISTORY)
            assert await conversation.messages() == HISTORY
            await go_on(conversation)
            messages = await conversation.messages()
            another = await engine.create(messages=messages)
            copied, repairs = await another.messages(), await another.repairs()

        assert messages[: len(HISTORY)] == HISTORY
        asked, called, found, shown, answered = messages[len(HISTORY) :]
        assert asked == {"role": "user", "content": "And for four?"}
        assert json.loads(called["tool_calls"][0]["function"]["arguments"]) == {"party": 4}
        assert called["tool_calls"][0]["id"] == found["tool_call_id"]
        assert found["tool_call_id"].startswith("call_8_0_")
        assert shown["content"][1] == IMAGE
        assert answered == {"role": "assistant", "content": "Takumi has one."}
        assert (copied, repairs, faults_in(messages)) == (messages, (), [])

    async def test_a_file_that_is_not_stored_here_is_left_out(self, database: Database) -> None:
        """A history may refer to files by their digests, as long as the store has them."""
        lost = {"type": "stored_file", "stored_file": {"sha256": "e" * 64, "media_type": "image/png", "size": 67}}
        async with Engine.open(database) as engine:
            said = [{"type": "text", "text": "Like here."}, lost]
            conversation = await engine.create(messages=[{"role": "user", "content": said}])

            repairs = await conversation.repairs()
            messages = await conversation.messages()

        assert repairs == ("messages[0]: A file was left out: it is not stored here.",)
        assert messages == [{"role": "user", "content": [{"type": "text", "text": "Like here."}]}]

    async def test_repairs_are_reported_once_and_can_be_read(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A warning names them, and the conversation keeps them."""
        async with Engine.open(database) as engine:
            conversation = await engine.create(messages=[*HISTORY[:4], {"role": "robot"}])
            conversation_id, repairs = conversation.id, await conversation.repairs()
        async with Engine.open(database) as engine:
            assert await (await engine.get(conversation_id)).repairs() == repairs

        assert [repair.split(":")[0] for repair in repairs] == ["messages[3]", "messages[3]", "messages[4]"]
        (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert conversation_id in warning.getMessage()
        assert repairs[2] in warning.getMessage()

    async def test_a_given_system_prompt_replaces_that_of_the_history(self, database: Database) -> None:
        """Without one, the history brings it; a conversation without a history is as it was."""
        llm = FunctionLlm(lambda request: reply(str(request.messages[0]["content"])))
        async with Engine.open(database, model=llm) as engine:
            prompts = [
                (await (await engine.create(system=system, messages=messages)).send("Hi")).reply
                for system, messages in (("", HISTORY), ("New.", HISTORY), ("New.", []), ("New.", None))
            ]

        assert prompts == ["You book tables.", "New.", "New.", "New."]

    @pytest.mark.parametrize(
        "messages", ["Hello", {"role": "user"}, 3, [None], [{"role": "user"}, "Hello"], [["role"]]]
    )
    async def test_what_is_no_list_of_messages_is_refused(self, database: Database, messages: Any) -> None:
        """In one sentence, and no conversation is created."""
        async with Engine.open(database) as engine:
            with pytest.raises(InvalidInput) as refused:
                await engine.create(messages=messages)
            assert await engine.list() == ()

        assert str(refused.value).endswith(".")
        assert "\n" not in str(refused.value)

    @pytest.mark.slow
    async def test_a_history_that_is_too_long_is_refused(self, database: Database) -> None:
        """The error says how long it may be."""
        text = "x" * 1_000_000
        async with Engine.open(database) as engine:
            with pytest.raises(InvalidInput, match=f"more than {MAX_HISTORY:,} characters"):
                await engine.create(messages=[{"role": "user", "content": text}] * (MAX_HISTORY // len(text) + 1))
            conversation = await engine.create(messages=[{"role": "user", "content": text * 5}])
            assert len((await conversation.messages())[0]["content"]) == len(text) * 5


class TestEverythingElse:
    """The other things that a conversation can do cope with a given history."""

    async def test_it_is_shown_to_watchers(self, database: Database) -> None:
        """The snapshot holds it in the turn 0, and so do updates from the beginning, but for results."""
        async with Engine.open(database) as engine:
            conversation = await engine.create(messages=[*HISTORY, {"role": "system", "content": "Be brief."}])
            async for update in conversation.updates():
                transcript = update.data["transcript"]
                break
            updates = conversation.updates(after="0.1")
            shown = [(await anext(updates)).data for _ in range(3)]

        assert [one["role"] for one in transcript] == [*(one["role"] for one in HISTORY[1:]), "system"]
        assert {one.get("turn", 0) for one in transcript} == {0}
        assert [(one["role"], one["turn"]) for one in shown] == [("assistant", 0), ("user", 0), ("assistant", 0)]

    @pytest.mark.slow
    async def test_fork_replay_export_and_the_doctor_take_it_as_any_other(self, tmp_path: Path) -> None:
        """A copy has the same messages and goes on by itself; nothing diverges, and nothing is lost."""
        llm = FunctionLlm(lambda _: reply("Here."))
        async with Engine.open(tmp_path / "one.db", model=llm) as engine:
            conversation = await engine.create(messages=HISTORY)
            await go_on(conversation)
            copy = await conversation.fork(at=1)
            await copy.send("Something else?")
            report = await conversation.replay()
            messages = {one.id: await one.messages() for one in (conversation, copy)}
            lines = [first_line()]
            written: set[str] = set()
            async for exported_id, exported in export_all(engine.store):
                lines += [*[line async for line in lines_of_files(engine.store, exported_id, written)], *exported]  # type: ignore[misc]
            assert (await examine(engine.store)).findings == ()
        async with Engine.open(tmp_path / "two.db", model=llm) as engine:
            with ImportedFiles() as files:
                records = read_export((f"{line}\n".encode() for line in [*lines, last_line(2)]), files)
                await import_records(engine.store, records, files)
            again = {one: await (await engine.get(one)).messages() for one in messages}

        assert report.divergence is None
        assert again == messages
        assert messages[copy.id][: len(HISTORY)] == HISTORY
        assert messages[copy.id][len(HISTORY)] == {"role": "user", "content": "Something else?"}

    async def test_it_can_be_condensed(self, database: Database) -> None:
        """The summary takes the place of given messages in requests; `messages` still tells everything."""
        llm = ScriptedLlm([reply("They talked about Sakura."), reply("Yes.")])
        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create(messages=HISTORY)
            await conversation.compact()
            await conversation.send("Well?")
            messages = await conversation.messages()

        assert "rain" in str(llm.requests[0].messages)
        assert [role for role, _ in said_of(llm.requests[1])] == ["system", "user"]
        assert "They talked about Sakura." in said_of(llm.requests[1])[1][1]
        assert messages[: len(HISTORY)] == HISTORY

    async def test_a_request_of_the_last_minutes_leaves_it_out(self, database: Database) -> None:
        """Under `Recent` a request looks back by the clock, and nobody knows when a given message was said."""

        async def look_up(effect: RecallMemory, _: EffectContext) -> MemoryRecalled:
            return MemoryRecalled(effect_id=effect.effect_id, at=NOON)

        llm = ScriptedLlm([reply("Yes.")])
        async with Engine.open(database, model=llm, performers={RecallMemory: look_up}) as engine:
            conversation = await engine.create(policy=Policy(dialogue=Recent()), messages=HISTORY)
            await conversation.send("Well?")

        assert [role for role, _ in said_of(llm.requests[0])] == ["system", "user"]

    async def test_the_terminal_shows_it(self, database: Database) -> None:
        """Roles, calls and results, as of a conversation that was held here."""
        async with Engine.open(database) as engine:
            conversation = await engine.create(messages=HISTORY)
            lines = list(transcript_lines(await conversation.transcript()))

        assert lines[:2] == ["assistant:", "Welcome! What may I book?"]
        assert "  find_table returned: Sakura" in lines


@pytest.mark.slow
class TestOverTheWire:
    """A strict server takes the requests."""

    @given(any_histories())
    @settings(max_examples=20)
    async def test_a_conversation_goes_on_from_any_list(self, messages: list[Given]) -> None:
        """P35: whatever was handed over, the request is valid, and the answer is stored."""
        requests: list[Any] = []
        llm = FunctionLlm(lambda request: requests.append(request) or reply("Yes."))
        async with Engine.open("sqlite://", model=llm) as engine:
            conversation = await engine.create(messages=messages)
            turn = await conversation.send("Go on.")
            stored = await conversation.messages()

        body = {"model": "test", "messages": list(requests[0].messages)}
        body |= {"tools": list(requests[0].tools), "tool_choice": "none"} if requests[0].tools else {}
        assert turn.reply == "Yes."
        assert violations(body) == []
        assert faults_in(stored) == []

    async def test_calls_go_on_behind_given_calls(self, database: Database) -> None:
        """P29: litellm sends the whole history; a provider that repeats ids does not mix up the results."""
        script = [calls(("find_table", {"party": 2}), ids=["call_7_0"]), says("Takumi."), says("Done.")]
        async with (
            OpenAiServer(script) as server,
            Engine.open(
                database, model=LiteLlm("openai/test", api_base=server.url, api_key="test"), tools=[find_table]
            ) as engine,
        ):
            conversation = await engine.create(messages=HISTORY)
            first = await conversation.send("And ramen?")
            second = await conversation.send("Thanks.")
            messages = await conversation.messages()

        assert (first.reply, second.reply) == ("Takumi.", "Done.")
        assert (faults_in(messages), messages[: len(HISTORY)]) == ([], HISTORY)


@pytest.mark.slow
class TestLongHistories:
    """A history of years costs once."""

    async def test_ten_thousand_messages(self, database: Database) -> None:
        """They are read within seconds; a turn behind them, and loading the conversation, do not read them again."""
        rounds = range(2_500)
        history = [
            message
            for n in rounds
            for message in (
                {"role": "user", "content": f"Question {n}"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": f"c{n}", "content": "x" * 200},
                {"role": "assistant", "content": "y" * 300},
            )
        ][:-3]
        async with Engine.open(database, model=FunctionLlm(lambda _: reply("Yes."))) as engine:
            began = time.perf_counter()
            conversation = await engine.create(messages=history)
            created = time.perf_counter() - began
            await conversation.send("First")
            began = time.perf_counter()
            for _ in range(3):
                await conversation.send("Next")
            each = (time.perf_counter() - began) / 3

        assert created < 20  # half a second, if nothing else runs
        assert each < created / 4  # milliseconds
