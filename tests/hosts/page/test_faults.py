"""The browser of the tests: whatever goes wrong in a page fails the test, so that no test has to look for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.async_api import Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...support.browser.tabs import Faults
from ...support.http.live_server import LiveServer, serving_app

SCRIPTS = {
    "console": "console.error('out of order')",
    "throws": "throw new Error('boom')",
    "rejects": "Promise.reject(new Error('boom'))",
    "evaluates": "try { eval('1') } catch {}",
    "markup": "try { document.documentElement.innerHTML = '<b>bold</b>' } catch {}",
    "styles": "document.documentElement.setAttribute('style', 'color: red')",
    "elsewhere": "fetch('http://127.0.0.1:9/').catch(() => 0)",
    "missing": "fetch('/nothing/here')",
    "quiet": "console.warn('a warning is no fault')",
}
POLICY = "default-src 'none'; script-src 'self'; connect-src *; img-src data:; require-trusted-types-for 'script'"


async def script(request: Request) -> Response:
    """The script of this name."""
    return Response(SCRIPTS[request.path_params["name"]], media_type="text/javascript")


async def document(request: Request) -> Response:
    """A page that runs one script, and shows that it has loaded."""
    script = f"<script src=/script/{request.path_params['name']}></script>"
    page = f"<!doctype html><link rel=icon href=data:,>{script}<h1>loaded</h1>"
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": POLICY})


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """A server of pages in each of which one thing goes wrong."""
    with serving_app(Starlette(routes=[Route("/script/{name}", script), Route("/{name}", document)])) as server:
        yield server


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("console", "console: out of order"),
        ("throws", "uncaught: boom"),
        ("rejects", "uncaught: boom"),
        ("evaluates", "Content-Security-Policy: require-trusted-types-for"),
        ("markup", "Content-Security-Policy: require-trusted-types-for"),
        ("styles", "Content-Security-Policy: style-src"),
        ("elsewhere", "foreign request: GET http://127.0.0.1:9/"),
        ("missing", "status of 404"),
    ],
)
async def test_a_fault_is_found(name: str, fault: str, page: Page, faults: Faults, server: LiveServer) -> None:
    """A script that fails, breaks the Content-Security-Policy or reaches another server would fail its test."""
    await page.goto(f"{server.url}/{name}")
    await expect(page.get_by_role("heading")).to_have_text("loaded")
    await page.wait_for_load_state("networkidle")

    assert fault in "\n".join(faults.unexpected())
    faults.allow("")


async def test_a_warning_is_no_fault(page: Page, faults: Faults, server: LiveServer) -> None:
    """Also a request to the server of the page is none."""
    await page.goto(f"{server.url}/quiet")

    await expect(page.get_by_role("heading")).to_have_text("loaded")
    assert faults.found == []
