"""Many conversations: lists in pages, and what waits for an engine."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from ...states.errors import UnknownConversation
from ...states.events import EffectFailed
from ...states.states import pending
from .opening import OpenedStore, on_a_store
from .story import NOON, Story, deliveries_of

if TYPE_CHECKING:
    from ...persistence.ports import Store


def failing(hours: int) -> Story:
    """Return a conversation in which a timer runs: the model is asked again later."""
    story = Story(at=NOON + timedelta(hours=hours)).say()
    failed = EffectFailed(
        effect_id=min(pending(story.state)), at=story.newest[0].at, kind="rate_limit", sentence="The model is busy."
    )
    return story.take(failed)


class ListContract(OpenedStore):
    """`list` and `claim`."""

    # --- list

    @on_a_store
    async def test_the_list_has_the_newest_first(self, store: Store) -> None:
        """With the literal of the state, whether it waits for work, when it moved last, and its newest step."""
        assert await store.list() == ()
        await Story().turn().into(store, "middle")
        await Story().turn().say().into(store, "newest")
        await Story().into(store, "oldest")

        listed = await store.list()

        assert [(one.id, one.state, one.busy) for one in listed] == [
            ("newest", "llm_requesting", True),
            ("middle", "idle", False),
            ("oldest", "idle", False),
        ]
        assert [one.seq for one in listed] == [6, 5, 1]
        assert [one.updated_at - NOON for one in listed] == [timedelta(seconds=seconds) for seconds in (5, 4, 0)]

    @on_a_store
    async def test_the_list_can_be_filtered(self, store: Store) -> None:
        """By owner, by state, and by both."""
        for owner in ("anna", "bert", None):
            await Story(owner=owner).turn().into(store, f"idle {owner}")
            await Story(owner=owner).turn().say().into(store, f"busy {owner}")

        annas = await store.list(owner="anna")
        busy = await store.list(state="llm_requesting")
        both = await store.list(owner="bert", state="idle")

        assert {(one.id, one.owner) for one in annas} == {("idle anna", "anna"), ("busy anna", "anna")}
        assert {one.id for one in busy} == {"busy anna", "busy bert", "busy None"}
        assert [one.id for one in both] == ["idle bert"]
        assert await store.list(owner="clara") == await store.list(state="closed") == ()

    @on_a_store
    async def test_the_list_has_pages(self, store: Store) -> None:
        """They follow each other without a gap, also among conversations that moved at the same moment, and filtered.

        The last conversation of a page need not be one that the filter selects.
        """
        for number in range(12):
            story = Story(at=NOON + timedelta(minutes=number // 5))
            await (story.say() if number % 3 else story).into(store, f"story {number}")
        everything = [one.id for one in await store.list()]
        idle = [one.id for one in await store.list(state="idle")]

        assert [one.id for one in await store.list(limit=4)] == everything[:4]
        assert await _pages(store, 5, None) == everything
        assert await _pages(store, 1, None) == everything
        assert await _pages(store, 2, "idle") == idle
        assert [one.id for one in await store.list(state="idle", before=everything[5])] == [
            one for one in everything[6:] if one in idle
        ]
        assert await store.list(limit=0) == ()

    @on_a_store
    async def test_nothing_is_left_out_when_a_conversation_moves_between_pages(self, store: Store) -> None:
        """The next page begins at its new place, so conversations may be listed twice."""
        stories = {f"story {number}": Story(at=NOON + timedelta(minutes=number)) for number in range(6)}
        logs = {name: await story.into(store, name) for name, story in stories.items()}
        first = await store.list(limit=3)
        moved = first[-1].id
        await logs[moved].append(*stories[moved].say().newest)

        rest = await store.list(before=moved)

        assert {one.id for one in first} | {one.id for one in rest} == set(logs)

    @on_a_store
    async def test_a_page_follows_a_conversation_that_exists(self, store: Store) -> None:
        """Otherwise it is not known where the page begins."""
        with pytest.raises(UnknownConversation):
            await store.list(before="nobody")

    @on_a_store
    async def test_a_page_follows_a_place_whose_conversation_is_gone(self, store: Store) -> None:
        """Its cursor holds although it is deleted or moves; what moved at the same moment is not left out."""
        stories = {f"story {number}": Story(at=NOON + timedelta(minutes=number // 2)) for number in range(8)}
        logs = {name: await story.into(store, name) for name, story in stories.items()}
        everything = [one.id for one in await store.list()]
        first = await store.list(limit=3)
        gone, moved = first[-1], (await store.list(limit=5))[-1]
        behind = [one.id for one in await store.list(before=gone.cursor)]
        await store.delete(gone.id)
        await logs[moved.id].append(*stories[moved.id].say().newest)

        rest = [one.id for one in await store.list(before=gone.cursor)]
        after_moved = [one.id for one in await store.list(before=moved.cursor)]

        assert behind == everything[3:]
        assert [one for one in rest if one not in everything[:3]] == everything[3:]
        assert set(everything[5:]) <= set(after_moved) <= set(everything[4:])
        assert await store.list(before="@0.story 1") == ()

    # --- claim

    @on_a_store
    async def test_what_waits_is_claimed(self, store: Store) -> None:
        """Conversations that wait for the model, for a timer or for a delivery; no others."""
        story = Story().say().answer()
        said = deliveries_of(story.newest[1], "screen")
        await Story().turn().into(store, "idle")
        await Story().say().into(store, "busy")
        await failing(0).into(store, "retrying")
        await (await Story().say().into(store, "undelivered")).append(*story.newest, said)
        log = await Story().say().into(store, "delivered")
        await log.append(*story.newest, said)
        log.acknowledge(*said[0])
        await store.outbox(["delivered"])

        assert set(await store.claim(10)) == {"busy", "retrying", "undelivered"}

    @on_a_store
    async def test_each_conversation_is_claimed_once(self, store: Store) -> None:
        """In batches, the one whose timer is due first comes first."""
        for hours in (3, 1, 2):
            await failing(hours).into(store, f"in {hours} hours")
        for number in range(4):
            await Story().say().into(store, f"busy {number}")

        batches = [await store.claim(3) for _ in range(4)]

        assert [len(batch) for batch in batches] == [3, 3, 1, 0]
        assert batches[0] == ("in 1 hours", "in 2 hours", "in 3 hours")
        assert {*batches[1], *batches[2]} == {f"busy {number}" for number in range(4)}

    @on_a_store
    async def test_what_is_released_is_claimed_again(self, store: Store) -> None:
        """The conversations of an engine that has closed are for the next one over the same store; others stay."""
        await Story().say().into(store, "first")
        await Story().say().into(store, "second")
        assert set(await store.claim(5)) == {"first", "second"}

        await store.release(("second", "nobody"))

        assert await store.claim(5) == ("second",)
        assert await store.claim(5) == ()

    @on_a_store
    async def test_what_waits_later_is_claimed_later(self, store: Store) -> None:
        """A conversation that began to wait after everything else was claimed."""
        await Story().say().into(store, "first")
        assert await store.claim(5) == ("first",)

        await Story().say().into(store, "second")

        assert await store.claim(5) == ("second",)
        assert await store.claim(5) == ()


async def _pages(store: Store, size: int, state: str | None) -> list[str]:
    """Read the list page by page, up to a page that repeats a conversation."""
    found: list[str] = []
    while page := await store.list(state=state, limit=size, before=found[-1] if found else None):
        assert len(page) <= size
        assert not {one.id for one in page} & {*found}, "a page repeats a conversation"
        found += [one.id for one in page]
    return found
