"""Going back in a real browser: a message is edited, an answer is made again, and a branch returns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Route, expect

from turnwise import Engine
from turnwise.testing import FunctionLlm, reply

from ...support.browser.chat_page import ChatPage
from ...support.browser.tabs import Faults, Tabs
from ...support.http.live_server import LiveServer, serving
from ...support.pictures import PDF, data_url

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server whose model says how many answers it has given, and to what."""
    asked: list[str] = []

    def answer(request: object) -> object:
        asked.append(text := str(request.messages[-1]["content"]))  # type: ignore[attr-defined]
        return reply(f"{asked.count(text)}: {text}!")

    with serving(Engine.open(tmp_path_factory.mktemp("branches") / "a.db", model=FunctionLlm(answer))) as server:
        yield server


async def held(chat: ChatPage, *texts: str) -> None:
    """Open a new conversation in which these texts were said and answered."""
    await chat.open()
    for place, text in enumerate(texts):
        await chat.send(text)
        await expect(chat.answers).to_have_count(place + 1)
        await expect(chat.state).to_have_text("Ready")


@pytest_asyncio.fixture(loop_scope="session")
async def two(tabs: Tabs, server: LiveServer) -> tuple[ChatPage, ChatPage]:
    """Two tabs."""
    first = await tabs.open()
    return ChatPage(first, server), ChatPage(await tabs.open(first.context), server)


def branches(chat: ChatPage) -> Locator:
    """Return the button that lists the branches that were left."""
    return chat.messages.get_by_role("button", name="other branch")


async def edit(chat: ChatPage, said: str) -> None:
    """Begin to edit a message, by the keyboard alone."""
    await chat.messages.get_by_role("button", name=f"Edit the message: {said}").press("Enter")
    await expect(chat.composer).to_be_focused()
    await expect(chat.composer).to_have_value(said)


async def test_a_message_is_edited_and_both_tabs_follow(two: tuple[ChatPage, ChatPage]) -> None:
    """The edited message stands in the place of the old one, and what followed is gone; a tab that only watches shows
    the same. From there the branch that was left returns, by keyboard."""
    chat, other = two
    await held(chat, "sushi", "and tea")
    await other.page.goto(chat.page.url)
    await expect(other.own).to_have_text(["sushi", "and tea"])
    await expect(branches(other)).to_have_count(0)

    await edit(chat, "sushi")
    await chat.composer.fill("noodles")
    await chat.composer.press("Enter")

    for tab in two:
        await expect(tab.own).to_have_text(["noodles"])
        await expect(tab.answers.locator(".text")).to_have_text(["1: noodles!"])
        await expect(tab.messages.get_by_label("End of turn 3")).to_have_count(1)
        await expect(branches(tab)).to_have_text("1 other branch")
    await expect(chat.composer).to_have_value("")
    await branches(other).press("Enter")
    choice = other.page.get_by_role("dialog").get_by_role("radio", name="sushi turns 1, 2")
    await expect(choice).to_be_checked()
    await choice.press("Enter")
    for tab in two:
        await expect(tab.own).to_have_text(["sushi", "and tea"])
        await expect(tab.answers).to_have_count(2)
        await expect(branches(tab)).to_have_text("1 other branch")


async def test_an_answer_is_made_again(two: tuple[ChatPage, ChatPage]) -> None:
    """The answer is replaced, and the message stands once; a reload shows the same, with the branch that was left."""
    chat, other = two
    await held(chat, "soup")
    await other.page.goto(chat.page.url)
    await expect(other.answers.locator(".text")).to_have_text(["1: soup!"])

    await chat.button("Answer again").click()

    for tab in two:
        await expect(tab.answers.locator(".text")).to_have_text(["2: soup!"])
        await expect(tab.own).to_have_text(["soup"])
    await chat.page.reload()
    await expect(chat.answers.locator(".text")).to_have_text(["2: soup!"])
    await expect(branches(chat)).to_have_text("1 other branch")


async def test_editing_keeps_what_was_begun_and_can_be_given_up(tabs: Tabs, server: LiveServer) -> None:
    """A draft comes back when the edit is given up with Escape. An edit that was begun survives a reload."""
    chat = ChatPage(await tabs.open(), server)
    await held(chat, "rice")
    await chat.composer.fill("a thought")
    await edit(chat, "rice")
    await chat.composer.fill("rise")

    await chat.page.reload()

    await expect(chat.composer).to_have_value("rise")
    await expect(chat.page.get_by_text("You edit a message.")).to_be_visible()
    await chat.composer.press("Escape")
    await expect(chat.composer).to_have_value("a thought")
    await expect(chat.page.get_by_text("You edit a message.")).to_be_hidden()
    await expect(chat.own).to_have_text(["rice"])


async def test_an_edit_that_is_refused_stays(two: tuple[ChatPage, ChatPage], faults: Faults) -> None:
    """A message that another tab has hidden meanwhile cannot be edited: the server's sentence is shown, and what was
    written is kept."""
    faults.allow("status of 409")
    chat, other = two
    await held(chat, "tofu", "ginger")
    await other.page.goto(chat.page.url)
    await edit(chat, "ginger")
    await chat.composer.fill("garlic")
    await edit(other, "tofu")
    await other.composer.fill("tempeh")
    await other.composer.press("Enter")
    await expect(chat.own).to_have_text(["tempeh"])

    await chat.composer.press("Enter")

    await expect(chat.alert).to_contain_text("branch")
    await expect(chat.composer).to_have_value("garlic")
    await expect(chat.own).to_have_text(["tempeh"])


async def test_an_edit_is_taken_once(tabs: Tabs, server: LiveServer, faults: Faults) -> None:
    """An edit whose answer was lost stays where it was written; sent again, it is the same request."""
    faults.allow("ERR_FAILED")
    chat = ChatPage(await tabs.open(), server)
    await held(chat, "miso")
    routes: asyncio.Queue[Route] = asyncio.Queue()
    await chat.page.route("**/edit", routes.put)
    await edit(chat, "miso")
    await chat.composer.fill("ramen")
    await chat.composer.press("Enter")
    lost = await routes.get()
    await lost.fetch()
    await lost.abort()
    await expect(chat.lost).to_be_visible()
    await expect(chat.composer).to_have_value("ramen")
    await chat.page.unroute("**/edit")

    await chat.composer.press("Enter")

    await expect(chat.composer).to_have_value("")
    await expect(chat.own).to_have_text(["ramen"])
    await expect(chat.answers.locator(".text")).to_have_text(["1: ramen!"])
    await expect(branches(chat)).to_have_text("1 other branch")


async def test_an_edited_message_keeps_its_files_unless_they_are_removed(tabs: Tabs, server: LiveServer) -> None:
    """The files of the message stand below its text, and go with it; one that is removed does not."""
    chat = ChatPage(await tabs.open(), server)
    with server.client() as client:
        conversation_id = client.post("/conversations", json={}).json()["id"]
        sent = [{"url": data_url("application/pdf", PDF), "name": "menu.pdf"}]
        sent += [{"url": data_url("text/plain", b"Hi"), "name": "a.txt"}]
        client.post(
            f"/conversations/{conversation_id}/messages", json={"text": "Read", "files": sent}
        ).raise_for_status()
    await chat.open(conversation_id)
    await expect(chat.answers).to_have_count(1)

    await edit(chat, "Read")
    await chat.button("Send").click()
    await expect(branches(chat)).to_have_text("1 other branch")
    await expect(chat.own.get_by_role("link")).to_contain_text(["menu.pdf", "a.txt"])
    await expect(chat.answers).to_have_count(1)
    await edit(chat, "Read")
    await chat.button("Remove a.txt").click()
    await chat.button("Send").click()

    await expect(branches(chat)).to_have_text("2 other branches")
    await expect(chat.own.get_by_role("link")).to_contain_text(["menu.pdf"])
