"""When a schedule comes: intervals that keep their phase, cron expressions, time zones and their clock changes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import InvalidInput, Schedule
from turnwise.engine.schedules import first_moment, next_moment
from turnwise.states.values.acts import LONGEST_INTERVAL, MAX_CRON

from ..support.cases import holds_for

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def every(seconds: float) -> Schedule:
    """A schedule with this interval."""
    return Schedule(every=seconds, task="Look.")


def cron(expression: str, zone: str = "UTC") -> Schedule:
    """A schedule with this expression."""
    return Schedule(cron=expression, zone=zone, task="Look.")


def moments(schedule: Schedule, start: datetime, count: int) -> list[datetime]:
    """The first moments after `start`, each found as an engine finds it that wakes in time."""
    found = [first_moment(schedule, start)]
    while len(found) < count:
        following = next_moment(schedule, found[-1], found[-1])
        assert following is not None
        found.append(following)
    return found


class TestIntervals:
    """`every`."""

    def test_the_first_moment_is_an_interval_away(self) -> None:
        """From when the schedule begins."""
        assert moments(every(90), NOON, 3) == [NOON + timedelta(seconds=90 * n) for n in (1, 2, 3)]

    @pytest.mark.parametrize(
        ("late", "following"), [(0, 60), (59.9, 60), (60, 120), (61, 120), (7 * 86_400 + 1, 7 * 86_400 + 60)]
    )
    def test_what_was_missed_happens_once_and_the_phase_is_kept(self, late: float, following: float) -> None:
        """However late the wake-up is taken, the next moment is a whole number of intervals after it."""
        found = next_moment(every(60), NOON, NOON + timedelta(seconds=late))

        assert found == NOON + timedelta(seconds=following)

    def test_a_wake_up_that_is_early_leads_on_all_the_same(self) -> None:
        """The time of day may have been set back meanwhile."""
        assert next_moment(every(60), NOON, NOON - timedelta(hours=1)) == NOON + timedelta(seconds=60)

    @given(
        st.floats(min_value=1, max_value=LONGEST_INTERVAL),
        st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=20_000)),
    )
    def test_the_next_moment_is_the_first_in_the_future(self, seconds: float, late: timedelta) -> None:
        """For any interval, and however long no process ran."""
        now, interval = NOON + late, timedelta(seconds=seconds)

        found = next_moment(every(seconds), NOON, now)

        assert found is not None
        assert now < found <= now + interval
        assert (found - NOON) % interval == timedelta(0)

    def test_the_calendar_ends(self) -> None:
        """There is no moment after it."""
        last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)

        assert next_moment(every(3600), last, last) is None


class TestExpressions:
    """`cron`."""

    def test_the_moments_of_an_expression(self) -> None:
        """Weekdays at half past eight."""
        found = moments(cron("30 8 * * MON-FRI"), datetime(2026, 6, 5, 12, tzinfo=UTC), 2)

        assert found == [datetime(2026, 6, 8, 8, 30, tzinfo=UTC), datetime(2026, 6, 9, 8, 30, tzinfo=UTC)]

    def test_what_was_missed_happens_once(self) -> None:
        """The next moment lies in the future."""
        now = NOON + timedelta(days=3)

        assert next_moment(cron("0 12 * * *"), NOON, now) == now + timedelta(days=1)

    def test_a_moment_is_never_the_one_that_is_over(self) -> None:
        """Not even by a fraction of a second."""
        almost = NOON + timedelta(microseconds=1)

        assert next_moment(cron("* * * * *"), NOON, almost) == NOON + timedelta(minutes=1)
        assert next_moment(cron("* * * * *"), NOON, NOON) == NOON + timedelta(minutes=1)

    @holds_for(
        "expression",
        [
            "@daily",
            "* * * *",
            "61 * * * *",
            "* * 31 2 *",
            "a b c d e",
            "*/0 * * * *",
            "; DROP TABLE",
            "٣ * * * *",
            "\n",
        ],
    )
    def test_an_expression_that_is_not_valid_is_refused(self, expression: str) -> None:
        """In one sentence that quotes it."""
        with pytest.raises(InvalidInput, match="is not valid") as refused:
            first_moment(cron(expression), NOON)

        assert repr(expression) in refused.value.sentence

    def test_an_expression_that_never_comes_is_refused(self) -> None:
        """The thirty-first of February on a fifth Monday: nobody would ever be woken."""
        with pytest.raises(InvalidInput, match="never comes"):
            first_moment(cron("0 0 */31 2 MON#5"), NOON)

    def test_an_expression_may_come_to_its_end(self) -> None:
        """A schedule that was valid has no next moment once the calendar ends."""
        late = datetime(9999, 12, 31, 13, tzinfo=UTC)

        assert next_moment(cron("0 12 * * *"), late - timedelta(hours=1), late) is None

    @holds_for(
        "expression",
        [
            "0 0 */31 2 SUN#5",
            "0 0 LW 2 */9",
            "59 59 23 31 12 *",
            ",".join(["0-59/1"] * 28)[: MAX_CRON - 8] + " * * * *",
        ],
    )
    @holds_for("zone", ["UTC", "America/Santiago"])
    def test_a_hostile_expression_costs_little(self, expression: str, zone: str) -> None:
        """The search looks fifty years ahead, day by day: that is bounded, whatever the expression says."""
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            with suppress(InvalidInput):
                first_moment(cron(expression, zone), NOON)
        finally:
            sys.setprofile(None)

        assert calls < 100_000

    @given(st.text(min_size=1, max_size=MAX_CRON), st.text(min_size=1, max_size=40))
    def test_any_text_gives_a_moment_or_a_sentence(self, expression: str, zone: str) -> None:
        """Nothing else comes out."""
        for schedule in (cron(expression), cron("* * * * *", zone)):
            try:
                assert first_moment(schedule, NOON) > NOON
            except InvalidInput as refused:
                assert refused.sentence.endswith(".")


class TestTimeZones:
    """Cron expressions are read in the time of a place."""

    def test_a_zone_is_that_of_a_place(self) -> None:
        """Nine o'clock in Berlin is another moment in summer than in winter."""
        schedule = cron("0 9 * * *", "Europe/Berlin")

        assert first_moment(schedule, NOON) == datetime(2026, 6, 2, 7, tzinfo=UTC)
        assert first_moment(schedule, datetime(2026, 12, 1, 12, tzinfo=UTC)) == datetime(2026, 12, 2, 8, tzinfo=UTC)

    def test_an_hour_that_is_left_out_comes_after_it(self) -> None:
        """On 29 March 2026 there is no half past two in Berlin."""
        found = moments(cron("30 2 * * *", "Europe/Berlin"), datetime(2026, 3, 28, 12, tzinfo=UTC), 2)

        assert found == [datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 3, 30, 0, 30, tzinfo=UTC)]

    def test_an_hour_that_comes_twice_happens_once(self) -> None:
        """On 25 October 2026 it is half past two twice in Berlin."""
        found = moments(cron("30 2 * * *", "Europe/Berlin"), datetime(2026, 10, 24, 12, tzinfo=UTC), 2)

        assert found == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)]

    @holds_for("minutes", range(0, 180, 15))
    def test_no_moment_of_the_repeated_hour_lies_in_the_past(self, minutes: int) -> None:
        """Also not for an engine that wakes within it."""
        now = datetime(2026, 10, 24, 23, 30, tzinfo=UTC) + timedelta(minutes=minutes)

        found = first_moment(cron("0,10,20,30,40,50 2 * * *", "Europe/Berlin"), now)

        assert found > now

    @holds_for("zone", ["Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Pacific/Apia"])
    @holds_for("expression", ["30 * * * *", "*/20 * * * *", "0 0 * * *", "45 23,0,1,2,3 * * *"])
    def test_a_year_of_moments_goes_forward(self, zone: str, expression: str) -> None:
        """Through every clock change: each moment is later than the one before, and none is far away."""
        now = datetime(2026, 1, 1, tzinfo=UTC)
        schedule = cron(expression, zone)
        starts = [now + timedelta(hours=25 * n) for n in range(350)]

        waits = [first_moment(schedule, start) - start for start in starts]

        assert all(timedelta(0) < wait <= timedelta(hours=25) for wait in waits)

    @pytest.mark.parametrize("zone", ["Nowhere/At", "utc+1", "../../etc/passwd", "/etc/passwd", "Europe", "a\0b", "é"])
    def test_an_unknown_zone_is_refused(self, zone: str) -> None:
        """Also one that is the path of a file."""
        with pytest.raises(InvalidInput, match="no time zone"):
            first_moment(cron("* * * * *", zone), NOON)


WITHOUT_CRONSIM = """
import sys
from datetime import UTC, datetime
from turnwise import ConfigurationError, Engine, Schedule
from turnwise.engine.schedules import first_moment

now = datetime(2026, 6, 1, tzinfo=UTC)
print(first_moment(Schedule(every=60, task="Look."), now).minute, "cronsim" in sys.modules)
sys.modules["cronsim"] = None
try:
    first_moment(Schedule(cron="* * * * *", task="Look."), now)
except ConfigurationError as error:
    print(error.sentence)
"""


@pytest.mark.slow
def test_cron_expressions_need_a_package() -> None:
    """It is loaded when it is needed, intervals go on without it, and a sentence says what to install."""
    ran = subprocess.run([sys.executable, "-c", WITHOUT_CRONSIM], capture_output=True, text=True, check=True)

    assert ran.stdout.splitlines() == [
        "1 False",
        'A cron expression needs the package cronsim: pip install "turnwise[cron]".',
    ]
