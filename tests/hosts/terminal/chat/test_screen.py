"""What is shown"""

from __future__ import annotations

import re
from pathlib import Path

from turnwise import Engine, presets
from turnwise.testing import ScriptedLlm, call, reply
from turnwise.testing import calls as call_several

from ....support.openai_server import OpenAiServer, calls, says
from ....support.terminal import LOOK, below_the_way_back, recalled, run, run_beside


def talks() -> OpenAiServer:
    """A model that thinks, talks, looks, talks again, and thinks once more."""
    return OpenAiServer([
        calls(("talk", {"message": 'I "look" now.'}), ("look", {"place": "up"}), text="Where do I look?"),
        calls(("talk", {"message": "A bird 🙂\nup there."})),
        says("That ", "was all."),
    ])  # fmt: skip


class TestTalk:
    """B12: `turnwise chat --preset talk`."""

    async def chat(self, folder: Path, *options: str) -> str:
        """What such a chat shows."""
        (folder / "mine.py").write_text(LOOK)
        async with talks() as server:
            done = await run_beside(
                *("chat", "--preset", "talk", "--model", "openai/test", "--tools", "mine:look", *options),
                cwd=folder,
                lines=["hello"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )
        return below_the_way_back(done)

    async def test_stdout_has_what_is_said_and_nothing_else(self, tmp_path: Path) -> None:
        """B1, B3, B12: the talks in order, to the letter; no text of the model, no tools. The tool `talk` is there
        without being named."""
        assert await self.chat(tmp_path) == 'I "look" now.\nA bird 🙂\nup there.\n'

    async def test_with_verbose_its_thoughts_too(self, tmp_path: Path) -> None:
        """B12: thoughts where they were thought, and a line for each other tool."""
        shown = await self.chat(tmp_path, "--verbose")

        assert shown == (
            "Where do I look?\n"
            'I "look" now.\n'
            '  ✓ look(place="up")\n'
            "A bird 🙂\nup there.\n"
            "That was all.\n"
        )  # fmt: skip

    def test_the_same_again_is_said_again(self, tmp_path: Path) -> None:
        """B10: two deliveries of one text are two lines; the rehearsal talks by the tool, too."""
        done = run("chat", "--preset", "talk", cwd=tmp_path, lines=["hello", "hello", "hello"])

        assert below_the_way_back(done).count("You said: “hello”") == 3
        assert "The user was told." not in done.stdout

    def test_who_comes_back_sees_what_was_said(self, tmp_path: Path) -> None:
        """P19: a conversation that is taken up again is recalled as the user knows it, without the model's text."""
        run("chat", "--preset", "talk", cwd=tmp_path, lines=["hello"])

        shown = recalled(tmp_path)

        assert "You said: “hello”" in shown
        assert "The user should hear this" not in shown


class TestExplicitResponses:
    """`turnwise chat --preset explicit-response`."""

    async def test_the_answer_is_shown_and_no_status_line(self, tmp_path: Path) -> None:
        """S1, S2: the user receives what was said by tool, once; the text around it is shown with the thoughts only."""
        answers = [
            calls(("respond_to_user", {"text": "The answer."}), text="Preparing."),
            calls(("mark_work_complete", {"summary": "Answered."})),
        ]
        for options, shown in (((), "The answer.\n"), (("--thoughts",), "Preparing.\n")):
            async with OpenAiServer([*answers, *[says("Checked.")] * 9]) as server:
                done = await run_beside(
                    *("chat", "--preset", "explicit-response", "--model", "openai/test", *options),
                    cwd=tmp_path,
                    lines=["hello"],
                    OPENAI_API_BASE=server.url,
                    OPENAI_API_KEY="test",
                )

            assert done.stdout.count("The answer.\n") == 1
            assert shown in done.stdout
            assert ("Preparing." in done.stdout) == bool(options)

    async def test_who_comes_back_sees_what_they_received(self, tmp_path: Path) -> None:
        """S3, P19: of two answers the last was delivered; the other is not recalled, nor is one that was refused."""
        says = call_several(
            call("respond_to_user", text="Seven."),
            call("respond_to_user", text="Eight."),
            call("respond_to_user", text="Refused.", to="him"),
        )
        llm = ScriptedLlm([says, call("mark_work_complete", summary="Counted.")])
        tools, policy = ["respond_to_user", "mark_work_complete"], presets.explicit_response().replace(verify=0)
        async with Engine.open(tmp_path / "turnwise.db", model=llm, tools=tools) as engine:
            turn = await (await engine.create(policy=policy)).send("How many?")

        shown = recalled(tmp_path)

        assert turn.deliveries == ("Eight.",)
        assert "Eight." in shown
        assert "Seven." not in shown and "Refused." not in shown

    async def test_who_comes_back_sees_a_text_that_stood_in(self, tmp_path: Path) -> None:
        """S2, P19: nothing was said by tool, so the text was the answer; the one before it was a thought."""
        policy = presets.explicit_response().replace(nudges=1)
        llm = ScriptedLlm([reply("Let me see."), reply("Eight it is.")])
        async with Engine.open(tmp_path / "turnwise.db", model=llm) as engine:
            turn = await (await engine.create(policy=policy)).send("How many?")

        shown = recalled(tmp_path)

        assert turn.deliveries == ("Eight it is.",)
        assert "Eight it is." in shown and "Let me see." not in shown

    def test_the_events_tell_what_came_of_the_check(self, tmp_path: Path) -> None:
        """S11: whether the claim holds, and why."""
        done = run("chat", "--preset", "explicit-response", cwd=tmp_path, lines=["hello", "/events"])

        assert re.search(r"\d  work_verified +passed: A rehearsal takes every claim at its word\.\n", done.stdout)


async def test_what_a_model_says_never_commands_the_terminal(tmp_path: Path) -> None:
    """Escape codes in an answer are left out; what the model thinks is shown on request."""
    answer = says("\x1b[31mred\x1b[0m ", "\x1b]0;title\x07plain", thinking="Hm, colours.")
    async with OpenAiServer([answer]) as server:
        done = await run_beside(
            *("chat", "--model", "openai/test", "--thoughts"),
            cwd=tmp_path,
            lines=["hello"],
            OPENAI_API_BASE=server.url,
            OPENAI_API_KEY="test",
        )

    assert done.stdout.endswith("Hm, colours.\nred plain\n")
