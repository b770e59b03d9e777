"""Approvals, calls in doubt and failed turns in the page."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from ...support.browser.asking import (
    ACCOUNT,
    BOOK,
    DISGUISE,
    FAIL,
    LONG,
    NEST,
    PAY,
    PLAN,
    PLANNED,
    RUN_LONG,
    TRANSFER,
    Conversations,
    asking_engine,
    begin,
)
from ...support.browser.tabs import Faults
from ...support.http.live_server import serving

pytestmark = pytest.mark.slow


async def leave_in_doubt(database: Path, conversations: int) -> list[str]:
    """End the engine while a tool that must not run twice runs in each of these conversations."""
    async with asking_engine(database) as engine:
        ids = [await begin(engine, PAY) for _ in range(conversations)]
        for conversation_id in ids:
            conversation = await engine.get(conversation_id)
            async for update in conversation.updates():
                if update.type == "tool" or (update.type == "snapshot" and update.state.type == "tool_executing"):
                    break
    return ids


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a database."""
    return tmp_path_factory.mktemp("decisions") / "asking.db"


@pytest.fixture(scope="module")
def doubtful(database: Path) -> list[str]:
    """Return the ids of conversations with a call in doubt."""
    return asyncio.run(leave_in_doubt(database, 2))


@pytest.fixture(scope="module")
def conversations(database: Path, doubtful: list[str]) -> Iterator[Conversations]:
    """A server with these conversations, whose tools must be allowed."""
    engine = asking_engine(database)
    with serving(engine) as server:
        yield Conversations(server, engine)


def panel(page: Page) -> Locator:
    """What the page asks."""
    return page.locator("turnwise-person section")


async def received(page: Page, result: str) -> None:
    """Check that the model has received this result, and that nothing is asked any more."""
    await expect(page.get_by_role("main")).to_contain_text(f"I received: {result}")
    await expect(panel(page)).to_have_count(0)


class TestApproving:
    """A call runs as the model wrote it, as a person edited it, or not at all."""

    async def test_a_call_is_allowed_as_it_stands(self, page: Page, conversations: Conversations) -> None:
        """The arguments are shown; the focus is not on "Allow", and Enter where it is allows nothing."""
        address = conversations.begin(BOOK)
        await page.goto(address)
        await expect(page.get_by_role("heading", name="Allow the tool “book_table” to run?")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(panel(page)).to_contain_text("Miku")
        await page.get_by_label("Reason, if you deny it").press("Enter")
        assert conversations.state(address) == "awaiting_approval"
        await page.get_by_role("button", name="Allow").dblclick()

        await received(page, "Booked at Miku for 2, on the terrace.")

    async def test_arguments_are_edited_as_fields(self, page: Page, conversations: Conversations) -> None:
        """Texts, numbers and yes/no have fields; a number must be one; what the model wrote stays in sight."""
        await page.goto(conversations.begin(BOOK))
        await page.get_by_role("button", name="Edit arguments").click()
        await page.get_by_label("party").fill("four")
        await page.get_by_role("checkbox", name="terrace").uncheck()
        await page.get_by_role("button", name="Allow").click()
        await expect(panel(page).get_by_text("“party” must be a number.")).to_be_visible()
        await expect(page.get_by_label("party")).to_be_focused()
        await expect(panel(page).get_by_text("The model wrote: 2")).to_be_visible()
        await page.get_by_label("party").fill("4")
        await page.get_by_role("button", name="Allow").click()

        await received(page, "Booked at Miku for 4, inside.")

    async def test_arguments_are_edited_as_json(self, page: Page, conversations: Conversations) -> None:
        """Nested arguments are edited as JSON, which is checked while it is written and survives a reload."""
        await page.goto(conversations.begin(PLAN))
        await page.get_by_role("button", name="Edit arguments").click()
        editor = page.get_by_label("Arguments as JSON")
        assert json.loads(await editor.input_value()) == {"plan": PLANNED}
        await editor.fill('{"plan": {"days": []}')
        await expect(panel(page).get_by_text("This is not valid JSON")).to_be_visible()
        await page.reload()
        await expect(editor).to_have_value('{"plan": {"days": []}')
        await page.get_by_role("button", name="Allow").click()
        await expect(editor).to_be_focused()
        await editor.fill("[1]")
        await expect(panel(page).get_by_text("The arguments must be a JSON object")).to_be_visible()
        await editor.fill('{"plan": {"days": [], "__proto__": 1}}')
        await page.get_by_role("button", name="Allow").click()

        await received(page, "Planned: {'days': [], '__proto__': 1}")

    async def test_arguments_that_the_tool_refuses_stay_in_the_editor(
        self, page: Page, faults: Faults, conversations: Conversations
    ) -> None:
        """The refusal stands at them, once; they are kept, also over a reload, and run when they are mended."""
        faults.allow("status of 422")
        address = conversations.begin(PLAN)
        await page.goto(address)
        await page.get_by_role("button", name="Edit arguments").click()
        editor = page.get_by_label("Arguments as JSON")
        await editor.fill('{"plan": 3}')
        await page.get_by_role("button", name="Allow").click()
        refusal = page.get_by_text("The arguments do not fit plan_trip: plan: Input should be")
        await expect(refusal).to_have_count(1)
        await expect(page.locator(".arguments").get_by_text("plan: Input should be")).to_be_in_viewport()
        await expect(editor).to_be_focused()
        await expect(editor).to_have_attribute("aria-invalid", "true")
        await expect(editor).to_have_accessible_description(re.compile("The arguments do not fit plan_trip"))
        assert conversations.state(address) == "awaiting_approval"
        await page.reload()
        await expect(editor).to_have_value('{"plan": 3}')
        await page.get_by_role("button", name="Allow").click()
        await expect(refusal).to_be_visible()
        await editor.fill('{"plan": {}}')
        await expect(refusal).to_have_count(0)
        await page.get_by_role("button", name="Allow").click()

        await received(page, "Planned: {}")

    async def test_fields_that_the_tool_refuses_keep_what_was_written(
        self, page: Page, faults: Faults, conversations: Conversations
    ) -> None:
        """2.5 is a number, but no number of people; the sentence says which field it is about."""
        faults.allow("status of 422")
        await page.goto(conversations.begin(BOOK))
        await page.get_by_role("button", name="Edit arguments").click()
        await page.get_by_label("party").fill("2.5")
        await page.get_by_role("button", name="Allow").click()
        await expect(page.locator(".arguments").get_by_text("do not fit book_table: party:")).to_be_in_viewport()
        await expect(page.get_by_label("party")).to_have_value("2.5")
        await page.get_by_label("party").fill("3")
        await page.get_by_role("button", name="Allow").click()

        await received(page, "Booked at Miku for 3, on the terrace.")

    async def test_a_long_number_is_not_rounded(self, page: Page, conversations: Conversations) -> None:
        """A number of more digits than JavaScript keeps is shown and edited as it is, to the last digit."""
        await page.goto(conversations.begin(TRANSFER))
        await expect(panel(page)).to_contain_text(str(ACCOUNT))
        await expect(panel(page)).to_contain_text("Only an operator may allow this call.")
        await page.get_by_role("button", name="Edit arguments").click()
        editor = page.get_by_label("Arguments as JSON")
        assert json.loads(await editor.input_value()) == {"account": ACCOUNT}
        await editor.fill(f'{{"account": {ACCOUNT + 1}}}')
        await page.get_by_role("button", name="Allow").click()

        await received(page, f"Transferred to {ACCOUNT + 1}.")

    async def test_a_call_is_denied_with_a_reason(self, page: Page, conversations: Conversations) -> None:
        """The model reads why its call did not run."""
        await page.goto(conversations.begin(BOOK))
        await page.get_by_label("Reason, if you deny it").fill("Too far away")
        await page.get_by_role("button", name="Deny").click()

        await expect(page.get_by_role("main")).to_contain_text("Too far away")
        await expect(panel(page)).to_have_count(0)


class TestSeeingWhatIsAllowed:
    """Nobody allows what they could not see."""

    async def test_what_the_tool_does_stands_in_the_panel(self, page: Page, conversations: Conversations) -> None:
        """Its description, in which nothing is hidden either."""
        await page.goto(conversations.begin(DISGUISE))

        description = panel(page).get_by_role("region", name="What the tool does")
        await expect(description).to_contain_text("Run a command on the server.")
        await expect(description).to_contain_text("the server runs as⟨U+202E⟩.")

    async def test_what_is_hidden_is_marked(self, page: Page, conversations: Conversations) -> None:
        """Characters without a shape and letters of another alphabet are named, and a sentence says what that means."""
        await page.goto(conversations.begin(DISGUISE))

        await expect(panel(page).locator("dd")).to_have_text(
            "p\u0430ypal⟨U+3164⟩⟨Cyrillic \u0430⟩⟨U+00A0⟩⟨U+202E⟩5⟨U+FE0F⟩ 👩\u200d👩"
        )
        await expect(panel(page).locator("dd mark")).to_have_count(5)
        await expect(panel(page)).to_contain_text("Something in here cannot be seen, or reads as something else.")

    async def test_what_is_no_plain_object_is_shown_as_written(self, page: Page, conversations: Conversations) -> None:
        """Arguments that cannot be shown as fields are not left out."""
        await page.goto(conversations.begin(NEST))

        await expect(panel(page)).to_contain_text("at the bottom")

    async def test_long_arguments_are_read_before_the_call_is_allowed(
        self, page: Page, conversations: Conversations
    ) -> None:
        """The button "Allow" waits until their end was in sight; "Read on" goes there by keyboard. Short arguments need
        no reading on."""
        address = conversations.begin(RUN_LONG)
        await page.goto(address)
        allow = page.get_by_role("button", name="Allow")
        read_on = page.get_by_role("button", name="Read on")
        await expect(read_on).to_be_visible()
        await page.wait_for_timeout(1000)
        await expect(allow).to_be_disabled()
        await expect(allow).to_have_accessible_description("Read the arguments to their end to allow the call.")
        await expect(page.locator(".arguments-end")).not_to_be_in_viewport()
        await read_on.focus()
        for _ in range(30):
            if await read_on.is_hidden():
                break
            await expect(allow).to_be_disabled()
            await page.keyboard.press("Enter")
            await page.wait_for_timeout(50)
        await expect(allow).to_be_enabled()
        await expect(page.locator(".arguments-end")).to_be_in_viewport()
        await allow.click()
        await received(page, f"Ran {len(LONG)} characters.")

        await page.goto(conversations.begin(BOOK))
        await expect(allow).to_be_enabled()
        await expect(read_on).to_be_hidden()

    async def test_scrolling_to_the_end_is_reading(self, page: Page, conversations: Conversations) -> None:
        """What the buttons cover does not count as seen."""
        await page.goto(conversations.begin(RUN_LONG))
        allow = page.get_by_role("button", name="Allow")
        await expect(page.get_by_role("button", name="Read on")).to_be_visible()
        await panel(page).hover()
        await page.mouse.wheel(0, 300)
        await page.wait_for_timeout(600)
        await expect(allow).to_be_disabled()
        await page.mouse.wheel(0, 100_000)

        await expect(allow).to_be_enabled()


class TestDoubtAndFailure:
    """After a crash or a failure a person decides what comes next."""

    async def test_a_call_in_doubt_is_resolved(
        self, page: Page, conversations: Conversations, doubtful: list[str]
    ) -> None:
        """The page says which call it is and what each decision means; the model is told the decision."""
        await page.goto(conversations.address(doubtful[0]))
        await expect(page.get_by_role("heading", name="Did the tool “pay” run?")).to_be_visible()
        await expect(panel(page)).to_contain_text("20")
        button = page.get_by_role("button", name="It did not run")
        await expect(button).to_have_accessible_description("The model is told that nothing happened.")
        await button.click()

        await received(page, "Error: This did not run: the program stopped before it could.")

    async def test_a_failed_turn_is_tried_again(self, page: Page, conversations: Conversations) -> None:
        """The sentence of the failure is shown, and "Try again" asks the model once more."""
        address = conversations.begin(FAIL)
        await page.goto(address)
        await expect(panel(page)).to_contain_text("The key was not accepted.")
        await page.get_by_role("button", name="Try again").dblclick()
        await expect(page.get_by_role("main")).to_contain_text(f"You said: {FAIL}")

        assert conversations.state(address) == "idle"
        await expect(panel(page)).to_have_count(0)
