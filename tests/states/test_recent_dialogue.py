"""What a request holds of the past if it looks back only some minutes."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.states import Message, RecentText
from turnwise.states.dialogue import DatedText, of_turn, recent_texts, user_text

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


def said(seconds_ago: float, text: str = "Hello", role: str = "user") -> DatedText:
    """A text of so many seconds before noon."""
    return DatedText(NOON - timedelta(seconds=seconds_ago), RecentText(role=role, text=text))


def words(*texts: DatedText, now: datetime = NOON, seconds: float = 300.0) -> list[str]:
    """The words of the texts that are recent enough."""
    return [text.text for text in recent_texts(texts, now, seconds)]


class TestTheWindow:
    """J3: the window of five minutes includes its boundary."""

    @pytest.mark.parametrize(
        ("seconds_ago", "is_in"),
        [(0, True), (299, True), (300, True), (300.000001, False), (301, False), (86_400, False)],
    )
    def test_a_text_just_as_old_as_the_window_is_in(self, seconds_ago: float, is_in: bool) -> None:
        """J3: with a window of 300 s, a text of 299 s or 300 s is included and one of 301 s is not."""
        assert bool(words(said(seconds_ago))) == is_in

    def test_a_text_that_a_faster_clock_dated_later_is_in(self) -> None:
        """A text from a machine whose clock is ahead is included."""
        assert words(said(-2)) == ["Hello"]

    def test_texts_of_several_conversations_stand_in_the_order_of_time(self) -> None:
        """J3: texts of several conversations are ordered by time, and those of one moment keep their order."""
        texts = (said(10, "third"), said(20, "first"), said(20, "second"), said(400, "long ago"))

        assert words(*texts) == ["first", "second", "third"]

    def test_moments_are_compared_as_moments(self) -> None:
        """Times in different time zones are compared as moments."""
        berlin = timezone(timedelta(hours=2))

        assert words(said(300), now=NOON.astimezone(berlin)) == ["Hello"]

    def test_who_spoke_is_kept(self) -> None:
        """Both roles of the dialogue are included."""
        texts = (said(2, "Hello"), said(1, "Good day", role="assistant"))

        assert [text.role for text in recent_texts(texts, NOON, 300)] == ["user", "assistant"]

    @given(
        st.lists(st.floats(-1e6, 1e6)),
        st.floats(0, allow_nan=False, allow_infinity=False),
        st.sampled_from([NOON, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
    )
    def test_any_window_at_any_moment_is_answered(self, ages: list[float], seconds: float, now: datetime) -> None:
        """Any window at any moment leaves out what is too old, and nothing else."""
        texts = [said(age, str(place)) for place, age in enumerate(ages)]

        found = words(*texts, now=now, seconds=seconds)

        old = {text.said.text for text in texts if (now - text.at).total_seconds() > seconds}
        assert set(found) == {str(place) for place in range(len(ages))} - old


class TestATurnByItself:
    """J3: the messages of the turn under way are included in full."""

    HISTORY = (
        Message(role="user", text="one", turn=1),
        Message(role="assistant", text="two", turn=1),
        Message(role="user", text="note", turn=1, origin="builder", audience="agent"),
        Message(role="user", text="three", turn=2),
        Message(role="assistant", text="four", turn=2),
        Message(role="tool", text="five", turn=2, tool_call_id="five"),
    )

    def test_it_holds_what_was_said_in_it_and_what_waited_for_it(self) -> None:
        """J3, D6: it holds the messages of the turn with its tool results, and a silent message that came before it."""
        assert [message.text for message in of_turn(self.HISTORY, 2)] == ["note", "three", "four", "five"]

    def test_a_turn_that_was_tried_again_holds_both_tries(self) -> None:
        """A turn that is tried again holds the first try too, which brought the message."""
        assert [message.text for message in of_turn(self.HISTORY, 1)][:2] == ["one", "two"]

    def test_where_nothing_was_said_there_is_nothing(self) -> None:
        """An empty transcript, or a turn to come, gives no messages and no error."""
        assert list(of_turn((), 1)) == []
        assert list(of_turn(self.HISTORY[:2], 2)) == []

    def test_a_note_that_begins_the_history_belongs_to_the_first_turn(self) -> None:
        """D6: a silent message at the beginning of the history belongs to the first turn."""
        history = [message.replace(audience="agent", turn=0) for message in self.HISTORY[:1]] + [*self.HISTORY[1:]]

        assert list(of_turn(history, 1)) == history

    @given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, None, "agent"]))), st.integers(0, 12))
    def test_it_is_what_a_walk_from_the_beginning_finds(self, said: list[tuple[int, Any]], turn: int) -> None:
        """It begins at the first message of the turn or of a later one, or at the notes in front of that."""
        turns = accumulate(after for after, _ in said)
        history = [
            Message(role="user", turn=of, audience=audience) for of, (_, audience) in zip(turns, said, strict=True)
        ]

        start = next((place for place, message in enumerate(history) if message.turn >= turn), len(history))
        while start > 0 and history[start - 1].audience is not None:
            start -= 1

        assert of_turn(history, turn) == history[start:]


def test_the_text_of_a_user_is_all_that_they_wrote_in_a_turn() -> None:
    """Messages that joined the turn count, and blank ones and those of others do not."""
    said = [("user", "before", 1), ("user", "Hello", 2), ("assistant", "Hi", 2), ("user", " ", 2), ("user", "And?", 2)]
    messages = [Message(role=role, text=text, turn=turn) for role, text, turn in said]

    assert user_text(messages, 2) == "Hello\n\nAnd?"
    assert user_text(messages, 3) == ""
