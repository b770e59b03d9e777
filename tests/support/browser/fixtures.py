"""Fixtures of tests that use a browser: one Chromium for each process of the run, and tabs for each test.

A conftest.py that wants them imports every name in `__all__`. Such a test is a coroutine function and runs in the event
loop of the session, in which Playwright runs too; its server runs elsewhere (see support/http).

    async def test_greets(page: Page, server: LiveServer) -> None:
        await page.goto(server.url)
        await expect(page.get_by_role("heading", name="Conversations")).to_be_visible()
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from ..source.source_tree import ROOT
from .chromium import FLAGS, chromium_or_skip
from .tabs import PATIENCE, Faults, Tabs

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

__all__ = ["browser", "faults", "page", "pytest_collection_modifyitems", "pytest_runtest_makereport", "tabs"]

PICTURES = ROOT / "build" / "screenshots"
"""Where pictures and traces of failed tests are kept. git ignores it and `make clean` removes it."""

HAS_FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that use a browser in the event loop of the session."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note on the test whether a phase of it has failed, so that its fixtures know."""
    report = yield
    item.stash[HAS_FAILED] = report.failed or item.stash.get(HAS_FAILED, False)
    return report


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The Chromium that is installed, without a window."""
    executable = chromium_or_skip()
    from playwright.async_api import async_playwright, expect

    expect.set_options(timeout=PATIENCE)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable, args=[*FLAGS])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser, request: pytest.FixtureRequest) -> AsyncIterator[Tabs]:
    """What opens tabs. At the end the test fails if something went wrong in one of them that it did not allow."""
    tabs = Tabs(browser)
    yield tabs
    unexpected = tabs.faults.unexpected()
    has_failed = request.node.stash.get(HAS_FAILED, False) or unexpected
    await tabs.close(keep=PICTURES / re.sub(r"\W+", "-", request.node.nodeid) if has_failed else None)
    assert unexpected == [], unexpected  # which pytest explains in the modules of tests alone


@pytest_asyncio.fixture(loop_scope="session")
async def page(tabs: Tabs) -> Page:
    """A tab, in a browser without cookies and storage."""
    return await tabs.open()


@pytest.fixture
def faults(tabs: Tabs) -> Faults:
    """What goes wrong in the tabs of this test: `faults.allow(…)` lets some of it pass."""
    return tabs.faults
