"""What of the past belongs to a request that looks back only some minutes."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.states import Message, RecentText
from turnwise.states.projections.recent_dialogue import DatedText, of_turn, recent_texts

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


def said(seconds_ago: float, text: str = "Hello", role: str = "user") -> DatedText:
    """A text of so many seconds before noon."""
    return DatedText(NOON - timedelta(seconds=seconds_ago), RecentText(role=role, text=text))


def words(*texts: DatedText, now: datetime = NOON, seconds: float = 300.0) -> list[str]:
    """What of these was said lately."""
    return [text.text for text in recent_texts(texts, now, seconds)]


class TestTheWindow:
    """J3: five minutes, the boundary included, the time given."""

    @pytest.mark.parametrize(
        ("seconds_ago", "is_in"),
        [(0, True), (299, True), (300, True), (300.000001, False), (301, False), (86_400, False)],
    )
    def test_a_text_just_as_old_as_the_window_is_in(self, seconds_ago: float, is_in: bool) -> None:
        """J3: 299 s old is included, 301 s is not; boundary inclusive."""
        assert bool(words(said(seconds_ago))) == is_in

    def test_a_text_that_a_faster_clock_dated_later_is_in(self) -> None:
        """Two machines never agree on the time; what was just said is not lost for that."""
        assert words(said(-2)) == ["Hello"]

    def test_texts_of_several_conversations_stand_in_the_order_of_time(self) -> None:
        """J3: in whatever conversation they were said; oldest first, and those of one moment as given."""
        texts = (said(10, "third"), said(20, "first"), said(20, "second"), said(400, "long ago"))

        assert words(*texts) == ["first", "second", "third"]

    def test_moments_are_compared_as_moments(self) -> None:
        """A time zone is only a way to write one."""
        berlin = timezone(timedelta(hours=2))

        assert words(said(300), now=NOON.astimezone(berlin)) == ["Hello"]

    def test_who_spoke_is_kept(self) -> None:
        """Both sides of the dialogue belong to it."""
        texts = (said(2, "Hello"), said(1, "Good day", role="assistant"))

        assert [text.role for text in recent_texts(texts, NOON, 300)] == ["user", "assistant"]

    @given(
        st.lists(st.floats(-1e6, 1e6)),
        st.floats(0, allow_nan=False, allow_infinity=False),
        st.sampled_from([NOON, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
    )
    def test_any_window_at_any_moment_is_answered(self, ages: list[float], seconds: float, now: datetime) -> None:
        """No window is too long and no moment too early: what is too old goes, and nothing else."""
        texts = [said(age, str(place)) for place, age in enumerate(ages)]

        found = words(*texts, now=now, seconds=seconds)

        old = {text.said.text for text in texts if (now - text.at).total_seconds() > seconds}
        assert set(found) == {str(place) for place in range(len(ages))} - old


class TestATurnByItself:
    """J3: this turn's messages, whole."""

    HISTORY = (
        Message(role="user", text="one", turn=1),
        Message(role="assistant", text="two", turn=1),
        Message(role="user", text="note", turn=1, origin="builder", audience="agent"),
        Message(role="user", text="three", turn=2),
        Message(role="assistant", text="four", turn=2),
        Message(role="tool", text="five", turn=2, tool_call_id="five"),
    )

    def test_it_holds_what_was_said_in_it_and_what_waited_for_it(self) -> None:
        """J3, D6: its own messages with its tools', and a silent one that came before it."""
        assert [message.text for message in of_turn(self.HISTORY, 2)] == ["note", "three", "four", "five"]

    def test_a_turn_that_was_tried_again_holds_both_tries(self) -> None:
        """The first try brought the message."""
        assert [message.text for message in of_turn(self.HISTORY, 1)][:2] == ["one", "two"]

    def test_where_nothing_was_said_there_is_nothing(self) -> None:
        """An empty transcript, a turn to come: no error."""
        assert list(of_turn((), 1)) == []
        assert list(of_turn(self.HISTORY[:2], 2)) == []

    def test_a_note_that_begins_the_history_belongs_to_the_first_turn(self) -> None:
        """D6: nothing stands in front of it."""
        history = [message.replace(audience="agent", turn=0) for message in self.HISTORY[:1]] + [*self.HISTORY[1:]]

        assert list(of_turn(history, 1)) == history
