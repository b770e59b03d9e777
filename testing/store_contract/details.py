"""What lists show of conversations besides their heads: owner, title and metadata, which follow from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...persistence.maintenance.fork import fork
from ...persistence.summaries import Details
from ...states.events import DetailsChanged, PolicyChanged, UserMessage
from ...states.policy import Policy
from ...states.values.messages import HistoryMessage, Image
from .opening import OpenedStore, on_a_store
from .story import NOON, Story

if TYPE_CHECKING:
    from ...persistence.ports import Store

IMAGE = Image(url="https://example.com/table.png")

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


def _given(*messages: dict[str, Any]) -> tuple[HistoryMessage, ...]:
    """Return a given history of these messages."""
    return tuple(map(HistoryMessage.model_validate, messages))


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
            "image": Story().request(UserMessage, text="", images=(IMAGE,)),
            "images": Story().request(UserMessage, text=" ", images=(IMAGE, IMAGE)),
            "both": Story().request(UserMessage, text="This one?", images=(IMAGE,)),
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
        everything = [one.id for one in await store.list(metadata={"tenant": 2})]
        first = await store.list(metadata={"tenant": 2}, limit=3)
        rest = await store.list(metadata={"tenant": 2}, limit=3, before=first[-1].id)
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
            assert (listed.owner, listed.title, listed.metadata) == (details.owner, details.title, details.metadata)


async def _titles(store: Store) -> dict[str, str]:
    return {one.id: one.title for one in await store.list()}


async def _ids(store: Store, **selection: Any) -> set[str]:
    """Return the ids of the conversations that this selects."""
    return {one.id for one in await store.list(**selection)}
