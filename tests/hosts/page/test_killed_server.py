"""A server that is killed while a question is open, seen from the page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from ...support.browser.asking import TABLE
from ...support.browser.tabs import Faults
from ...support.http.server_process import ServerProcess, started
from ...support.source.source_tree import ROOT

pytestmark = pytest.mark.slow

GONE = "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE"
"""What goes wrong in a browser whose server is gone."""

SAYS_GONE = re.compile("not be reached|connection is lost|connection to the server is lost")
"""What a part of the page says when it knows that."""


def server(folder: Path, port: int = 0) -> AbstractContextManager[ServerProcess]:
    """Start a server of the database in this folder."""
    command = ["-m", "tests.support.browser.asking_server", str(folder / "asking.db"), str(port)]
    return started(command, ROOT)


def begin(process: ServerProcess, text: str = "") -> str:
    """Begin a conversation, with this message if there is one, and return its id."""
    with httpx.Client(base_url=process.url, timeout=60) as client:
        conversation = client.post("/conversations", json={"title": "Dinner"}).raise_for_status().json()["id"]
        if text:
            client.post(f"/conversations/{conversation}/messages", json={"text": text}).raise_for_status()
    return str(conversation)


async def look_into_everything(page: Page) -> None:
    """Ask the server for whatever the inspector shows, and wait until that has failed."""
    for tab in ("Agents", "Outbox", "Steps"):
        await page.get_by_role("tab", name=tab).click()
    await page.get_by_role("button", name="Replay").click()
    await page.wait_for_timeout(1000)


async def pass_time_until(page: Page, holds: Callable[[], Awaitable[bool]]) -> None:
    """Let the stopped clock of a page go on until this holds, but not for as long as it waits before it tries again. It
    goes on by small steps, because what the page hears from its server comes when it comes, and is drawn a frame
    later."""
    for _ in range(300):
        if await holds():
            return
        await page.clock.run_for(1)
        await asyncio.sleep(0.05)


async def test_the_question_is_there_again(page: Page, faults: Faults, tmp_path: Path) -> None:
    """The page says once that the server is away, whatever is tried meanwhile, connects again when it is back at the
    same port, and still shows the question with what was typed; the answer reaches the model."""
    faults.allow(GONE)
    with server(tmp_path) as process:
        conversation = begin(process, TABLE)
        await page.goto(f"{process.url}/#/c/{conversation}")
        lost = page.get_by_role("status").get_by_text("The page connects again by itself.")
        messages = page.get_by_role("region", name="Messages")
        words = page.get_by_placeholder("Your own answer")
        await words.fill("In the garden")
        said = page.get_by_text(SAYS_GONE).locator("visible=true")
        await expect(said).to_have_count(0)
        process.kill()
        await expect(lost).to_contain_text("The connection to the server is lost.")
        await page.get_by_role("button", name="Send answer").click()
        await expect(lost).to_contain_text("The server could not be reached: what you sent last may not have arrived.")
        await page.get_by_label("Message", exact=True).fill("And a window seat")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.get_by_label("Message", exact=True)).to_have_value("And a window seat")
        await look_into_everything(page)
        await expect(said).to_have_count(1)
        port = process.port

    with server(tmp_path, port):
        await page.get_by_role("button", name="Try now").click()
        await expect(lost).to_be_hidden()
        await expect(said).to_have_count(0)
        await expect(words).to_have_value("In the garden")
        await page.get_by_role("button", name="Send answer").click()
        await expect(messages).to_contain_text('{"Which table would you like?": "In the garden"}')
        await expect(page.locator("turnwise-person section")).to_have_count(0)


async def test_try_now_does_not_wait(page: Page, faults: Faults, tmp_path: Path) -> None:
    """A page that has waited long tries seldom; a person who knows better has it try at once."""
    faults.allow(GONE)
    await page.clock.install()
    with server(tmp_path) as process:
        conversation = begin(process)
        await page.goto(f"{process.url}/#/c/{conversation}")
        button = page.get_by_role("button", name="Try now")
        await expect(page.get_by_role("main").locator(".badge")).to_be_visible()
        await page.clock.pause_at(await page.evaluate("Date.now() + 1000"))  # no timer of the page runs from now on
        process.kill()
        await pass_time_until(page, button.is_visible)
        await expect(button).to_be_visible()
        port = process.port

    with server(tmp_path, port):
        await button.click()
        await pass_time_until(page, button.is_hidden)

        await expect(button).to_be_hidden()
