"""The chat in a real browser: sending, streaming, reloading, waiting, tools and markup."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from turnwise import Engine, ToolContext, ToolError, presets, tool
from turnwise.effects.model.port import ModelAnswer
from turnwise.states import Citation
from turnwise.states.policy import Retry
from turnwise.states.values.messages import Usage
from turnwise.testing import RecordingChannel, call, failure, reply

from ...support.browser.chat_page import ChatPage
from ...support.browser.tabs import Faults, Tabs
from ...support.http.live_server import LiveServer, serving
from ...support.http.paced_model import PacedLlm

MARKUP = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script><b>bold</b>"
HOSTILE = f"""\
{MARKUP} and *emphasis*

[link](javascript:document.title='run') [data](data:text/html,<script>alert(1)</script>) [fine](https://example.org/)

![picture](https://example.org/pixel.png) ![local](/page/icon.svg)

<div onclick="document.title='run'">raw</div>
"""

COUNTERS = """
const counted = window.counted = {heights: 0, writes: 0, frames: 0};
const {get} = Object.getOwnPropertyDescriptor(Element.prototype, "scrollHeight");
Object.defineProperty(Element.prototype, "scrollHeight", {get() { counted.heights += 1; return get.call(this); }});
const {appendData} = CharacterData.prototype;
CharacterData.prototype.appendData = function (text) { counted.writes += 1; return appendData.call(this, text); };
(function count() { counted.frames += 1; requestAnimationFrame(count); })();
"""
"""Counts how often the height of something is read, how often text is appended, and how many frames are drawn."""

VISIBILITY = """
let isHidden = false;
Object.defineProperty(document, "hidden", {get: () => isHidden});
window.setHidden = (hidden) => { isHidden = hidden; document.dispatchEvent(new Event("visibilitychange")); };
"""
"""Lets a test hide the tab: a browser without windows never does."""

released = threading.Event()


@tool(crash="pure")
async def look_up(place: str, context: ToolContext) -> dict[str, str]:
    """Look a place up, as soon as the test allows it."""
    if place == "nowhere":
        raise ToolError(f"There is no such place. {MARKUP}")
    context.progress(f"asking {MARKUP}")
    while not released.is_set():
        await asyncio.sleep(0.01)
    return {"place": place, "note": MARKUP}


@pytest.fixture(scope="module")
def model() -> PacedLlm:
    """The model of all conversations, which says what a test lets it say."""
    return PacedLlm()


@pytest.fixture(scope="module")
def server(model: PacedLlm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server of the page and its API."""
    database = Path(tmp_path_factory.mktemp("chat")) / "chat.db"
    with serving(Engine.open(database, model=model, tools=[look_up])) as server:
        yield server


@pytest.fixture
def chat(page: Page, server: LiveServer) -> ChatPage:
    """A tab with the chat."""
    return ChatPage(page, server)


async def test_a_message_is_sent_and_its_answer_streams(chat: ChatPage, model: PacedLlm) -> None:
    """H7: a message is sent with Enter, the answer appears token by token, and stays once, rendered and delivered."""
    await chat.open()

    await chat.send("Hello there")

    await expect(chat.own).to_have_text(["Hello there"])
    await expect(chat.composer).to_have_value("")
    await expect(chat.page).to_have_url(re.compile(r"#/c/.+"))
    await expect(chat.page.get_by_role("heading", level=1)).to_have_text("Hello there")
    model.show("I think: ", thinking=True)
    model.show("First *one*")
    await expect(chat.writing).to_contain_text("First *one*")
    model.show(", then two.")
    await expect(chat.writing).to_contain_text("First *one*, then two.")
    await expect(chat.writing).to_have_count(1)
    usage = Usage(input_tokens=1200, output_tokens=34, cost=0.0021)
    model.answer(reply("First *one*, then two.", thinking="I think: so.", usage=usage))
    await expect(chat.answers).to_contain_text(["First one, then two."])
    await expect(chat.answers.locator("em")).to_have_text("one")
    await expect(chat.messages.get_by_text("Delivered")).to_be_hidden()
    await expect(chat.writing).to_be_hidden()
    await expect(chat.messages.get_by_label("End of turn 1")).to_contain_text("1,234 tokens · $0.0021")
    await expect(chat.thoughts.locator("details > .text")).to_be_hidden()
    await chat.thoughts.locator("summary").click()
    await expect(chat.thoughts.locator("details > .text")).to_have_text("I think: so.")


@pytest.mark.slow
async def test_a_reload_in_the_middle_loses_and_doubles_nothing(chat: ChatPage, model: PacedLlm) -> None:
    """H7: a page that is reloaded while an answer streams has its beginning, its end, and everything once."""
    await chat.open()
    await chat.send("Tell me a story")
    model.show("Once upon ")
    await expect(chat.writing).to_contain_text("Once upon")

    await chat.page.reload()

    await expect(chat.writing).to_contain_text("Once upon")
    model.show("a time.")
    await expect(chat.writing.locator(":scope > .text")).to_have_text("Once upon a time.")
    model.answer("Once upon a time.")
    await expect(chat.answers).to_have_count(1)
    await expect(chat.answers.locator(".text")).to_have_text("Once upon a time.")
    await expect(chat.own).to_have_text(["Tell me a story"])
    await chat.page.reload()
    await expect(chat.answers.locator(".text")).to_have_text(["Once upon a time."])
    await expect(chat.own).to_have_count(1)


@pytest.mark.slow
async def test_a_hidden_tab_holds_no_connection_and_misses_nothing(chat: ChatPage, model: PacedLlm) -> None:
    """While a tab is hidden its stream is closed, since a browser opens only six to a server; shown again, it goes on
    where it was."""
    await chat.page.add_init_script(VISIBILITY)
    await chat.open()
    await chat.send("Tell me more")
    model.show("One, ")
    await expect(chat.writing).to_contain_text("One,")

    async with chat.page.expect_event(
        "requestfailed", lambda request: "/events" in request.url
    ):  # the stream is closed
        await chat.page.evaluate("setHidden(true)")
    model.show("two, ")
    async with chat.page.expect_request(lambda request: "last_event_id=" in request.url):
        await chat.page.evaluate("setHidden(false)")

    await expect(chat.writing.locator(":scope > .text")).to_have_text("One, two, ")
    model.answer("One, two, three.")
    await expect(chat.answers.locator(".text")).to_have_text(["One, two, three."])
    await expect(chat.own).to_have_count(1)


@pytest.mark.slow
async def test_markup_in_any_text_stays_text(chat: ChatPage, model: PacedLlm) -> None:
    """H7: markup in messages, answers, thoughts, titles, arguments, progress, results and errors is shown as it was
    written. Scripts, handlers, addresses that a browser would run, and images of others do not act."""
    released.clear()
    await chat.open()
    await chat.send(MARKUP)
    model.show(HOSTILE)
    await expect(chat.writing).to_contain_text("<script>")
    model.answer(call("look_up", place=MARKUP))
    await expect(chat.tool("look_up")).to_contain_text("asking <img")
    released.set()
    model.answer(call("look_up", place="nowhere"))
    model.answer(reply(HOSTILE, thinking=MARKUP))
    await expect(chat.answers).to_contain_text(["and emphasis"])

    for card in await chat.tool("look_up").all():
        await card.locator("summary").click()
    await chat.thoughts.locator("summary").click()

    await expect(chat.own).to_have_text([MARKUP])
    await expect(chat.page.get_by_role("heading", level=1)).to_contain_text("<img src=x")
    await expect(chat.answers.locator("a")).to_have_text(["fine", "Image: picture"])
    await expect(chat.messages.locator("img, script, [onclick], [onerror], [style], b")).to_have_count(0)
    await expect(chat.list.locator("img, script, b")).to_have_count(0)
    await expect(chat.tool("look_up").first).to_contain_text("<script>document.title")
    await expect(chat.page).not_to_have_title("run")


@pytest.mark.slow
async def test_values_that_are_no_texts_and_texts_of_any_length_are_shown(chat: ChatPage, model: PacedLlm) -> None:
    """A model may put anything into the arguments of a call: numbers beyond those of JavaScript, and names that an
    object of JavaScript has itself. A long answer is shown as it was written, and those beside it are rendered."""
    long = "long " * 50_000
    await chat.open()
    await chat.send("Ask me")
    model.answer(
        call(
            "ask_user_question",
            questions=[{"question": 2**70}, {"question": {"toString": 1}}, {"question": "__proto__"}],
        )
    )
    model.answer(long)
    await expect(chat.answers).to_have_count(1)
    await chat.send("And *then*?")
    model.answer("*Then* it ended.")
    await expect(chat.answers.locator("em")).to_have_text("Then")

    await chat.page.reload()

    await expect(chat.tool("ask_user_question")).to_contain_text(f'{2**70} {{"toString":1}} __proto__')
    await expect(chat.answers.first).to_contain_text(long.strip())
    await expect(chat.answers.locator("em")).to_have_text("Then")


@pytest.mark.slow
async def test_a_tool_is_a_card_with_arguments_progress_and_result(chat: ChatPage, model: PacedLlm) -> None:
    """A call is a card: what it was given, what it reports while it runs, and its result or its error."""
    released.clear()
    await chat.open()
    await chat.send("Look up Kyoto")
    model.show("I look.")
    await expect(chat.writing).to_contain_text("I look.")
    model.answer(call("look_up", place="Kyoto"))

    await expect(chat.tool("look_up")).to_contain_text("place: Kyoto")
    await expect(chat.tool("look_up").locator(".status")).to_have_text("running")
    await expect(chat.tool("look_up").get_by_role("status")).to_contain_text("asking")
    await chat.tool("look_up").locator("summary").click()
    released.set()
    await expect(chat.tool("look_up").locator(".status")).to_have_text("done")
    await expect(chat.tool("look_up").locator("pre").nth(1)).to_contain_text('"place": "Kyoto"')  # it has stayed open
    model.answer(call("look_up", place="nowhere"))
    await expect(chat.tool("look_up").nth(1).locator(".status")).to_have_text("failed")
    await expect(chat.tool("look_up").nth(1)).to_contain_text("There is no such place.")
    model.answer("Done.")
    await expect(chat.answers.last).to_contain_text("Done.")


@pytest.mark.slow
async def test_a_message_during_a_turn_waits_and_can_be_withdrawn(chat: ChatPage, model: PacedLlm) -> None:
    """A message that arrives while the assistant works is shown as waiting; withdrawn, it goes back to the composer."""
    await chat.open()
    await chat.send("First")
    model.show("Working")
    await expect(chat.writing).to_contain_text("Working")

    await chat.send("Second")

    waiting = chat.own.filter(has_text="Second")
    await expect(waiting).to_contain_text("Waits for the next turn")
    await chat.page.reload()
    await expect(waiting).to_contain_text("Waits for the next turn")
    await waiting.get_by_role("button", name="Withdraw").click()
    await expect(waiting).to_have_count(0)
    await expect(chat.composer).to_have_value("Second")
    await chat.composer.press("Enter")
    await expect(waiting).to_contain_text("Waits for the next turn")
    model.answer("One.")
    model.answer("Two.")
    await expect(chat.answers).to_contain_text(["One.", "Two."])
    await expect(chat.own).to_have_text(["First", "Second"])


@pytest.mark.slow
async def test_a_turn_is_stopped(chat: ChatPage, model: PacedLlm, tabs: Tabs) -> None:
    """Stop ends the turn under way; what was streamed stays and is marked, also for whoever comes later, and the
    conversation goes on."""
    await chat.open()
    await chat.send("Count to a million")
    model.show("1, 2, 3")
    await expect(chat.writing).to_contain_text("1, 2, 3")

    await chat.button("Stop").click()

    await expect(chat.button("Stop")).to_be_hidden()
    later = ChatPage(await tabs.open(chat.page.context), chat.server)
    await later.page.goto(chat.page.url)
    for tab in (chat, later):
        await expect(tab.answers).to_have_text(["1, 2, 3Stopped"])
        await expect(tab.writing).to_be_hidden()
        await expect(tab.messages.get_by_text("Stopped; the conversation goes on.")).to_be_hidden()  # the mark says it
    await chat.send("Never mind")
    model.answer("All right.")
    await expect(chat.answers.last).to_contain_text("All right.")


@pytest.mark.slow
async def test_what_was_not_heard_is_cut(chat: ChatPage, model: PacedLlm, tabs: Tabs) -> None:
    """A program that speaks the answer tells what the user has heard: the rest goes away where it was shown, and the
    place is marked, behind the end of the turn too. Other turns stay."""
    await chat.open()
    await chat.send("The weather?")
    model.answer("It is *sunny*. Tomorrow it rains.")
    await expect(chat.answers).to_contain_text(["Tomorrow it rains."])
    conversation_id = chat.page.url.partition("#/c/")[2]

    with chat.server.client() as client:
        client.post(f"/conversations/{conversation_id}/cancel", json={"heard": "it is sunny"}).raise_for_status()

    later = ChatPage(await tabs.open(chat.page.context), chat.server)
    await later.page.goto(chat.page.url)
    for tab in (chat, later):
        await expect(tab.answers.locator(".text")).to_have_text(["It is sunny."])
        await expect(tab.answers.locator("em")).to_have_text("sunny")
        await expect(tab.answers).to_contain_text(["Interrupted; heard up to here"])
        await expect(tab.own).to_have_text(["The weather?"])


@pytest.mark.slow
async def test_sources_are_links_unless_their_addresses_could_run(chat: ChatPage, model: PacedLlm) -> None:
    """The sources of an answer stand below it, each once. An address that a browser would run is none."""
    addresses = ["https://example.org/oslo", "javascript:document.title='run'", "data:text/html,x", "/page/app.js", ""]
    sources = [Citation(url=address, title=f"Source {n} {MARKUP}") for n, address in enumerate(addresses)]
    await chat.open()
    await chat.send("The weather?")
    model.answer(ModelAnswer(content="It rains.", citations=(*sources, sources[0])))

    listed = chat.answers.get_by_role("list", name="Sources").get_by_role("listitem")
    for _ in range(2):
        await expect(listed).to_have_count(5)
        await expect(listed.get_by_role("link")).to_have_count(1)
        await expect(listed.get_by_role("link")).to_have_attribute("href", "https://example.org/oslo")
        await expect(listed.first).to_contain_text("Source 0 <img")
        await expect(chat.messages.locator("img, script, b")).to_have_count(0)
        await chat.page.reload()
    await expect(chat.page).not_to_have_title("run")


@pytest.mark.slow
async def test_what_a_tool_says_is_shown_once(page: Page, model: PacedLlm, tmp_path: Path) -> None:
    """While a model writes what a tool is to say it can be read, and the delivery takes its place; if the request
    fails, it goes away."""
    policy = presets.talk().replace(retry=Retry(base=0))
    with serving(Engine.open(tmp_path / "talk.db", model=model, tools=["talk"], policy=policy)) as server:
        chat = ChatPage(page, server)
        await chat.open()
        await chat.send("When does my train leave?")
        model.show("At eight", speech=True)
        await expect(chat.writing).to_contain_text("At eight")
        model.answer(failure("server_error"))
        await expect(chat.writing).to_be_hidden()
        model.show("At nine, ", speech=True)
        model.show("from platform 2.", speech=True)
        await expect(chat.writing.locator(".speech")).to_have_text("At nine, from platform 2.")
        model.answer(call("talk", message="At nine, from platform 2."))
        said = chat.messages.get_by_role("article", name="Said to the user")
        await expect(said.locator(".text")).to_have_text(["At nine, from platform 2."])
        await expect(chat.writing).to_be_hidden()
        model.answer(reply("All said."))
        await expect(chat.state).to_have_text("Ready")
        await expect(said).to_have_count(1)


@pytest.mark.slow
async def test_a_message_that_does_not_arrive_comes_back(chat: ChatPage, model: PacedLlm, faults: Faults) -> None:
    """Without a connection the text returns to the composer with a sentence, and the page says that it is cut off; sent
    again, the message is said once. The page reconnects by itself."""
    faults.allow(r"ERR_INTERNET_DISCONNECTED")
    await chat.open()
    await chat.send("Hello")
    model.answer("Hi.")
    await expect(chat.answers).to_contain_text(["Hi."])
    await chat.page.context.set_offline(True)

    await chat.send("Are you there?")

    await expect(chat.lost).to_contain_text("The server could not be reached: what you sent last may not have arrived.")
    await expect(chat.composer).to_have_value("Are you there?")
    await expect(chat.own).to_have_text(["Hello"])
    await chat.page.context.set_offline(False)
    await chat.composer.press("Enter")
    model.answer("I am.")
    await expect(chat.answers).to_contain_text(["Hi.", "I am."])
    await expect(chat.own).to_have_text(["Hello", "Are you there?"])


@pytest.mark.slow
async def test_a_message_that_fails_while_another_conversation_is_shown_comes_back_to_its_own(
    chat: ChatPage, model: PacedLlm, faults: Faults
) -> None:
    """A request that breaks off after the conversation was left puts its text back where it was written, and the
    message is not shown as under way for ever; sent again, it is said once. What says so stays for a while when the
    stream of the conversation that is shown opens only then: else nobody would read it."""
    faults.allow(r"ERR_FAILED")
    with chat.server.client() as client:
        first, second = (client.post("/conversations", json={"title": name}).json()["id"] for name in ("One", "Two"))
    held: asyncio.Queue[Route] = asyncio.Queue()
    await chat.page.route("**/messages", held.put)
    await chat.open(first)
    await chat.send("To the first")
    await expect(chat.own).to_contain_text(["Sending…"])
    streams: asyncio.Queue[Route] = asyncio.Queue()
    await chat.page.route(f"**/{second}/events", streams.put)
    await chat.open(second)
    stream = await streams.get()

    await (await held.get()).abort()
    await expect(chat.lost).to_contain_text("The server could not be reached: what you sent last may not have arrived.")
    await stream.continue_()
    await expect(chat.state).to_have_text("Ready")
    await expect(chat.lost).to_contain_text("The server could not be reached: what you sent last may not have arrived.")
    await chat.page.unroute("**/messages")

    await expect(chat.composer).to_have_value("")
    await chat.open(first)
    await expect(chat.composer).to_have_value("To the first")
    await expect(chat.own).to_have_count(0)
    await expect(chat.alert).to_have_text("")
    await chat.composer.press("Enter")
    model.answer("Received.")
    await expect(chat.answers).to_contain_text(["Received."])
    await expect(chat.own).to_have_text(["To the first"])


@pytest.mark.slow
async def test_a_draft_is_kept_for_its_conversation(chat: ChatPage) -> None:
    """What was typed and not sent is there after a reload, in its own conversation only."""
    with chat.server.client() as client:
        first, second = (client.post("/conversations", json={"title": name}).json()["id"] for name in ("One", "Two"))
    await chat.open(first)
    await chat.composer.press_sequentially("a thought")
    await chat.composer.press("Shift+Enter")
    await chat.composer.press_sequentially("on two lines")

    await chat.open(second)
    await expect(chat.composer).to_have_value("")
    await chat.open(first)
    await chat.page.reload()

    await expect(chat.composer).to_have_value("a thought\non two lines")


@pytest.mark.slow
async def test_scrolling_follows_the_end_only_while_it_is_in_sight(chat: ChatPage, model: PacedLlm) -> None:
    """A person who scrolls up stays there while an answer grows; at the end the page follows it. No token reads the
    height of the page, and the text is written at most once a frame."""
    await chat.page.add_init_script(COUNTERS)
    await chat.open()
    await chat.send("Write a lot")
    for number in range(200):
        model.show(f"Line {number}\n")
    await expect(chat.writing).to_contain_text("Line 199")
    await expect(chat.writing.get_by_text("Line 199")).to_be_in_viewport(ratio=0)

    await chat.messages.hover()
    await chat.page.mouse.wheel(0, -1500)

    await expect(chat.button("Newest")).to_be_visible()
    place = await chat.messages.evaluate("element => element.scrollTop")
    for number in range(200, 300):
        model.show(f"Line {number}\n")
    await expect(chat.writing).to_contain_text("Line 299")
    assert await chat.messages.evaluate("element => element.scrollTop") == place
    await chat.button("Newest").click()
    await expect(chat.button("Newest")).to_be_hidden()
    model.show("The end")
    await expect(chat.writing).to_contain_text("The end")
    await expect(chat.button("Newest")).to_be_hidden()
    counted = await chat.page.evaluate("counted")
    assert counted["heights"] == 0
    assert 0 < counted["writes"] <= counted["frames"]
    model.answer("Short.")
    await expect(chat.answers).to_contain_text(["Short."])


@pytest.mark.slow
async def test_a_conversation_of_two_thousand_messages_stays_usable(chat: ChatPage, model: PacedLlm) -> None:
    """A long conversation begins with its newest messages; earlier ones come on demand, and it can be gone on with."""
    history = [{"role": ("user", "assistant")[n % 2], "content": f"Message *{n}*"} for n in range(2000)]
    with chat.server.client() as client:
        conversation_id = client.post("/conversations", json={"messages": history, "title": "Long"}).json()["id"]
    await chat.open(conversation_id)
    items = chat.messages.get_by_role("article")

    await expect(chat.messages.get_by_text("Message 1999")).to_be_in_viewport()
    await expect(items).to_have_count(80)
    await chat.button("Show earlier messages").scroll_into_view_if_needed()
    await expect(items).not_to_have_count(80)
    await expect(chat.messages.get_by_text("Message 1845")).to_have_count(1)
    await chat.send("Still there?")
    model.answer("Yes.")
    await expect(chat.answers.last).to_contain_text("Yes.")
    await expect(chat.answers.last).to_be_in_viewport()


@pytest.mark.slow
async def test_nothing_is_said_of_deliveries_where_there_are_none(page: Page, model: PacedLlm, tmp_path: Path) -> None:
    """Without channels and under the default rules everything is for whoever reads the page, so no text is marked."""
    with serving(Engine.open(tmp_path / "plain.db", model=model)) as server:
        chat = ChatPage(page, server)
        await chat.open()
        await chat.send("Hello")
        model.answer("Hi.")
        await expect(chat.answers).to_contain_text(["Hi."])
        await expect(chat.state).to_have_text("Ready")

        await expect(chat.messages.get_by_text("Delivered")).to_be_hidden()
        await page.get_by_role("tab", name="Outbox").click()
        await expect(page.get_by_text("There are no channels")).to_be_visible()


@pytest.mark.slow
async def test_where_not_every_text_is_for_the_user_that_is_said(page: Page, model: PacedLlm, tmp_path: Path) -> None:
    """By rules under which the user hears only what a tool says, a turn that said nothing says so."""
    engine = Engine.open(tmp_path / "talk.db", model=model, tools=["talk"], policy=presets.talk())
    with serving(engine) as server:
        chat = ChatPage(page, server)
        await chat.open()
        await chat.send("Hello")
        model.answer("Nobody reads this.")

        await expect(chat.messages.get_by_text("Nothing was delivered to the user.")).to_be_visible()


@pytest.mark.slow
async def test_what_goes_out_through_a_channel_is_marked(page: Page, model: PacedLlm, tmp_path: Path) -> None:
    """With a channel each text says whether it was delivered, after a reload too."""
    engine = Engine.open(tmp_path / "channel.db", model=model, channels=[RecordingChannel()])
    with serving(engine) as server:
        chat = ChatPage(page, server)
        await chat.open()
        await chat.send("Hello")
        model.answer("Hi.")
        await expect(chat.messages.get_by_text("Delivered")).to_be_visible()
        await page.reload()

        await expect(chat.messages.get_by_text("Delivered")).to_be_visible()
