"""The list of conversations in a real browser: beginning, choosing, renaming and deleting them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from turnwise import Engine
from turnwise.hosts.http import create_app
from turnwise.testing import FunctionLlm

from ...support.browser.chat_page import ChatPage
from ...support.browser.tabs import Faults, Tabs
from ...support.http.live_server import LiveServer, serving, serving_app

pytestmark = pytest.mark.slow

MANY = 65
"""More conversations than the list reads at once."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with many conversations, and one that only runs a completion; its model repeats what it is told."""
    database = Path(tmp_path_factory.mktemp("list")) / "list.db"
    model = FunctionLlm(lambda request: f"You said: {request.messages[-1]['content']}")
    engine = Engine.open(database, model=model)
    with serving(engine) as server, server.client() as client:
        for number in range(MANY):
            client.post("/conversations", json={"title": f"Conversation {number:02}"}).raise_for_status()
        server.run(lambda: engine.create(title="A completion", marks={"completion": "stateless"}))
        yield server


@pytest.fixture
def chat(page: Page, server: LiveServer) -> ChatPage:
    """A tab with the page."""
    return ChatPage(page, server)


async def test_conversations_are_chosen_renamed_and_deleted(chat: ChatPage, faults: Faults) -> None:
    """The list leads to a conversation; a new title shows everywhere; a deletion asks first, and Escape keeps it."""
    await chat.open()
    heading = chat.page.get_by_role("heading", level=1)
    await chat.list.get_by_role("link", name="Conversation 64").click()
    await expect(heading).to_have_text("Conversation 64")
    await expect(chat.list.get_by_role("link", name="Conversation 64")).to_have_attribute("aria-current", "page")

    await chat.button("Rename Conversation 64").click()
    await chat.page.get_by_role("textbox", name="Title").fill("My <b>favourite</b>")
    await chat.page.keyboard.press("Enter")

    await expect(heading).to_have_text("My <b>favourite</b>")
    await expect(chat.page).to_have_title("My <b>favourite</b> · turnwise")
    await expect(chat.list.get_by_role("link", name="My <b>favourite</b>")).to_be_visible()
    await chat.button("Delete My <b>favourite</b>").click()
    dialog = chat.page.get_by_role("dialog", name="Delete the conversation?")
    await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    await chat.page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(chat.list.get_by_role("link", name="My <b>favourite</b>")).to_be_visible()
    await chat.button("Delete My <b>favourite</b>").click()
    await dialog.get_by_role("button", name="Delete").click()
    await expect(chat.list.get_by_role("link", name="My <b>favourite</b>")).to_have_count(0)
    await expect(heading).to_have_text("New conversation")


async def test_older_conversations_come_when_the_list_is_scrolled(chat: ChatPage) -> None:
    """The list reads a page at a time; at its end it reads the next one, until all are shown once."""
    await chat.open()
    links = chat.list.get_by_role("link")
    await expect(chat.list.get_by_role("link", name="Conversation 63")).to_be_visible()
    assert await links.count() < MANY - 1

    while not await chat.list.get_by_role("link", name="Conversation 00").count():
        await links.last.scroll_into_view_if_needed()
        await chat.page.mouse.move(100, 400)
        await chat.page.mouse.wheel(0, 10_000)
        await chat.page.wait_for_timeout(100)  # a page may come only after the next scroll

    await expect(chat.list.get_by_role("link", name="Conversation 00")).to_have_count(1)
    await expect(chat.list.get_by_role("link", name="A completion")).to_have_count(0)
    titles = await links.locator(".conversation-title").all_text_contents()
    assert len(titles) == len(set(titles))


async def test_pages_that_do_not_fill_the_list_are_followed_by_the_next(tabs: Tabs, server: LiveServer) -> None:
    """Where the end of the list stays in view, nobody has to scroll for the conversations behind it."""
    chat = ChatPage(await tabs.open(viewport={"width": 1280, "height": 6000}), server)

    await chat.open()

    await expect(chat.list.get_by_role("link", name="Conversation 00")).to_have_count(1)


async def test_a_new_conversation_begins_with_its_first_message(chat: ChatPage) -> None:
    """What is typed without a conversation begins one, with the instructions and tools that were chosen; it heads the
    list under its first message."""
    await chat.open()
    await chat.list.get_by_role("link").first.click()
    await chat.button("New conversation").click()
    await expect(chat.composer).to_be_focused()
    await chat.page.get_by_text("Options", exact=True).click()
    await chat.page.get_by_role("textbox", name="Instructions").fill("You repeat.")

    await chat.send("hello")

    await expect(chat.answers).to_contain_text(["You said: hello"])
    first = chat.list.get_by_role("link").first
    await expect(first).to_contain_text("hello")
    await expect(first).to_contain_text("Ready")
    with chat.server.client() as client:
        newest = client.get("/conversations", params={"limit": 1}).json()["conversations"][0]["id"]
        assert client.get(f"/conversations/{newest}").json()["system"] == "You repeat."


async def test_a_conversation_that_is_deleted_elsewhere_says_so(chat: ChatPage, faults: Faults) -> None:
    """A tab that shows a conversation which somebody deletes says that it does not exist, and offers a new one, with
    what was typed so far."""
    faults.allow("status of 404")
    with chat.server.client() as client:
        doomed = client.post("/conversations", json={"title": "Doomed"}).json()["id"]
        await chat.open(doomed)
        await expect(chat.state).to_have_text("Ready")
        await chat.composer.fill("not sent yet")

        client.delete(f"/conversations/{doomed}").raise_for_status()

    await expect(chat.page.get_by_role("heading", name="This conversation does not exist")).to_be_visible()
    await expect(chat.composer).to_be_hidden()
    await chat.button("Start a new one").click()
    await expect(chat.composer).to_be_visible()
    await expect(chat.composer).to_have_value("not sent yet")


async def test_the_way_back_while_a_dialog_is_open_renames_no_other_conversation(chat: ChatPage) -> None:
    """A dialog is about the conversation in which it was opened, also after the browser's way back. An address with
    dots or empty parts is no conversation, and leads to no other path of the server."""
    with chat.server.client() as client:
        first, second = (client.post("/conversations", json={"title": name}).json()["id"] for name in ("One", "Two"))
        heading = chat.page.get_by_role("heading", level=1)
        await chat.open(first)
        await expect(heading).to_have_text("One")
        await chat.open(second)
        await expect(heading).to_have_text("Two")

        await chat.button("Rename").click()
        await chat.page.go_back()
        await expect(heading).to_have_text("One")
        await chat.page.get_by_role("textbox", name="Title").fill("Renamed")
        await chat.page.keyboard.press("Enter")

        await expect(chat.list.get_by_role("link", name="Renamed")).to_be_visible()
        titles = [client.get(f"/conversations/{one}").json()["title"] for one in (first, second)]
        assert titles == ["One", "Renamed"]
    for invalid in ("..", "..%2Fmodels", "%2e%2e/models", "a//b"):
        await chat.open(first)
        await chat.page.goto(f"{chat.server.url}/#/c/{invalid}")
        await expect(chat.page.get_by_role("heading", name="This conversation does not exist")).to_be_visible()


async def test_drawers_hold_the_side_columns_on_a_narrow_screen(tabs: Tabs, server: LiveServer) -> None:
    """At 380 px the list and the inspector are drawers: the keyboard opens and closes them, and what is out of sight
    takes no focus."""
    chat = ChatPage(await tabs.open(viewport={"width": 380, "height": 760}), server)
    await chat.open()
    await expect(chat.list).to_be_hidden()

    await chat.button("Conversations").press("Enter")

    await expect(chat.list).to_be_visible()
    await expect(chat.button("Close conversations")).to_be_focused()
    await chat.page.keyboard.press("Escape")
    await expect(chat.list).to_be_hidden()
    await expect(chat.button("Conversations")).to_be_focused()
    await chat.button("Inspector").click()
    await expect(chat.button("Close inspector")).to_be_focused()
    await chat.button("Close inspector").click()
    await expect(chat.button("Inspector")).to_be_focused()
    await chat.button("Conversations").click()
    await chat.list.get_by_role("link", name="Conversation 50").click()
    await expect(chat.page.get_by_role("heading", level=1)).to_have_text("Conversation 50")
    await expect(chat.list).to_be_hidden()
    assert await chat.page.evaluate("document.documentElement.scrollWidth") == 380


async def test_the_page_works_in_an_application_that_mounts_it(page: Page, tmp_path: Path) -> None:
    """Mounted below a path of another application, the page loads, sends and streams below that path only."""
    engine = Engine.open(tmp_path / "mounted.db", model=FunctionLlm(lambda _: "Here I am."))
    application = Starlette(routes=[Mount("/assistant", create_app(engine))], lifespan=lambda _: engine)
    with serving_app(application) as server:
        chat = ChatPage(page, server)
        requested: list[str] = []
        page.on("request", lambda request: requested.append(urlsplit(request.url).path))
        await page.goto(f"{server.url}/assistant")

        await chat.send("Where are you?")

        await expect(chat.answers).to_contain_text(["Here I am."])
        assert [path for path in requested if not path.startswith("/assistant")] == []
        await page.close()
