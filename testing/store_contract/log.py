"""The log of a conversation: what was stored is returned, each step once and in order.

That is so also when many conversations go on at once. Of two writers of one conversation one succeeds, and the other
can catch up. When the storage fails nothing changes, and everything goes on when the failure is over.

Each delivery is stored with its step, and stays in the outbox until it is acknowledged. Conversations are copied,
carried away, taken in and examined by the raw records that the store returns and takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ...persistence.codec import read_record
from ...persistence.errors import StorageFailed, StoreConflict
from ...persistence.maintenance.doctor import examine
from ...persistence.maintenance.export import Imported, export_all, first_line, import_records, last_line
from ...persistence.maintenance.fork import fork
from ...persistence.maintenance.reading import read_export
from ...persistence.maintenance.replay import replay_conversation
from ...persistence.records import Origin
from ...persistence.summaries import ConversationFilter
from ...states.errors import StoreError, UnknownConversation
from ...states.events import DetailsChanged, PolicyChanged, Request, ScheduleChanged, ToolsChanged, UserMessage
from ...states.policy import Policy
from ...states.step import Step
from ...states.values.acts import Schedule
from ...states.values.messages import HistoryMessage
from .story import (
    NOON,
    SOON,
    OpenedStore,
    Story,
    claims,
    deliveries_of,
    found_request,
    log_of,
    on_a_store,
    plain,
    undelivered_in,
)

if TYPE_CHECKING:
    from ...persistence.ports import Store


class ConversationContract(OpenedStore):
    """`create`, `load`, `entries`, `request`, `delete`, `close`."""

    # --- reading

    @on_a_store
    async def test_a_conversation_is_loaded_as_it_was_left(self, store: Store) -> None:
        """State, context and log are equal to what was stored, to the microsecond and to the last character."""
        story = Story("Be brief.\n\u2028 寿司").turn('say "hi"\nand {leave} \u0000 🍣').say("And tomorrow?")
        await story.into(store)

        loaded = await store.load("story")

        assert (loaded.state, loaded.context) == (story.state, story.context)
        assert loaded.log.seq == len(story.steps)
        assert await log_of(store) == story.log

    @on_a_store
    async def test_the_context_is_that_of_the_newest_policy(self, store: Store) -> None:
        """Whatever happened before and after it was changed, and however often."""
        story = Story()
        for parallel in (3, 5, 2):
            story.turn().request(PolicyChanged, policy=Policy(parallel=parallel)).turn()
        await story.into(store)

        loaded = await store.load("story")

        assert loaded.context == story.context
        assert loaded.context.policy == Policy(parallel=2)

    @on_a_store
    async def test_the_context_is_that_of_all_changes(self, store: Store) -> None:
        """Of the tools, the schedule, the title, the metadata and the system prompt, in any order, and of the newest
        policy among them."""
        changes: list[tuple[type[Request], dict[str, Any]]] = [
            (ToolsChanged, {"tools": ("a",), "from_turn": 1}),
            (DetailsChanged, {"title": "Dinner"}),
            (DetailsChanged, {"metadata": {"tenant": "a", "seats": 2}}),
            (ToolsChanged, {"tools": ("b",), "from_turn": 2}),
            (ToolsChanged, {"tools": None, "from_turn": 2}),
            (DetailsChanged, {"system": 'Say "system": "brief"'}),
            (DetailsChanged, {"title": 'Lunch, "system":"x"'}),
            (DetailsChanged, {"metadata": {"system": "x"}}),
            (DetailsChanged, {"title": "Tea", "system": "{}"}),
            (DetailsChanged, {"metadata": {"title": "x"}, "system": ""}),
            (PolicyChanged, {"policy": Policy(parallel=3), "chose_models": True}),
            (DetailsChanged, {"title": "Supper", "metadata": {}}),
            (ScheduleChanged, {"schedule": Schedule(every=60.0, task="Look for new tables.")}),
            (DetailsChanged, {"title": ""}),
            (DetailsChanged, {"title": "Late", "metadata": {"a": {}}, "system": "}"}),
            (DetailsChanged, {}),
            (ToolsChanged, {"tools": ("c",), "from_turn": 3}),
            (ScheduleChanged, {"schedule": None}),
        ]
        story = Story(owner="anna", title="Given", metadata={"tenant": "z"}, tools=("z",), chose_models=True)
        await story.into(store, "0")
        for number, (kind, fields) in enumerate(changes, start=1):
            while kind is ToolsChanged and story.state.book.turn + 1 < fields["from_turn"]:
                story.turn()
            await story.request(kind, **fields).into(store, str(number))

            assert (await store.load(str(number))).context == story.context
        assert (await store.load("0")).context.owner == "anna"

    @on_a_store
    async def test_a_given_history_is_stored(self, store: Store) -> None:
        """Its messages come back as they were given, and a conversation that has it is loaded like any other."""
        messages = [
            HistoryMessage.model_validate({"role": role, "content": f'{role}, {number} "messages": [{{}}] 寿司'})
            for number in range(50)
            for role in ("user", "assistant")
        ]
        nested = {"messages": [{"messages": ["deep"]}], "text": ',"messages":['}
        story = Story(messages=tuple(messages), metadata=nested, repairs=("The message 3 was left out.",)).turn()
        await story.into(store)

        loaded = await store.load("story")

        assert (loaded.state, loaded.context) == (story.state, story.context)
        assert await log_of(store) == story.log
        assert await found_request(loaded.log, "opened") == story.log[0]

    @on_a_store
    async def test_a_loaded_conversation_takes_the_next_step(self, store: Store) -> None:
        """Its log is open at the end."""
        story = Story().turn()
        await story.into(store)
        loaded = await store.load("story")

        await loaded.log.append(*story.say("And tomorrow?").newest)

        assert loaded.log.seq == len(story.steps)
        assert (await store.load("story")).state == story.state

    @on_a_store
    async def test_the_steps_are_in_order_without_a_gap(self, store: Store) -> None:
        """They are numbered from 1. A part of them can be read by number."""
        story = Story()
        for number in range(10):
            story.turn(f"the {number}th evening")
        await story.into(store)
        newest = len(story.steps)

        assert [entry.seq for entry in await store.entries("story")] == list(range(1, newest + 1))
        for after, up_to in (
            (0, None),
            (7, None),
            (7, 9),
            (0, 1),
            (newest - 1, newest),
            (3, newest + 100),
            (3, 10**30),
        ):
            assert plain(await store.entries("story", after, up_to)) == story.log[after:up_to]
        for after, up_to in ((newest, None), (newest + 5, None), (7, 7), (10**30, None), (7, -(10**30))):
            assert await store.entries("story", after, up_to) == ()

    @on_a_store
    async def test_a_request_is_found_by_its_id(self, store: Store) -> None:
        """With the whole step that took it, by the log that stored it and by one that was loaded later.

        An id of another conversation is not found.
        """
        story = Story().turn("tonight").turn("tomorrow")
        log = await story.into(store)
        await Story().take(UserMessage(event_id="elsewhere", at=SOON, text="hello")).into(store, "other")

        for one in (log, (await store.load("story")).log):
            assert await found_request(one, "opened") == story.log[0]
            assert await found_request(one, "request-5") == story.log[5]
            for unknown in ("request-2", "elsewhere", ""):
                assert await one.request(unknown) is None

    # --- opening again

    def test_what_was_stored_is_there_when_the_store_is_opened_again(self, tmp_path: Path) -> None:
        """Every conversation, and every delivery that is not acknowledged."""
        if not self.lasting:
            pytest.skip("this store does not outlive its closing")
        story = Story().say().answer()
        said = deliveries_of(story.newest[1], "screen", "paper", "radio")

        async def write() -> None:
            async with self.opened(tmp_path) as store:
                log = await Story().say().into(store)
                await log.append(*story.newest, said)
                await Story().into(store, "other")
                log.acknowledge(said[0][0], "screen")
                log.postpone(said[0][0], "paper", 2, SOON)

        async def read() -> None:
            async with self.opened(tmp_path) as store:
                assert {summary.id for summary in await store.list()} == {"story", "other"}
                assert (await store.load("story")).state == story.state
                assert [(one.target, one.attempts, one.next_attempt) for one in await store.outbox(["story"])] == [
                    ("paper", 2, SOON),
                    ("radio", 0, None),
                ]
                assert await claims(store, "story")

        asyncio.run(write())
        asyncio.run(read())

    # --- what does not exist

    @on_a_store
    async def test_a_conversation_that_does_not_exist_is_unknown(self, store: Store) -> None:
        """To every method that takes an id; it has no deliveries."""
        asking: tuple[Callable[[str], Awaitable[object]], ...] = (
            store.load,
            store.entries,
            store.delete,
            store.read_record,
        )
        for ask in asking:
            with pytest.raises(UnknownConversation):
                await ask("nobody")
        assert await store.outbox(["nobody"]) == ()

    @on_a_store
    async def test_a_closed_store_says_that_it_is_closed(self, store: Store) -> None:
        """Closing it twice is harmless; everything else is an error."""
        log = await Story().into(store)
        await store.close()
        await store.close()

        for refused in (
            store.list(),
            store.ids(),
            store.claim(1),
            store.scheduled(1),
            store.load("story"),
            store.entries("story"),
            store.read_record("story"),
            store.outbox(["story"]),
            log.append(*Story().say().newest),
            log.request("opened"),
            log.catch_up(),
        ):
            with pytest.raises(StoreError):
                await refused

    # --- deletion

    @on_a_store
    async def test_a_deleted_conversation_leaves_nothing(self, store: Store) -> None:
        """Neither its steps nor its deliveries; the other conversations are as before."""
        story = Story().say().answer()
        said = deliveries_of(story.newest[1], "screen")
        for name in ("goes", "stays"):
            log = await Story().say().into(store, name)
            await log.append(*story.newest, said)

        await store.delete("goes")

        with pytest.raises(UnknownConversation):
            await store.load("goes")
        assert [summary.id for summary in await store.list()] == ["stays"]
        assert await store.ids() == ("stays",)
        assert await claims(store, "stays")
        assert await undelivered_in(store) == [("stays", "screen", said[0][0])]
        assert await log_of(store, "stays") == story.log

    @on_a_store
    async def test_an_id_is_free_again_after_deletion(self, store: Store) -> None:
        """The new conversation under the id of a deleted one has nothing of it."""
        await Story("the first").turn().into(store)
        await store.delete("story")
        story = Story("the second", NOON + timedelta(hours=1))
        log = await story.into(store)

        assert await log_of(store) == story.log
        assert await log.request("request-1") is None


class AppendingContract(OpenedStore):
    """`append` within one log, and many logs beside each other."""

    @on_a_store
    async def test_an_id_names_one_conversation(self, store: Store) -> None:
        """A second one is refused, and the first is as before."""
        story = Story().turn()
        await story.into(store)

        with pytest.raises(StoreConflict):
            await Story("another").into(store)

        assert await log_of(store) == story.log

    @on_a_store
    async def test_a_step_follows_the_newest(self, store: Store) -> None:
        """No step is stored twice, and none is left out."""
        story = Story().turn()
        log = await Story().into(store)
        await log.append(*story.steps[1])

        for wrong in (0, 1, 3):
            with pytest.raises(StoreConflict):
                await log.append(*story.steps[wrong])

        assert log.seq == 2
        assert await log_of(store) == story.log[:2]

    @on_a_store
    async def test_a_log_knows_the_link_of_its_newest_step(self, store: Store) -> None:
        """As the entry has it, whoever has stored the step; keys of effects are made from it. Where one log differs
        from another, so does every link from there on."""
        story, other = Story().turn(), Story().turn()
        log = await Story().into(store)
        await Story().into(store, "other")
        beside = (await store.load("story")).log
        for event, step in story.steps[1:]:
            await log.append(event, step)
            assert log.chain == (await store.entries("story"))[-1].chain
        log_of_other = (await store.load("other")).log
        event, step = other.steps[1]
        await log_of_other.append(event.replace(at=SOON), step)
        await beside.catch_up()

        entries = await store.entries("story")
        assert log.chain == beside.chain == (await store.load("story")).log.chain == entries[-1].chain
        assert len({entry.chain for entry in entries}) == len(entries)
        assert log_of_other.chain not in {entry.chain for entry in entries}

    @on_a_store
    async def test_a_request_is_taken_once(self, store: Store) -> None:
        """A second one under the same id is a conflict, and the log is as before."""
        story = Story().turn()
        log = await story.into(store)
        before = await log_of(store)
        story.take(UserMessage(event_id="request-1", at=SOON, text="again"))

        with pytest.raises(StoreConflict):
            await log.append(*story.newest)

        assert await log_of(store) == before
        assert (await store.load("story")).state == story.steps[-2][1].state

    @on_a_store
    async def test_an_effect_is_answered_once(self, store: Store) -> None:
        """A second answer to the same effect is a conflict, and the log is as before."""
        story = Story().say().answer().say("And tomorrow?")
        log = await story.into(store)
        event, step = story.steps[2]
        book = step.state.book.replace(seq=len(story.steps) + 1)

        with pytest.raises(StoreConflict):
            await log.append(event, Step(step.state.replace(book=book), step.effects, step.ended))

        assert await log_of(store) == story.log
        await log.append(*story.answer("Once more.").newest)

    @on_a_store
    async def test_a_step_is_stored_although_its_caller_is_cancelled(self, store: Store) -> None:
        """The caller stops waiting; the step is stored, and the log knows it."""
        story = Story().turn()
        log = await Story().into(store)
        appending = asyncio.ensure_future(log.append(*story.steps[1]))
        await asyncio.sleep(0)
        appending.cancel()
        with suppress(asyncio.CancelledError):
            await appending

        await log.append(*story.steps[2])

        assert log.seq == 3
        assert await log_of(store) == story.log[:3]

    @on_a_store
    async def test_conversations_go_on_side_by_side(self, store: Store) -> None:
        """Each log is complete. The ids of requests and effects are unique within a conversation only."""
        stories = {f"story {number}": Story(f"Table {number}.") for number in range(30)}
        for number, story in enumerate(stories.values()):
            for turn in range(1 + number % 3):
                story.turn(f"{number}, {turn}")

        await asyncio.gather(*(story.into(store, name) for name, story in stories.items()))

        for name, story in stories.items():
            assert await log_of(store, name) == story.log
            assert (await store.load(name)).state == story.state


class ConflictContract(OpenedStore):
    """`StoreConflict` and `catch_up`."""

    @on_a_store
    async def test_of_two_writers_one_succeeds(self, store: Store) -> None:
        """Both have loaded the conversation. The other stores nothing, catches up, and goes on."""
        await Story().into(store)
        logs = [(await store.load("story")).log for _ in range(2)]
        stories = [Story().say(text) for text in ("one", "two")]

        outcomes = await asyncio.gather(
            *(log.append(*story.newest) for log, story in zip(logs, stories, strict=True)), return_exceptions=True
        )

        assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreConflict]
        assert sorted(log.seq for log in logs) == [1, 2]
        first = stories[outcomes.index(None)]
        (other,) = (log for log in logs if log.seq == 1)
        assert plain(await other.catch_up()) == first.log[1:]
        await other.append(*first.answer().newest)
        assert await log_of(store) == first.log

    @on_a_store
    async def test_an_equal_step_of_another_writer_is_a_conflict(self, store: Store) -> None:
        """Of two writers with the same step only one may act on it."""
        story = Story().say()
        first = await Story().into(store)
        second = (await store.load("story")).log
        await first.append(*story.newest)

        with pytest.raises(StoreConflict):
            await second.append(*story.newest)

        assert second.seq == 1
        assert await log_of(store) == story.log

    @on_a_store
    async def test_a_log_catches_up_with_all_that_it_missed(self, store: Store) -> None:
        """In order, and once; with nothing missed it stays where it is."""
        story = Story().turn()
        log = await Story().into(store)
        other = (await store.load("story")).log
        for event, step in story.steps[1:]:
            await other.append(event, step)

        assert plain(await log.catch_up()) == story.log[1:]
        assert log.seq == len(story.steps)
        assert await log.catch_up() == ()
        await log.append(*story.say("And tomorrow?").newest)
        assert plain(await other.catch_up()) == story.log[-1:]

    @on_a_store
    async def test_a_request_that_another_writer_took_is_found(self, store: Store) -> None:
        """Before and after catching up: that is how a request which was sent twice is recognised."""
        story = Story().say("hello")
        log = await Story().into(store)
        await (await store.load("story")).log.append(*story.newest)

        assert await found_request(log, "request-1") == story.log[1]
        await log.catch_up()
        assert await found_request(log, "request-1") == story.log[1]

    @on_a_store
    async def test_among_many_steps_only_the_conflicting_ones_fail(self, store: Store) -> None:
        """They come at the same moment; one conversation has moved on, and in another two writers race."""
        names = [f"story {number}" for number in range(20)]
        logs = {name: await Story().say().into(store, name) for name in names}
        late = logs["late"] = await Story().say().into(store, "late")
        await (await store.load("late")).log.append(*Story().say().answer("first").newest)
        rival = (await store.load("story 0")).log

        outcomes = await asyncio.gather(
            *(log.append(*Story().say().answer(name).newest) for name, log in logs.items()),
            rival.append(*Story().say().answer("story 0").newest),
            return_exceptions=True,
        )

        assert [type(outcome) for outcome in outcomes if outcome is not None] == [StoreConflict] * 2
        assert (late.seq, {logs["story 0"].seq, rival.seq}) == (2, {2, 3})
        for name in names:
            assert await log_of(store, name) == Story().say().answer(name).log
        assert await log_of(store, "late") == Story().say().answer("first").log

    @on_a_store
    async def test_the_log_of_a_deleted_conversation_knows_that_it_is_gone(self, store: Store) -> None:
        """It does not say whether a request was taken, neither of one that was nor of one that was not."""
        log = await Story().say().into(store)
        await store.delete("story")

        for event_id in ("request-1", "request-2"):
            with pytest.raises(UnknownConversation):
                await log.request(event_id)

    @on_a_store
    async def test_the_log_of_a_deleted_conversation_takes_nothing(self, store: Store) -> None:
        """Neither a step nor a receipt, also if another conversation has its id now."""
        old, new = Story().say().answer(), Story("another").say().answer()
        said = deliveries_of(old.newest[1], "screen")
        log = await Story().say().into(store)
        await store.delete("story")
        with pytest.raises(StoreConflict):
            await log.append(*old.newest)
        successor = await Story("another").say().into(store)
        await successor.append(*new.newest, said)

        log.acknowledge(said[0][0], "screen")
        log.postpone(said[0][0], "screen", 1, SOON)
        with pytest.raises(StoreConflict):
            await log.append(*old.newest)
        with pytest.raises(UnknownConversation):
            await log.catch_up()
        with pytest.raises(UnknownConversation):
            await log.request("request-1")

        assert [(one.conversation_id, one.attempts) for one in await store.outbox(["story"])] == [("story", 0)]
        assert await log_of(store) == new.log


class FailureContract(OpenedStore):
    """`StorageFailed`."""

    def test_a_step_that_fails_leaves_everything_as_before(self, tmp_path: Path) -> None:
        """The error is typed, nothing has changed, and the same step is stored when the failure is over."""

        async def fail() -> None:
            async with self.opened(tmp_path) as store:
                await self._fail(store, tmp_path)

        asyncio.run(fail())

    async def _fail(self, store: Store, place: Path) -> None:
        names = [f"story {number}" for number in range(5)]
        logs = [await Story().say().into(store, name) for name in names]
        story = Story().say().answer("x" * 100_000)
        said = deliveries_of(story.newest[1], "screen")

        async with self.in_trouble(store, place):
            outcomes = await asyncio.gather(*(log.append(*story.newest, said) for log in logs), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [StorageFailed] * 5
        assert [log.seq for log in logs] == [2] * 5
        assert await undelivered_in(store) == []
        for name in names:
            assert await log_of(store, name) == Story().say().log
        await asyncio.gather(*(log.append(*story.newest, said) for log in logs))
        for name in names:
            assert (await store.load(name)).state == story.state
        assert sorted(await undelivered_in(store)) == [(name, "screen", said[0][0]) for name in names]


class OutboxContract(OpenedStore):
    """`outbox`, `acknowledge`, `postpone`, `begin`."""

    @on_a_store
    async def test_the_outbox_is_in_order_for_each_target(self, store: Store) -> None:
        """One entry for each delivery and target, with the step that asked for it."""
        story = Story()
        log = await story.into(store)
        expected = []
        for number in range(12):
            await log.append(*story.say(f"{number}?").newest)
            event, step = story.answer(f"{number}.").newest
            said = deliveries_of(step, "screen", "paper")
            await log.append(event, step, said)
            expected.append((said[0][0], step.state.book.seq))

        outbox = await store.outbox(["story"])

        for target in ("screen", "paper"):
            entries = [one for one in outbox if one.target == target]
            assert [(one.effect_id, one.seq) for one in entries] == expected
            assert {(one.conversation_id, one.attempts, one.next_attempt) for one in entries} == {("story", 0, None)}

    @on_a_store
    async def test_the_outbox_is_that_of_the_conversations_asked_for(self, store: Store) -> None:
        """However many they are."""
        names = [f"story {number}" for number in range(40)]
        story = Story().say().answer()
        said = deliveries_of(story.newest[1], "screen")
        for name in names:
            await (await Story().say().into(store, name)).append(*story.newest, said)

        assert await store.outbox([]) == ()
        assert [one.conversation_id for one in await store.outbox(["story 7"])] == ["story 7"]
        assert {one.conversation_id for one in await store.outbox(names[:20])} == set(names[:20])
        assert len(await store.outbox([*names, *(f"nobody {number}" for number in range(2_000))])) == 40

    @on_a_store
    async def test_an_acknowledged_delivery_leaves_the_outbox(self, store: Store) -> None:
        """That one, for that target, in that conversation. Acknowledging what is not there does nothing."""
        story = Story().say().answer()
        said = deliveries_of(story.newest[1], "screen", "paper")
        effect_id = said[0][0]
        logs = [await Story().say().into(store, name) for name in ("a", "b")]
        for log in logs:
            await log.append(*story.newest, said)

        logs[0].acknowledge(effect_id, "paper")
        logs[0].acknowledge(effect_id, "paper")
        logs[0].acknowledge(effect_id + 1, "screen")
        logs[0].acknowledge(effect_id, "radio")

        assert sorted(await undelivered_in(store)) == [
            ("a", "screen", effect_id),
            ("b", "paper", effect_id),
            ("b", "screen", effect_id),
        ]

    @on_a_store
    async def test_a_failed_attempt_is_stored(self, store: Store) -> None:
        """The newest one counts; after an acknowledgement none does."""
        story = Story().say().answer()
        said = deliveries_of(story.newest[1], "screen", "paper")
        effect_id = said[0][0]
        log = await Story().say().into(store)
        await log.append(*story.newest, said)

        log.postpone(effect_id, "screen", 1, NOON)
        log.postpone(effect_id, "screen", 2, SOON)
        log.acknowledge(effect_id, "paper")
        log.postpone(effect_id, "paper", 1, SOON)
        left = await store.outbox(["story"])

        assert [(one.target, one.attempts, one.next_attempt) for one in left] == [("screen", 2, SOON)]

    @on_a_store
    async def test_an_attempt_that_begins_is_stored(self, store: Store) -> None:
        """That one alone, as soon as `begin` returns. An attempt that has failed ends the row of those in which
        processes died."""
        story = Story().say().answer()
        said = deliveries_of(story.newest[1], "screen", "paper", "radio")
        effect_id = said[0][0]
        log = await Story().say().into(store)
        await log.append(*story.newest, said)

        log.acknowledge(effect_id, "radio")
        await log.begin(effect_id, "screen", 1)
        await log.begin(effect_id, "screen", 2)
        await log.begin(effect_id, "paper", 1)
        await log.begin(effect_id, "radio", 1)
        begun = {one.target: one.begun for one in await store.outbox(["story"])}
        log.postpone(effect_id, "screen", 1, SOON)
        left = {one.target: one.begun for one in await store.outbox(["story"])}

        assert begun == {"screen": 2, "paper": 1}
        assert left == {"screen": 0, "paper": 1}

    @on_a_store
    async def test_a_target_that_is_given_twice_gets_one_delivery(self, store: Store) -> None:
        """The same effect and the same target are the same delivery."""
        story = Story().say().answer()
        said = deliveries_of(story.newest[1], "screen")
        log = await Story().say().into(store)

        await log.append(*story.newest, (*said, *said))

        assert await undelivered_in(store) == [("story", "screen", said[0][0])]

    @on_a_store
    async def test_receipts_are_stored_beside_steps(self, store: Store) -> None:
        """Among steps of many conversations none is lost."""
        stories = {f"story {number}": Story() for number in range(10)}

        async def talk(name: str, story: Story) -> None:
            log = await story.into(store, name)
            for number in range(5):
                await log.append(*story.say(f"{number}?").newest)
                event, step = story.answer(f"{number}.").newest
                said = deliveries_of(step, "screen", "paper")
                await log.append(event, step, said)
                log.acknowledge(said[0][0], "screen")
                if number % 2:
                    log.acknowledge(said[0][0], "paper")

        await asyncio.gather(*(talk(name, story) for name, story in stories.items()))

        left = await undelivered_in(store)
        assert {target for _, target, _ in left} == {"paper"}
        assert {name: [one[0] for one in left].count(name) for name in stories} == dict.fromkeys(stories, 3)


class RecordContract(OpenedStore):
    """`ids`, `read_record`, `write_records`, `copy`, and the maintenance that works with them."""

    @on_a_store
    async def test_a_record_holds_all_rows(self, store: Store) -> None:
        """The steps can be read from it and are verified; it names owner and deliveries."""
        story = Story(owner="anna").say().answer()
        said = deliveries_of(story.newest[1], "screen", "paper")
        log = await store.create("story", *story.opening)
        await log.append(*story.steps[1])
        await log.append(*story.steps[2], said)
        log.postpone(*said[0], 3, SOON)
        await store.outbox(["story"])

        record = await store.read_record("story")

        assert plain(read_record(record)) == story.log
        assert (record.id, record.owner, record.parent, record.origin) == ("story", "anna", None, None)
        assert [(row.target, row.effect_id, row.seq, row.attempts) for row in record.outbox] == [
            ("paper", said[1][0], 3, 0),
            ("screen", said[0][0], 3, 3),
        ]

    @on_a_store
    async def test_a_record_that_is_written_is_read_again(self, store: Store) -> None:
        """Under another id it is a conversation like any other, and goes on."""
        story = Story().say().answer()
        log = await Story().say().into(store)
        await log.append(*story.newest, deliveries_of(story.newest[1], "screen"))
        record = (await store.read_record("story"))._replace(
            id="copy", owner="bert", parent="someone", origin=Origin("story", 3)
        )

        await store.write_records([record])

        copy = await store.read_record("copy")
        assert copy._replace(origin_checksum=None) == record  # what it was copied from is checked by the store itself
        loaded = await store.load("copy")
        assert (loaded.state, loaded.context, loaded.log.seq) == (story.state, story.context, 3)
        assert await found_request(loaded.log, "request-1") == story.log[1]
        assert [one.target for one in await store.outbox(["copy"])] == ["screen"]
        assert [(one.owner, one.origin) for one in await store.list(ConversationFilter(owner="bert"))] == [
            ("bert", Origin("story", 3))
        ]
        await loaded.log.append(*story.say("And tomorrow?").newest)
        assert await log_of(store, "copy") == story.log

    @on_a_store
    async def test_records_are_written_all_or_none(self, store: Store) -> None:
        """One whose id is taken keeps the others out."""
        await Story().turn().into(store)
        record = await store.read_record("story")

        for refused in (record, record._replace(id="new")):
            with pytest.raises(StoreConflict):
                await store.write_records([record._replace(id="new"), refused])

        assert await store.ids() == ("story",)
        await store.write_records([])

    @on_a_store
    async def test_a_copy_needs_its_original(self, store: Store) -> None:
        """Of a conversation that was deleted in the meantime nothing comes back."""
        await Story().turn().into(store)
        record = (await store.read_record("story"))._replace(id="copy")
        await store.copy("story", record)
        with pytest.raises(StoreConflict):
            await store.copy("story", record)
        await store.delete("story")

        with pytest.raises(UnknownConversation):
            await store.copy("story", record._replace(id="another"))

        assert await store.ids() == ("copy",)

    @on_a_store
    async def test_ids_are_found_by_their_beginning(self, store: Store) -> None:
        """Case counts, and no character stands for others."""
        for name in ("ab-1", "b", "ab-2", "a", "AB-3", "a%", "a\U0010ffff"):
            await Story().into(store, name)

        assert await store.ids("ab") == await store.ids(prefix="ab-") == ("ab-1", "ab-2")
        assert await store.ids("ab-2") == ("ab-2",)
        assert await store.ids("a%") == ("a%",)
        assert await store.ids("a") == ("ab-1", "ab-2", "a", "a%", "a\U0010ffff")
        for unknown in ("c", "%", "_", "ab-22", "\U0010ffff"):
            assert await store.ids(unknown) == ()

    @on_a_store
    async def test_the_ids_are_in_the_order_of_creation(self, store: Store) -> None:
        """Whatever moved last."""
        logs = {name: await Story().into(store, name) for name in ("c", "a", "b")}
        await logs["c"].append(*Story().say().newest)

        assert await store.ids() == ("c", "a", "b")

    # --- maintenance

    @on_a_store
    async def test_a_conversation_can_be_forked_and_replayed(self, store: Store) -> None:
        """The copy rests where its original rested, and says where it comes from."""
        story = Story().turn("tonight")
        rest = story.state
        log = await story.into(store)
        await log.append(*story.say("And tomorrow?").newest)

        landing = await fork(store, "story", "copy", None, NOON)

        assert (landing.seq, landing.state) == (5, rest)
        assert (await store.load("copy")).state == rest
        assert [one.origin for one in await store.list() if one.id == "copy"] == [Origin("story", 5)]
        for name in ("story", "copy"):
            assert (await replay_conversation(store, name)).divergence is None

    def test_an_export_can_be_imported(self, tmp_path: Path) -> None:
        """Into another store of this kind, where it has the same steps; a second time nothing happens. What was under
        way is closed there, by a step more, so that nothing of it goes on by itself."""

        async def carry() -> None:
            async with self.opened(tmp_path / "here") as here, self.opened(tmp_path / "there") as there:
                await Story().turn().into(here, "one")
                await Story("Be brief.").turn().say().into(here, "two")
                exported = await _exported(here)
                records = read_export(line.encode() for line in exported)

                for already_stored in (False, True):
                    assert await import_records(there, records) == (
                        Imported("one", 5, already_stored),
                        Imported("two", 7, already_stored, closed=True),
                    )
                carried = read_export(line.encode() for line in await _exported(there))
                assert carried[0].steps == records[0].steps
                assert carried[1].steps[:-1] == records[1].steps
                assert await claims(there)

        for place in ("here", "there"):
            (tmp_path / place).mkdir()
        asyncio.run(carry())

    @on_a_store
    async def test_the_doctor_finds_nothing(self, store: Store) -> None:
        """In a store in which nothing is damaged."""
        await Story().turn().into(store, "idle")
        log = await Story().say().into(store, "busy")
        story = Story().say().answer()
        await log.append(*story.newest, deliveries_of(story.newest[1], "screen"))

        examination = await examine(store)

        assert (examination.conversations, examination.steps, examination.findings) == (2, 8, ())


async def _exported(store: Store) -> list[str]:
    """Export all conversations."""
    lines = [first_line()]
    count = 0
    async for _, exported in export_all(store):
        assert not isinstance(exported, Exception)
        lines += exported
        count += 1
    return [*lines, last_line(count)]
