"""The inspector of the page in a real browser: the machine, the tape, the agents and the outbox."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.async_api import Locator, Page, expect

from turnwise import Engine, ModelRequest, Policy, tool
from turnwise.effects.model.port import ModelAnswer
from turnwise.testing import FunctionLlm, RecordingChannel, call, calls, reply

from ...support.browser.tabs import Faults, Tabs
from ...support.http.live_server import LiveServer, serving
from ...support.npm.node_packages import NodePackages
from ...support.terminal import database_with, diverging_walk
from ...support.walks import Walk

pytestmark = pytest.mark.slow

LONG = 401
"""How many steps the long conversation has: five pages of the log."""

QUESTION = {"question": "When?", "header": "Time", "options": [{"label": "6 PM"}, {"label": "8 PM"}]}


@tool(crash="pure")
async def find_table(time: str) -> str:
    """Look for a free table."""
    return f"Free at {time}."


def answer(request: ModelRequest) -> ModelAnswer:
    """What the model says, by the newest message."""
    newest = request.messages[-1]
    text = str(newest["content"])
    if newest["role"] == "tool":
        return calls(call("find_table", time="8 PM")) if text.startswith('{"answers"') else reply(f"Done: {text}")
    if "ask me" in text:
        return calls(call("ask_user_question", questions=[QUESTION]))
    if "share the work" in text:
        return calls(call("spawn_agents", tasks=["Look in Kyoto", "Look in Osaka"]))
    return reply("<b>Hello</b>")


def fail(delivery: object) -> None:
    """A channel that takes nothing."""
    raise ConnectionError("Nobody listens.")


@dataclass(frozen=True)
class Desk:
    """A server and the engine behind it."""

    server: LiveServer
    engine: Engine

    def begin(self, *texts: str, policy: Policy | None = None) -> str:
        """Begin a conversation, say these texts, each when the turn before it has ended or waits, and return its id."""

        async def said() -> str:
            conversation = await self.engine.create(system="You book tables.", policy=policy)
            for text in texts:
                await conversation.send(text)
            return conversation.id

        return self.server.run(said)

    def send(self, conversation_id: str, text: str) -> None:
        """Send a message, and wait for the end of its turn."""

        async def sent() -> None:
            conversation = await self.engine.get(conversation_id)
            await conversation.send(text)

        self.server.run(sent)

    def answer(self, conversation_id: str) -> None:
        """Answer the question that the conversation asks."""

        async def answered() -> None:
            conversation = await self.engine.get(conversation_id)
            await conversation.answer({"When?": "8 PM"})

        self.server.run(answered)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A server that has the conversations `long` and `changed`; the third step of `changed` does not replay."""
    long = Walk("long")
    for number in range((LONG - 1) // 4):
        long.turn(f"day {number}")
    database = database_with(tmp_path_factory.mktemp("inspector"), long, diverging_walk("changed", 3))
    engine = Engine.open(
        database,
        model=FunctionLlm(answer, name="function"),
        tools=["ask_user_question", "spawn_agents", find_table],
        channels=[RecordingChannel(fail, name="doorbell")],
    )
    with serving(engine) as server:
        yield Desk(server, engine)


async def look_into(page: Page, desk: Desk, conversation_id: str, tab: str = "Machine") -> None:
    """Open a conversation and a tab of the inspector."""
    await page.goto(f"{desk.server.url}/#/c/{conversation_id}")
    await page.get_by_role("tab", name=tab, exact=True).click()


def lit(page: Page) -> Locator:
    """The state of the drawing that is marked as the current one."""
    return page.get_by_role("group", name="The machine").locator("[aria-current='step']")


def slider(page: Page) -> Locator:
    """The slider of the tape."""
    return page.get_by_role("slider", name="Step")


async def expect_step(page: Page, where: str, state: str) -> None:
    """Expect that the tape is at this step, and the drawing at this state."""
    await expect(page.locator("turnwise-tape")).to_contain_text(where)
    await expect(lit(page)).to_have_accessible_name(re.compile(f"^{state}, .*the (current state|state at step \\d+)$"))


class TestMachine:
    """The drawing."""

    async def test_the_current_state_is_lit_and_follows_what_happens(self, page: Page, desk: Desk) -> None:
        """H8: while a question is open, and after its answer has come from elsewhere, with the way in words."""
        asking = desk.begin("Please ask me")
        await look_into(page, desk, asking)
        await expect_step(page, "Step 4 of 4", "Awaiting user response")
        await expect(page.get_by_text("Step 4: ask_user_question_pending. From Tool executing")).to_be_attached()

        desk.answer(asking)

        await expect_step(page, "Step 8 of 8", "Idle")
        await expect(
            page.get_by_text("Step 8: llm_response. From LLM requesting over Summarizing to Idle.")
        ).to_be_attached()
        await expect(page.locator(".state.passed")).to_have_accessible_name(re.compile("^Summarizing"))
        await expect(page.locator(".number[data-state=awaiting_user_response]")).to_have_text("4")

    async def test_a_state_and_a_line_are_explained(self, page: Page, desk: Desk) -> None:
        """By the focus of the keyboard, whose arrow keys go from state to state, and under the pointer."""
        await look_into(page, desk, desk.begin("Hello"))
        await expect_step(page, "Step 3 of 3", "Idle")
        explanation = page.locator(".machine-explanation")

        await lit(page).focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
            await page.keyboard.press(key)
        await expect(page.locator(".state:focus")).to_have_accessible_name("LLM requesting, busy")
        await expect(explanation).to_contain_text("LlmResponse→ Tool executing, Verifying")
        await page.keyboard.press("ArrowLeft")
        await expect(explanation).to_contain_text("A failed request backs off.")
        await page.locator("[data-line='llm_requesting tool_executing'] .touch").hover(force=True)
        await expect(explanation).to_contain_text("Tool executing → LLM requesting")

    async def test_the_drawing_fills_the_screen(self, page: Page, desk: Desk) -> None:
        """In full screen the letters are larger, and the tape is there."""
        await look_into(page, desk, desk.begin("Hello"))
        await expect_step(page, "Step 3 of 3", "Idle")
        height = "(state) => state.querySelector('tspan').getBoundingClientRect().height"
        before = await lit(page).evaluate(height)

        await page.get_by_role("button", name="Full screen").click()

        await expect(page.locator("turnwise-inspector:fullscreen")).to_be_visible()
        await expect(page.locator(".machine")).to_have_css("height", re.compile(r"^[6-9]\d\d"))
        assert await lit(page).evaluate(height) > 1.3 * before
        await slider(page).press("Home")
        await expect_step(page, "Step 1 of 3", "Idle")

    async def test_only_the_newest_step_is_now(self, page: Page, desk: Desk) -> None:
        """Of an earlier step the drawing says which one it is, in sight and for screen readers."""
        await look_into(page, desk, desk.begin("Hello"))
        await expect_step(page, "Step 3 of 3", "Idle")
        when = page.locator(".machine-explanation .chip")
        await expect(when).to_have_text("now")

        await slider(page).press("ArrowLeft")

        await expect_step(page, "Step 2 of 3", "LLM requesting")
        await expect(when).to_have_text("step 2")
        await expect(lit(page)).to_have_accessible_name("LLM requesting, busy, the state at step 2")
        await page.get_by_role("button", name="Live").click()
        await expect(when).to_have_text("now")
        await expect(lit(page)).to_have_accessible_name("Idle, at rest, the current state")

    @pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (380, "light")])
    async def test_every_title_fits_into_its_box(self, tabs: Tabs, desk: Desk, width: int, scheme: str) -> None:
        """Also in the drawer of a narrow page, and the letters are at least 9 pixels high."""
        page = await tabs.open(viewport={"width": width, "height": 800}, color_scheme=scheme)
        await page.goto(f"{desk.server.url}/#/c/long")
        if width < 1100:
            await page.get_by_role("button", name="Inspector", exact=True).click()
        await expect(lit(page)).to_be_visible()

        found = await page.evaluate(
            """() => [...document.querySelectorAll(".machine .state")].map((state) => {
                const box = state.querySelector("rect").getBoundingClientRect();
                const words = [...state.querySelectorAll("tspan")].filter((line) => line.textContent.trim());
                const lines = words.map((line) => line.getBoundingClientRect());
                const fits = lines.every((line) => line.left > box.left && line.right < box.right && line.top > box.top
                    && line.bottom < box.bottom);
                return [state.dataset.state, fits, lines[0].height];
            })"""
        )

        assert len(found) == 16
        assert [(state, height) for state, fits, height in found if not fits or height < 9] == []


class TestSteps:
    """The tape and the list of steps."""

    async def test_steps_are_scrubbed_with_the_keyboard_alone(self, page: Page, desk: Desk) -> None:
        """H8: Tab reaches the tabs, the drawing and the slider; the keys of the slider go through the steps."""
        await page.goto(f"{desk.server.url}/#/c/{desk.begin('Hello', 'Please ask me')}")
        await expect_step(page, "Step 6 of 6", "Awaiting user response")

        await tab_to(page, page.get_by_role("tab", name="Machine"))
        await tab_to(page, lit(page))
        await tab_to(page, slider(page))
        await page.keyboard.press("ArrowLeft")
        await expect_step(page, "Step 5 of 6", "Tool executing")
        await page.keyboard.press("Home")
        await expect_step(page, "Step 1 of 6", "Idle")
        await expect(slider(page)).to_have_attribute("aria-valuetext", "Step 1 of 6: Opened → Idle")
        await page.keyboard.press("ArrowRight")
        await expect_step(page, "Step 2 of 6", "LLM requesting")
        await expect(page.get_by_role("button", name="Live")).to_have_attribute("aria-pressed", "false")
        await page.keyboard.press("End")
        await expect_step(page, "Step 6 of 6", "Awaiting user response")
        await expect(page.get_by_role("button", name="Live")).to_have_attribute("aria-pressed", "true")

    async def test_a_step_shows_what_happened_and_what_a_model_was_sent(self, page: Page, desk: Desk) -> None:
        """H8: the list is used by the keyboard; the model request is the one that was sent. Markup stays text."""
        await look_into(page, desk, desk.begin("<i>Hello</i>"), "Steps")
        steps = page.get_by_role("listbox", name="Steps")
        step = page.locator("turnwise-step")
        await expect(steps.get_by_role("option")).to_have_count(3)

        await steps.focus()
        await page.keyboard.press("ArrowUp")
        await expect(step.get_by_role("heading", name="User message")).to_be_visible()
        await expect(steps.get_by_role("option", selected=True)).to_have_text("2User messageLLM requesting")
        await expect(step).to_contain_text("turn 1")
        await expect(step).to_contain_text('text: "<i>Hello</i>"')
        await step.get_by_text("Effects").click()
        await expect(step.get_by_text("Request LLM")).to_be_visible()
        await step.get_by_text("Model request").click()
        await expect(step.get_by_text("exactly as sent")).to_be_visible()
        await expect(step.locator(".sent.system")).to_contain_text("You book tables.")
        await expect(step.locator(".sent.user")).to_contain_text("<i>Hello</i>")
        await expect(step.get_by_text("find_table")).to_be_visible()
        await expect(step.get_by_text("Tool choice:")).to_contain_text('"auto"')
        await page.keyboard.press("Home")
        await steps.focus()
        await page.keyboard.press("End")
        await expect(step).to_contain_text('content: "<b>Hello</b>"')
        await expect(page.locator("turnwise-inspector :is(b, i)")).to_have_count(0)

    async def test_a_conversation_is_forked_from_a_rest(self, page: Page, desk: Desk) -> None:
        """The copy opens, has the steps up to that rest, and replays as it was stored."""
        original = desk.begin("Hello", "Hello again")
        await look_into(page, desk, original, "Steps")
        await expect(page.get_by_role("option")).to_have_count(5)
        await page.get_by_role("option", name=re.compile("^3 ?LLM response")).click()

        await page.get_by_role("button", name="Fork from here").click()

        await expect(page).not_to_have_url(re.compile(original))
        await expect(page.locator("turnwise-tape")).to_contain_text("Step 3 of 3")
        await expect(page.get_by_role("option")).to_have_count(3)
        await page.get_by_role("button", name="Replay").click()
        await expect(page.locator(".verdict")).to_have_text("All 3 steps come out as they were stored.")

    async def test_a_divergence_is_shown_side_by_side(self, page: Page, desk: Desk, faults: Faults) -> None:
        """The steps before it can be looked at; what was stored and what comes out now differ in marked lines."""
        faults.allow("status of 503")
        await look_into(page, desk, "changed", "Steps")
        await expect(page.get_by_text("Steps from 3 on cannot be shown")).to_be_visible()
        await expect(page.get_by_role("option")).to_have_count(2)

        await page.get_by_role("button", name="Replay").click()

        verdict = page.locator(".verdict")
        await expect(verdict).to_contain_text("Step 3 does not come out as it was stored.")
        await expect(verdict.get_by_role("heading", name="As stored")).to_be_visible()
        await expect(verdict.locator("mark").first).to_contain_text('"type": "abort"')
        await verdict.get_by_role("button", name="Show step 2").click()
        await expect(page.locator("turnwise-tape")).to_contain_text("Step 2 of 2")

    async def test_steps_that_cannot_be_read_are_read_again(self, page: Page, desk: Desk, faults: Faults) -> None:
        """While the server cannot be reached the state is lit, and a button reads the steps again."""
        faults.allow("ERR_FAILED")
        await page.route("**/log?*", lambda route: route.abort())
        await look_into(page, desk, desk.begin("Hello"))
        await expect_step(page, "Step 3 of 3", "Idle")
        notice = page.locator("turnwise-inspector .error")
        await expect(notice).to_contain_text("The server cannot be reached.")

        await page.unroute("**/log?*")
        await notice.get_by_role("button", name="Try again").click()

        await expect(page.locator("turnwise-tape")).to_contain_text("LLM response → Idle")
        await expect(notice).to_have_count(0)

    async def test_of_a_long_log_only_what_is_seen_is_read_and_shown(self, page: Page, desk: Desk) -> None:
        """A log of five pages: the first and the last are read, and the list has few elements."""
        pages: list[str] = []
        page.on("request", lambda request: pages.append(request.url) if "/log?" in request.url else None)
        await look_into(page, desk, "long", "Steps")
        await expect(page.get_by_role("option", selected=True)).to_have_text(re.compile("^401LLM response"))

        await slider(page).focus()
        await page.keyboard.press("Home")
        await expect(page.get_by_role("option", selected=True)).to_have_text("1OpenedIdle")

        assert await page.get_by_role("option").count() < 60
        read = {re.findall(r"after=(\d+)", url)[0] for url in pages}
        assert {"400", "0"} <= read <= {"400", "300", "0"}


class TestAgentsAndOutbox:
    """The agents and the outbox."""

    async def test_sub_agents_are_a_tree_that_opens_them(self, page: Page, desk: Desk) -> None:
        """By the keyboard: down, fold, unfold, open. A background agent stands below the one that it works for."""
        above = desk.begin("Please share the work")

        async def add() -> str:
            return (await desk.engine.create(role="background", works_for=above, title="Listener")).id

        await look_into(page, desk, above, "Agents")
        tree = page.get_by_role("tree", name="Agents")
        await expect(tree.get_by_role("treeitem")).to_have_count(3)
        desk.server.run(add)
        await expect(tree.get_by_role("treeitem", name=re.compile("Listener"))).to_have_attribute("aria-level", "2")

        await tree.locator("[aria-current='true']").focus()
        await page.keyboard.press("ArrowLeft")
        await expect(tree.get_by_role("treeitem")).to_have_count(1)
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("End")
        await expect(tree.locator(":focus")).to_contain_text("Listener")
        await page.keyboard.press("ArrowUp")
        await expect(tree.locator(":focus")).to_contain_text("Look in Osaka")
        await page.keyboard.press("Enter")

        await expect(page).to_have_url(re.compile("%2F|/c/.*/"))
        await expect(tree.locator("[aria-current='true']")).to_contain_text("Look in Osaka")

    async def test_the_outbox_shows_what_is_not_delivered(self, page: Page, desk: Desk) -> None:
        """With its attempts, as they happen, and a way to the step that it stands in."""
        conversation = desk.begin("Hello")
        await look_into(page, desk, conversation, "Outbox")

        rows = page.get_by_role("row", name=re.compile("doorbell"))
        await expect(rows).to_have_count(1)
        desk.send(conversation, "Hello again")
        await expect(rows).to_have_count(2)
        row = rows.first
        await expect(row.get_by_role("cell").first).to_have_text(re.compile(r"^[1-9]\d*$"))
        await row.get_by_role("button", name="Show step 3").click()

        await expect(page.get_by_role("tab", name="Steps")).to_be_focused()
        await expect(page.locator("turnwise-step").get_by_role("heading", name="LLM response")).to_be_visible()

    async def test_everything_comes_from_its_own_server(self, page: Page, desk: Desk) -> None:
        """H8: no tab of the inspector asks another server for anything."""
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(f"{desk.server.url}/#/c/{desk.begin('Hello')}")
        for name in ("Steps", "Agents", "Outbox", "Machine"):
            await page.get_by_role("tab", name=name, exact=True).click()
            await expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        await expect_step(page, "Step 3 of 3", "Idle")

        assert any(url.endswith("/machine") for url in asked)
        assert [url for url in asked if not url.startswith(f"{desk.server.url}/")] == []

    async def test_no_tab_has_a_serious_fault_of_accessibility(self, tabs: Tabs, desk: Desk, npm: NodePackages) -> None:
        """axe-core finds nothing serious in any tab, and enough contrast in the dark too."""
        page = await tabs.open(bypass_csp=True, color_scheme="light")
        await look_into(page, desk, desk.begin("Hello", "Please share the work"))
        await expect(lit(page)).to_be_visible()
        await page.add_script_tag(content=npm.text("axe-core/axe.min.js"))
        for name in ("Machine", "Steps", "Agents", "Outbox"):
            await page.get_by_role("tab", name=name, exact=True).click()
            await expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
            assert await serious_faults(page, {}) == [], name
            await page.emulate_media(color_scheme="dark")
            assert await serious_faults(page, {"runOnly": ["color-contrast"]}) == [], name
            await page.emulate_media(color_scheme="light")


async def serious_faults(page: Page, options: dict[str, object]) -> list[tuple[str, list[str]]]:
    """The rules of axe-core that the inspector breaks seriously, with the elements."""
    found = await page.evaluate(
        "async (options) => (await axe.run('turnwise-inspector', options)).violations",
        options,
    )
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious]


async def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(60):
        if await wanted.evaluate("(element) => element === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {wanted}.")
