"""Many conversations: lists in pages, what they show and select, and what waits for an engine.

Of agents they show whom they belong to, and when they wake up by themselves; of every conversation its owner, title and
metadata, which follow from the log.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ...persistence.errors import StoreConflict
from ...persistence.maintenance.fork import fork
from ...persistence.summaries import ConversationFilter, Details
from ...states.errors import UnknownConversation
from ...states.events import DetailsChanged, EffectFailed, PolicyChanged, ScheduleChanged, UserMessage
from ...states.policy import Policy
from ...states.states import pending
from ...states.values.acts import Schedule
from ...states.values.files import FileReference
from ...states.values.messages import HistoryMessage
from .story import NOON, OpenedStore, Story, deliveries_of, on_a_claiming_store, on_a_store

if TYPE_CHECKING:
    from ...persistence.ports import Store


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

        annas = await store.list(ConversationFilter(owner="anna"))
        busy = await store.list(ConversationFilter(state="llm_requesting"))
        both = await store.list(ConversationFilter(owner="bert", state="idle"))

        assert {(one.id, one.owner) for one in annas} == {("idle anna", "anna"), ("busy anna", "anna")}
        assert {one.id for one in busy} == {"busy anna", "busy bert", "busy None"}
        assert [one.id for one in both] == ["idle bert"]
        assert (
            await store.list(ConversationFilter(owner="clara"))
            == await store.list(ConversationFilter(state="closed"))
            == ()
        )

    @on_a_store
    async def test_the_list_has_pages(self, store: Store) -> None:
        """They follow each other without a gap, also among conversations that moved at the same moment, and filtered.

        The last conversation of a page need not be one that the filter selects.
        """
        for number in range(12):
            story = Story(at=NOON + timedelta(minutes=number // 5))
            await (story.say() if number % 3 else story).into(store, f"story {number}")
        everything = [one.id for one in await store.list()]
        idle = [one.id for one in await store.list(ConversationFilter(state="idle"))]

        assert [one.id for one in await store.list(ConversationFilter(limit=4))] == everything[:4]
        assert await _pages(store, 5, None) == everything
        assert await _pages(store, 1, None) == everything
        assert await _pages(store, 2, "idle") == idle
        assert [one.id for one in await store.list(ConversationFilter(state="idle", before=everything[5]))] == [
            one for one in everything[6:] if one in idle
        ]
        assert await store.list(ConversationFilter(limit=0)) == ()
        assert [one.id for one in await store.list(ConversationFilter(limit=10**30))] == everything

    @on_a_store
    async def test_nothing_is_left_out_when_a_conversation_moves_between_pages(self, store: Store) -> None:
        """The next page begins at its new place, so conversations may be listed twice."""
        stories = {f"story {number}": Story(at=NOON + timedelta(minutes=number)) for number in range(6)}
        logs = {name: await story.into(store, name) for name, story in stories.items()}
        first = await store.list(ConversationFilter(limit=3))
        moved = first[-1].id
        await logs[moved].append(*stories[moved].say().newest)

        rest = await store.list(ConversationFilter(before=moved))

        assert {one.id for one in first} | {one.id for one in rest} == set(logs)

    @on_a_store
    async def test_a_page_follows_a_conversation_that_exists(self, store: Store) -> None:
        """Otherwise it is not known where the page begins."""
        with pytest.raises(UnknownConversation):
            await store.list(ConversationFilter(before="nobody"))

    @on_a_store
    async def test_a_page_follows_a_place_whose_conversation_is_gone(self, store: Store) -> None:
        """Its cursor holds although it is deleted or moves; what moved at the same moment is not left out."""
        stories = {f"story {number}": Story(at=NOON + timedelta(minutes=number // 2)) for number in range(8)}
        logs = {name: await story.into(store, name) for name, story in stories.items()}
        everything = [one.id for one in await store.list()]
        first = await store.list(ConversationFilter(limit=3))
        gone, moved = first[-1], (await store.list(ConversationFilter(limit=5)))[-1]
        behind = [one.id for one in await store.list(ConversationFilter(before=gone.cursor))]
        await store.delete(gone.id)
        await logs[moved.id].append(*stories[moved.id].say().newest)

        rest = [one.id for one in await store.list(ConversationFilter(before=gone.cursor))]
        after_moved = [one.id for one in await store.list(ConversationFilter(before=moved.cursor))]

        assert behind == everything[3:]
        assert [one for one in rest if one not in everything[:3]] == everything[3:]
        assert set(everything[5:]) <= set(after_moved) <= set(everything[4:])
        assert await store.list(ConversationFilter(before="@0.story 1")) == ()

    # --- claim

    @on_a_claiming_store
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

    @on_a_claiming_store
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

    @on_a_claiming_store
    async def test_what_is_released_is_claimed_again(self, store: Store) -> None:
        """The conversations of an engine that has closed are for the next one over the same store; others stay."""
        await Story().say().into(store, "first")
        await Story().say().into(store, "second")
        assert set(await store.claim(5)) == {"first", "second"}

        await store.release(("second", "nobody"))

        assert await store.claim(5) == ("second",)
        assert await store.claim(5) == ()

    @on_a_claiming_store
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
    while page := await store.list(ConversationFilter(state=state, limit=size, before=found[-1] if found else None)):
        assert len(page) <= size
        assert not {one.id for one in page} & {*found}, "a page repeats a conversation"
        found += [one.id for one in page]
    return found


def failing(hours: int) -> Story:
    """Return a conversation in which a timer runs: the model is asked again later."""
    story = Story(at=NOON + timedelta(hours=hours)).say()
    failed = EffectFailed(
        effect_id=min(pending(story.state)), at=story.newest[0].at, kind="rate_limit", sentence="The model is busy."
    )
    return story.take(failed)


SCHEDULE = Schedule(every=3600.0, task="Look for new tables.")


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
        everything = [one.id for one in await store.list(ConversationFilter(role="background"))]
        first = await store.list(ConversationFilter(role="background", limit=3))
        rest = await store.list(ConversationFilter(role="background", limit=3, before=first[-1].id))
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
    return {one.id for one in await store.list(ConversationFilter(**selection))}


def waking(minutes: int | None, **opened_with: Any) -> Story:
    """Return a background agent that wakes up so many minutes after noon, or whose schedule is over."""
    wake = None if minutes is None else NOON + timedelta(minutes=minutes)
    return Story(role="background", schedule=SCHEDULE, next_wake=wake, **opened_with)


IMAGE = FileReference(url="https://example.com/table.png", media_type="image/png")

VALUES: dict[str, Any] = {
    "one": 1,
    "text": "1",
    "true": True,
    "null": None,
    "zero": 0,
    "false": False,
    "empty": "",
    "half": 0.5,
    "list": [1, "1"],
    "other list": ["1", 1],
    "object": {"a": 1, "b": [True, {}]},
    "empty object": {},
    "empty list": [],
    "long": "x" * 2000,
    "foreign": "寿司\u0000\u2028🍣",
}
"""Values that are all different as JSON."""


class DetailsContract(OpenedStore):
    """`Summary.owner`, `title` and `metadata`, and what `list` selects by them."""

    # --- titles

    @on_a_store
    async def test_the_title_is_the_first_message_of_a_user(self, store: Store) -> None:
        """On one line and cut; nothing that is said later changes it."""
        stories = {
            "short": Story().turn("A table for two").turn("And tomorrow?"),
            "lines": Story().say("\n  A table\n\tfor two  "),
            "long": Story().say("x" * 61),
            "fits": Story().say("x" * 60),
            "nothing": Story(),
            "policy": Story().request(PolicyChanged, policy=Policy()),
            "image": Story().request(UserMessage, text="", files=(IMAGE,)),
            "images": Story().request(UserMessage, text=" ", files=(IMAGE, IMAGE)),
            "both": Story().request(UserMessage, text="This one?", files=(IMAGE,)),
        }
        for name, story in stories.items():
            await story.into(store, name)

        assert await _titles(store) == {
            "short": "A table for two",
            "lines": "A table for two",
            "long": "x" * 59 + "…",
            "fits": "x" * 60,
            "nothing": "",
            "policy": "",
            "image": "1 image",
            "images": "2 images",
            "both": "This one?",
        }

    @on_a_store
    async def test_a_log_that_was_loaded_before_the_first_message_gives_the_title(self, store: Store) -> None:
        """So does one that was loaded later, and of two messages the first one counts, whichever log stored it."""
        await Story().into(store, "loaded")
        story = Story().turn("first")
        early, late = [(await store.load("loaded")).log for _ in range(2)]
        for event, step in story.steps[1:]:
            await early.append(event, step)
        await late.catch_up()
        await late.append(*story.say("second").newest)
        await (await store.load("loaded")).log.append(*story.answer().newest)

        assert await _titles(store) == {"loaded": "first"}

    @on_a_store
    async def test_a_given_title_comes_before_the_first_message(self, store: Store) -> None:
        """When the conversation begins, or later. A blank one counts as none."""
        blank = Story(title=" \n").say("hello")
        stories = {
            "given": Story(title="Dinner\nwith Anna").turn("hello"),
            "blank": blank,
            "changed": Story(title="Dinner").turn("hello").request(DetailsChanged, title="Supper"),
            "named": Story().turn("hello").request(DetailsChanged, title="Supper").turn("again"),
            "early": Story().request(DetailsChanged, title="Supper").turn("hello"),
            "taken back": Story(title="Dinner").turn("hello").request(DetailsChanged, title=""),
            "untouched": Story(title="Dinner").request(DetailsChanged, metadata={"seats": 2}),
        }
        for name, story in stories.items():
            await story.into(store, name)

        assert await _titles(store) == {
            "given": "Dinner with Anna",
            "blank": "hello",
            "changed": "Supper",
            "named": "Supper",
            "early": "Supper",
            "taken back": "hello",
            "untouched": "Dinner",
        }

    @on_a_store
    async def test_a_given_history_gives_the_title(self, store: Store) -> None:
        """By its first message of a user that is not blank; otherwise the first message does that comes later."""
        greeting = {"role": "assistant", "content": "Hello!"}
        picture = {"type": "image_url", "image_url": {"url": "https://example.com/table.png"}}
        histories = {
            "text": _given(greeting, {"role": "user", "content": "A table\nfor two"}),
            "parts": _given({"role": "user", "content": [picture, {"type": "text", "text": "This one?"}]}),
            "image": _given({"role": "user", "content": [picture]}),
            "blank": _given({"role": "user", "content": " "}, {"role": "user", "content": "A table"}),
            "greeting": _given(greeting),
        }
        for name, messages in histories.items():
            await Story(messages=messages).turn("later").into(store, name)

        assert await _titles(store) == {
            "text": "A table for two",
            "parts": "This one?",
            "image": "1 image",
            "blank": "A table",
            "greeting": "later",
        }

    # --- owner and metadata

    @on_a_store
    async def test_the_list_shows_owner_and_metadata(self, store: Store) -> None:
        """As they are now: metadata is replaced as a whole."""
        await Story(owner="anna", metadata=VALUES).turn().into(store, "all")
        changed = Story(metadata={"tenant": "a", "seats": 2}).turn()
        await changed.request(DetailsChanged, metadata={"tenant": "b"}).into(store, "changed")
        await Story(metadata={"tenant": "a"}).request(DetailsChanged, metadata={}).into(store, "emptied")
        await Story(metadata={"tenant": "a"}).request(DetailsChanged, title="Dinner").into(store, "kept")

        listed = {one.id: (one.owner, dict(one.metadata)) for one in await store.list()}

        assert listed == {
            "all": ("anna", VALUES),
            "changed": (None, {"tenant": "b"}),
            "emptied": (None, {}),
            "kept": (None, {"tenant": "a"}),
        }
        assert await _ids(store, metadata={"tenant": "a"}) == {"kept"}
        assert await _ids(store, metadata={"seats": 2}) == set()

    @on_a_store
    async def test_metadata_is_compared_exactly_as_json(self, store: Store) -> None:
        """1 is neither "1" nor true, null is a value, and so on; a name that is missing has no value."""
        for name, value in VALUES.items():
            await Story(metadata={"value": value, "same": 1}).into(store, name)
        await Story(metadata={"Value": 1}).into(store, "another name")

        for name, value in VALUES.items():
            assert await _ids(store, metadata={"value": value}) == {name}
            assert await _ids(store, metadata={"value": value, "same": 1}) == {name}
            assert await _ids(store, metadata={"value": value, "same": "1"}) == set()
            assert await _ids(store, metadata={"value": value, "missing": None}) == set()

    @on_a_store
    async def test_equal_json_is_found_however_it_is_written(self, store: Store) -> None:
        """1.0 is the number 1, and an object has no order."""
        await Story(metadata={"count": 1.0, "object": {"a": 1, "b": 2}, "big": 1e22}).into(store)

        for metadata in ({"count": 1}, {"count": 1.0}, {"object": {"b": 2.0, "a": 1}}, {"big": 10**22}, {}):
            assert await _ids(store, metadata=metadata) == {"story"}

    @on_a_store
    async def test_owner_metadata_and_state_select_together(self, store: Store) -> None:
        """Page by page, too."""
        for number in range(12):
            story = Story(owner="anna" if number % 2 else "bert", metadata={"tenant": number % 3, "n": number})
            await (story.say() if number % 4 else story).into(store, f"story {number}")

        assert await _ids(store, owner="anna", metadata={"tenant": 0}) == {"story 3", "story 9"}
        assert await _ids(store, owner="bert", metadata={"tenant": 0}, state="idle") == {"story 0"}
        assert await _ids(store, metadata={"tenant": 1, "n": 7}) == {"story 7"}
        assert await _ids(store, owner="", metadata={}) == await _ids(store, owner="ann") == set()
        everything = [one.id for one in await store.list(ConversationFilter(metadata={"tenant": 2}))]
        first = await store.list(ConversationFilter(metadata={"tenant": 2}, limit=3))
        rest = await store.list(ConversationFilter(metadata={"tenant": 2}, limit=3, before=first[-1].id))
        assert [one.id for one in (*first, *rest)] == everything

    # --- copies, deletion

    @on_a_store
    async def test_a_copy_has_what_its_steps_say(self, store: Store) -> None:
        """The owner, and the title and the metadata as they were at the step at which it ends."""
        story = Story(owner="anna", metadata={"tenant": "a"}).turn("hello")
        rest = len(story.steps)
        story.request(DetailsChanged, title="Dinner", metadata={"tenant": "b"})
        await story.into(store)

        await fork(store, "story", "copy", rest, NOON)
        await store.write_records([(await store.read_record("story"))._replace(id="written")])

        listed = {one.id: (one.owner, one.title, dict(one.metadata)) for one in await store.list()}
        now = ("anna", "Dinner", {"tenant": "b"})
        assert listed == {"story": now, "written": now, "copy": ("anna", "hello", {"tenant": "a"})}
        assert await _ids(store, metadata={"tenant": "a"}) == {"copy"}
        assert await _ids(store, metadata={"tenant": "b"}, owner="anna") == {"story", "written"}

    @on_a_store
    async def test_a_deleted_conversation_is_not_found_by_its_metadata(self, store: Store) -> None:
        """Nor is another one that takes its id."""
        await Story(owner="anna", title="Dinner", metadata={"tenant": "a"}).into(store)
        await store.delete("story")
        await Story().into(store)

        assert await _ids(store, owner="anna") == await _ids(store, metadata={"tenant": "a"}) == set()
        assert await _titles(store) == {"story": ""}

    @on_a_store
    async def test_details_follow_from_the_log(self, store: Store) -> None:
        """Step by step, what a list shows is what `Details` says of the steps."""
        story = Story(owner="anna", metadata={"tenant": "a"})
        log = await story.into(store)
        details = Details().after(story.newest[0])
        story.request(DetailsChanged, title="").turn("hello").request(DetailsChanged, title="Dinner")
        story.say().request(DetailsChanged, metadata={"tenant": "b"}, title="Supper").answer()
        for event, step in story.steps[1:]:
            await log.append(event, step)
            details = details.after(event)

            (listed,) = await store.list()
            assert listed.header_fields == details.shown


async def _titles(store: Store) -> dict[str, str]:
    return {one.id: one.title for one in await store.list()}


def _given(*messages: dict[str, Any]) -> tuple[HistoryMessage, ...]:
    """Return a given history of these messages."""
    return tuple(map(HistoryMessage.model_validate, messages))
