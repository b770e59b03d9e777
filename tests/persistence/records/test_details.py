"""Owner, title and metadata of a conversation, as they follow from its events."""

from __future__ import annotations

from hypothesis import given

from turnwise.persistence.codec import GENESIS, encode
from turnwise.persistence.records import DetailsRow
from turnwise.persistence.summaries import (
    Details,
    details_of,
    details_of_rows,
    details_row,
    metadata_entry,
    read_metadata,
)
from turnwise.states import DetailsChanged, LogEntry, Opened, PolicyChanged, UserMessage
from turnwise.testing import strategies
from turnwise.testing.history import Trace

from ...support.walks import NOON, Walk


class TestDetails:
    """The fold of a log."""

    def test_other_events_change_nothing(self) -> None:
        """Only the first event, the first message and changes of the details do."""
        details = details_of(LogEntry.of(event, step) for event, step in Walk().turn("tonight").steps)
        policy = PolicyChanged(event_id="p", at=NOON, policy=Walk().context.policy)

        assert details.after(policy) is details
        assert details.after(UserMessage(event_id="m", at=NOON, text="again")) is details
        assert details == Details(first_message="tonight")

    def test_a_change_leaves_what_it_does_not_name(self) -> None:
        """An empty title takes the given one back, and empty metadata clears it."""
        opened = Opened(event_id="o", at=NOON, owner="anna", title="Dinner", metadata={"a": 1})
        details = Details().after(opened)

        titled = details.after(DetailsChanged(event_id="t", at=NOON, title=""))
        cleared = details.after(DetailsChanged(event_id="m", at=NOON, metadata={}))

        assert (titled.title, titled.owner, titled.metadata) == ("", "anna", {"a": 1})
        assert (cleared.title, cleared.owner, cleared.metadata) == ("Dinner", "anna", {})

    @given(trace=strategies.traces(max_size=12))
    def test_the_rows_of_a_log_say_the_same(self, trace: Trace) -> None:
        """Only a few of them are decoded."""
        steps = [(seen.event, seen.step) for seen in trace if seen.step is not None]
        rows = [encode(event, step, GENESIS)[0] for event, step in steps]

        assert details_of_rows(rows) == details_of(LogEntry.of(event, step) for event, step in steps)

    def test_a_row_that_cannot_be_read_is_passed_over(self) -> None:
        """The rest gives what can be known."""
        rows = [encode(event, step, GENESIS)[0] for event, step in Walk().turn("tonight").say("tomorrow").steps]
        rows[1] = rows[1]._replace(payload="damaged")

        assert details_of_rows(rows).title == "tomorrow"

    def test_a_row_is_read_as_it_was_written(self) -> None:
        """Metadata is JSON in it; what is missing is None."""
        details = Details("anna", "Dinner", "hello", {"寿司": [1, None], "a": "\u0000"})
        row = details_row(details)

        assert (row.title, row.first_message, read_metadata(row.metadata)) == ("Dinner", "hello", details.metadata)
        assert row.entries == tuple(sorted(metadata_entry(*entry) for entry in details.metadata.items()))
        assert details_row(Details()) == DetailsRow()
        assert read_metadata(None) == {}
