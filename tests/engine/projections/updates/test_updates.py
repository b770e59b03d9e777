"""What watchers of a conversation see."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise import Engine, InvalidInput, Policy, Settings, presets, tool
from turnwise.testing.scripted import FunctionLlm, ScriptedLlm, call, calls, reply

from ....support.engine_scenarios import QUESTION, Watcher, until


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


class TestUpdates:
    """In order, each once, nothing lost."""

    async def test_a_turn_is_seen_in_order(self, database: Path) -> None:
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
        self, database: Path, rules: Policy, kind: str
    ) -> None:
        """B1: whoever does not ask for thoughts never sees it, not even while it comes in."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello there.")])) as engine:
            conversation = await engine.create(policy=rules)
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.send("Hi")
            await watcher.until("turn_ended")
            await watcher.stop()

        assert conversation.policy.text == rules.text
        assert {update.data["kind"] for update in watcher.updates if update.type == "token"} == {kind}

    async def test_a_question_is_published_once(self, database: Path) -> None:
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

    async def test_a_call_that_a_person_did_not_want_is_told_apart_from_one_that_failed(self, database: Path) -> None:
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

    async def test_a_late_watcher_gets_a_snapshot_and_then_only_what_is_new(self, database: Path) -> None:
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

    async def test_a_snapshot_tells_what_the_user_received(self, database: Path) -> None:
        """S2, J13: of each message what was handed over, as people read it."""
        policy = Policy(text="fallback", marker="TOOL")
        llm = ScriptedLlm([reply("Hm."), reply("TOOL: look\nOne.")])
        async with Engine.open(database, model=llm, policy=policy) as engine:
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

    async def test_a_watcher_resumes_behind_what_it_saw(self, database: Path) -> None:
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

    async def test_a_slow_watcher_loses_nothing_and_holds_nobody_up(self, database: Path) -> None:
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

    async def test_an_id_that_is_none_is_refused(self, database: Path) -> None:
        """Bad input gets one sentence."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()

            with pytest.raises(InvalidInput):
                await anext(conversation.updates("yesterday"))

    async def test_an_id_that_no_update_has_had_yet_is_refused(self, database: Path) -> None:
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
