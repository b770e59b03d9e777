"""The page of a server that wants a token."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.async_api import Page, expect

from ...support.browser.asking import TABLE, Conversations, asking_engine
from ...support.browser.tabs import Faults
from ...support.http.live_server import serving

TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversations]:
    """A server that wants a token."""
    engine = asking_engine(tmp_path_factory.mktemp("session") / "asking.db")
    with serving(engine, token=TOKEN) as server:
        yield Conversations(server, engine)


async def test_the_token_is_asked_for_once(page: Page, faults: Faults, conversations: Conversations) -> None:
    """Without a token the page asks for it, says when it is wrong, and goes on when it is right. It is stored nowhere
    in the page, and a reload does not ask again."""
    faults.allow("status of 401")
    await page.goto(conversations.begin(TABLE))
    dialog = page.get_by_role("dialog", name="Sign in")
    await expect(dialog.get_by_label("Token")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_have_text("Enter the token.")
    await page.keyboard.type("wrong")
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_contain_text("token")
    await dialog.get_by_label("Token").fill(TOKEN)
    await dialog.get_by_role("button", name="Sign in").click()
    await expect(dialog).to_be_hidden()
    await expect(page.get_by_role("radio", name="Window")).to_be_visible()
    stored = await page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])")
    assert TOKEN not in stored

    await page.reload()
    await expect(page.get_by_role("radio", name="Window")).to_be_visible()
    await expect(dialog).to_have_count(0)


async def test_what_was_being_sent_is_sent_after_signing_in(
    page: Page, faults: Faults, conversations: Conversations
) -> None:
    """If the session ends while a question is open, the answer waits for a new session, and then the newest one is
    sent."""
    faults.allow("status of 401")
    await page.goto(conversations.begin(TABLE))
    dialog = page.get_by_role("dialog", name="Sign in")
    await dialog.get_by_label("Token").fill(TOKEN)
    await page.keyboard.press("Enter")
    await page.get_by_role("radio", name="Bar").check()
    await page.context.clear_cookies()
    await page.get_by_role("button", name="Send answer").click()
    await expect(dialog).to_be_visible()
    await page.keyboard.press("Escape")
    await page.get_by_role("radio", name="Window").check()
    await page.get_by_role("button", name="Send answer").click()
    await dialog.get_by_label("Token").fill(TOKEN)
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("region", name="Messages")).to_contain_text(
        '{"Which table would you like?": "Window"}'
    )
    await expect(page.locator("turnwise-person section")).to_have_count(0)
