"""One conversation: what was stored is returned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ...states.errors import StoreError, UnknownConversation
from ...states.events import DetailsChanged, PolicyChanged, Request, ScheduleChanged, ToolsChanged, UserMessage
from ...states.policy import Policy
from ...states.values.acts import Schedule
from ...states.values.messages import HistoryMessage
from .opening import OpenedStore, on_a_store
from .story import NOON, SOON, Story, deliveries_of, found_request, log_of, plain, undelivered_in

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
        """Of the tools, the schedule, the title and the metadata, in any order, and of the newest policy among them."""
        changes: list[tuple[type[Request], dict[str, Any]]] = [
            (ToolsChanged, {"tools": ("a",), "from_turn": 1}),
            (DetailsChanged, {"title": "Dinner"}),
            (DetailsChanged, {"metadata": {"tenant": "a", "seats": 2}}),
            (ToolsChanged, {"tools": ("b",), "from_turn": 2}),
            (ToolsChanged, {"tools": None, "from_turn": 2}),
            (PolicyChanged, {"policy": Policy(parallel=3), "chose_models": True}),
            (DetailsChanged, {"title": "Supper", "metadata": {}}),
            (ScheduleChanged, {"schedule": Schedule(every=60.0, task="Look for new tables.")}),
            (DetailsChanged, {"title": ""}),
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
        for after, up_to in ((0, None), (7, None), (7, 9), (0, 1), (newest - 1, newest), (3, newest + 100)):
            assert plain(await store.entries("story", after, up_to)) == story.log[after:up_to]
        for after, up_to in ((newest, None), (newest + 5, None), (7, 7)):
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
                assert await store.claim(10) == ("story",)

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
        assert await store.claim(10) == ("stays",)
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
