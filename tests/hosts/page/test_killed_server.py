"""A server that is killed while a question is open, seen from the page."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import httpx
from playwright.async_api import Page, expect

from ...support.browser.asking import TABLE
from ...support.browser.tabs import Faults
from ...support.http.server_process import ServerProcess, started
from ...support.source.source_tree import ROOT


def server(folder: Path, port: int = 0) -> AbstractContextManager[ServerProcess]:
    """Start a server of the database in this folder."""
    command = ["-m", "tests.support.browser.asking_server", str(folder / "asking.db"), str(port)]
    return started(command, ROOT)


async def test_the_question_is_there_again(page: Page, faults: Faults, tmp_path: Path) -> None:
    """The page says that the server is away, connects again by itself when it is back at the same port, and still
    shows the question with what was typed, but no longer that requests failed; the answer reaches the model."""
    faults.allow("ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
    with server(tmp_path) as process:
        with httpx.Client(base_url=process.url, timeout=60) as client:
            conversation = client.post("/conversations", json={"title": "Dinner"}).raise_for_status().json()["id"]
            client.post(f"/conversations/{conversation}/messages", json={"text": TABLE}).raise_for_status()
        await page.goto(f"{process.url}/#/c/{conversation}")
        lost = page.get_by_role("status").get_by_text("The connection to the server is lost.")
        messages = page.get_by_role("region", name="Messages")
        words = page.get_by_placeholder("Your own answer")
        await words.fill("In the garden")
        unreachable = page.get_by_role("alert").get_by_text("The server cannot be reached.")
        process.kill()
        await expect(lost).to_be_visible()
        await page.get_by_role("button", name="Send answer").click()
        await expect(unreachable).to_have_count(1)
        await page.get_by_label("Message", exact=True).fill("And a window seat")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(unreachable).to_have_count(2)
        port = process.port

    with server(tmp_path, port):
        await expect(lost).to_be_hidden()
        await expect(unreachable).to_have_count(0)
        await expect(words).to_have_value("In the garden")
        await page.get_by_role("button", name="Send answer").click()
        await expect(messages).to_contain_text('{"Which table would you like?": "In the garden"}')
        await expect(page.locator("turnwise-person section")).to_have_count(0)
