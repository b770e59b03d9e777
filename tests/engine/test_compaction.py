"""Condensing with litellm over a real socket: what outgrows the window becomes a summary, and nothing is lost.

The server stands for a provider; what it counts as tokens decides when a history is condensed, and the requests that it
saw tell what was condensed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from turnwise import (
    CompactionFailed,
    Conversation,
    Engine,
    EngineClosed,
    LiteLlm,
    Policy,
    Refused,
    Retry,
    UnknownConversation,
    tool,
)
from turnwise.effects.model.performers.summaries import NOTHING_YET
from turnwise.effects.model.rehearsal import RehearsalLlm
from turnwise.states import HistoryCompacted

from ..support.databases import BOTH_STORES, Database
from ..support.engine_scenarios import Watcher, assert_paired, results
from ..support.servers.openai_server import Body, OpenAiServer, Reply, Script, calls, fails, hangs, is_too_long, says

pytestmark = BOTH_STORES

WINDOW = 10_000
FULL = (8_000, 1_000)
"""Tokens in and out: at the threshold of 90 %, exactly."""

ALMOST = (8_000, 999)
SUMMARY = "The user looks for a quiet place in Kyoto; Kikunoi is booked for 6:30."
QUICK = Policy(retry=Retry(base=0.01))
LOOK = ("find_table", {"cuisine": "Sushi"})


@tool(crash="pure")
async def find_table(cuisine: str) -> str:
    """Look for a free table."""
    return f"{cuisine} at 6:30 PM"


@asynccontextmanager
async def talk(
    database: Database | str, script: Script, *, policy: Policy = QUICK, window: int | None = WINDOW
) -> AsyncIterator[tuple[Conversation, OpenAiServer]]:
    """A new conversation with a model that the script plays."""
    async with OpenAiServer(script) as server, engine_at(server, database, policy, window) as engine:
        yield await engine.create(system="You book tables."), server


def engine_at(
    server: OpenAiServer, database: Database | str, policy: Policy = QUICK, window: int | None = WINDOW
) -> Engine:
    """An engine whose model is the server."""
    model = LiteLlm("openai/test", window=window, api_base=server.url, api_key="test")
    return Engine.open(database, model=model, tools=[find_table], policy=policy)


# --- what the server saw


def condenses(body: Body) -> bool:
    """Whether this is a request to condense: the only one that goes out without the system prompt."""
    return [message["role"] for message in body["messages"]] == ["user"] and "<record>" in text_of(body)


def text_of(body: Body) -> str:
    """Everything that a request says, in order."""
    return "\n".join(_content(message.get("content")) for message in body["messages"])


def _content(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def kinds(requests: Iterable[Body]) -> list[str]:
    """The requests, in order, by what they are for."""
    return ["condense" if condenses(body) else "answer" for body in requests]


def assert_stand_in_order(text: str, *pieces: str) -> None:
    """Each of these is said once, in this order."""
    assert [text.count(piece) for piece in pieces] == [1] * len(pieces)
    assert sorted(pieces, key=text.index) == list(pieces)


async def assert_whole(conversation: Conversation) -> None:
    """Calls and results are paired, and the log replays."""
    assert_paired(await conversation.transcript())
    assert (await conversation.replay()).divergence is None


def answered_by(answer: Reply, summary: Reply) -> Script:
    """Requests to condense get the summary, all others the answer."""
    return lambda body: summary if condenses(body) else answer


class TestInTheMiddleOfATurn:
    """P21: tools are wanted, and there is no room for what they would bring."""

    async def test_one_token_below_the_threshold_tools_run(self, database: Database) -> None:
        """P21: at 8,999 of 10,000 tokens nothing is condensed."""
        async with talk(database, [calls(LOOK, tokens=ALMOST), says("Done.")]) as (conversation, server):
            turn = await conversation.send("Somewhere quiet")

            assert turn.reply == "Done."
            assert results(await conversation.transcript()) == ["Sushi at 6:30 PM"]
            assert kinds(server.requests) == ["answer", "answer"]

    async def test_at_the_threshold_the_history_is_condensed_first(self, database: Database) -> None:
        """P21: no call runs, the next request condenses, the one after it has the summary in front, and the turn ends
        with an answer. What the model wanted, the message and what is said later stand as they were."""
        script = [
            says("Which town?"),
            calls(LOOK, text="Let me look.", tokens=FULL),
            says(SUMMARY, tokens=(700, 30)),
            calls(LOOK),
            says("Booked."),
        ]
        async with talk(database, script) as (conversation, server):
            await conversation.send("Somewhere quiet")
            turn = await conversation.send("In Kyoto")

            first, second = results(await conversation.transcript())
            record, resumed = text_of(server.requests[2]), text_of(server.requests[3])
            assert (turn.status, turn.reply) == ("completed", "Booked.")
            assert first.startswith("Not run: the conversation had to be condensed first.")
            assert second == "Sushi at 6:30 PM"
            assert kinds(server.requests) == ["answer", "answer", "condense", "answer", "answer"]
            assert "tools" not in server.requests[2]
            assert_stand_in_order(record, "Somewhere quiet", "Which town?", "In Kyoto")
            assert "Let me look." not in record
            assert_stand_in_order(resumed, "You book tables.", SUMMARY, "In Kyoto", "Let me look.", "Not run:")
            assert "Somewhere quiet" not in resumed
            assert turn.usage.tokens == 9_000 + 730 + 15 + 15
            await assert_whole(conversation)

    async def test_the_tools_of_this_turn_are_condensed_and_its_message_is_not(self, database: Database) -> None:
        """P21: a turn that filled the window all by itself goes on from its message and the summary."""
        script = [calls(LOOK), calls(LOOK, tokens=FULL), says(SUMMARY), says("Booked.")]
        async with talk(database, script) as (conversation, server):
            turn = await conversation.send("Somewhere quiet")

            record, resumed = text_of(server.requests[2]), text_of(server.requests[3])
            assert turn.reply == "Booked."
            assert_stand_in_order(record, "User (this message is kept", "Somewhere quiet", "Result of find_table:")
            assert_stand_in_order(resumed, SUMMARY, "Somewhere quiet", "Not run:")
            assert "Sushi at 6:30 PM" not in resumed
            await assert_whole(conversation)

    async def test_watchers_see_it(self, database: Database) -> None:
        """One state_change to compacting with its attempt, after the results; none of the summary's tokens."""
        script = [says("Which town?"), calls(LOOK, tokens=FULL), says(SUMMARY), says("Booked.")]
        async with talk(database, script) as (conversation, _):
            watcher = Watcher(conversation)
            await conversation.send("Somewhere quiet")
            await conversation.send("In Kyoto")
            await watcher.until("turn_ended", 2)
            await watcher.stop()

            changes = [update.data for update in watcher.updates if update.type == "state_change"]
            order = [update.type for update in watcher.updates if update.type in ("tool", "state_change")]
            assert [change["type"] for change in changes][-4:] == [
                "llm_requesting",
                "compacting",
                "llm_requesting",
                "idle",
            ]
            assert changes[-3]["data"] == {"turn": 2, "attempt": 1}
            assert order[-4:] == ["tool", "state_change", "state_change", "state_change"]
            assert SUMMARY not in "".join(u.data["text"] for u in watcher.updates if u.type == "token")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "passing",
        [fails(500), fails(429), says(""), says("", thinking="Hm."), says(" \n"), calls(LOOK)],
        ids=["500", "429", "empty", "thinking only", "blank", "calls"],
    )
    async def test_what_passes_is_tried_again(self, database: Database, passing: Reply) -> None:
        """P21: two failures that pass by themselves, an answer without a summary among them, then one."""
        script = [says("Which town?"), calls(LOOK, tokens=FULL), passing, passing, says(SUMMARY), says("Booked.")]
        async with talk(database, script) as (conversation, server):
            await conversation.send("Somewhere quiet")
            turn = await conversation.send("In Kyoto")

            assert turn.reply == "Booked."
            assert kinds(server.requests[2:]) == ["condense"] * 3 + ["answer"]
            await assert_whole(conversation)

    async def test_after_three_failures_the_turn_fails_and_nothing_is_lost(self, database: Database) -> None:
        """P21: Failed with a sentence; the next message condenses the whole history and is answered."""
        script = [
            says("Which town?"),
            calls(LOOK, tokens=FULL),
            *[fails(500)] * 3,
            says(SUMMARY),
            says("Booked."),
        ]
        async with talk(database, script) as (conversation, server):
            await conversation.send("Somewhere quiet")
            failed = await conversation.send("In Kyoto")
            state = conversation.state.type
            turn = await conversation.send("Go on")

            assert (failed.status, state) == ("failed", "failed")
            assert (
                failed.failure == "Condensing the conversation failed: The model's provider reported an internal error."
            )
            assert turn.reply == "Booked."
            assert_stand_in_order(text_of(server.requests[5]), "Somewhere quiet", "In Kyoto", "Go on")
            assert_stand_in_order(text_of(server.requests[6]), SUMMARY, "Go on")
            assert [m.text for m in await conversation.transcript() if m.role == "user"] == [
                "Somewhere quiet",
                "In Kyoto",
                "Go on",
            ]
            await assert_whole(conversation)

    async def test_by_policy_it_ends_with_a_reply(self, database: Database) -> None:
        """P21: with on_failure="reply" the turn ends with a reply that says why, and the conversation goes on."""
        script = [says("Which town?"), calls(LOOK, tokens=FULL), *[fails(500)] * 3, says(SUMMARY), says("Booked.")]
        policy = Policy(retry=Retry(base=0.01), on_failure="reply")
        async with talk(database, script, policy=policy) as (conversation, _):
            await conversation.send("Somewhere quiet")
            failed = await conversation.send("In Kyoto")
            state = conversation.state.type
            turn = await conversation.send("Go on")

            assert (failed.status, state) == ("failed", "idle")
            assert failed.reply.startswith("I could not answer: Condensing the conversation failed:")
            assert turn.reply == "Booked."
            await assert_whole(conversation)

    async def test_what_cannot_pass_fails_at_once(self, database: Database) -> None:
        """P21: a refused key is no reason to ask three times."""
        script = [says("Which town?"), calls(LOOK, tokens=FULL), fails(401)]
        async with talk(database, script) as (conversation, server):
            await conversation.send("Somewhere quiet")
            turn = await conversation.send("In Kyoto")

            assert turn.failure == (
                "Condensing the conversation failed: The model's provider refused the key or the account."
            )
            assert len(server.requests) == 3

    async def test_still_full_it_gives_up(self, database: Database) -> None:
        """P21: the request right after condensing finds the window full again: the turn fails with a sentence, its
        calls have results, and the next turn starts by condensing."""
        script = [
            says("Which town?"),
            calls(LOOK, tokens=FULL),
            says(SUMMARY),
            calls(LOOK, tokens=FULL),
            says(SUMMARY),
            says("Booked."),
        ]
        async with talk(database, script) as (conversation, server):
            await conversation.send("Somewhere quiet")
            failed = await conversation.send("In Kyoto")
            turn = await conversation.send("Go on")

            assert failed.failure == "The conversation does not fit into the model's window, even when it is condensed."
            assert kinds(server.requests) == ["answer", "answer", "condense", "answer", "condense", "answer"]
            assert turn.reply == "Booked."
            await assert_whole(conversation)

    async def test_a_message_that_fills_the_window_alone_is_told_so(self, database: Database) -> None:
        """P21: with nothing to condense no model is asked to; the turn fails at once."""
        async with talk(database, [calls(LOOK, tokens=FULL)]) as (conversation, server):
            turn = await conversation.send("A very long message")

            assert turn.failure == "The conversation does not fit into the model's window, even when it is condensed."
            assert len(server.requests) == 1
            await assert_whole(conversation)

    async def test_a_cancel_while_condensing_ends_the_turn(self, database: Database) -> None:
        """P8: the connection is closed, the history stays as it is, and the next turn condenses anew."""
        script = [says("Which town?"), calls(LOOK, tokens=FULL), hangs("The "), says(SUMMARY), says("Booked.")]
        async with talk(database, script) as (conversation, server):
            await conversation.send("Somewhere quiet")
            turn = asyncio.ensure_future(conversation.send("In Kyoto"))
            await server.asked(3)
            await conversation.cancel()
            await server.left()
            again = await conversation.send("Go on")

            assert (await turn).status == "cancelled"
            assert again.reply == "Booked."
            assert kinds(server.requests) == ["answer", "answer", "condense", "condense", "answer"]
            await assert_whole(conversation)

    async def test_a_retry_keeps_the_message_that_it_answers(self, database: Database) -> None:
        """The message began the turn that failed, and the retry has no other: it is not condensed away, however often
        it is tried."""
        script = [
            says("Which town?"),
            calls(LOOK, tokens=FULL),
            *[fails(401)] * 2,
            says(SUMMARY),
            says("Booked."),
        ]
        async with talk(database, script) as (conversation, server):
            await conversation.send("Somewhere quiet")
            await conversation.send("In Kyoto")
            await conversation.retry()
            turn = await conversation.retry()

            assert turn.reply == "Booked."
            assert_stand_in_order(text_of(server.requests[-1]), SUMMARY, "In Kyoto")
            assert "Let me look." not in text_of(server.requests[-1])
            await assert_whole(conversation)


class TestBetweenTurns:
    """P22: the window is full at the end of a turn."""

    async def test_the_text_is_delivered_and_condensing_waits(self, database: Database) -> None:
        """P22: nothing is condensed until the next message, and then before its first request."""
        async with talk(database, [says("In full.", tokens=FULL), says(SUMMARY), says("Booked.")]) as (
            conversation,
            server,
        ):
            first = await conversation.send("Somewhere quiet")
            before = len(server.requests)
            second = await conversation.send("In Kyoto")

            assert (first.reply, before) == ("In full.", 1)
            assert second.reply == "Booked."
            assert_stand_in_order(text_of(server.requests[1]), "Somewhere quiet", "In full.", "In Kyoto")
            assert_stand_in_order(text_of(server.requests[2]), SUMMARY, "In Kyoto")
            assert "In full." not in text_of(server.requests[2])
            assert second.usage.tokens == 30
            await assert_whole(conversation)

    async def test_a_summary_is_condensed_with_what_came_after_it(self, database: Database) -> None:
        """The second summary is made of the first and of what was said since; the first is gone then."""
        script = [
            says("One.", tokens=FULL),
            says(SUMMARY),
            says("Two.", tokens=FULL),
            says("All of it in short."),
            says("Three."),
        ]
        async with talk(database, script) as (conversation, server):
            for text in ("First", "Second", "Third"):
                await conversation.send(text)

            record, last = text_of(server.requests[3]), text_of(server.requests[4])
            assert_stand_in_order(record, "already condensed", SUMMARY, "Second", "Two.", "Third")
            assert "First" not in record
            assert_stand_in_order(last, "All of it in short.", "Third")
            assert SUMMARY not in last
            await assert_whole(conversation)

    async def test_without_a_known_window_nothing_is_condensed_ahead(self, database: Database) -> None:
        """P22: where nobody knows the window, only the provider can say that it is full."""
        script = [says("One.", tokens=(10**7, 0)), says("Two.")]
        async with talk(database, script, window=None) as (conversation, server):
            await conversation.send("First")
            await conversation.send("Second")

            assert kinds(server.requests) == ["answer", "answer"]

    async def test_a_restart_builds_the_same_request(self, database: Database) -> None:
        """An engine opened again on the file goes on from the summary: its request begins as the last one did."""
        script = [calls(LOOK), calls(LOOK, tokens=FULL), says(SUMMARY), says("Booked."), says("At 6:30.")]
        async with OpenAiServer(script) as server:
            async with engine_at(server, database) as engine:
                conversation = await engine.create(system="You book tables.")
                await conversation.send("Somewhere quiet")
            async with engine_at(server, database) as engine:
                conversation = await engine.get(conversation.id)
                turn = await conversation.send("When?")
                await assert_whole(conversation)

            before, after = server.requests[-2]["messages"], server.requests[-1]["messages"]
            assert turn.reply == "At 6:30."
            assert after[: len(before)] == before
            assert [_content(message["content"]) for message in after[len(before) :]] == ["Booked.", "When?"]


class TestAProviderThatSaysSo:
    """The provider refuses a request as too long, whatever is known of its window."""

    @pytest.mark.parametrize("window", [WINDOW, None])
    async def test_the_history_is_condensed_once_and_the_request_made_again(
        self, database: Database, window: int | None
    ) -> None:
        """P11, P21: not a failure of the turn, but a reason to condense."""
        script = [says("Which town?"), is_too_long(), says(SUMMARY), says("Booked.")]
        async with talk(database, script, window=window) as (conversation, server):
            await conversation.send("Somewhere quiet")
            turn = await conversation.send("In Kyoto")

            assert turn.reply == "Booked."
            assert kinds(server.requests) == ["answer", "answer", "condense", "answer"]
            assert_stand_in_order(text_of(server.requests[-1]), SUMMARY, "In Kyoto")
            await assert_whole(conversation)

    async def test_too_long_again_it_gives_up(self, database: Database) -> None:
        """P21: condensed as it is, it is still too long: the turn fails, with what the provider says in our words."""
        script = [says("Which town?"), is_too_long(), says(SUMMARY), is_too_long()]
        async with talk(database, script) as (conversation, server):
            await conversation.send("Somewhere quiet")
            turn = await conversation.send("In Kyoto")

            assert turn.failure == "The conversation is too long for the model."
            assert len(server.requests) == 4

    async def test_a_condensing_request_that_is_too_long_itself_is_made_shorter(self, database: Database) -> None:
        """Where nobody knows the window the first try may be too long; each further one has a quarter of the room."""
        long = "".join(f"{number} bottles of beer on the wall\n" for number in range(5_000))
        seen: list[int] = []

        def play(body: Body) -> Reply:
            if not condenses(body):
                return says("Booked.") if SUMMARY in text_of(body) else says(long)
            seen.append(len(text_of(body).encode()))
            return says(SUMMARY) if len(seen) == 3 else is_too_long()

        async with talk(database, play, window=None) as (conversation, _):
            await conversation.send("Sing")
            await conversation.compact()
            turn = await conversation.send("And now?")

            assert turn.reply == "Booked."
            assert seen[0] <= 100_000
            assert seen[1] <= 25_000
            assert seen[2] <= 6_250

    @pytest.mark.slow
    async def test_the_condensing_request_fits_the_window(self, database: Database) -> None:
        """However long the history is: of each text the beginning and the end are sent, and the newest messages."""
        long = "x" * 5_000

        def play(body: Body) -> Reply:
            return says(SUMMARY) if condenses(body) else says(f"begins {long} ends")

        async with talk(database, play, window=2_500) as (conversation, server):
            for number in range(30):
                await conversation.send(f"Message {number}")
            await conversation.compact()

            record = text_of(server.requests[-1])
            assert len(record.encode()) <= 4_000
            assert "older messages are left out here" in record
            assert "Message 29" in record
            assert "begins xxx" in record
            assert "xxx ends" in record


class TestByHand:
    """`Conversation.compact()`."""

    async def test_everything_is_condensed(self, database: Database) -> None:
        """It returns when the summary is stored; the next request holds it and the new message, no more; the transcript
        holds everything."""
        async with talk(database, [says("Which town?"), says(SUMMARY), says("Booked.")]) as (conversation, server):
            await conversation.send("Somewhere quiet")
            await conversation.compact()
            state = conversation.state.type
            turn = await conversation.send("In Kyoto")

            assert (state, turn.reply) == ("idle", "Booked.")
            assert_stand_in_order(text_of(server.requests[-1]), "You book tables.", SUMMARY, "In Kyoto")
            assert "Which town?" not in text_of(server.requests[-1])
            assert [m.text for m in await conversation.transcript()] == [
                "Somewhere quiet",
                "Which town?",
                "In Kyoto",
                "Booked.",
            ]
            assert [turn.number for turn in await conversation.turns()] == [1, 2]
            await assert_whole(conversation)

    async def test_a_full_window_is_free_again(self, database: Database) -> None:
        """P22: condensed by hand, the next turn has nothing to condense."""
        async with talk(database, [says("In full.", tokens=FULL), says(SUMMARY), says("Booked.")]) as (
            conversation,
            server,
        ):
            await conversation.send("Somewhere quiet")
            await conversation.compact()
            await conversation.send("In Kyoto")

            assert kinds(server.requests) == ["answer", "condense", "answer"]

    async def test_on_an_empty_conversation_there_is_nothing_to_condense(self, database: Database) -> None:
        """The same holds for a second time with nothing said in between; no model is asked."""
        async with talk(database, [says("Which town?"), says(SUMMARY)]) as (conversation, server):
            with pytest.raises(CompactionFailed, match=NOTHING_YET):
                await conversation.compact()
            await conversation.send("Somewhere quiet")
            await conversation.compact()
            with pytest.raises(CompactionFailed) as failed:
                await conversation.compact()

            assert failed.value.kind == "invalid_request"
            assert (conversation.state.type, len(server.requests)) == ("idle", 2)
            await assert_whole(conversation)

    async def test_twice_at_once_the_second_is_refused(self, database: Database) -> None:
        """And so is a message, unless it may wait; then it begins a turn right behind."""
        script = [says("Which town?"), hangs("A place in"), says("Booked.")]
        async with talk(database, script) as (conversation, server):
            await conversation.send("Somewhere quiet")
            compacting = asyncio.ensure_future(conversation.compact())
            await server.asked(2)
            with pytest.raises(Refused) as second:
                await conversation.compact()
            with pytest.raises(Refused) as message:
                await conversation.send("In Kyoto")
            queued = await conversation.send("In Kyoto", message_id="waits", when_busy="queue", wait=False)
            server.release()
            await compacting
            turn = await conversation.send("In Kyoto", message_id="waits", when_busy="queue")

            assert (second.value.code, message.value.code) == ("busy", "busy")
            assert (queued.status, turn.reply) == ("queued", "Booked.")
            assert_stand_in_order(text_of(server.requests[-1]), "You book tables.", "A place in", "In Kyoto")
            await assert_whole(conversation)

    async def test_during_a_turn_it_is_refused(self, database: Database) -> None:
        """The machine condenses by itself where a turn needs it."""
        async with talk(database, [hangs("Well, ")]) as (conversation, server):
            turn = asyncio.ensure_future(conversation.send("Somewhere quiet"))
            await server.asked()
            with pytest.raises(Refused) as refused:
                await conversation.compact()
            server.release()

            assert refused.value.code == "busy"
            assert (await turn).status == "completed"

    async def test_three_failures_are_raised_and_nothing_changes(self, database: Database) -> None:
        """The next message is answered with the whole history."""
        script = [says("Which town?"), *[fails(503)] * 3, says("Booked.")]
        async with talk(database, script) as (conversation, server):
            await conversation.send("Somewhere quiet")
            with pytest.raises(CompactionFailed) as failed:
                await conversation.compact()
            turn = await conversation.send("In Kyoto")

            assert failed.value.kind == "server_error"
            assert str(failed.value).startswith("Condensing the conversation failed:")
            assert turn.reply == "Booked."
            assert_stand_in_order(text_of(server.requests[-1]), "Somewhere quiet", "Which town?", "In Kyoto")
            await assert_whole(conversation)

    async def test_a_cancel_stops_it(self, database: Database) -> None:
        """It returns like a turn that was cancelled, without an error; the connection is closed, nothing changed."""
        async with talk(database, [says("Which town?"), hangs("The "), says("Booked.")]) as (conversation, server):
            await conversation.send("Somewhere quiet")
            compacting = asyncio.ensure_future(conversation.compact())
            await server.asked(2)
            cancelled = await conversation.cancel()
            await compacting
            await server.left()
            await conversation.send("In Kyoto")

            assert not cancelled.no_op
            assert_stand_in_order(text_of(server.requests[-1]), "Somewhere quiet", "Which town?", "In Kyoto")
            await assert_whole(conversation)

    async def test_closing_the_conversation_ends_it(self, database: Database) -> None:
        """As a cancel does; and a closed conversation refuses to be condensed."""
        async with talk(database, [says("Which town?"), hangs("The ")]) as (conversation, server):
            await conversation.send("Somewhere quiet")
            compacting = asyncio.ensure_future(conversation.compact())
            await server.asked(2)
            await conversation.close()
            await compacting
            with pytest.raises(Refused) as refused:
                await conversation.compact()

            assert refused.value.code == "closed"

    async def test_whoever_waits_is_told_when_the_engine_closes(self, database: Database) -> None:
        """So is one whose conversation is deleted meanwhile."""
        async with OpenAiServer([says("One."), hangs("The "), says("Two."), hangs("The ")]) as server:
            async with engine_at(server, database) as engine:
                kept, deleted = await engine.create(), await engine.create()
                await kept.send("First")
                first = asyncio.ensure_future(kept.compact())
                await server.asked(2)
                await deleted.send("Second")
                second = asyncio.ensure_future(deleted.compact())
                await server.asked(4)
                await engine.delete(deleted.id)
                with pytest.raises(UnknownConversation):
                    await second

            with pytest.raises(EngineClosed):
                await first

    async def test_after_a_failed_turn(self, database: Database) -> None:
        """What was too long to be answered is condensed by hand, and the conversation goes on."""
        script = [says("Which town?"), fails(401), says(SUMMARY), says("Booked.")]
        async with talk(database, script) as (conversation, server):
            await conversation.send("Somewhere quiet")
            failed = await conversation.send("In Kyoto")
            await conversation.compact()
            turn = await conversation.send("Go on")

            assert (failed.status, turn.reply) == ("failed", "Booked.")
            assert_stand_in_order(text_of(server.requests[2]), "Somewhere quiet", "Which town?", "In Kyoto")
            assert_stand_in_order(text_of(server.requests[3]), SUMMARY, "Go on")
            await assert_whole(conversation)

    async def test_the_model_of_the_engine_is_asked(self, database: Database) -> None:
        """Opened again with another model, the conversation is condensed by that one."""
        async with OpenAiServer([says("Which town?")]) as first, engine_at(first, database) as engine:
            conversation = await engine.create()
            await conversation.send("Somewhere quiet")
        async with OpenAiServer([says(SUMMARY)]) as second:
            other = LiteLlm("openai/other", api_base=second.url, api_key="test")
            async with Engine.open(database, model=other) as engine:
                await (await engine.get(conversation.id)).compact()

            assert second.requests[0]["model"] == "other"

    async def test_the_next_model_of_the_turn_condenses(self, database: Database) -> None:
        """A turn that fell back to another model has its history condensed by that one (case P11)."""
        second_script = [calls(LOOK, tokens=FULL), says(SUMMARY), says("Booked.")]
        async with (
            OpenAiServer([says("Which town?"), *[fails(503)] * 3]) as first,
            OpenAiServer(second_script) as second,
        ):
            models = [
                LiteLlm(f"openai/{name}", window=WINDOW, api_base=server.url, api_key="test")
                for name, server in (("first", first), ("second", second))
            ]
            async with Engine.open(
                database, model=models[0], fallback_models=models[1:], tools=[find_table], policy=QUICK
            ) as engine:
                conversation = await engine.create()
                await conversation.send("Somewhere quiet")
                turn = await conversation.send("In Kyoto")

            assert turn.reply == "Booked."
            assert kinds(second.requests) == ["answer", "condense", "answer"]

    async def test_the_summary_is_stored_once(self, database: Database) -> None:
        """It stands in the event that brought it, with what it cost."""
        async with talk(database, [says("Which town?"), says(f" {SUMMARY}\n", tokens=(70, 7))]) as (conversation, _):
            await conversation.send("Somewhere quiet")
            await conversation.compact()

            (event,) = [e.event for e in await conversation.events() if isinstance(e.event, HistoryCompacted)]
            assert event.summary == SUMMARY
            assert event.usage.tokens == 77


class TestARehearsal:
    """The model that needs no key."""

    async def test_it_goes_on_after_condensing(self, database: Database) -> None:
        """It says for a summary that it remembers nothing, and takes none of that for the user's words."""
        async with Engine.open(database, model=RehearsalLlm(delay=0), tools=[find_table]) as engine:
            conversation = await engine.create()
            await conversation.send("Good morning")
            await conversation.compact()
            turn = await conversation.send("Hello again")

            assert turn.reply.startswith("You said: “Hello again”")
            await assert_whole(conversation)
