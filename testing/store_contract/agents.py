"""Agents among conversations: whom they belong to, and when they wake up by themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ...persistence.errors import StoreConflict
from ...persistence.maintenance.fork import fork
from ...states.errors import UnknownConversation
from ...states.events import ScheduleChanged
from ...states.values.acts import Schedule
from .opening import OpenedStore, on_a_store
from .story import NOON, Story

if TYPE_CHECKING:
    from ...persistence.ports import Store

SCHEDULE = Schedule(every=3600.0, task="Look for new tables.")


def waking(minutes: int | None, **opened_with: Any) -> Story:
    """Return a background agent that wakes up so many minutes after noon, or whose schedule is over."""
    wake = None if minutes is None else NOON + timedelta(minutes=minutes)
    return Story(role="background", schedule=SCHEDULE, next_wake=wake, **opened_with)


class AgentContract(OpenedStore):
    """`Summary.role`, `parent`, `works_for` and `wakes_at`, what `list` selects by them, and `scheduled`."""

    # --- whom an agent belongs to

    @on_a_store
    async def test_the_list_shows_the_role_of_each_conversation(self, store: Store) -> None:
        """And the conversations that it belongs to, whether these are stored or not."""
        await Story().turn().into(store, "anna's")
        await Story(role="background", works_for="anna's").into(store, "reader")
        await Story(role="background").turn().into(store, "nobody's")
        await Story().into(store, "gone")
        await Story(role="sub_agent", parent="gone").say().into(store, "child")
        await store.delete("gone")

        listed = {one.id: (one.role, one.parent, one.works_for) for one in await store.list()}

        assert listed == {
            "anna's": ("foreground", None, None),
            "reader": ("background", None, "anna's"),
            "nobody's": ("background", None, None),
            "child": ("sub_agent", "gone", None),
        }

    @on_a_store
    async def test_the_list_is_selected_by_role_and_by_whom_an_agent_belongs_to(self, store: Store) -> None:
        """Alone, and together with everything else, page by page."""
        await Story().into(store, "reader")
        for number in range(12):
            story = Story(
                role=("foreground", "background", "sub_agent")[number % 3],
                works_for="anna's" if number % 3 == 1 and number > 3 else None,
                parent="reader" if number % 3 == 2 else None,
                owner="anna" if number % 2 else "bert",
            )
            await (story.say() if number % 4 else story).into(store, f"story {number}")
        await store.delete("reader")

        assert await _ids(store, role="foreground") == {f"story {number}" for number in (0, 3, 6, 9)}
        assert await _ids(store, role="background") == {f"story {number}" for number in (1, 4, 7, 10)}
        assert await _ids(store, works_for="anna's") == {f"story {number}" for number in (4, 7, 10)}
        assert await _ids(store, parent="reader") == {f"story {number}" for number in (2, 5, 8, 11)}
        assert await _ids(store, role="sub_agent", parent="reader", owner="anna") == {"story 5", "story 11"}
        assert await _ids(store, role="foreground", owner="bert", state="idle") == {"story 0"}
        for nothing in ({"parent": "anna's"}, {"works_for": "reader"}, {"role": "foreground", "parent": "reader"}):
            assert await _ids(store, **nothing) == set()
        everything = [one.id for one in await store.list(role="background")]
        first = await store.list(role="background", limit=3)
        rest = await store.list(role="background", limit=3, before=first[-1].id)
        assert [one.id for one in (*first, *rest)] == everything

    @on_a_store
    async def test_a_copy_belongs_to_whom_its_steps_say(self, store: Store) -> None:
        """Whether it was forked or written as a record."""
        await Story(role="background", works_for="anna's").turn().into(store, "reader")

        await fork(store, "reader", "copy", None, NOON)
        await store.write_records([(await store.read_record("reader"))._replace(id="written")])

        assert await _ids(store, role="background", works_for="anna's") == {"reader", "copy", "written"}

    @on_a_store
    async def test_a_deleted_agent_is_not_found(self, store: Store) -> None:
        """Nor is another conversation that takes its id."""
        await waking(5, works_for="anna's").into(store)
        await store.delete("story")
        await Story().into(store)

        assert await _ids(store, role="background") == await _ids(store, works_for="anna's") == set()
        assert await _ids(store, role="foreground") == {"story"}
        assert await store.scheduled(5) == ()

    @on_a_store
    async def test_a_sub_agent_needs_its_parent(self, store: Store) -> None:
        """For a parent that was deleted in the meantime none is stored; for one with its id since, one is."""
        child = Story(role="sub_agent", parent="parent")
        for unknown in ("nobody", "parent"):
            with pytest.raises(UnknownConversation):
                await store.create("child", *Story(role="sub_agent", parent=unknown).opening)
        await Story().into(store, "parent")
        await child.into(store, "first")
        await store.delete("parent")

        with pytest.raises(UnknownConversation) as refused:
            await store.create("child", *child.opening)

        assert refused.value.conversation_id == "parent"
        assert await store.ids() == ("first",)
        await Story().into(store, "parent")
        await child.into(store, "child")
        assert await _ids(store, parent="parent") == {"first", "child"}

    # --- schedules

    @on_a_store
    async def test_scheduled_wake_ups_come_earliest_first(self, store: Store) -> None:
        """With their moments, to the microsecond, and up to a number of them. Those of one moment all come."""
        for name, minutes in (("third", 30), ("first", 1), ("second", 2), ("over", None), ("also third", 30)):
            await waking(minutes).into(store, name)
        await Story().into(store, "plain")

        found = await store.scheduled(10)

        assert [at - NOON for _, at in found] == [timedelta(minutes=minutes) for minutes in (1, 2, 30, 30)]
        assert [name for name, _ in found[:2]] == ["first", "second"]
        assert {name for name, _ in found[2:]} == {"third", "also third"}
        assert await store.scheduled(1) == found[:1]
        assert len(await store.scheduled(3)) == 3
        assert await store.scheduled(0) == ()
        assert {one.id: one.wakes_at for one in await store.list()} == {**dict(found), "over": None, "plain": None}

    @on_a_store
    async def test_a_schedule_follows_from_the_newest_step(self, store: Store) -> None:
        """It is stored with the step that changes it: another moment, none, or one for the first time. Other steps
        leave it as it is, also those of another log."""
        stories = {"later": waking(1), "never": waking(2), "at last": Story(role="background"), "same": waking(9)}
        logs = {name: await story.into(store, name) for name, story in stories.items()}
        for name, minutes in (("later", 20), ("never", None), ("at last", 7)):
            wake = None if minutes is None else NOON + timedelta(minutes=minutes)
            schedule = None if name == "never" else SCHEDULE
            stories[name].request(ScheduleChanged, schedule=schedule, next_wake=wake)
            await logs[name].append(*stories[name].newest)
        loaded = (await store.load("same")).log
        await loaded.append(*stories["same"].say().newest)

        expected = [("at last", 7), ("same", 9), ("later", 20)]
        assert await store.scheduled(5) == tuple((name, NOON + timedelta(minutes=at)) for name, at in expected)

    @on_a_store
    async def test_a_step_in_conflict_changes_no_schedule(self, store: Store) -> None:
        """Only what is stored counts."""
        story = waking(3)
        log = await story.into(store)
        stale = (await store.load("story")).log
        await log.append(*story.say().newest)
        other = waking(3).request(ScheduleChanged, schedule=None, next_wake=None)
        with pytest.raises(StoreConflict):
            await stale.append(*other.newest)

        assert await store.scheduled(5) == (("story", NOON + timedelta(minutes=3)),)


async def _ids(store: Store, **selection: Any) -> set[str]:
    """Return the ids of the conversations that this selects."""
    return {one.id for one in await store.list(**selection)}
