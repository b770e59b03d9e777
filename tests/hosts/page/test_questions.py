"""H7: questions in the page, as radio buttons, as checkboxes, and answered in one's own words."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.async_api import Locator, Page, expect

from turnwise import Questions

from ...support.browser.asking import (
    ATTACK,
    BOTH,
    DELEGATE,
    EXTRA,
    LAYOUTS,
    MARKUP,
    NARROW,
    OPEN,
    OPENLY,
    POLICY,
    TABLE,
    TASK,
    WIDE,
    Conversations,
    asking_engine,
)
from ...support.browser.tabs import Faults
from ...support.http.live_server import serving


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversations]:
    """A server whose model asks."""
    engine = asking_engine(tmp_path_factory.mktemp("questions") / "asking.db")
    with serving(engine) as server:
        yield Conversations(server, engine)


def panel(page: Page) -> Locator:
    """What the page asks."""
    return page.locator("turnwise-person section")


async def received(page: Page, answers: object, **more: object) -> None:
    """Check that the model has received these answers, and that nothing is asked any more."""
    expected = json.dumps({"answers": answers, **more}, ensure_ascii=False)
    await expect(page.get_by_role("main")).to_contain_text(f"I received: {expected}")
    await expect(panel(page)).to_have_count(0)


class TestChoosing:
    """Options are radio buttons or checkboxes, as many as may be chosen."""

    async def test_one_of_several_is_chosen_with_the_keyboard_alone(
        self, page: Page, conversations: Conversations
    ) -> None:
        """The focus is on the question when it appears; Tab, the arrow keys and Enter answer it."""
        await page.goto(conversations.begin(TABLE))
        await expect(page.get_by_role("heading", name="The assistant asks you a question")).to_be_focused()
        await expect(page.get_by_role("status").filter(has_text="Which table would you like?")).to_be_attached()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Space")
        await expect(page.get_by_role("radio", name="Window")).to_be_checked()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")

        await received(page, {"Which table would you like?": "Bar"})
        await expect(page.get_by_role("textbox", name="Message")).to_be_focused()

    @pytest.mark.slow
    async def test_several_of_several_and_other_words(self, page: Page, conversations: Conversations) -> None:
        """Checkboxes give a list; what is typed beside "Other" is part of it, as it was typed."""
        await page.goto(conversations.begin(EXTRA))
        await page.get_by_role("checkbox", name="Parking, covered").check()
        words = 'A "cake", \\ two\nlines and ünïcode 猫'
        await panel(page).get_by_placeholder("Your own answer").fill(words)
        await expect(page.get_by_role("checkbox", name="Other")).to_be_checked()
        await page.get_by_role("button", name="Send answer").click()

        await expect(panel(page)).to_have_count(0)
        said = json.dumps({"answers": {"What else do you need?": ["Parking, covered", words]}}, ensure_ascii=False)
        await expect(page.get_by_role("main")).to_contain_text(f"I received: {said}")

    @pytest.mark.slow
    async def test_other_takes_text_and_needs_it(self, page: Page, conversations: Conversations) -> None:
        """ "Other" without a text is not sent; with a text, the text is the answer."""
        address = conversations.begin(TABLE)
        await page.goto(address)
        await page.get_by_role("radio", name="Other").check()
        await page.get_by_role("button", name="Send answer").click()
        await expect(panel(page).get_by_text("Write your answer")).to_be_visible()
        assert conversations.state(address) == "awaiting_user_response"
        await page.keyboard.type("The garden")
        await page.keyboard.press("Control+Enter")

        await received(page, {"Which table would you like?": "The garden"})

    @pytest.mark.slow
    async def test_the_missing_answer_is_named(self, page: Page, faults: Faults, conversations: Conversations) -> None:
        """Of two questions one has no answer: the server says which, and the page shows it there. Nothing is lost."""
        faults.allow("status of 422")
        await page.goto(conversations.begin(BOTH))
        await page.get_by_role("radio", name="Window").check()
        await page.get_by_text("Add a note").first.click()
        await page.get_by_role("textbox", name="Note on: Which table would you like?").fill("no draught")
        await page.get_by_role("button", name="Send answers").click()
        extras = page.get_by_role("group", name="What else do you need?")
        await expect(extras.get_by_text("An answer is missing: What else do you need?")).to_be_visible()
        await expect(page.get_by_role("checkbox", name="High chair")).to_be_focused()
        await page.keyboard.press("Space")
        await page.get_by_role("button", name="Send answers").click()

        table, more = "Which table would you like?", "What else do you need?"
        await received(page, {table: "Window", more: ["High chair"]}, annotations={table: {"notes": "no draught"}})

    @pytest.mark.slow
    async def test_the_preview_of_the_focused_option_stands_beside_it(
        self, page: Page, conversations: Conversations
    ) -> None:
        """Each option that is chosen or pointed at shows its preview, line by line."""
        await page.goto(conversations.begin(LAYOUTS))
        preview = panel(page).get_by_role("region", name="Preview")
        assert await preview.inner_text() == WIDE
        await page.get_by_role("radio", name="Wide").focus()
        await page.keyboard.press("ArrowDown")
        assert await preview.inner_text() == NARROW
        await page.get_by_role("radio", name="No matter").hover()
        await expect(preview).to_have_text("This option has no preview.")
        await page.get_by_role("button", name="Stop without answering").click()

        await expect(panel(page)).to_have_count(0)

    @pytest.mark.slow
    async def test_markup_is_text(self, page: Page, conversations: Conversations) -> None:
        """Questions, labels, descriptions, headers and previews that look like markup, or like names of JavaScript, are
        shown and sent as they are."""
        await page.goto(conversations.begin(ATTACK))
        await expect(panel(page).get_by_role("radio", name=MARKUP)).to_be_visible()
        await expect(panel(page).get_by_role("region")).to_have_text(MARKUP)
        await expect(panel(page).locator("img, script, b")).to_have_count(0)
        await page.get_by_role("radio", name="__proto__").check()
        await page.get_by_role("button", name="Send answer").click()

        await received(page, {f"Is {MARKUP} a text?": "__proto__"})

    @pytest.mark.slow
    async def test_a_question_without_options_takes_any_text(self, page: Page, conversations: Conversations) -> None:
        """A tool may ask openly, and one call several times; what is typed is the answer, and begins anew each time."""
        await page.goto(conversations.begin(OPEN))
        await page.get_by_role("textbox", name=OPENLY[0]).fill("O'Hara <Ltd>")
        await page.get_by_role("button", name="Send answer").click()
        await expect(page.get_by_role("textbox", name=OPENLY[1])).to_have_value("")
        await expect(page.get_by_role("heading", name="The assistant asks you a question")).to_be_focused()
        await page.get_by_role("textbox", name=OPENLY[1]).fill("19:00")
        await page.get_by_role("button", name="Send answer").click()

        await expect(page.get_by_role("main")).to_contain_text(
            """I received: The answers are ["O'Hara <Ltd>", '19:00']"""
        )

    @pytest.mark.slow
    async def test_a_sub_agent_asks(self, page: Page, conversations: Conversations) -> None:
        """The question of a sub-agent says whose it is, and its answer reaches the sub-agent."""
        await page.goto(conversations.begin(DELEGATE))
        await expect(page.get_by_role("heading", name="A sub-agent asks you a question")).to_be_visible()
        await expect(panel(page)).to_contain_text(TASK)
        await page.get_by_role("radio", name="Bar").check()
        await page.get_by_role("button", name="Send answer").click()

        await expect(page.get_by_role("main")).to_contain_text('{"agents": [{"status": "completed"')
        await expect(page.get_by_role("main")).to_contain_text("Bar")

    @pytest.mark.slow
    async def test_a_question_out_of_sight_is_announced(self, page: Page, conversations: Conversations) -> None:
        """Each of several questions says which it is. Where the window is too low for all of them, a button leads to
        the next one, until it can be seen."""
        await page.set_viewport_size({"width": 640, "height": 400})
        await page.goto(conversations.begin(BOTH))
        await expect(panel(page).get_by_text("Question 1 of 2")).to_be_in_viewport()
        await page.get_by_role("button", name="Question 2 of 2").click()
        await expect(page.get_by_role("checkbox", name="High chair")).to_be_focused()
        await expect(page.get_by_role("group", name="What else do you need?")).to_be_in_viewport()
        await expect(page.get_by_role("button", name="Question 2 of 2")).to_have_count(0)


@pytest.mark.slow
class TestNotAnswering:
    """A question can be declined, and the turn that asks can be stopped."""

    async def test_declining_ends_the_turn(self, page: Page, conversations: Conversations) -> None:
        """By the default policy a declined question ends the turn, and the conversation takes messages again; the
        button says that."""
        address = conversations.begin(TABLE)
        await page.goto(address)
        button = page.get_by_role("button", name="Stop without answering")
        await expect(button).to_have_accessible_description(
            "The turn ends, and the conversation waits for your next message."
        )
        await button.click()
        await expect(panel(page)).to_have_count(0)

        assert conversations.state(address) == "idle"

    async def test_declining_lets_the_model_go_on_where_the_rules_say_so(
        self, page: Page, conversations: Conversations
    ) -> None:
        """Where a cancelled question lets the model go on, the button is called that, and the model is told."""
        await page.goto(conversations.begin(TABLE, POLICY.replace(questions=Questions(cancel="resume"))))
        await expect(page.get_by_role("button", name="Stop without answering")).to_have_count(0)
        await page.get_by_role("button", name="Decline to answer").click()

        await expect(page.get_by_role("main")).to_contain_text("I received: The user declined to answer.")
        await expect(panel(page)).to_have_count(0)

    async def test_stopping_cancels_the_question(self, page: Page, conversations: Conversations) -> None:
        """ "Stop" is offered while a question waits, and takes it away."""
        address = conversations.begin(TABLE)
        await page.goto(address)
        await expect(panel(page)).to_be_visible()
        await page.get_by_role("button", name="Stop", exact=True).click()
        await expect(panel(page)).to_have_count(0)

        assert conversations.state(address) == "idle"


@pytest.mark.slow
class TestDrafts:
    """What was chosen and typed is lost neither by updates nor by a reload, and is sent once."""

    async def test_a_reload_keeps_what_was_typed(self, page: Page, conversations: Conversations) -> None:
        """Choices and free text are there again after a reload of the page, and a double click sends them once."""
        sent: list[str] = []
        page.on("request", lambda request: request.url.endswith("/respond") and sent.append(request.url))
        await page.goto(conversations.begin(BOTH))
        await page.get_by_role("radio", name="Bar").check()
        await panel(page).get_by_placeholder("Your own answer").last.fill("half a")
        await page.reload()
        await expect(page.get_by_role("radio", name="Bar")).to_be_checked()
        words = panel(page).get_by_placeholder("Your own answer").last
        await expect(words).to_have_value("half a")
        await words.press_sequentially(" sentence")
        await page.get_by_role("button", name="Send answers").dblclick()

        answers = {"Which table would you like?": "Bar", "What else do you need?": ["half a sentence"]}
        await received(page, answers)
        assert len(sent) == 1

    async def test_updates_leave_what_is_typed_alone(self, page: Page, conversations: Conversations) -> None:
        """While a question is open other things happen, here a message for the next turn: the text, the place of the
        cursor and the focus stay."""
        address = conversations.begin(TABLE)
        await page.goto(address)
        words = panel(page).get_by_placeholder("Your own answer")
        await words.press_sequentially("In the gden")
        for _ in range(3):
            await words.press("ArrowLeft")
        conversations.server.run(say, conversations, address, "And a taxi, please")
        await expect(page.get_by_role("main").get_by_text("Waits for the next turn")).to_be_visible()
        await page.keyboard.type("ar")
        await expect(words).to_have_value("In the garden")
        await page.get_by_role("button", name="Send answer").click()

        await received(page, {"Which table would you like?": "In the garden"})

    async def test_a_half_written_message_keeps_the_focus(self, page: Page, conversations: Conversations) -> None:
        """A question that appears while somebody writes a message is announced, and takes no keystroke away."""
        address = conversations.address(conversations.server.run(create_empty, conversations))
        await page.goto(address)
        message = page.get_by_role("textbox", name="Message")
        await message.fill("I was about to")
        conversations.server.run(say, conversations, address, TABLE)
        await expect(panel(page)).to_be_visible()
        await expect(page.get_by_role("status").filter(has_text="Which table would you like?")).to_be_attached()
        await page.keyboard.type(" say")

        await expect(message).to_have_value("I was about to say")
        await expect(message).to_be_focused()


async def create_empty(conversations: Conversations) -> str:
    """Create a conversation in which nothing was said, and return its id."""
    return (await conversations.engine.create(title="Empty")).id


async def say(conversations: Conversations, address: str, text: str) -> None:
    """Send a message by another way than the page."""
    conversation = await conversations.engine.get(address.rpartition("/")[2])
    await conversation.send(text, when_busy="queue", wait=False)
