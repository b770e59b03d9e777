"""H5 in the page: two tabs show one conversation, and both answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from playwright.async_api import Locator, Page, expect

from ...support.browser.asking import TABLE, Conversations, asking_engine
from ...support.browser.tabs import Faults, Tabs
from ...support.http.live_server import serving

pytestmark = pytest.mark.slow

HIDE = """hidden => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Tells a page that its tab is hidden, or visible again, as a browser does when a person changes tabs."""


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversations]:
    """A server whose model asks."""
    engine = asking_engine(tmp_path_factory.mktemp("tabs") / "asking.db")
    with serving(engine) as server:
        yield Conversations(server, engine)


def messages(page: Page) -> Locator:
    """Return what the page shows of the conversation."""
    return page.get_by_role("region", name="Messages")


async def test_a_late_answer_is_refused_and_both_tabs_show_the_same(
    tabs: Tabs, faults: Faults, conversations: Conversations
) -> None:
    """The tab that answers second shows the server's sentence, keeps what was written, and then shows the same as the
    first; only the first answer reached the model."""
    faults.allow("status of 409")
    first = await tabs.open()
    second = await tabs.open(first.context)
    address = conversations.begin(TABLE)
    for page in (first, second):
        await page.goto(address)
        await expect(page.get_by_role("radio", name="Window")).to_be_visible()
    await second.evaluate(HIDE, True)  # it hears of nothing until somebody looks at it again
    await second.get_by_placeholder("Your own answer").fill("On the roof")

    await first.get_by_role("radio", name="Window").check()
    await first.get_by_role("button", name="Send answer").click()
    await expect(messages(first)).to_contain_text('{"Which table would you like?": "Window"}')
    await second.get_by_role("button", name="Send answer").click()
    await expect(second.get_by_role("alert").get_by_text("No question waits for this answer.")).to_be_visible()
    await second.evaluate(HIDE, False)

    await expect(messages(second)).to_contain_text('{"Which table would you like?": "Window"}')
    notice = second.locator("turnwise-person")
    await expect(notice).to_contain_text("No question waits for this answer. The conversation is now: Ready.")
    await expect(notice).to_contain_text("On the roof")
    await notice.get_by_role("button", name="Dismiss").click()
    await expect(notice.get_by_role("button")).to_have_count(0)
    await expect(second.get_by_role("textbox", name="Message")).to_be_focused()
    assert await messages(first).inner_text() == await messages(second).inner_text()
    assert "On the roof" not in await messages(second).inner_text()


async def test_both_tabs_answer_at_once(tabs: Tabs, faults: Faults, conversations: Conversations) -> None:
    """Of two answers at the same time exactly one is taken, and both tabs show it."""
    faults.allow("status of 409")
    pages = [await tabs.open(), await tabs.open()]
    address = conversations.begin(TABLE)
    statuses: list[int] = []
    for page, label in zip(pages, ("Window", "Bar"), strict=True):
        page.on("response", lambda response: response.url.endswith("/respond") and statuses.append(response.status))
        await page.goto(address)
        await page.get_by_role("radio", name=label).check()
    buttons = [await page.get_by_role("button", name="Send answer").element_handle() for page in pages]
    await asyncio.gather(*(button.evaluate("(button) => button.click()") for button in buttons if button))
    for page in pages:
        await expect(messages(page)).to_contain_text('I received: {"answers"')  # it was rendered
        await expect(page.get_by_role("button", name="Send answer")).to_have_count(0)

    assert await messages(pages[0]).inner_text() == await messages(pages[1]).inner_text()
    assert sorted(statuses) in ([200], [200, 409])
