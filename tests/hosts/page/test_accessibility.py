"""The page for people who use a keyboard, a screen reader, large type or a small screen."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from ...support.browser.accessibility import hidden_overflow, violations
from ...support.browser.asking import (
    BOOK,
    BOTH,
    DISGUISE,
    FAIL,
    LAYOUTS,
    PAY,
    RUN_LONG,
    Conversations,
    asking_engine,
    begin,
)
from ...support.browser.chat_page import ChatPage
from ...support.browser.fixtures import PICTURES
from ...support.browser.tabs import Tabs
from ...support.http.live_server import serving
from ...support.npm.node_packages import NodePackages
from ...support.pictures import PDF, png

pytestmark = pytest.mark.slow

LONG = "A long message of several words, and aWordThatIsLongerThanAnyOther" * 3


async def leave_in_doubt(database: Path) -> str:
    """End the engine while a tool runs that must not run twice, and return the id of its conversation."""
    async with asking_engine(database) as engine:
        conversation_id = await begin(engine, PAY)
        async for update in (await engine.get(conversation_id)).updates():
            if update.type == "tool" or (update.type == "snapshot" and update.state.type == "tool_executing"):
                break
    return conversation_id


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Conversations, dict[str, str]]]:
    """A server, and the addresses of conversations in each state in which a person does something."""
    database = tmp_path_factory.mktemp("accessibility") / "asking.db"
    doubtful = asyncio.run(leave_in_doubt(database))
    engine = asking_engine(database)
    with serving(engine) as server:
        known = Conversations(server, engine)
        texts = {"idle": LONG, "questions": BOTH, "previews": LAYOUTS, "approval": BOOK, "failed": FAIL}
        texts |= {"disguised approval": DISGUISE, "long approval": RUN_LONG}
        addresses = {name: known.begin(text) for name, text in texts.items()}
        yield known, {"new": server.url, **addresses, "in doubt": known.address(doubtful)}


@pytest.fixture(scope="module")
def axe(npm: NodePackages) -> str:
    """The text of axe-core."""
    return npm.text("axe-core/axe.min.js")


PHONE = 380
"""How wide a small phone is, in CSS pixels."""

SHOWN: dict[str, Callable[[Page], Locator]] = {
    "new": lambda page: page.get_by_role("heading", name="Start a conversation"),
    "idle": lambda page: page.get_by_role("main").get_by_text("You said: A long message"),
    "questions": lambda page: page.get_by_role("button", name="Send answers"),
    "previews": lambda page: page.get_by_role("region", name="Preview"),
    "approval": lambda page: page.get_by_role("button", name="Allow"),
    "disguised approval": lambda page: page.locator(".argument-list mark").first,
    "long approval": lambda page: page.get_by_role("button", name="Read on"),
    "failed": lambda page: page.get_by_role("button", name="Try again"),
    "in doubt": lambda page: page.get_by_role("button", name="It ran"),
}
"""What is to be seen in each state."""


class Inspection:
    """A tab into which axe-core is put, and what it finds in each state and appearance, so that one test reports
    everything."""

    def __init__(self, page: Page, axe: str, addresses: dict[str, str]) -> None:
        self.page = page
        self.found: dict[str, list[str]] = {}
        self._axe = axe
        self._addresses = addresses

    async def show(self, state: str) -> None:
        """Show a conversation in this state."""
        await self.page.goto(self._addresses[state])
        await expect(SHOWN[state](self.page)).to_be_visible()

    async def unfold(self) -> None:
        """Open all that is folded away."""
        await self.page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
        if await (edit := self.page.get_by_role("button", name="Edit arguments")).count():
            await edit.click()

    async def look(self, where: str, *rules: str) -> None:
        """Note what axe-core finds now, by all of its rules if none are named."""
        await self.keep_picture(where)
        self._note(where, await violations(self.page, self._axe, rules))

    async def look_in_both(self, where: str) -> None:
        """Note what axe-core finds now, in light and in dark."""
        await self.page.emulate_media(color_scheme="light")
        await self.look(f"{where}, light")
        await self.page.emulate_media(color_scheme="dark")
        await self.look(f"{where}, dark", "color-contrast")  # nothing else depends on it

    async def measure(self, where: str) -> None:
        """Note what is out of reach now."""
        self._note(where, await hidden_overflow(self.page))

    async def keep_picture(self, where: str) -> None:
        """Keep a picture for people to look at, also if nothing is wrong."""
        width = (self.page.viewport_size or {}).get("width")
        name = re.sub(r"\W+", "-", f"{where} {width}")
        await self.page.screenshot(path=PICTURES / "page" / f"{name}.png")

    def sentences(self) -> list[str]:
        """Return all that was found."""
        return [f"{where}: {fault}" for where, faults in self.found.items() for fault in faults]

    def _note(self, where: str, faults: list[str]) -> None:
        if faults:
            self.found[where] = faults


@pytest_asyncio.fixture(loop_scope="session")
async def inspection(tabs: Tabs, axe: str, served: tuple[Conversations, dict[str, str]]) -> Inspection:
    """A tab in which to look for what is wrong."""
    return Inspection(await tabs.open(bypass_csp=True, reduced_motion="reduce"), axe, served[1])


async def test_no_state_is_inaccessible(inspection: Inspection) -> None:
    """axe-core finds nothing serious in any state, in light and in dark: names, roles, contrast, landmarks."""
    for state in SHOWN:
        await inspection.show(state)
        await inspection.unfold()
        await inspection.look_in_both(state)
    await inspection.page.get_by_role("button", name="Rename", exact=True).click()
    await inspection.look("a dialog")
    await inspection.page.keyboard.press("Escape")
    await inspection.page.evaluate("document.querySelector('turnwise-session').ask()")
    await inspection.page.keyboard.press("Enter")
    await inspection.look("the form for the token")
    await inspection.page.keyboard.press("Escape")
    await inspection.page.evaluate(
        "document.querySelector('turnwise-session').ask({ signIn: 'application', loginUrl: '/login' })"
    )
    await inspection.look("the link to the application")

    assert inspection.sentences() == []


async def test_files_and_branches_are_accessible(
    inspection: Inspection, served: tuple[Conversations, dict[str, str]]
) -> None:
    """The same holds for files that are attached or were sent, for a message that is being edited, and for the list of
    the branches that were left."""
    known, _ = served
    page = inspection.page
    chat = ChatPage(page, known.server)
    await chat.open()
    async with page.expect_file_chooser() as chooser:
        await chat.button("Attach files").click()
    await (await chooser.value).set_files(
        [
            {"name": "tree.png", "mimeType": "image/png", "buffer": png(60)},
            {"name": "menu.pdf", "mimeType": "application/pdf", "buffer": PDF},
        ]
    )
    await expect(page.get_by_role("list", name="Attached files").get_by_role("listitem")).to_have_count(2)
    await inspection.look_in_both("files to be sent")
    await chat.send("What is this?")
    await expect(chat.state).to_have_text("Ready")
    await expect(chat.own.get_by_role("img", name="tree.png")).to_be_visible()
    await inspection.look_in_both("files of a message")
    await page.get_by_role("button", name="Edit the message: What is this?").click()
    await expect(chat.composer).to_have_value("What is this?")
    await inspection.look_in_both("a message that is edited")
    await chat.send("And now?")
    await expect(chat.own).to_contain_text(["And now?"])
    await expect(chat.state).to_have_text("Ready")
    await chat.button("1 other branch").click()
    await expect(page.get_by_role("dialog").get_by_role("radio")).not_to_have_count(0)
    await inspection.look_in_both("other branches")

    assert inspection.sentences() == []


@pytest.mark.parametrize(
    ("width", "height", "has_room"),
    [(PHONE, 700, True), (640, 400, True), (320, 256, False)],
    ids=["phone", "zoomed to 200 %", "zoomed to 400 %"],
)
async def test_nothing_is_out_of_reach(width: int, height: int, has_room: bool, inspection: Inspection) -> None:
    """On a phone, and at two and four times the size of everything, all that a person does can be seen and reached:
    nothing lies beyond the edge, and where there is room the composer stays in sight. The list and the inspector open
    and close."""
    page = inspection.page
    message = page.get_by_role("textbox", name="Message")
    await page.set_viewport_size({"width": width, "height": height})
    for state, control in SHOWN.items():
        await inspection.show(state)
        await control(page).scroll_into_view_if_needed()
        await expect(control(page)).to_be_in_viewport()
        if not has_room:
            await message.scroll_into_view_if_needed()
        await expect(message).to_be_in_viewport(ratio=0.9)
        await inspection.measure(state)
        if width == PHONE:
            await inspection.keep_picture(state)
    for name in ("Conversations", "Inspector"):
        await page.get_by_role("button", name=name, exact=True).click()
        await inspection.look(name)
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name=name, exact=True)).to_have_attribute("aria-expanded", "false")

    assert inspection.sentences() == []


async def test_landmarks_and_the_order_of_the_focus(inspection: Inspection) -> None:
    """The parts of the page are landmarks with names. The first stop of the keyboard leads past the list, and what is
    asked comes before the composer."""
    page = inspection.page
    await inspection.show("questions")
    await page.reload()
    await expect(page.get_by_role("heading", name="The assistant asks you 2 questions")).to_be_focused()
    for role, name in (("navigation", "Conversations"), ("complementary", "Inspector")):
        await expect(page.get_by_role(role, name=name)).to_be_visible()  # type: ignore[arg-type]
    await expect(page.get_by_role("main")).to_have_count(1)
    await expect(page.get_by_role("heading", level=1)).to_have_count(1)
    order = await page.evaluate("""() => [...document.querySelectorAll("main input, main textarea, main button")]
        .filter((one) => one.checkVisibility() && !one.disabled)
        .map((one) => one.getAttribute("aria-label") ?? one.textContent ?? one.id)""")
    assert order.index("Window") < order.index("Send answers") < order.index("Stop")
    await page.evaluate("document.activeElement.blur()")
    await page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the message")
    if not await skip.evaluate("(link) => link === document.activeElement"):
        await skip.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("textbox", name="Message")).to_be_focused()


async def test_the_list_can_be_used_with_the_keyboard_while_a_question_waits(
    inspection: Inspection, served: tuple[Conversations, dict[str, str]]
) -> None:
    """Choosing a conversation by its link leaves the focus on the link: the question is announced, not focused."""
    page = inspection.page
    await inspection.show("idle")
    link = page.get_by_role("link", name=BOOK)
    await link.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Allow")).to_be_visible()
    await expect(page.get_by_role("status").filter(has_text="Allow the tool “book_table” to run?")).to_be_attached()
    await expect(page.get_by_role("link", name=BOOK)).to_be_focused()
