"""The conversations of the demonstration in the page: each shows what it was made for, and nothing goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, expect

from turnwise import Engine
from turnwise.hosts.http.demo import TravelTools, hold_conversations

from ...support.http.live_server import LiveServer, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The server of the demonstration."""
    database = tmp_path_factory.mktemp("demo") / "demo.db"
    asyncio.run(hold_conversations(database, "rehearsal"))
    with serving(Engine.open(database, tools=TravelTools(delay=0).tools)) as server:
        yield server


async def test_a_visitor_sees_every_state(page: Page, server: LiveServer) -> None:
    """H7: Markdown, tools and questions, an approval, a failure, and what an agent reports, in one visit."""
    await page.goto(server.url)
    chat = page.get_by_role("main")

    await page.get_by_text("A weekend in Vienna").first.click()
    await expect(chat.get_by_role("table")).to_contain_text("Arrives at Wien Hbf")
    await expect(chat.get_by_role("link", name="Upper Belvedere")).to_have_attribute("rel", "noopener noreferrer")

    await page.get_by_text("The long way to Lisbon").first.click()
    await chat.get_by_role("radio", name="With the ferry").check()
    await expect(chat.get_by_role("region", name="Preview: With the ferry")).to_contain_text("by ship")

    await page.get_by_text("Packing for the Alps").first.click()
    await expect(chat.get_by_role("checkbox", name="Boots")).to_be_visible()
    await expect(chat.get_by_role("radio", name="In huts")).to_be_visible()

    await page.get_by_text("Two seats to Copenhagen").first.click()
    await expect(chat.get_by_role("button", name="Allow")).to_be_visible()

    await page.get_by_text("A night train to Rome").first.click()
    await expect(chat.get_by_text("The provider does not accept the key.").first).to_be_visible()
    await expect(chat.get_by_role("button", name="Try again")).to_be_visible()

    await page.get_by_text("The desk and its scout").first.click()
    await expect(chat.get_by_text("it is: my scout reports")).to_be_visible()
