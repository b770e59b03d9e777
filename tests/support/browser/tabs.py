"""Tabs of a real browser that note whatever goes wrong in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, WebError

REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
    console.error(`Content-Security-Policy: ${event.violatedDirective} forbids ${event.blockedURI}`));
"""

INSIDE = {"about", "blob", "data"}
"""Schemes of addresses that no request leaves the browser for."""

PATIENCE = 60_000
"""How many milliseconds an action or an assertion waits for the page: the machine may be busy."""


class Faults:
    """What went wrong in the tabs of a test: errors on the console, uncaught exceptions, violations of the
    Content-Security-Policy, crashes, and requests to another server than the one whose page was opened first.

    A test fails if there are any, but for those it has allowed: `faults.allow(r"status of 409")`.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self.allowed: list[re.Pattern[str]] = []
        self.origins: set[str] = set()

    def allow(self, pattern: str) -> None:
        """Let faults pass whose text this regular expression is found in."""
        self.allowed.append(re.compile(pattern))

    def unexpected(self) -> list[str]:
        """Return the faults that were not allowed."""
        return [fault for fault in self.found if not any(pattern.search(fault) for pattern in self.allowed)]

    def watch(self, context: BrowserContext) -> None:
        """Note what goes wrong in all pages of this context."""
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("request", self._request)
        context.on("page", lambda page: page.on("crash", lambda _: self.found.append("The page crashed.")))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.found.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _error(self, error: WebError) -> None:
        self.found.append(f"uncaught: {error.error}")

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        origin = f"{address.scheme}://{address.netloc}"
        if address.scheme not in INSIDE:
            if not self.origins:
                self.origins.add(origin)
            if origin not in self.origins:
                self.found.append(f"foreign request: {request.method} {request.url}")


class Tabs:
    """Opens tabs for one test. `faults` is what went wrong in any of them."""

    def __init__(self, browser: Browser) -> None:
        self.faults = Faults()
        self._browser = browser
        self._contexts: list[BrowserContext] = []

    async def open(self, context: BrowserContext | None = None, **options: Any) -> Page:
        """Open a tab. In the `context` of another tab it shares the cookies and the storage of that one; otherwise it
        is like a browser of its own, with Playwright's options of a context: `viewport`, `color_scheme`, `bypass_csp`.
        """
        context = context or await self._new_context(options)
        page = await context.new_page()
        page.set_default_timeout(PATIENCE)
        return page

    async def _new_context(self, options: dict[str, Any]) -> BrowserContext:
        usual = {"viewport": {"width": 1280, "height": 800}, "locale": "en-US", "timezone_id": "UTC"}
        context = await self._browser.new_context(**{**usual, **options})
        self._contexts.append(context)
        self.faults.watch(context)
        await context.add_init_script(REPORT_VIOLATIONS)
        await context.tracing.start(snapshots=True)
        return context

    async def close(self, keep: Path | None = None) -> None:
        """Close all tabs. `keep` is where a picture and a trace of each are kept first, with a number and a suffix
        added; `playwright show-trace` opens a trace."""
        for number, context in enumerate(self._contexts, start=1):
            trace = None if keep is None else keep.with_name(f"{keep.name}-{number}.zip")
            for place, page in enumerate(context.pages, start=1):
                if keep is not None and not page.is_closed():
                    await page.screenshot(path=keep.with_name(f"{keep.name}-{number}-{place}.png"))
            await context.tracing.stop(path=trace)
            await context.close()
        self._contexts.clear()
