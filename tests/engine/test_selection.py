"""`Engine.list` selects by owner, metadata and state, and says in one sentence what is wrong with a selection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine
from turnwise.states import InvalidInput, UnknownConversation
from turnwise.testing import FunctionLlm

from ..support.cases import holds_for


def nested(depth: int) -> Any:
    """A list within a list, and so on."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """An engine over a database in memory."""
    async with Engine.open("sqlite://", model=FunctionLlm(lambda request: "Hello.")) as engine:
        yield engine


class TestTitles:
    """What a list calls a conversation."""

    async def test_is_the_first_message_unless_one_is_given(self, engine: Engine) -> None:
        """A title that is set later replaces it, and an empty one takes that back."""
        conversation = await engine.create()
        titles = [(await engine.list())[0].title]
        await conversation.send("A table\nfor two")
        await conversation.send("And tomorrow?")
        titles.append((await engine.list())[0].title)
        for title in ("Dinner", ""):
            await conversation.set_title(title)
            titles.append((await engine.list())[0].title)

        assert titles == ["", "A table for two", "Dinner", "A table for two"]

    async def test_of_a_given_title_is_that_from_the_beginning(self, engine: Engine) -> None:
        """Before anything is said, and afterwards."""
        conversation = await engine.create(title="Dinner")
        before = await engine.list()
        await conversation.send("A table for two")

        assert [one.title for one in (*before, *await engine.list())] == ["Dinner", "Dinner"]

    async def test_of_a_given_history_is_its_first_message(self, engine: Engine) -> None:
        """Not the first one that is sent here."""
        history = [{"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "A table for two"}]
        conversation = await engine.create(messages=history)
        await conversation.send("And tomorrow?")

        assert [one.title for one in await engine.list()] == ["A table for two"]

    async def test_is_the_same_in_a_copy(self, engine: Engine) -> None:
        """With the owner and the metadata."""
        conversation = await engine.create(owner="anna", metadata={"tenant": "a"})
        await conversation.send("A table for two")
        await conversation.fork()

        listed = [(one.title, one.owner, one.metadata) for one in await engine.list(owner="anna")]

        assert listed == [("A table for two", "anna", {"tenant": "a"})] * 2


class TestASelection:
    """By owner, metadata and state."""

    async def test_is_of_all_that_is_given(self, engine: Engine) -> None:
        """Page by page, the newest first."""
        for number in range(6):
            owner, tenant = ("anna", "bert")[number % 2], number // 3
            await engine.create(owner=owner, title=str(number), metadata={"tenant": tenant, "extra": [number]})

        assert [one.title for one in await engine.list(owner="anna")] == ["4", "2", "0"]
        assert [one.title for one in await engine.list(metadata={"tenant": 1})] == ["5", "4", "3"]
        assert [one.title for one in await engine.list(owner="anna", metadata={"tenant": 1}, state="idle")] == ["4"]
        assert await engine.list(owner="anna", metadata={"tenant": "1"}) == await engine.list(state="failed") == ()
        first = await engine.list(metadata={"tenant": 0}, limit=2)
        rest = await engine.list(metadata={"tenant": 0}, limit=2, before=first[-1].id)
        assert [one.title for one in (*first, *rest)] == ["2", "1", "0"]

    async def test_follows_a_change_of_the_metadata(self, engine: Engine) -> None:
        """At once, and after the database was opened again."""
        conversation = await engine.create(metadata={"tenant": "a"})
        await conversation.set_metadata({"tenant": "b"})

        assert await engine.list(metadata={"tenant": "a"}) == ()
        assert [one.id for one in await engine.list(metadata={"tenant": "b"})] == [conversation.id]

    async def test_lasts(self, tmp_path: Path) -> None:
        """Owner, title and metadata are in the database."""
        path = tmp_path / "conversations.db"
        async with Engine.open(path, model=FunctionLlm(lambda request: "Hello.")) as engine:
            await engine.create(owner="anna", title="Dinner", metadata={"tenant": "a"})
        async with Engine.open(path, model=FunctionLlm(lambda request: "Hello.")) as engine:
            (listed,) = await engine.list(owner="anna", metadata={"tenant": "a"})
            conversation = await engine.get(listed.id)
            await conversation.set_title("Supper")

            assert (listed.title, (await engine.list())[0].title) == ("Dinner", "Supper")
            assert conversation.header.header_fields == (await engine.list())[0].header_fields


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"owner": 7}, "The owner of conversations is a text."),
    ({"owner": "\ud800"}, "The owner of conversations is a text."),
    ({"metadata": "tenant"}, "The metadata that a list selects by is a dict of JSON values."),
    ({"metadata": [("tenant", "a")]}, "The metadata that a list selects by is a dict of JSON values."),
    ({"metadata": {7: "a"}}, "A list cannot select by metadata[7]: a name is a text, and a value is JSON."),
    *(
        ({"metadata": {"a": value}}, "A list cannot select by metadata['a']: a name is a text, and a value is JSON.")
        for value in ({1, 2}, (1, 2), float("nan"), float("inf"), "\ud800", object(), b"a", nested(5000), 10**5000)
    ),
    ({"metadata": {str(number): 1 for number in range(101)}}, "A list selects by at most 100 values of metadata."),
    ({"state": "Idle"}, "The state that a list selects by is one of idle, "),
    ({"state": ["idle"]}, "The state that a list selects by is one of idle, "),
    ({"limit": -1}, "The limit of a list is a whole number, not below 0."),
    ({"limit": True}, "The limit of a list is a whole number, not below 0."),
    ({"limit": "5"}, "The limit of a list is a whole number, not below 0."),
    ({"before": 7}, "The id of a conversation is a text."),
    ({"before": "x" * 201}, "No conversation has such an id."),
    ({"role": "nurse"}, "The role that a list selects by is one of foreground, background, sub_agent."),
    ({"role": ["background"]}, "The role that a list selects by is one of foreground, background, sub_agent."),
    ({"parent": 7}, "The id of a conversation is a text."),
    ({"works_for": "x" * 201}, "No conversation has such an id."),
]


class TestAgents:
    """Are found by their role, and by the conversation that they work for."""

    async def test_are_listed_with_whom_they_work_for(self, engine: Engine) -> None:
        """Others are not."""
        foreground = await engine.create(owner="anna")
        background = await engine.create(role="background", works_for=foreground)

        (listed,) = await engine.list(works_for=foreground.id)

        assert (listed.id, listed.role, listed.works_for) == (background.id, "background", foreground.id)
        assert await engine.list(role="background", owner="anna") == (listed,)
        assert [one.id for one in await engine.list(role="foreground")] == [foreground.id]
        assert await engine.list(parent=foreground.id) == ()


class TestAWrongSelection:
    """Is refused in one sentence."""

    @holds_for(("selection", "sentence"), WRONG)
    async def test_is_said_to_be_wrong(self, selection: dict[str, Any], sentence: str, engine: Engine) -> None:
        """Whatever was given."""
        with pytest.raises(InvalidInput) as refused:
            await engine.list(**selection)

        assert refused.value.sentence.startswith(sentence)
        assert len(refused.value.sentence) < 500

    async def test_of_a_page_behind_a_conversation_that_is_not_there(self, engine: Engine) -> None:
        """It is not known where that page would begin."""
        with pytest.raises(UnknownConversation):
            await engine.list(before="nobody")

    async def test_by_metadata_with_a_long_name_is_quoted_in_part(self, engine: Engine) -> None:
        """The sentence stays short."""
        with pytest.raises(InvalidInput) as refused:
            await engine.list(metadata={"x" * 1_000_000: object()})

        assert len(refused.value.sentence) < 500
