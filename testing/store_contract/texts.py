"""Texts that are found again: by words, by the moment at which they were said, and by vectors.

Vectors are kept as long as their text, and compared within a scope. A store that is no `SearchableStore` skips these
tests.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ...persistence.maintenance.fork import fork
from ...states.errors import InvalidInput
from ...states.events import AgentMessage, BranchSwitched, LlmResponse, MessageEdited, Rewound, ToolComplete
from ...states.states import pending
from ...states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery
from ...states.values.messages import HistoryMessage, ToolCall, ToolResult
from .story import ANNA, LATER, NOON, OpenedStore, Story, dialogue, found, on_a_searchable_store, texts_of

if TYPE_CHECKING:
    from .story import SearchedStore

HOSTILE = (
    *("", " ", "\0", "*", '"', "'", "foo-bar", "col:val", "words:x", "AND", "OR", "NOT", "NEAR(a b, 2)", "^a", "a*b"),
    *("{a b}: c", "(", ")", "a + b", '" OR "x', "'; DROP TABLE texts; --", "%", "_", "\\"),
    *("\ud800", "👩‍👩‍👧", "\u202e", "𠀀"),
    *("x" * 1_000_000, "x " * 500_000, "寿" * 1_000_000, '"' * 1_000_000),
)
"""Keywords that would break a search by an expression of the database, or that are long."""


class TextContract(OpenedStore):
    """`search` and `recent`."""

    # --- what is found

    @on_a_searchable_store
    async def test_what_was_said_is_found(self, store: SearchedStore) -> None:
        """With its conversation, its turn, its moment and its role."""
        story = Story(owner="anna").say("hello").answer("Good day.").say("A table?").answer("Which table?")
        await story.into(store)

        texts = await store.search(MemoryQuery(ANNA, ("table",), None, None, 10))

        asked, answered = story.steps[3][0].at, story.steps[4][0].at
        assert sorted(texts, key=lambda text: text.at) == [
            FoundText("story", 2, asked, "user", "A table?"),
            FoundText("story", 2, answered, "assistant", "Which table?"),
        ]

    @on_a_searchable_store
    async def test_only_the_dialogue_is_found(self, store: SearchedStore) -> None:
        """Neither a system prompt nor a thought, neither the call of a tool nor its result."""
        call = ToolCall(call_id="call", name="look", raw_arguments='{"sushi": "sushi"}')
        story = Story("sushi", owner="anna").say("hello")
        asked = min(pending(story.state))
        story.take(
            LlmResponse(effect_id=asked, at=NOON, thinking="sushi", tool_calls=(call,), finish_reason="tool_calls")
        )
        result = ToolResult(text="sushi")
        story.take(ToolComplete(effect_id=min(pending(story.state)), at=NOON, result=result))
        await story.answer("Nothing.").into(store)

        assert await found(store, "sushi") == []
        assert await found(store, "nothing") == ["Nothing."]

    @on_a_searchable_store
    async def test_only_conversations_with_a_user_are_found(self, store: SearchedStore) -> None:
        """Neither the task of another agent nor what it writes, and no mail that an agent reads."""
        await dialogue(store, "reader", "sushi in the background", role="background", works_for="anna's")
        await dialogue(store, "child", "sushi for a child", role="sub_agent", parent="reader")
        story = Story(owner="anna").request(AgentMessage, origin="reader", text="sushi by mail")
        await story.answer("I know a sushi bar.").into(store, "anna's")

        assert await found(store, "sushi") == ["I know a sushi bar."]
        assert texts_of(await store.recent(ANNA, NOON)) == ["I know a sushi bar."]

    @on_a_searchable_store
    async def test_a_step_is_found_once_it_is_stored(self, store: SearchedStore) -> None:
        """However often the store was searched before."""
        story = Story(owner="anna")
        log = await story.into(store)
        for number in range(5):
            await log.append(*story.say(f"Number {number}").newest)
            assert await found(store, str(number)) == [f"Number {number}"]
            await log.append(*story.answer("Yes.").newest)

        assert [len(await found(store, word)) for word in ("number", "yes")] == [5, 5]

    @on_a_searchable_store
    async def test_a_long_log_is_found(self, store: SearchedStore) -> None:
        """To its last step, and to the last word of a long text."""
        await dialogue(store, "long", *(f"Guest {number}" for number in range(300)), "word " * 50_000 + "last")

        assert await found(store, "guest 299") == ["Guest 299"]
        assert len(await found(store, "last")) == 1

    @on_a_searchable_store
    async def test_what_is_hidden_in_another_branch_is_not_found(self, store: SearchedStore) -> None:
        """Neither by words nor among the last minutes nor by vectors, until the conversation returns to it."""
        story = Story(owner="anna").say("sushi").answer("Sushi, then.").say("noodles").answer("Noodles, then.")
        log = await story.into(store)
        found_at_first = sorted(await found(store, "sushi")), sorted(await found(store, "noodles"))
        vectors = {number: (1.0, 0.0) for number, _ in await store.without_vectors(ANNA, "space", 10)}
        await store.keep_vectors("space", vectors)

        await log.append(*story.request(Rewound, before=2).newest)
        await log.append(*story.request(MessageEdited, before=1, text="pizza", message_id="m", branch=6).newest)
        hidden = await found(store, "sushi"), await found(store, "noodles"), await found(store, "pizza")
        recent = texts_of(await store.recent(ANNA, NOON))
        near = await store.nearest(VectorQuery(ANNA, "space", (1.0, 0.0), None, None, 10))
        await log.append(*story.answer("Pizza, then.").newest)
        await log.append(*story.request(BranchSwitched, turn=2, branch=7).newest)

        assert found_at_first == (["Sushi, then.", "sushi"], ["Noodles, then.", "noodles"])
        assert (hidden, recent, near) == (([], [], ["pizza"]), ["pizza"], ())
        assert sorted(await found(store, "sushi")) == ["Sushi, then.", "sushi"]
        assert await found(store, "pizza") == []
        assert len(await store.nearest(VectorQuery(ANNA, "space", (1.0, 0.0), None, None, 10))) == 4

    @on_a_searchable_store
    async def test_a_given_history_is_found(self, store: SearchedStore) -> None:
        """What its people and its assistant said, as of the moment at which the conversation began."""
        given = [("system", "sushi 0"), ("user", "sushi 1"), ("assistant", "sushi 2")]
        messages = tuple(HistoryMessage(role=role, content=text) for role, text in given)
        await dialogue(store, "given", messages=messages)

        texts = await store.recent(ANNA, NOON)

        assert [(one.turn, one.at, one.role, one.text) for one in texts] == [
            (0, NOON, "user", "sushi 1"),
            (0, NOON, "assistant", "sushi 2"),
        ]
        assert sorted(await found(store, "sushi")) == ["sushi 1", "sushi 2"]

    # --- words

    @on_a_searchable_store
    async def test_words_are_found_in_every_script(self, store: SearchedStore) -> None:
        """Chinese words of one character or more, Finnish words with other endings, without regard to case and accents;
        no other texts."""
        texts = {
            "我想明天晚上吃寿司, 两个人": ("寿司", "明天", "吃"),
            "東京でラーメンを食べたい": ("東京", "ラーメン", "ﾗｰﾒﾝ"),
            "서울에서 호텔을 예약했어요": ("서울", "호텔"),
            "Tilaa pöytä ravintolasta": ("ravintola", "RAVINTOLASSA", "poyta", "pöytä"),
            "Haluan varauksen perjantaiksi": ("varaus", "perjantaina"),
            "The café has a Wi-Fi foo-bar at 6:30": ("cafe", "CAFÉ", "wi-fi", "foo-bar", "6:30", "bar wi-fi"),
            "Straße und ﬁn": ("STRASSE", "fin"),
        }
        await dialogue(store, "words", *texts)

        for text, keywords in texts.items():
            for keyword in keywords:
                assert await found(store, keyword) == [text], keyword

    @on_a_searchable_store
    async def test_a_keyword_of_several_words_needs_all_of_them(self, store: SearchedStore) -> None:
        """In any order; of several keywords one is enough."""
        await dialogue(store, "words", "A green table", "A table that is green", "A green chair", "A red table")

        assert sorted(await found(store, "green table")) == ["A green table", "A table that is green"]
        assert len(await found(store, "green", "red")) == 4
        assert await found(store, "green sofa", "blue") == []

    @on_a_searchable_store
    async def test_the_best_come_first(self, store: SearchedStore) -> None:
        """A text that holds more of the keywords is better; at most so many as were asked for are returned."""
        await dialogue(store, "a", *["A table"] * 5, "A quiet table near Sakura", *["A table"] * 5)

        assert (await found(store, "sakura", "quiet", "table"))[0] == "A quiet table near Sakura"
        assert await found(store, "sakura", "quiet", "table", limit=1) == ["A quiet table near Sakura"]
        assert len(await found(store, "table", limit=3)) == 3
        for none in (0, -1):
            assert await found(store, "table", limit=none) == []
        assert len(await found(store, "table", limit=10**30)) == 11

    @on_a_searchable_store
    async def test_no_keyword_breaks_a_search(self, store: SearchedStore) -> None:
        """Whatever characters it holds, however long it is, and however many there are."""
        await dialogue(store, "a", "foo bar", "foo-bar", "a b c")

        for keyword in HOSTILE:
            await found(store, keyword)
        assert len(await found(store, *HOSTILE)) >= 2
        assert len(await found(store, "foo", *(f"k{number}" for number in range(10_000)))) == 2
        assert await found(store) == await found(store, "", "\0", "-") == []

    # --- the scope

    @on_a_searchable_store
    async def test_owners_do_not_see_each_other(self, store: SearchedStore) -> None:
        """And a conversation without an owner sees itself only."""
        await dialogue(store, "a 1", "sushi one")
        await dialogue(store, "a 2", "sushi two")
        await dialogue(store, "b", "sushi three", owner="bert")
        await dialogue(store, "alone", "sushi four", owner=None)
        await dialogue(store, "lonely", "sushi five", owner=None)

        for scope, texts in {
            MemoryScope("a 1", "anna", 9): ["sushi one", "sushi two"],
            MemoryScope("elsewhere", "bert", 9): ["sushi three"],
            MemoryScope("b", "anna", 9): ["sushi one", "sushi two"],
            MemoryScope("alone", None, 9): ["sushi four"],
            MemoryScope("a 1", None, 9): ["sushi one"],
            MemoryScope("elsewhere", None, 9): [],
            MemoryScope("a 1", "carl", 9): [],
            MemoryScope("a 1", "", 9): [],
        }.items():
            assert sorted(await found(store, "sushi", scope=scope)) == texts
            assert [text for text in texts_of(await store.recent(scope, NOON)) if "sushi" in text] == texts
            assert sorted(text for _, text in await store.without_vectors(scope, "s", 9) if "sushi" in text) == texts

    @on_a_searchable_store
    async def test_the_current_turn_is_left_out(self, store: SearchedStore) -> None:
        """And so is every later one, of this conversation alone."""
        await dialogue(store, "here", "sushi 1", "sushi 2", "sushi 3")
        await dialogue(store, "there", "sushi 4", "sushi 5", "sushi 6")
        others = ["sushi 4", "sushi 5", "sushi 6"]

        for turn, here in {1: [], 2: ["sushi 1"], 9: ["sushi 1", "sushi 2", "sushi 3"]}.items():
            scope = MemoryScope("here", "anna", turn)
            assert sorted(await found(store, "sushi", scope=scope)) == [*here, *others]
            assert sorted(text for text in texts_of(await store.recent(scope, NOON)) if "s" in text) == [*here, *others]
        assert await found(store, "sushi", scope=MemoryScope("here", None, 2)) == ["sushi 1"]

    # --- time

    @on_a_searchable_store
    async def test_a_window_includes_its_bounds(self, store: SearchedStore) -> None:
        """To the microsecond."""
        story = await dialogue(store, "a", "sushi 1", "sushi 2", "sushi 3")
        first, second, third = (story.steps[index][0].at for index in (1, 3, 5))
        tick = timedelta(microseconds=1)

        for since, until, texts in (
            (first, third, ["sushi 1", "sushi 2", "sushi 3"]),
            (second, second, ["sushi 2"]),
            (first + tick, third - tick, ["sushi 2"]),
            (second + tick, None, ["sushi 3"]),
            (None, second - tick, ["sushi 1"]),
            (third, first, []),
        ):
            assert sorted(await found(store, "sushi", since=since, until=until)) == texts

    @on_a_searchable_store
    async def test_the_last_minutes_include_their_beginning(self, store: SearchedStore) -> None:
        """Of texts that are 299, 300 and 301 s old, the last 300 s hold the first two, whatever their
        conversation."""
        for age in (299, 300, 301):
            await dialogue(store, str(age), f"{age} s", at=LATER - timedelta(seconds=age + 1))

        texts = await store.recent(MemoryScope("299", "anna", 9), LATER - timedelta(seconds=300))

        assert [text.text for text in texts if text.role == "user"] == ["300 s", "299 s"]

    @on_a_searchable_store
    async def test_the_last_minutes_are_in_order(self, store: SearchedStore) -> None:
        """Oldest first, from all conversations; of very many texts the newest."""
        await dialogue(store, "a", "one", "three", at=NOON)
        await dialogue(store, "b", "two", "four", at=NOON + timedelta(milliseconds=1))

        texts = [text.text for text in await store.recent(ANNA, NOON) if text.role == "user"]
        assert texts == ["one", "two", "three", "four"]

        await dialogue(store, "many", *map(str, range(300)), at=LATER)
        texts = [text.text for text in await store.recent(ANNA, NOON) if text.role == "user"]
        assert texts[-3:] == ["297", "298", "299"]

    # --- copies and deletions

    @on_a_searchable_store
    async def test_copies_are_found(self, store: SearchedStore) -> None:
        """What a fork has in common with its original once, as long as one of them is stored; what was imported like
        everything else."""
        await dialogue(store, "a", "sushi")
        assert await found(store, "sushi") == ["sushi"]
        await fork(store, "a", "copy", None, LATER)
        record = (await store.read_record("a"))._replace(id="b", owner="bert")
        assert await found(store, "sushi") == ["sushi"]
        assert await found(store, "sushi", scope=MemoryScope("copy", None, 9)) == ["sushi"]

        await store.delete("a")
        await store.write_records([record])

        assert [one.conversation_id for one in await store.recent(ANNA, NOON) if one.role == "user"] == ["copy"]
        assert await found(store, "sushi") == ["sushi"]

    @on_a_searchable_store
    async def test_a_deleted_conversation_is_not_found(self, store: SearchedStore) -> None:
        """Another one under its id, or of another owner, is found by its own words only."""
        await dialogue(store, "a", "sushi")
        await dialogue(store, "b", "sushi with ramen")
        assert len(await found(store, "sushi")) == 2
        await store.delete("b")
        assert await found(store, "ramen") == []

        await dialogue(store, "b", "pizza", "pasta", owner="bert")
        await dialogue(store, "c", "soup")

        assert await found(store, "sushi") == ["sushi"]
        assert await found(store, "ramen") == await found(store, "pizza") == []
        assert await found(store, "pasta", scope=MemoryScope("b", "bert", 9)) == ["pasta"]
        assert await found(store, "soup") == ["soup"]


class VectorContract(OpenedStore):
    """`without_vectors`, `keep_vectors`, `nearest`. A store that is no `SearchableStore` skips these tests."""

    @on_a_searchable_store
    async def test_texts_without_vectors_are_named(self, store: SearchedStore) -> None:
        """The newest first, each until it has a vector in this space."""
        await dialogue(store, "a", "one", "two")

        without = await store.without_vectors(ANNA, "space", 3)
        assert [text for _, text in without] == ["2.", "two", "1."]
        await store.keep_vectors("space", {number: [1.0, 0.0] for number, _ in without})

        assert [text for _, text in await store.without_vectors(ANNA, "space", 9)] == ["one"]
        assert len(await store.without_vectors(ANNA, "another space", 9)) == 4
        assert await store.without_vectors(ANNA, "space", 0) == ()

    @on_a_searchable_store
    async def test_the_nearest_come_first(self, store: SearchedStore) -> None:
        """By the angle, whatever the lengths; within the window, and of this space and this number of dimensions."""
        story = await dialogue(store, "a", "north", "north east", "east", "south")
        directions: dict[str, list[float]] = {
            "north": [0, 9],
            "north east": [0.5, 0.5],
            "east": [1e30, 0],
            "south": [0, -1],
            "1.": [1, 1, 1],
        }
        without = await store.without_vectors(ANNA, "space", 99)
        await store.keep_vectors("space", {number: directions[text] for number, text in without if text in directions})
        await store.keep_vectors("another", {number: [0.0, 1.0] for number, _ in without})

        async def nearest(vector: list[float], limit: int = 9, **window: datetime) -> list[str]:
            bounds = {"since": None, "until": None, **window}
            return texts_of(await store.nearest(VectorQuery(ANNA, "space", vector, limit=limit, **bounds)))

        assert await nearest([0.1, 1]) == ["north", "north east", "east", "south"]
        assert await nearest([7, 0.1], limit=2) == ["east", "north east"]
        assert await nearest([0, 1], since=story.steps[3][0].at, until=story.steps[5][0].at) == ["north east", "east"]
        assert await nearest([0, 1, 0]) == ["1."]
        assert await nearest([0, 1], limit=0) == []

    @on_a_searchable_store
    async def test_vectors_stay_in_their_scope(self, store: SearchedStore) -> None:
        """Those of other owners are not compared, those of a deleted conversation are gone, and a vector for a text
        that is gone is passed over."""
        await dialogue(store, "a", "sushi")
        await dialogue(store, "b", "ramen", owner="bert")
        bert = MemoryScope("b", "bert", 9)
        anna, without = await store.without_vectors(ANNA, "space", 9), await store.without_vectors(bert, "space", 9)
        await store.keep_vectors("space", {number: [1.0] for number, _ in (*anna, *without)})

        assert "ramen" not in texts_of(await store.nearest(VectorQuery(ANNA, "space", [1.0], None, None, 9)))
        assert await store.nearest(VectorQuery(MemoryScope("a", "anna", 1), "space", [1.0], None, None, 9)) == ()
        await store.delete("b")
        await dialogue(store, "c", "pizza", owner="bert")
        await store.keep_vectors("space", {number: [1.0] for number, _ in without})
        assert await store.nearest(VectorQuery(bert, "space", [1.0], None, None, 9)) == ()
        assert len(await store.without_vectors(bert, "space", 9)) == 2

    @on_a_searchable_store
    async def test_what_is_no_vector_is_refused(self, store: SearchedStore) -> None:
        """Nothing of what was given with it is stored."""
        await dialogue(store, "a", "sushi")
        (first, _), (second, _) = await store.without_vectors(ANNA, "space", 9)

        wrong: list[Any] = [[], [float("nan")], [float("inf"), 1.0], ["x"], [None], 7]
        for vector in wrong:
            with pytest.raises(InvalidInput):
                await store.keep_vectors("space", {first: [1.0], second: vector})
            with pytest.raises(InvalidInput):
                await store.nearest(VectorQuery(ANNA, "space", vector, None, None, 9))

        assert len(await store.without_vectors(ANNA, "space", 9)) == 2
