"""Deliveries: each is stored with its step, and stays in the outbox until it is acknowledged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .opening import OpenedStore, on_a_store
from .story import NOON, SOON, Story, deliveries_of, undelivered_in

if TYPE_CHECKING:
    from ...persistence.ports import Store


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
