"""What watchers of a conversation see."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise import (
    Engine,
    InvalidInput,
    Limits,
    ModelAnswer,
    ModelCall,
    Policy,
    Settings,
    SnapshotUpdate,
    StateChangeUpdate,
    ToolUpdate,
    TurnEndedUpdate,
    UserQuestion,
    presets,
    tool,
)
from turnwise.engine.json_forms import question_data
from turnwise.engine.updates import live_update
from turnwise.states import Idle
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, calls, reply

from ..support.databases import BOTH_STORES, Database
from ..support.engine_scenarios import QUESTION, Gate, Watcher, answers_after, until

pytestmark = BOTH_STORES

TOLD = (
    "status",
    "reply",
    "final_content",
    "user_response",
    "deliveries",
    "silent",
    "truncated",
    "failure",
    "limit",
    "usage",
)
"""What a turn and the update of its end both say."""


@tool
def fails() -> str:
    """Fail."""
    raise RuntimeError("no good")


@tool
def works() -> str:
    """Work."""
    return "done"


@tool(approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool(approval=True)
def send_money(amount: int) -> str:
    """Send money."""
    return "sent"


class TestUpdates:
    """In order, each once, nothing lost."""

    async def test_a_turn_is_seen_in_order(self, database: Database) -> None:
        """P32: updates strictly increase, and a token never comes after its message."""
        llm = ScriptedLlm([reply("Hello there.")])

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.send("Hi")
            await watcher.until("turn_ended")
            await watcher.stop()

        assert watcher.types() == [
            "snapshot", "message", "state_change", "token", "message", "delivery", "state_change", "turn_ended",
        ]  # fmt: skip
        positions = [update.position for update in watcher.updates if update.position]
        assert positions == sorted(set(positions))

    @pytest.mark.parametrize(("rules", "kind"), [(presets.talk(), "thinking"), (presets.assistant(), "text")])
    async def test_text_that_is_kept_from_the_user_streams_as_a_thought(
        self, database: Database, rules: Policy, kind: str
    ) -> None:
        """B1: whoever does not ask for thoughts never sees it, not even while it comes in."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello there.")]), tools=["talk"]) as engine:
            conversation = await engine.create(policy=rules)
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.send("Hi")
            await watcher.until("turn_ended")
            await watcher.stop()

        assert conversation.policy.text == rules.text
        assert {update.data["kind"] for update in watcher.updates if update.type == "token"} == {kind}

    async def test_a_question_is_published_once(self, database: Database) -> None:
        """P38: one state_change of type awaiting_user_response with the questions; a cancel publishes idle, then
        turn_ended."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION])])

        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.send("A table")
            await conversation.cancel()
            await watcher.until("turn_ended")
            await watcher.stop()

        waits = [u for u in watcher.updates if u.data.get("type") == "awaiting_user_response"]
        assert [update.data["data"]["questions"] for update in waits] == [[QUESTION]]
        assert watcher.types()[-2:] == ["state_change", "turn_ended"]
        assert watcher.updates[-2].data["type"] == "idle"
        assert watcher.updates[-1].data["status"] == "cancelled"

    async def test_a_call_that_a_person_did_not_want_is_told_apart_from_one_that_failed(
        self, database: Database
    ) -> None:
        """P36, P38: denied, cancelled, failed, completed."""
        round_ = calls(call("fails"), call("works"), call("pay"), call("pay"))

        async with Engine.open(database, model=ScriptedLlm([round_]), tools=[fails, works, pay]) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            turn = await conversation.send("Go")
            turn = await conversation.approve(turn.call_id or "", False)
            await conversation.cancel()
            await watcher.until("turn_ended")
            await watcher.stop()

        told = [(u.data["name"], u.data["status"]) for u in watcher.updates if u.type == "tool"]
        assert [one for one in told if one[1] != "running"] == [
            ("fails", "failed"),
            ("works", "completed"),
            ("pay", "denied"),
            ("pay", "cancelled"),
        ]

    async def test_a_late_watcher_gets_a_snapshot_and_then_only_what_is_new(self, database: Database) -> None:
        """P32: the snapshot stands for all that was before it."""
        async with Engine.open(database, model=ScriptedLlm([reply("One."), reply("Two.")])) as engine:
            conversation = await engine.create()
            await conversation.send("First")
            watcher = Watcher(conversation)
            snapshot = await watcher.until("snapshot")
            await conversation.send("Second")
            await watcher.until("turn_ended")
            await watcher.stop()

        assert [m["text"] for m in snapshot.data["transcript"]] == ["First", "One."]
        assert snapshot.data["state"]["type"] == "idle"
        assert [u.data["text"] for u in watcher.updates if u.type == "message"] == ["Second", "Two."]

    async def test_a_snapshot_tells_what_the_user_received(self, database: Database) -> None:
        """S2, J13: of each message what was handed over, as people read it."""
        policy = Policy(text="fallback", marker="TOOL")
        llm = ScriptedLlm([reply("Hm."), reply("TOOL: look\nOne.")])
        async with Engine.open(database, model=llm, tools=["talk"], policy=policy) as engine:
            conversation = await engine.create()
            await conversation.set_policy(policy.replace(text="thought"))
            await conversation.send("First")
            await conversation.set_policy(policy)
            turn = await conversation.send("Second")
            watcher = Watcher(conversation)
            snapshot = await watcher.until("snapshot")
            await watcher.stop()

        told = [(message["text"], message.get("deliveries")) for message in snapshot.data["transcript"]]
        assert told == [("First", None), ("Hm.", None), ("Second", None), ("One.", ["One."])]
        assert turn.deliveries == ("One.",)

    async def test_a_watcher_resumes_behind_what_it_saw(self, database: Database) -> None:
        """`updates(after=id)` gives exactly what came since, also from before this process began."""
        async with Engine.open(database, model=ScriptedLlm([reply("One."), reply("Two.")])) as engine:
            conversation = await engine.create()
            full = Watcher(conversation, after="0.0")
            await conversation.send("First")
            await conversation.send("Second")
            await full.until("turn_ended", 2)
            await full.stop()
        stored = [update for update in full.updates if update.id is not None]

        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            for seen in (0, 3, len(stored) - 1):
                again = Watcher(await engine.get(conversation.id), after=stored[seen].id)
                await until(lambda again=again, seen=seen: len(again.updates) == len(stored) - seen - 1)
                await again.stop()

                assert again.updates == stored[seen + 1 :]

    async def test_a_slow_watcher_loses_nothing_and_holds_nobody_up(self, database: Database) -> None:
        """P32: one that falls behind what is kept reads what it missed from the log."""
        turns = 5

        settings = Settings(kept_updates=4)

        async with Engine.open(database, model=FunctionLlm(lambda request: "Answer."), settings=settings) as engine:
            conversation = await engine.create()
            slow = conversation.updates("0.0")
            first = await anext(slow) if (await conversation.send("0")) else None
            for n in range(1, turns):
                await conversation.send(str(n))
            seen = [first] if first else []
            async for update in slow:
                seen.append(update)
                if [u.type for u in seen].count("turn_ended") == turns:
                    break
            await slow.aclose()

        positions = [update.position for update in seen if update.position]
        assert positions == sorted(set(positions))
        said = [update.data["text"] for update in seen if update.type == "message" and update.data["role"] == "user"]
        assert said == ["0", "1", "2", "3", "4"]

    async def test_an_id_that_no_update_has_had_yet_is_refused(self, database: Database) -> None:
        """Nobody waits for ever behind an update that was never shown. The ids of the newest update, and of a snapshot,
        which lies before the next step, are taken."""
        async with Engine.open(database, model=ScriptedLlm([reply("One."), reply("Two.")])) as engine:
            conversation = await engine.create()
            await conversation.send("First")
            shown = Watcher(conversation, after="0.0")
            newest = (await shown.until("turn_ended")).id
            snapshot = (await anext(conversation.updates())).id

            for unseen in ("99999.1", f"{conversation.state.book.seq + 1}.1"):
                with pytest.raises(InvalidInput) as refused:
                    await anext(conversation.updates(unseen))
                assert refused.value.sentence == f"This conversation has had no update {unseen} yet."

            later = [Watcher(conversation, after=seen) for seen in (newest, snapshot)]
            turn = await conversation.send("Second")
            for watcher in later:
                await watcher.until("turn_ended")
                await watcher.stop()
            await shown.stop()

        for watcher in later:
            stored = [update for update in watcher.updates if update.id]
            assert {update.data.get("turn", turn.number) for update in stored} == {turn.number}
            assert stored[0].type == "message"


class TestTools:
    """What became of each call."""

    async def test_a_call_shows_its_arguments_and_then_its_result_or_its_error(self, database: Database) -> None:
        """The texts are those that the model reads."""
        llm = ScriptedLlm([calls(call("unknown", x=1), call("echo", text="hé"), call("fails")), reply("Done.")])
        async with Engine.open(database, model=llm, tools=[echo, fails]) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await conversation.send("Go")
            await watcher.until("turn_ended")
            await watcher.stop()
            said = {one.tool_call_id: one.text for one in await conversation.transcript() if one.role == "tool"}

        tools = [update for update in watcher.updates if isinstance(update, ToolUpdate)]
        assert [(one.name, one.status, one.arguments) for one in tools] == [
            ("unknown", "failed", {"x": 1}),
            ("echo", "running", {"text": "hé"}),
            ("echo", "completed", {"text": "hé"}),
            ("fails", "running", {}),
            ("fails", "failed", {}),
        ]
        assert [(one.result, one.error) for one in tools] == [
            (None, said[tools[0].call_id]),
            (None, None),
            ("hé", None),
            (None, None),
            (None, said[tools[4].call_id]),
        ]
        assert {(one.turn, one.raw_arguments) for one in tools} == {(1, None)}
        assert tools[2].data == {
            "call_id": tools[2].call_id,
            "name": "echo",
            "speaks": False,
            "status": "completed",
            "turn": 1,
            "arguments": {"text": "hé"},
            "result": "hé",
        }

    @pytest.mark.parametrize("written", ["{not json", "[1]", "null"])
    async def test_arguments_that_are_no_object_are_shown_as_they_were_written(
        self, database: Database, written: str
    ) -> None:
        """Beside an empty object, in updates and in snapshots."""
        broken = ModelAnswer(content="", tool_calls=(ModelCall("call_1", "echo", written),))
        async with Engine.open(database, model=ScriptedLlm([broken, reply("Oh.")]), tools=[echo]) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await conversation.send("Go")
            await watcher.until("turn_ended")
            await watcher.stop()
            snapshot = await anext(conversation.updates())

        (shown,) = [update for update in watcher.updates if isinstance(update, ToolUpdate)]
        assert (shown.status, shown.arguments, shown.raw_arguments) == ("failed", {}, written)
        (made,) = snapshot.data["transcript"][1]["tool_calls"]
        assert (made["arguments"], made["raw_arguments"]) == ({}, written)

    async def test_a_call_to_approve_shows_its_arguments_as_they_are_then_edited(self, database: Database) -> None:
        """In the state that waits, in the snapshot, and, when it runs, as the person changed them."""
        llm = ScriptedLlm([call("send_money", amount=5), reply("Done.")])
        async with Engine.open(database, model=llm, tools=[send_money]) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            turn = await conversation.send("Send")
            snapshot = await anext(conversation.updates())
            await conversation.approve(turn.call_id or "", True, arguments={"amount": 4})
            await watcher.until("turn_ended")
            await watcher.stop()

        assert isinstance(snapshot, SnapshotUpdate)
        waits = snapshot.state
        assert (waits.type, waits.call_id, waits.name, waits.arguments) == (
            "awaiting_approval", turn.call_id, "send_money", {"amount": 5},
        )  # fmt: skip
        assert snapshot.data["state"]["data"]["arguments"] == {"amount": 5}
        assert snapshot.data["transcript"][1]["tool_calls"][0]["arguments"] == {"amount": 5}
        tools = [update for update in watcher.updates if isinstance(update, ToolUpdate)]
        assert [one.arguments for one in tools] == [{"amount": 4}, {"amount": 4}]


class TestIds:
    """What a client needs to send requests about what it is shown."""

    async def test_messages_that_wait_are_in_the_state(self, database: Database) -> None:
        """A state_change tells each change of the inbox, under which nothing else changes."""
        gate = Gate()
        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "Done."))) as engine:
            conversation = await engine.create(policy=Policy(when_busy="queue"))
            watcher = Watcher(conversation)
            await conversation.send("One", wait=False)
            await gate.arrived.wait()
            await conversation.send("Two", message_id="m2", wait=False)
            await conversation.send("Three", message_id="m3", wait=False)
            await conversation.withdraw("m2")
            snapshot = await anext(conversation.updates())
            gate.opened.set()
            await watcher.until("turn_ended", 2)
            await watcher.stop()

        states = [update.state for update in watcher.updates if isinstance(update, StateChangeUpdate)]
        assert [(state.type, state.turn, state.inbox) for state in states] == [
            ("llm_requesting", 1, ()),
            ("llm_requesting", 1, ("m2",)),
            ("llm_requesting", 1, ("m2", "m3")),
            ("llm_requesting", 1, ("m3",)),
            ("llm_requesting", 2, ()),
            ("idle", 2, ()),
        ]
        assert len({state.request for state in states[:4]}) == 1
        assert snapshot.data["state"]["data"]["inbox"] == ["m3"]

    async def test_the_end_of_a_turn_is_told_like_the_turn(self, database: Database) -> None:
        """`turn_ended` has what `send` returns, with the limit that ended the turn."""
        llm = ScriptedLlm([call("unknown"), reply("Hello.")])
        limited = Policy(limits=Limits(requests=1, last="plain"))
        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create(policy=limited)
            watcher = Watcher(conversation)
            turns = [await conversation.send("One"), await conversation.send("Two")]
            await watcher.until("turn_ended", 2)
            await watcher.stop()

        ended = [update for update in watcher.updates if isinstance(update, TurnEndedUpdate)]
        for update, turn in zip(ended, turns, strict=True):
            assert (update.turn, update.is_complete) == (turn.number, turn.status == "completed")
            assert [getattr(update, name) for name in TOLD] == [getattr(turn, name) for name in TOLD]
        assert {"cached_tokens", "reasoning_tokens"} <= ended[0].data["usage"].keys()


class TestQuestions:
    """What a turn asks."""

    def test_a_question_without_options_has_an_empty_list_of_them(self) -> None:
        """A client need not ask whether the key is there."""
        assert question_data(UserQuestion(question="Which?")) == {"question": "Which?", "options": []}


class TestLiveData:
    """What a performer of an application may report."""

    @pytest.mark.parametrize(
        "data",
        [
            {},
            {"text": "a"},
            {"text": 5, "kind": "text"},
            {"text": "a", "kind": "loud"},
            {"text": "a", "kind": "text", "mood": "glad"},
            {"text": "a", "kind": "text", "turn": 7, "attempts": 1},
        ],
    )
    def test_other_data_than_that_of_the_kind_is_refused(self, data: dict[str, Any]) -> None:
        """In one sentence, so that the performer fails where it went wrong."""
        with pytest.raises(InvalidInput):
            live_update("token", data, 1, Idle())

    def test_a_tool_may_report_anything(self) -> None:
        """A number is shown as text, and half a character is replaced."""
        shown = [live_update("tool_progress", {"call_id": "c", "text": text}, 1, Idle()).data for text in (5, "\ud83d")]

        assert [data["text"] for data in shown] == ["5", "\ufffd"]
