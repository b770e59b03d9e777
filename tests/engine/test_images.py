"""Images pass in what people say and in what tools return: checked at the door, stored once, shown in a word."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    Conversation,
    Engine,
    Image,
    InvalidInput,
    MessageUpdate,
    Refused,
    SnapshotUpdate,
    StateView,
    tool,
)
from turnwise.effects.model.rehearsal import reply_to
from turnwise.hosts.terminal.chat.screen import Screen
from turnwise.hosts.terminal.commands.database import transcript_lines
from turnwise.hosts.terminal.output.event_lines import summary
from turnwise.hosts.terminal.output.lines import without_payloads
from turnwise.hosts.terminal.output.writer import TerminalWriter
from turnwise.persistence.maintenance.export import export_conversation
from turnwise.states import ToolResult, UserMessage
from turnwise.states.values.messages import MAX_ADDRESS, MAX_IMAGE, MAX_IMAGES, MAX_TOGETHER
from turnwise.testing import FunctionLlm, ScriptedLlm, call, reply
from turnwise.testing.strategies import NOON

from ..support.engine_scenarios import Watcher
from ..support.pictures import GIF, PNG, data_url, padded_png

ADDRESS = "https://example.org/menu.jpg?size=2#page"
LARGEST = padded_png(MAX_IMAGE // 4 * 3 - 18)
"""A file that just fits: its data: URL has 22 characters before the base64."""


@tool(crash="pure")
async def look() -> Any:
    """Look at the door."""
    return ["A door:", Image.of(PNG)]


class TestSending:
    """`send` takes images, as URLs or as the bytes of files."""

    async def test_images_reach_the_transcript_and_the_model(self, database: Path) -> None:
        """P35: images keep their order, and are stored once, in their event."""
        llm = ScriptedLlm([reply("A menu.")])
        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            await conversation.send("What is this?", images=[PNG, ADDRESS, Image.of(GIF)])
            message, _ = await conversation.transcript()
            log = "".join(await export_conversation(engine.store, conversation.id))

        expected = (Image.of(PNG), Image.of(ADDRESS), Image.of(GIF))
        assert message.images == expected
        shown = [part["image_url"]["url"] for part in llm.requests[0].messages[0]["content"][1:]]
        assert shown == [image.url for image in expected]
        assert [log.count(image.url) for image in expected] == [1, 1, 1]

    async def test_an_image_may_come_without_a_word(self, database: Path) -> None:
        """A message with images only is shown to watchers."""
        async with Engine.open(database, model=ScriptedLlm([reply("A menu.")])) as engine:
            conversation = await engine.create()
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.send("", images=[PNG])
            await watcher.until("message", 2)
            await watcher.stop()

        message = next(update.data for update in watcher.updates if update.type == "message")
        assert (message["text"], message["images"]) == ("", [{"url": data_url("image/png", PNG)}])

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "images",
        [
            [LARGEST + b"xxx"],
            [f"https://a/{'x' * MAX_ADDRESS}"],
            [PNG] * (MAX_IMAGES + 1),
            [LARGEST] * 3,
            ["photo.png"],
            [b"no image"],
            ADDRESS,
            PNG,
            None,
        ],
        ids=[
            "long",
            "long address",
            "many",
            "large together",
            "a path",
            "no image",
            "no list",
            "bytes alone",
            "nothing",
        ],
    )
    async def test_what_cannot_be_used_is_refused_before_anything_is_written(self, database: Path, images: Any) -> None:
        """An invalid image is refused in one sentence without its payload, and nothing is stored."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            before = await conversation.events()
            with pytest.raises(InvalidInput) as caught:
                await conversation.send("Hi", images=images)

            assert await conversation.events() == before
            assert len(caught.value.sentence) < 200
            assert (await conversation.send("Hi")).reply == "Hello."

    @pytest.mark.slow
    async def test_as_much_as_may_be_sent_is_taken(self, database: Path) -> None:
        """The limit of a request does not count its images; after a restart they are still there."""
        async with Engine.open(database, model=ScriptedLlm([reply("Two.")])) as engine:
            conversation = await engine.create()
            await conversation.send("How many?", images=[LARGEST, LARGEST])
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            again = await engine.get(conversation.id)
            message, _ = await again.transcript()

            assert b64decode(message.images[1].url.partition(",")[2]) == LARGEST
            assert (await again.replay()).divergence is None

    async def test_a_message_sent_again_is_the_same_with_the_same_images_only(self, database: Path) -> None:
        """P3: the same message is taken once; other images under the same id are refused."""
        async with Engine.open(database, model=ScriptedLlm([reply("A menu.")])) as engine:
            conversation = await engine.create()
            turns = [await conversation.send("See", images=[PNG], message_id="m") for _ in range(2)]
            with pytest.raises(Refused) as caught:
                await conversation.send("See", images=[GIF], message_id="m")

        assert (turns[0], caught.value.code) == (turns[1], "event_id_reused")

    async def test_an_image_that_waits_enters_with_its_message(self, database: Path) -> None:
        """P37: a queued image is part of the next request."""
        asked, opened = asyncio.Event(), asyncio.Event()

        async def answer(request: Any) -> str:
            asked.set()
            await opened.wait()
            return "Yes."

        llm = FunctionLlm(answer)
        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("Hi"))
            await asked.wait()
            await conversation.send("And this?", images=[PNG], when_busy="queue", wait=False)
            opened.set()
            await first
            await conversation.send("Well?", when_busy="queue")

        (shown,) = (part for part in llm.requests[1].messages[-1]["content"] if part["type"] == "image_url")
        assert shown["image_url"]["url"] == data_url("image/png", PNG)


class TestATool:
    """A tool shows an image by returning it, alone or in a list."""

    @pytest.mark.parametrize(
        ("value", "text", "images"),
        [
            (Image.of(PNG), "", (PNG,)),
            ([Image.of(PNG)], "", (PNG,)),
            (["A door:", Image.of(PNG), {"open": True}, Image.of(GIF)], 'A door:\n\n{"open":true}', (PNG, GIF)),
            (("half \ud83c", Image.of(PNG)), "half \N{REPLACEMENT CHARACTER}", (PNG,)),
            (ToolResult(text="Broken", error=True, images=(Image.of(PNG),)), "Broken", (PNG,)),
            (["A door", "A window"], '["A door","A window"]', ()),
        ],
    )
    async def test_images_stand_beside_the_text(
        self, database: Path, value: Any, text: str, images: tuple[bytes, ...]
    ) -> None:
        """P35: the other items of the list are the text."""

        @tool(crash="pure")
        async def show() -> Any:
            """Show something."""
            return value

        async with Engine.open(database, model=ScriptedLlm([call("show"), reply("I see.")]), tools=[show]) as engine:
            conversation = await engine.create()
            await conversation.send("Look")
            result = (await conversation.transcript())[2]

        assert (result.text, result.images) == (text, tuple(map(Image.of, images)))
        assert result.error == (text == "Broken")

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (lambda: Image.of(LARGEST + b"xxx"), "at most 10,000,000 characters"),
            (lambda: Image(url="photo.png"), "an image is an https:// URL"),
            (lambda: [Image.of(PNG)] * (MAX_IMAGES + 1), f"at most {MAX_IMAGES} images"),
            (lambda: [Image.of(LARGEST)] * 3, f"at most {MAX_TOGETHER:,} characters together"),
        ],
        ids=["long", "no image", "many", "large together"],
    )
    async def test_an_image_that_cannot_be_used_is_an_error_result(
        self, database: Path, make: Any, reason: str
    ) -> None:
        """The result of an invalid image is one sentence without the payload, and the turn goes on."""

        @tool(crash="pure")
        async def show() -> Any:
            """Show something."""
            return make()

        async with Engine.open(database, model=ScriptedLlm([call("show"), reply("I see.")]), tools=[show]) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Look")
            result = (await conversation.transcript())[2]

        assert turn.reply == "I see."
        assert (result.error, result.images, reason in result.text) == (True, (), True)
        assert result.text.startswith("show failed: ")
        assert len(result.text) < 200

    async def test_a_result_that_came_with_images_replays(self, database: Path) -> None:
        """The images of a result are stored once, in the answer of the tool."""
        async with Engine.open(database, model=ScriptedLlm([call("look"), reply("I see.")]), tools=[look]) as engine:
            conversation = await engine.create()
            await conversation.send("Look")
            log = "".join(await export_conversation(engine.store, conversation.id))

            assert (await conversation.replay()).divergence is None
        assert log.count(data_url("image/png", PNG)) == 1


class TestTheRehearsal:
    """The rehearsal model sees that there are images, and does not take them for words of the user."""

    async def test_it_tells_what_it_was_shown(self, database: Path) -> None:
        """It reads an image as a word."""
        async with Engine.open(database, model="rehearsal") as engine:
            turn = await (await engine.create()).send("Is this a door?", images=[PNG])

        assert "You said: “Is this a door? [image]”" in turn.reply

    async def test_it_reports_a_tool_s_image_once(self, database: Path) -> None:
        """The message that holds the images of a result is not a new request, so the turn ends."""
        async with Engine.open(database, model="rehearsal", tools=[look]) as engine:
            turn = await (await engine.create()).send("Look at the door")

        assert turn.reply.endswith("Look: A door:")

    def test_what_a_person_says_beside_a_tool_s_image_is_heard(self) -> None:
        """A message that was steered in may be part of the same message."""
        shown = {"type": "image_url", "image_url": {"url": ADDRESS}}
        content = [
            {"type": "text", "text": "Returned by the tool look (call a), not sent by the user:"},
            shown,
            {"type": "text", "text": "Hurry"},
            shown,
        ]

        assert "“Hurry [image]”" in reply_to([{"role": "user", "content": content}], []).content


class TestTheTerminal:
    """The terminal shows a word for an image, never its payload."""

    @pytest.fixture
    async def conversation(self, database: Path) -> AsyncIterator[Conversation]:
        """Store a conversation with an image from a user, two images alone, and one from a tool."""
        llm = ScriptedLlm([call("look"), reply("A door."), reply("Two.")])
        async with Engine.open(database, model=llm, tools=[look]) as engine:
            conversation = await engine.create()
            await conversation.send("What is this?", images=[PNG])
            await conversation.send("", images=[PNG, GIF])
            yield conversation

    async def test_what_was_said_is_shown_with_a_word_for_each_image(self, conversation: Conversation) -> None:
        """`turnwise show`."""
        lines = list(transcript_lines(await conversation.transcript()))

        assert lines == [
            "user:",
            "[image]\nWhat is this?",
            "assistant:",
            "look({})",
            "  look returned: [image] A door:",
            "assistant:",
            "A door.",
            "",
            "user:",
            "[2 images]",
            "assistant:",
            "Two.",
        ]

    async def test_so_is_what_happened(self, conversation: Conversation) -> None:
        """`turnwise show --events`, and `/events` in a chat."""
        summaries = [summary(entry.event) for entry in await conversation.events()]

        assert {"[image]\nWhat is this?", "[2 images]", "[image]\nA door:"} <= set(summaries)
        assert "base64" not in "".join(summaries)

    async def test_a_chat_shows_no_payload(
        self, conversation: Conversation, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A chat shows no payload, neither when it resumes nor as it happens."""
        on_a_terminal = Screen(TerminalWriter(interactive=True), echo=True)
        state = StateView(type="idle", turn=2)
        on_a_terminal.show(SnapshotUpdate((9, 0), state=state, transcript=await conversation.transcript()))
        image = Image(url=ADDRESS)
        on_a_terminal.show(MessageUpdate((9, 1), role="user", text="Also this", turn=3, images=(image,)))

        shown = capsys.readouterr().out
        assert shown.count("[image]") == 2
        assert "[2 images]" in shown
        assert "base64" not in shown

    def test_where_events_are_printed_whole_their_payload_is_left_out(self) -> None:
        """A divergence of a replay shows its event as JSON."""
        event = UserMessage(event_id="a", at=NOON, text="Hi", images=(Image.of(PNG), Image.of(ADDRESS)))

        printed = without_payloads(event.to_json())

        assert '{"url":"data:image/png;base64,…"},{"url":"https://example.org/menu.jpg?size=2#page"}' in printed
