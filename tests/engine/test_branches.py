"""A conversation goes back: a message is edited, an answer is made again, and what was left returns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnwise import Conversation, Engine, EngineClosed, ModelSettings, Policy, Refused, SnapshotUpdate, Usage, tool
from turnwise.states import AgentMessage
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, failure, reply

from ..support.databases import BOTH_STORES, Database
from ..support.engine_scenarios import QUESTION, Gate, Watcher, answers_after, assert_paired, until

pytestmark = BOTH_STORES


def answering() -> FunctionLlm:
    """A model that says what it was told last, and how many messages of users it was shown."""
    return FunctionLlm(lambda request: f"{words(request)[-1]} ({len(words(request))})")


def words(request: Any) -> list[str]:
    """What users say in a request."""
    return [message["content"] for message in request.messages if message["role"] == "user"]


async def shown(conversation: Conversation) -> list[str]:
    """The texts of the transcript, which updates show alike."""
    said = [message.text for message in await conversation.transcript()]
    updates = conversation.updates()
    snapshot = await anext(updates)
    await updates.aclose()
    assert isinstance(snapshot, SnapshotUpdate)
    assert [message.text for message in snapshot.transcript] == said
    return said


async def refusal(request: Any) -> str:
    """The code with which this is refused."""
    with pytest.raises(Refused) as refused:
        await request
    assert "\n" not in refused.value.sentence
    return refused.value.code


class TestEdit:
    """`edit` hides a message and all that followed it, and says something else in its place."""

    async def test_the_model_is_never_shown_what_is_hidden(self, database: Database) -> None:
        """It is asked as if the new text had been said in the first place; the number of the turn goes on."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            await conversation.send("a", message_id="m1")
            await conversation.send("b", message_id="m2")
            await conversation.send("c")

            turn = await conversation.edit("m2", "B")

            assert (turn.number, turn.reply, turn.status) == (4, "B (2)", "completed")
            assert await shown(conversation) == ["a", "a (1)", "B", "B (2)"]
            assert [one.number for one in await conversation.turns()] == [1, 4]
            assert [one.number for one in await conversation.turns(hidden=True)] == [1, 2, 3, 4]
            assert (await conversation.replay()).divergence is None

    async def test_the_first_message_and_then_the_new_one(self, database: Database) -> None:
        """The edited message has the id of the request, and is edited by it."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            await conversation.send("a", message_id="m1")
            await conversation.edit("m1", "A", request_id="m2")

            turn = await conversation.edit("m2", "AA")

            assert turn.reply == "AA (1)"
            assert await shown(conversation) == ["AA", "AA (1)"]

    async def test_sent_again_it_is_made_once(self, database: Database) -> None:
        """The same turn comes back, also after a restart and once the message is hidden; another edit under the id is
        refused."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            await conversation.send("a", message_id="m1")
            first = await conversation.edit("m1", "A", request_id="e")
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.get(conversation.id)

            again = await conversation.edit("m1", "A", request_id="e")
            other = await refusal(conversation.edit("m1", "B", request_id="e"))

            assert (again.number, again.reply) == (first.number, first.reply) == (2, "A (1)")
            assert other == "event_id_reused"
            assert len(await conversation.events()) == 5

    async def test_a_closed_engine_says_so(self, database: Database) -> None:
        """Also of a request under an id, which might have been made before."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            await conversation.send("a", message_id="m1")

        with pytest.raises(EngineClosed):
            await conversation.edit("m1", "A", request_id="e")
        with pytest.raises(EngineClosed):
            await conversation.regenerate(request_id="r")

    async def test_of_messages_that_began_a_turn_together(self, database: Database) -> None:
        """Those before it in the turn are answered with it; those behind it are hidden with the turn."""
        gate = Gate()
        answers = [answers_after(gate, "One."), lambda request: "All.", lambda request: " ".join(words(request))]
        model = FunctionLlm(lambda request: answers.pop(0)(request))
        async with Engine.open(database, model=model, policy=Policy(when_busy="queue")) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("a"))
            await gate.arrived.wait()
            for text in "bcd":
                await conversation.send(text, message_id=text, wait=False)
            gate.opened.set()
            await first
            await conversation.wait()

            turn = await conversation.edit("c", "C")

            assert turn.reply == "a b\n\nC"
            assert await shown(conversation) == ["a", "One.", "b", "C", "a b\n\nC"]

    async def test_files_stay_unless_others_are_given(self, database: Database) -> None:
        """The words are edited, and not what was shown with them."""
        picture = "https://example.com/one.png"
        async with Engine.open(database, model=answering_anything()) as engine:
            conversation = await engine.create()
            await conversation.send("What is this?", files=[picture], message_id="m1")

            await conversation.edit("m1", "And this?", request_id="m2")
            (kept,) = [m.files for m in await conversation.transcript() if m.role == "user"]
            await conversation.edit("m2", "And now?", files=[])
            (left,) = [m.files for m in await conversation.transcript() if m.role == "user"]

            assert [one.url for one in kept] == [picture]
            assert left == ()

    async def test_what_cannot_be_edited_is_refused(self, database: Database) -> None:
        """A message that nobody sent, one of the model's, one that is hidden: in one sentence, and nothing happens."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            await conversation.send("a", message_id="m1")
            await conversation.send("b", message_id="m2")
            await conversation.edit("m1", "A")
            steps = len(await conversation.events())

            codes = [await refusal(conversation.edit(message_id, "x")) for message_id in ("none", "", "m1", "m2")]

            assert codes == ["unknown_message", "unknown_message", "hidden", "hidden"]
            assert len(await conversation.events()) == steps


def answering_anything() -> FunctionLlm:
    """A model that does not look at what it is shown."""
    return FunctionLlm(lambda request: "Yes.")


class TestRegenerate:
    """`regenerate` has the messages of the newest turn answered again."""

    async def test_the_message_stands_there_once(self, database: Database) -> None:
        """The first answer is hidden; a second one takes its place, as often as it is asked for."""
        model = ScriptedLlm([reply("One."), reply("Two."), reply("Three."), reply("Four.")])
        async with Engine.open(database, model=model) as engine:
            conversation = await engine.create()
            await conversation.send("a")
            await conversation.send("b", message_id="m")

            turns = [await conversation.regenerate(), await conversation.regenerate(turn=3)]

            assert [(turn.number, turn.reply) for turn in turns] == [(3, "Three."), (4, "Four.")]
            assert await shown(conversation) == ["a", "One.", "b", "Four."]
            assert (await conversation.send("b", message_id="m")).number == 4
            assert words(model.requests[-1]) == ["a", "b"]

    async def test_a_turn_that_failed_and_was_tried_again(self, database: Database) -> None:
        """All of its tries are hidden, and its message is answered."""
        model = ScriptedLlm([failure("authentication"), failure("authentication"), reply("Now.")])
        async with Engine.open(database, model=model) as engine:
            conversation = await engine.create()
            await conversation.send("a")
            await conversation.retry()

            turn = await conversation.regenerate()

            assert (turn.number, turn.reply) == (3, "Now.")
            assert await shown(conversation) == ["a", "Now."]

    async def test_a_late_click_and_nothing_to_answer_are_refused(self, database: Database) -> None:
        """Only the turn that its user saw is made again."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            empty = await refusal(conversation.regenerate())
            await conversation.send("a")
            await conversation.send("b")

            late = await refusal(conversation.regenerate(turn=1))

            assert (empty, late) == ("nothing_to_regenerate", "moved_on")
            assert await shown(conversation) == ["a", "a (1)", "b", "b (2)"]


class TestInTheMiddleOfATurn:
    """What is under way is stopped as by a cancel, in the same request."""

    async def test_while_the_model_answers(self, database: Database) -> None:
        """Whoever waits for the turn gets it as cancelled."""
        gate = Gate()
        answers = [answers_after(gate, "Late."), lambda request: words(request)[-1]]
        async with Engine.open(database, model=FunctionLlm(lambda request: answers.pop(0)(request))) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("a", message_id="m"))
            await gate.arrived.wait()

            turn = await conversation.edit("m", "A")

            assert ((await first).status, turn.reply) == ("cancelled", "A")
            assert await shown(conversation) == ["A", "A"]

    async def test_while_a_tool_runs(self, database: Database) -> None:
        """Its call gets its result, which is hidden with the turn, and returns with it."""
        gate = Gate()

        @tool(crash="pure")
        async def look() -> str:
            """Look around."""
            await gate()
            return "Nothing."

        model = ScriptedLlm([call("look"), reply("Again.")])
        async with Engine.open(database, model=model, tools=[look]) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("a"))
            await gate.arrived.wait()

            turn = await conversation.regenerate()
            (left,) = await conversation.branches()
            await conversation.switch(left)

            assert (turn.reply, (await first).reply) == ("Again.", "Again.")
            assert await shown(conversation) == ["a", "", "Cancelled by user"]
            assert_paired(await conversation.transcript())

    async def test_while_a_person_is_asked(self, database: Database) -> None:
        """The question is withdrawn, and a late answer to it is refused."""
        model = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("As you like.")])
        async with Engine.open(database, model=model, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            asked = await conversation.send("a", message_id="m")

            turn = await conversation.edit("m", "Don't ask")

            assert turn.reply == "As you like."
            assert await refusal(conversation.answer({"When?": "6:30 PM"}, call_id=asked.call_id)) == "wrong_state"

    async def test_what_was_queued_is_answered_behind_it(self, database: Database) -> None:
        """The inbox belongs to no branch."""
        gate = Gate()
        answers = [answers_after(gate, "Late."), *[lambda request: f"To {words(request)[-1]}"] * 2]
        async with Engine.open(database, model=FunctionLlm(lambda request: answers.pop(0)(request))) as engine:
            conversation = await engine.create()
            await conversation.send("a", message_id="m", wait=False)
            await gate.arrived.wait()
            queued = asyncio.ensure_future(conversation.send("b", when_busy="queue"))
            await until(lambda: bool(getattr(conversation.state, "inbox", ())))

            await conversation.edit("m", "A")

            assert (await queued).reply == "To b"
            assert await shown(conversation) == ["A", "To A", "b", "To b"]


class TestRewindAndSwitch:
    """`rewind` hides what follows, `branches` lists what was left, and `switch` returns to it."""

    async def test_to_a_turn_a_message_and_the_beginning(self, database: Database) -> None:
        """A turn stays, a message is hidden with what follows it."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            for text in "abc":
                await conversation.send(text, message_id=text)

            await conversation.rewind(to=2)
            behind_two = await shown(conversation)
            await conversation.rewind(to="b")
            before_b = await shown(conversation)
            await conversation.rewind(to=0)

            assert behind_two == ["a", "a (1)", "b", "b (2)"]
            assert before_b == ["a", "a (1)"]
            assert await shown(conversation) == []
            assert conversation.state.type == "idle"

    async def test_nothing_is_lost(self, database: Database) -> None:
        """Every branch that was left is listed, and returns as it was; so does the one that is left for it."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            for text in "abc":
                await conversation.send(text, message_id=text)
            await conversation.edit("b", "B")
            await conversation.rewind(to=1)
            await conversation.send("d")

            listed = await conversation.branches()
            seen = {}
            for branch in listed:
                await conversation.switch(branch)
                seen[branch.number] = await shown(conversation)
            back = await conversation.branches()

            assert [(one.number, one.turns, one.hidden, one.text) for one in listed] == [
                (3, (1, 2, 3), (2, 3), "b"),
                (4, (1, 4), (4,), "B"),
            ]
            assert seen == {
                3: ["a", "a (1)", "b", "b (2)", "c", "c (3)"],
                4: ["a", "a (1)", "B", "B (2)"],
            }
            assert [one.number for one in back] == [3, 5]
            assert (await conversation.replay()).divergence is None

    async def test_what_there_is_not_is_refused(self, database: Database) -> None:
        """A turn, a message or a branch that there is not, or that is hidden; to the newest turn nothing happens."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            for text in "abc":
                await conversation.send(text, message_id=text)
            await conversation.rewind(to=1)
            steps = len(await conversation.events())

            codes = [await refusal(conversation.rewind(to=to)) for to in (9, 2, "none", "c")]
            codes += [await refusal(conversation.switch(number)) for number in (1, 2, 9)]
            await conversation.rewind(to=1)

            assert codes == ["unknown_turn", "hidden", "unknown_message", "hidden", *["unknown_branch"] * 3]
            assert len(await conversation.events()) == steps

    async def test_of_two_at_the_same_time_each_finds_where_the_other_went(self, database: Database) -> None:
        """A request that was made for the branch before is made anew, and refused if what it names is hidden by now."""
        async with Engine.open(database, model=answering()) as engine:
            conversation, other = await engine.create(), None
            for text in "abc":
                await conversation.send(text, message_id=text)
            other = await engine.get(conversation.id)

            done = await asyncio.gather(conversation.rewind(to=2), other.rewind(to=1), return_exceptions=True)

            assert [one.code for one in done if isinstance(one, Refused)] in ([], ["hidden"])
            assert await shown(conversation) == ["a", "a (1)"]

    async def test_a_copy_has_the_branches(self, database: Database) -> None:
        """A fork of a conversation that went back can go to what was left, too; at a step before, it never went."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            for text in "abc":
                await conversation.send(text, message_id=text)
            before = conversation.state.book.seq
            await conversation.rewind(to=1)

            copy, earlier = await conversation.fork(), await conversation.fork(before)
            hidden = await shown(copy)
            await copy.switch(3)

            assert hidden == ["a", "a (1)"]
            assert await shown(copy) == await shown(earlier) == ["a", "a (1)", "b", "b (2)", "c", "c (3)"]
            assert await earlier.branches() == ()

    async def test_what_everything_has_cost_counts(self, database: Database) -> None:
        """Also what is hidden."""
        model = ScriptedLlm(
            [
                reply("One.", usage=Usage(input_tokens=10, output_tokens=5)),
                reply("Two.", usage=Usage(input_tokens=10, output_tokens=5)),
            ]
        )
        async with Engine.open(database, model=model) as engine:
            conversation = await engine.create()
            await conversation.send("a")
            await conversation.regenerate()

            assert (await conversation.usage()).tokens == 30


class TestWhatWatchersSee:
    """An update says what to show in place of everything."""

    async def test_a_rewind(self, database: Database) -> None:
        """Then what is new follows as always; whoever comes later is told the same."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await conversation.send("a", message_id="a")
            await conversation.send("b", message_id="b")
            await conversation.edit("b", "B")
            rewound = await watcher.until("rewound")
            await watcher.until("turn_ended", 3)
            await watcher.stop()

            stored = [update for update in watcher.updates if update.id is not None][1:]
            again = []
            async for update in conversation.updates(after="1.0"):
                again.append(update)
                if update == stored[-1]:
                    break
            place = [update.type for update in stored].index("rewound")
            assert (rewound.turn, [message.text for message in rewound.transcript]) == (1, ["a", "a (1)"])
            assert [one.type for one in stored[place : place + 3]] == ["rewound", "message", "state_change"]
            assert [one for one in again if one.id is not None] == stored


def mail(conversation: Conversation, text: str, **fields: Any) -> AgentMessage:
    """A message of another agent."""
    return AgentMessage(event_id=text, at=conversation.now(), origin="helper", text=text, **fields)


class TestMailOfAgents:
    """What other agents wrote is neither lost nor told twice."""

    async def test_silent_mail_that_no_model_has_read_goes_along(self, database: Database) -> None:
        """The next turn reads it, in whatever branch."""
        async with Engine.open(database, model=answering()) as engine:
            conversation = await engine.create()
            await conversation.send("a", message_id="a")
            await conversation.dispatch(mail(conversation, "The shop has closed.", silent=True))

            await conversation.edit("a", "A")

            assert [one.text for one in await conversation.transcript()][:2] == ["The shop has closed.", "A"]

    async def test_a_message_for_the_user_is_owed_in_whatever_branch(self, database: Database) -> None:
        """It was not passed on, because its turn was stopped: the next turn passes it on."""
        gate = Gate()
        answers = [lambda request: "Hello.", answers_after(gate, "Late."), lambda request: "Told."]
        async with Engine.open(database, model=FunctionLlm(lambda request: answers.pop(0)(request))) as engine:
            conversation = await engine.create()
            await conversation.send("a", message_id="a")
            await conversation.dispatch(mail(conversation, "Your taxi is here.", audience="user"))
            await gate.arrived.wait()

            turn = await conversation.edit("a", "A")

            assert turn.deliveries == ("Told.",)
            assert conversation.state.book.owed == ()


class TestSettingsOfAMessage:
    """What was sent with a message goes with it."""

    async def test_a_message_that_is_answered_again_keeps_them(self, database: Database) -> None:
        """And so does one that is edited."""
        model = FunctionLlm(lambda request: f"{request.settings.temperature}")
        async with Engine.open(database, model=model) as engine:
            conversation = await engine.create()
            await conversation.send("a", message_id="a", settings=ModelSettings(temperature=0.5))

            again = await conversation.regenerate()
            edited = await conversation.edit("a", "A")

            assert (again.reply, edited.reply) == ("0.5", "0.5")
