"""Files in a real browser: attached, uploaded, refused, and shown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

from turnwise import Engine, File, tool
from turnwise.testing import call

from ...support.browser.chat_page import ChatPage
from ...support.browser.tabs import Faults, Tabs
from ...support.http.live_server import LiveServer, serving
from ...support.http.paced_model import PacedLlm
from ...support.pictures import PDF, png

pytestmark = pytest.mark.slow

ZIP = bytes.fromhex("504b0506") + bytes(18)

GIVE = """([type, files, text]) => {
    const given = new DataTransfer();
    for (const [name, type, bytes] of files) given.items.add(new File([new Uint8Array(bytes)], name, { type }));
    if (text) given.setData("text/plain", text);
    const options = { bubbles: true, cancelable: true };
    const event = type === "paste"
        ? new ClipboardEvent(type, { ...options, clipboardData: given })
        : new DragEvent(type, { ...options, dataTransfer: given });
    document.activeElement.dispatchEvent(event);
}"""
"""Drops or pastes files into what has the focus, as a browser does: Playwright cannot."""


def given(name: str, media_type: str, content: bytes) -> Any:
    """Return a file as a person chooses it."""
    return {"name": name, "mimeType": media_type, "buffer": content}


@tool(crash="pure")
def draw(what: str) -> list[object]:
    """Draw a picture, and write what it shows."""
    return [f"This is {what}.", File(png(40), name="drawing.png"), File(PDF, name="drawing.pdf")]


@pytest.fixture(scope="module")
def model() -> PacedLlm:
    """The model of all conversations."""
    return PacedLlm()


@pytest.fixture(scope="module")
def server(model: PacedLlm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server of the page and its API."""
    with serving(Engine.open(tmp_path_factory.mktemp("files") / "files.db", model=model, tools=[draw])) as server:
        yield server


@pytest.fixture
def chat(page: Page, server: LiveServer) -> ChatPage:
    """A tab with the chat."""
    return ChatPage(page, server)


def attached(chat: ChatPage) -> Locator:
    """Return the files of the message that is being written."""
    return chat.page.get_by_role("list", name="Attached files").get_by_role("listitem")


async def attach(chat: ChatPage, *files: Any) -> None:
    """Choose files with the button."""
    async with chat.page.expect_file_chooser() as chooser:
        await chat.button("Attach files").click()
    await (await chooser.value).set_files(list(files))


async def is_loaded(image: Locator) -> bool:
    """Whether a browser could read an image."""
    return bool(await image.evaluate("async (image) => { await image.decode(); return image.naturalWidth > 0; }"))


async def test_files_begin_a_conversation_and_are_shown_again(chat: ChatPage, model: PacedLlm) -> None:
    """Files of the first message are uploaded when it is sent. Images are shown, all others are links to their bytes;
    the same holds after a reload, and the model is shown both."""
    await chat.open()
    await attach(chat, given("tree.png", "image/png", png(60)), given("menü.pdf", "application/pdf", PDF))
    await expect(attached(chat)).to_contain_text(["tree.png", "menü.pdf"])
    await expect(attached(chat).locator("progress")).to_have_count(2)

    await chat.send("What is this?")
    model.wait_for_request()
    model.answer("A tree and a menu.")

    for _ in range(2):
        await expect(chat.answers).to_contain_text(["A tree and a menu."])
        await expect(chat.own).to_have_count(1)
        await expect(attached(chat)).to_have_count(0)
        assert await is_loaded(chat.own.get_by_role("img", name="tree.png"))
        link = chat.own.get_by_role("link", name="menü.pdf")
        await expect(link).to_contain_text(f"{len(PDF)} bytes")
        async with chat.page.expect_download() as download:
            await link.click()
        assert (await download.value).suggested_filename == "menü.pdf"
        assert Path(await (await download.value).path()).read_bytes() == PDF
        await chat.page.reload()
    assert sorted(model.requests[-1].shows) == ["document", "image"]


async def test_files_are_dropped_and_pasted(chat: ChatPage, model: PacedLlm) -> None:
    """A file that is dropped anywhere is attached, and so is an image that is pasted; what has a text as well is pasted
    as one. A message may have files alone."""
    await chat.open()
    await chat.send("Hello")
    model.answer("Hi.")
    await expect(chat.answers).to_contain_text(["Hi."])
    await chat.composer.focus()

    await chat.page.evaluate(GIVE, ["drop", [["a.csv", "text/csv", [*b"a,b\n1,2\n"]]], ""])
    await chat.page.evaluate(GIVE, ["paste", [["image.png", "image/png", [*png(20)]]], ""])
    await chat.page.evaluate(GIVE, ["paste", [["table.png", "image/png", [*png(20)]]], "1 2"])

    await expect(attached(chat)).to_contain_text(["a.csv", "image.png"])
    await expect(attached(chat).locator("progress:visible")).to_have_count(0)
    await chat.page.reload()
    await expect(attached(chat)).to_contain_text(["a.csv", "image.png"])  # they are uploaded
    await chat.button("Remove image.png").press("Enter")
    await expect(attached(chat)).to_have_count(1)
    await chat.button("Send").click()
    model.answer("Two rows.")
    await expect(chat.answers).to_contain_text(["Hi.", "Two rows."])
    await expect(chat.own.nth(1).get_by_role("link", name="a.csv")).to_be_visible()


async def test_what_is_refused_says_why_and_loses_nothing(chat: ChatPage, model: PacedLlm, faults: Faults) -> None:
    """The sentence of the server stands beside the file. The message goes when the file is removed; one that was not
    sent for want of a connection is tried again."""
    faults.allow("status of 4")
    faults.allow("ERR_FAILED")
    await chat.open()
    await attach(chat, given("files.zip", "application/zip", ZIP), given("a.txt", "text/plain", b"Hello"))

    await chat.send("Read these")

    await expect(attached(chat).nth(0).get_by_role("alert")).to_have_text(
        "files.zip cannot be sent: no model takes files of the type application/zip."
    )
    await expect(chat.composer).to_have_value("Read these")
    await expect(chat.button("Send")).to_be_disabled()
    await expect(chat.page).to_have_url(re.compile("#/c/"))
    await chat.button("Remove files.zip").click()
    routes: asyncio.Queue[Route] = asyncio.Queue()
    await chat.page.route("**/files?*", routes.put)
    await attach(chat, given("b.txt", "text/plain", b"Again"))
    await (await routes.get()).abort()
    await expect(attached(chat).nth(1)).to_contain_text("The server cannot be reached.")
    await chat.page.unroute("**/files?*")
    await attached(chat).nth(1).get_by_role("button", name="Try again").click()
    await expect(attached(chat).locator("progress:visible")).to_have_count(0)
    await chat.button("Send").click()
    model.answer("Read.")
    await expect(chat.own).to_contain_text(["Read these"])
    await expect(chat.own.get_by_role("link")).to_contain_text(["a.txt", "b.txt"])


async def test_a_file_that_is_too_large_is_refused_in_one_sentence(chat: ChatPage, faults: Faults) -> None:
    """The server says how large a file may be, without reading all of it."""
    faults.allow("status of 413")
    await chat.open()
    await attach(chat, given("long.txt", "text/plain", b"x" * 25_000_000))

    await chat.send("Read this")

    await expect(attached(chat).get_by_role("alert")).to_contain_text("20")


async def test_a_message_waits_for_its_files(chat: ChatPage, model: PacedLlm) -> None:
    """Sent while a file is under way, a message stays where it was written, with the progress, and goes behind it."""
    await chat.open()
    await chat.send("Hello")
    model.answer("Hi.")
    await expect(chat.answers).to_contain_text(["Hi."])
    routes: asyncio.Queue[Route] = asyncio.Queue()
    await chat.page.route("**/files?*", routes.put)
    await attach(chat, given("a.txt", "text/plain", b"Hello"))
    held = await routes.get()
    await expect(chat.page.get_by_role("progressbar", name="Uploading a.txt")).to_be_visible()

    await chat.send("Read it")

    await expect(chat.page.get_by_text("It is sent when the files are uploaded.")).to_be_visible()
    await expect(chat.own).to_have_count(1)
    await held.continue_()
    model.answer("Read.")
    await expect(chat.answers).to_contain_text(["Hi.", "Read."])
    await expect(chat.own).to_contain_text(["Hello", "Read it"])


async def test_files_of_a_result_are_shown(chat: ChatPage, model: PacedLlm, tabs: Tabs) -> None:
    """What a tool returns stands below its card, as it happens and for whoever comes later."""
    await chat.open()
    await chat.send("Draw a tree")
    model.answer(call("draw", what="a tree"))
    model.answer("Here it is.")
    await expect(chat.answers).to_contain_text(["Here it is."])

    later = ChatPage(await tabs.open(), chat.server)
    await later.page.goto(chat.page.url)
    for tab in (chat, later):
        assert await is_loaded(tab.tool("draw").get_by_role("img", name="drawing.png"))
        await expect(tab.tool("draw").get_by_role("link", name="drawing.pdf")).to_be_visible()


async def test_a_file_of_another_server_is_a_link(chat: ChatPage, model: PacedLlm) -> None:
    """What stands elsewhere is not loaded, but linked to."""
    with chat.server.client() as client:
        conversation_id = client.post("/conversations", json={"title": "Images"}).json()["id"]
        body = {"text": "Look", "files": ["https://example.org/cat.png"]}
        client.post(f"/conversations/{conversation_id}/messages", json=body).raise_for_status()
    model.answer("Seen.")

    await chat.open(conversation_id)

    await expect(chat.own.get_by_role("link")).to_have_attribute("href", "https://example.org/cat.png")
    await expect(chat.messages.get_by_role("img")).to_have_count(0)
    await expect(chat.answers).to_contain_text(["Seen."])
