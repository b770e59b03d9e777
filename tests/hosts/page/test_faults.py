"""The browser of the tests: whatever goes wrong in a page fails the test, so that no test has to look for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.async_api import Page
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...support.browser.tabs import Faults
from ...support.http.live_server import LiveServer, serving_app

pytestmark = pytest.mark.slow

SCRIPTS = {
    "console": "console.error('out of order')",
    "throws": "throw new Error('boom')",
    "rejects": "Promise.reject(new Error('a promise that nobody kept'))",
    "evaluates": "try { eval('1') } catch {}",
    "styles": "document.documentElement.setAttribute('style', 'color: red')",
    "elsewhere": "fetch('http://127.0.0.1:9/').catch(() => 0)",
    "missing": "fetch('/nothing/here')",
    "quiet": "console.warn('a warning is no fault')",
}
FAULTS = (
    "console: out of order",
    "uncaught: boom",
    "uncaught: a promise that nobody kept",
    "Content-Security-Policy: require-trusted-types-for forbids",
    "Content-Security-Policy: style-src",
    "foreign request: GET http://127.0.0.1:9/",
    "status of 404",
)
POLICY = "default-src 'none'; script-src 'self'; connect-src *; img-src data:; require-trusted-types-for 'script'"


async def script(request: Request) -> Response:
    """The script of this name."""
    return Response(SCRIPTS[request.path_params["name"]], media_type="text/javascript")


async def document(request: Request) -> Response:
    """A page that runs scripts, whose names its path has."""
    names = request.path_params["names"].split("+")
    page = "<!doctype html><link rel=icon href=data:,>" + "".join(
        f"<script src=/script/{name}></script>" for name in names
    )
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": POLICY})


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """A server of pages in which things go wrong."""
    with serving_app(Starlette(routes=[Route("/script/{name}", script), Route("/{names}", document)])) as server:
        yield server


async def test_every_fault_is_found(page: Page, faults: Faults, server: LiveServer) -> None:
    """A script that fails, breaks the Content-Security-Policy or reaches another server fails its test."""
    await page.goto(f"{server.url}/{'+'.join(SCRIPTS)}")
    await page.wait_for_load_state("networkidle")

    found = "\n".join(faults.unexpected())
    assert [fault for fault in FAULTS if fault not in found] == []
    faults.allow("")


async def test_a_warning_is_no_fault(page: Page, faults: Faults, server: LiveServer) -> None:
    """Nor is a request to the server of the page."""
    await page.goto(f"{server.url}/quiet")
    await page.wait_for_load_state("networkidle")

    assert faults.found == []
