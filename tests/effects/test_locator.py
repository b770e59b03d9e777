"""A request learns where the user is without waiting for it: who is asked, for how long, and how often."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import timedelta
from typing import Any

import pytest

from turnwise import IpLookup, Location
from turnwise.effects import location
from turnwise.effects.location import KEPT, KEPT_UNKNOWN, SERVICE, UNKNOWN, Locator, location_source
from turnwise.testing import ManualClock

from ..support.servers.json_server import body, serving

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests wait as long as a busy machine takes."""
    monkeypatch.setattr(location, "WAIT", 60)
    monkeypatch.setattr(location, "DEADLINE", 60)


class Source:
    """Returns what a test gives it, call by call, and counts the calls. An exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls = 0

    def __call__(self) -> Any:
        """The next answer; the last one is repeated."""
        self.calls += 1
        answer = self.answers[min(self.calls, len(self.answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class TestWhoIsAsked:
    """J6: a configured address, else auto-detection if allowed; an application's function comes first."""

    def source(self, given: Any = None, **settings: Any) -> Any:
        """What is asked under these settings."""
        return location_source(given, **{"enabled": True, "ip_address": None, "auto_detect": False, **settings})

    def test_nobody_unless_it_is_enabled(self) -> None:
        """Whatever else is configured."""
        given = Source("Espoo")

        assert self.source(given, enabled=False, ip_address="203.0.113.7", auto_detect=True) is None

    def test_nobody_if_nothing_is_configured(self) -> None:
        """No outside service is asked unless somebody allowed that."""
        assert self.source() is None

    def test_the_function_of_the_application_first(self) -> None:
        """It knows best."""
        given = Source("Espoo")

        assert self.source(given, ip_address="203.0.113.7", auto_detect=True) is given

    @pytest.mark.parametrize(
        ("settings", "asked"),
        [
            ({"ip_address": "203.0.113.7"}, f"{SERVICE}203.0.113.7"),
            ({"ip_address": "203.0.113.7", "auto_detect": True}, f"{SERVICE}203.0.113.7"),
            ({"auto_detect": True}, SERVICE),
        ],
    )
    def test_then_a_lookup(self, settings: dict[str, Any], asked: str) -> None:
        """Of the configured address, else of the own one if that is allowed."""
        source = self.source(**settings)

        assert isinstance(source, IpLookup)
        assert source.url == asked


class TestTheLocator:
    """The location is asked for in the background, and kept for a while."""

    async def test_it_is_asked_for_once(self) -> None:
        """And again when it is old, or when the clock was set back."""
        clock, source = ManualClock(), Source("Espoo", Location("Helsinki"))
        where = Locator(source, clock)

        assert [await where.describe() for _ in range(3)] == ["Espoo"] * 3
        await clock.advance((KEPT - SECOND).total_seconds())
        assert await where.describe() == "Espoo"
        await clock.advance(1)
        assert await where.describe() == "Helsinki"
        assert source.calls == 2

    async def test_without_a_source_it_is_unknown(self) -> None:
        """J6: location off."""
        assert await Locator(None, ManualClock()).describe() == UNKNOWN

    @pytest.mark.parametrize("failure", [None, ValueError("at home"), SystemExit(1), object(), b"Espoo"])
    async def test_a_failure_is_unknown_for_a_while(self, failure: Any, caplog: pytest.LogCaptureFixture) -> None:
        """J6: location failing. It is not asked for each request, and the log says nothing of what was raised."""
        clock, source = ManualClock(), Source(failure, "Espoo")
        where = Locator(source, clock)

        with caplog.at_level(logging.DEBUG):
            assert [await where.describe() for _ in range(3)] == [UNKNOWN] * 3
        assert source.calls == 1
        await clock.advance(KEPT_UNKNOWN.total_seconds())
        assert await where.describe() == "Espoo"
        assert "at home" not in caplog.text

    async def test_a_request_waits_briefly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Requests share one lookup and the wait for it; what comes later is used once it is there."""
        monkeypatch.setattr(location, "WAIT", 0.001)
        arrives, asked = asyncio.Event(), []

        async def slow() -> str:
            asked.append(True)
            await arrives.wait()
            return "Espoo"

        where = Locator(slow, ManualClock())
        first = await asyncio.gather(where.describe(), where.describe())
        monkeypatch.setattr(location, "WAIT", 3600)
        later = await where.describe()  # does not wait once more
        arrives.set()
        while (found := await where.describe()) == UNKNOWN:
            await asyncio.sleep(0)

        assert [*first, later, found] == [UNKNOWN, UNKNOWN, UNKNOWN, "Espoo"]
        assert asked == [True]

    async def test_a_source_that_hangs_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also one that blocks its thread."""
        monkeypatch.setattr(location, "DEADLINE", 0.001)
        released = threading.Event()

        assert await Locator(released.wait, ManualClock()).describe() == UNKNOWN  # type: ignore[arg-type]
        released.set()

    async def test_a_cancelled_request_stops_waiting(self) -> None:
        """The lookup goes on for the others."""
        arrives = asyncio.Event()

        async def slow() -> Location:
            await arrives.wait()
            return Location("Espoo")

        where = Locator(slow, ManualClock())
        request = asyncio.create_task(where.describe())
        other = asyncio.create_task(where.describe())
        await asyncio.sleep(0)
        request.cancel()
        arrives.set()

        assert await other == "Espoo"
        assert (await asyncio.gather(request, return_exceptions=True))[0].__class__ is asyncio.CancelledError

    async def test_a_service_is_asked(self) -> None:
        """J6: over a real socket; when the service is gone, the location is unknown again."""
        clock = ManualClock()
        with serving(body(b'{"city": "Espoo", "country": "Finland", "timezone": "Europe/Helsinki"}')) as server:
            where = Locator(IpLookup("203.0.113.7", url=server.url), clock)
            assert await where.describe() == "Espoo, Finland (Europe/Helsinki)"
        await clock.advance(KEPT.total_seconds())

        assert await where.describe() == UNKNOWN
