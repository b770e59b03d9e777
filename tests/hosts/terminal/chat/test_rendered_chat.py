"""A chat on a real terminal, as its user sees it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ....support.screens import FakeScreen
from ....support.servers.openai_server import OpenAiServer, drops_after, hangs, says
from ....support.terminal import at_prompt, end_of, terminal

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")]

ANSWER = "# A *plan*\n\n1. **Look**\n2. Leap\n\n```python\nleap(2)\n```\n\nThat is `all`."


def chat(server: OpenAiServer, folder: Path, *options: str, until: str, interrupt: bool = False) -> str:
    """Return what is on the screen when one message was answered, or was cancelled after this text was shown."""
    environment = {"OPENAI_API_BASE": server.url, "OPENAI_API_KEY": "test"}
    arguments = ("chat", "--model", "openai/test", "--tools", "", *options)
    screen = FakeScreen(100, 40)
    with terminal(*arguments, cwd=folder, **environment) as child:
        at_prompt(child).sendline("hello")
        child.expect_exact(until)
        screen.write(f"{child.before}{until}")
        if interrupt:
            child.sendintr()
        screen.write(str(at_prompt(child).before))
        child.sendeof()
        assert end_of(child) == 0
    return screen.text


class TestTheScreen:
    """What streams in is seen once, and rendered."""

    async def test_an_answer_is_rendered(self, tmp_path: Path) -> None:
        """However its pieces are cut."""
        async with OpenAiServer([says(*ANSWER)]) as server:
            shown = await asyncio.to_thread(chat, server, tmp_path, until="That is")

        assert "\nA plan\n\n 1 Look\n 2 Leap\n\nleap(2)\n\nThat is all." in shown
        assert shown.count("Look") == 1

    async def test_plain_shows_what_the_model_wrote(self, tmp_path: Path) -> None:
        """With `--plain`."""
        async with OpenAiServer([says(*ANSWER)]) as server:
            shown = await asyncio.to_thread(chat, server, tmp_path, "--plain", until="That is")

        assert ANSWER in shown

    async def test_an_answer_that_breaks_off_is_taken_back(self, tmp_path: Path) -> None:
        """The model is asked again, and only its whole answer stays."""
        async with OpenAiServer([drops_after("## Half\n\n", "an ", "answer"), says("All ", "of it.")]) as server:
            shown = await asyncio.to_thread(chat, server, tmp_path, until="All")

        assert "Half" not in shown and "an answer" not in shown
        assert shown.count("All of it.") == 1
        assert "broke off; attempt 2 follows" in shown

    async def test_a_cancelled_answer_stays_as_far_as_it_was_shown(self, tmp_path: Path) -> None:
        """The user has read it."""
        async with OpenAiServer([hangs("**Half** an ", "answer")]) as server:
            shown = await asyncio.to_thread(chat, server, tmp_path, until="answer", interrupt=True)

        assert "\nHalf an answer\nCancelled; the conversation goes on." in shown

    async def test_hostile_text_is_shown_as_text(self, tmp_path: Path) -> None:
        """Escape sequences in pieces, markup and addresses."""
        pieces = ("\x1b[2J\x1b", "]0;title\x07", "[red]x[/red] ", "[bank](http://evil) ", "&#27;[31m <b>")
        async with OpenAiServer([says(*pieces)]) as server:
            shown = await asyncio.to_thread(chat, server, tmp_path, until="[red]")

        assert "[red]x[/red] bank (http://evil) " in shown
        assert "<b>" in shown
