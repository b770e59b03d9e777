"""The header of a conversation is declared once; whoever shows a conversation has its fields."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from turnwise import Agent, Summary
from turnwise.hosts.http.conversations import ListedConversation, NewConversation, ShownConversation
from turnwise.persistence import Details
from turnwise.persistence.summaries import HEADER_COLUMNS
from turnwise.states import Context, DetailsChanged, Opened
from turnwise.states.header import ChosenHeader, Header

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
OPENED = Opened(
    event_id="o", at=NOON, role="sub_agent", parent="p", owner="anna", title="Dinner", metadata={"a": 1}, system="Hi"
)


@pytest.mark.parametrize("kind", [Opened, Context, Details, Summary, Agent, ShownConversation, ListedConversation])
def test_whatever_shows_a_conversation_has_its_fields(kind: type[Header]) -> None:
    """A field that is added to the header is shown by all of them."""
    assert issubclass(kind, Header)


def test_an_application_chooses_all_of_it_but_the_parent() -> None:
    """Over HTTP as in Python. A parent is the conversation whose turn starts a sub-agent."""
    assert issubclass(NewConversation, ChosenHeader)
    assert Header.model_fields.keys() - ChosenHeader.model_fields.keys() == {"parent"}


def test_a_store_has_a_column_for_each_field() -> None:
    """The owner has one of its own."""
    assert {*HEADER_COLUMNS, "owner"} == Header.model_fields.keys()


def test_the_context_begins_with_the_header_of_the_first_event() -> None:
    """With the rules, too."""
    context = Context().after(OPENED)

    assert context.header_fields == OPENED.header_fields == Details().after(OPENED).header_fields
    assert context.system == "Hi"


def test_a_change_of_the_details_leaves_what_it_does_not_name() -> None:
    """An empty title and empty metadata are named."""
    context = Context().after(OPENED)

    renamed = context.after(DetailsChanged(event_id="t", at=NOON, title=""))
    cleared = context.after(DetailsChanged(event_id="m", at=NOON, metadata={}))

    assert (renamed.title, renamed.metadata) == ("", {"a": 1})
    assert (cleared.title, cleared.metadata) == ("Dinner", {})
