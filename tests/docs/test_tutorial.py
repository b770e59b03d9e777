"""The tutorial, followed step by step in an empty folder."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..support.pages import Page
from ..support.servers.openai_server import OpenAiServer, says
from ..support.walkthroughs import Walk, blocks_of

if TYPE_CHECKING:
    from playwright.async_api import Page as Tab

    from ..support.browser.tabs import Faults

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = Page("docs/tutorial.md")
PAUSE = "PAUSE = 1.0"


def test_every_step_shows_what_it_says(tmp_path: Path) -> None:
    """Its files are written, its commands run, the server is killed in the middle of a turn, and whatever the page
    shows is printed."""
    with Walk(tmp_path) as walk:
        walk.changes = {PAUSE: "PAUSE = 0.05"}
        blocks = [block for block in blocks_of(PAGE) if block.file is not None or block.is_run]
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            if block.text.startswith("uvicorn"):  # it is killed while the tool runs, and then goes on
                set_pause(tmp_path, 0.05 if walk.server else 60)
            walk.take(block, following)


def set_pause(folder: Path, seconds: float) -> None:
    """Let the tool take so many seconds for each restaurant, in a server that starts now."""
    path = folder / "desk.py"
    path.write_text(re.sub(r"PAUSE = [\d.]+", f"PAUSE = {seconds}", path.read_text(encoding="utf-8")), encoding="utf-8")


def written(folder: Path, walk: Walk) -> None:
    """Write all files of the page, as they are at its end."""
    for block in blocks_of(PAGE):
        if block.file is not None:
            walk.take(block)


(STARTS, *_) = (block for block in blocks_of(PAGE) if block.text == "uvicorn server:app\n")


async def test_its_page_goes_on_where_it_was(page: Tab, faults: Faults, tmp_path: Path) -> None:
    """In a browser: the server is killed while the page shows what the tool does, and started again."""
    from playwright.async_api import expect

    faults.allow("ERR_|status of 404")  # the server is away for a while, and has no icon
    with Walk(tmp_path) as walk:
        written(tmp_path, walk)
        set_pause(tmp_path, 60)
        await asyncio.to_thread(walk.take, STARTS)
        await page.goto(walk.url)
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_text("Calling Kikunoi")).to_be_visible()

        walk.kill()
        set_pause(tmp_path, 0.05)
        await asyncio.to_thread(walk.take, STARTS)
        await page.get_by_role("button", name="Nobu, 8:15 PM, for 2").click()

        await expect(page.get_by_text("assistant: You chose Nobu, 8:15 PM, for 2.")).to_be_visible()
        await expect(page.get_by_text("user: A table for two, tonight")).to_have_count(1)


async def test_a_real_model_is_asked_as_it_says(tmp_path: Path) -> None:
    """The name of the model comes from the environment, as its key does."""
    assert "OPENAI_API_KEY=sk-… MODEL=openai/gpt-4.1-mini uvicorn server:app" in PAGE.text
    async with OpenAiServer([says("Hello from here.")]) as server:
        key = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": server.url, "MODEL": "openai/gpt-4.1-mini"}
        with Walk(tmp_path, **key) as walk:
            written(tmp_path, walk)
            printed = await asyncio.to_thread(walk.printed, "python book.py Hello")

    assert printed == "completed Hello from here.\n"
