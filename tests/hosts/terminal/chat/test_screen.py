"""What a chat shows of a conversation."""

from __future__ import annotations

import re
from itertools import chain, repeat
from pathlib import Path

import pytest

from turnwise import Engine, presets
from turnwise.testing import ScriptedLlm, call, reply
from turnwise.testing import calls as call_several

from ....support.servers.openai_server import OpenAiServer, calls, fails, says
from ....support.terminal import LOOK_TOOL, output_after_hint, run, run_beside, shown_on_resume

pytestmark = pytest.mark.slow


def talks() -> OpenAiServer:
    """Return a model that thinks, talks, looks, talks again, and thinks once more."""
    return OpenAiServer([
        calls(("talk", {"message": 'I "look" now.'}), ("look", {"place": "up"}), text="Where do I look?"),
        calls(("talk", {"message": "A bird 🙂\nup there."})),
        says("That ", "was all."),
    ])  # fmt: skip


class TestASpeakingTool:
    """S1, S2: under rules that leave it to the tools what becomes of the model's text."""

    async def chat(self, folder: Path, *options: str) -> str:
        """Return the output of two turns, of which only the first speaks by tool; its text comes first and last."""
        answers = [
            calls(("respond_to_user", {"text": "It is 12."}), ("look", {"place": "up"}), text="I answer now."),
            says("The work ", "is done."),
            says("Good ", "bye."),
        ]
        (folder / "mine.py").write_text(LOOK_TOOL)
        async with OpenAiServer(answers) as server:
            done = await run_beside(
                *("chat", "--model", "openai/test", "--tools", "respond_to_user,mine:look", *options),
                cwd=folder,
                lines=["what is the time?", "bye"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )
        return output_after_hint(done)

    @pytest.mark.parametrize("preset", ["assistant", "foreground"])
    async def test_the_user_reads_what_was_said_and_no_status_line(self, tmp_path: Path, preset: str) -> None:
        """Once; a text of a turn in which nothing was said by tool is the reply."""
        assert await self.chat(tmp_path, "--preset", preset) == '  ✓ look(place="up")\nIt is 12.\nGood bye.\n'

    async def test_verbose_shows_the_text_as_a_thought(self, tmp_path: Path) -> None:
        """At its place."""
        shown = await self.chat(tmp_path, "--verbose")

        assert shown == (
            "I answer now.\n"
            '  ✓ look(place="up")\n'
            "The work is done.\n"
            "It is 12.\n"
            "Good bye.\n"
            "Good bye.\n"
        )  # fmt: skip


class TestWhatATurnGoesOnWithout:
    """A choice of a profile that failed, for example."""

    async def test_verbose_shows_it(self, tmp_path: Path) -> None:
        """And no other chat does."""
        profiles = '[profiles.clerk]\nprompt = "Be exact."\n[profiles.chef]\nprompt = "Cook."\n'
        (tmp_path / "turnwise.toml").write_text(profiles)
        shown = []
        for options in ([], ["--verbose"]):
            async with OpenAiServer(chain([fails(401)], repeat(says("Yes.")))) as server:
                done = await run_beside(
                    *("chat", "--preset", "reply-flow", "--model", "openai/test", *options),
                    cwd=tmp_path,
                    lines=["hello"],
                    OPENAI_API_BASE=server.url,
                    OPENAI_API_KEY="test",
                )
            shown.append(
                "Choosing a profile failed: The model's provider refused the key or the account"
                in output_after_hint(done)
            )

        assert shown == [False, True]


class TestTalk:
    """B12: `turnwise chat --preset talk`."""

    async def chat(self, folder: Path, *options: str) -> str:
        """Return the output of a chat with that model."""
        (folder / "mine.py").write_text(LOOK_TOOL)
        async with talks() as server:
            done = await run_beside(
                *("chat", "--preset", "talk", "--model", "openai/test", "--tools", "mine:look", *options),
                cwd=folder,
                lines=["hello"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )
        return output_after_hint(done)

    async def test_only_what_is_said_is_shown(self, tmp_path: Path) -> None:
        """B1, B3, B12: the talks in order, unchanged; neither the model's text nor its tools. The preset brings the
        tool `talk` along."""
        assert await self.chat(tmp_path) == 'I "look" now.\nA bird 🙂\nup there.\n'

    async def test_verbose_shows_its_thoughts_too(self, tmp_path: Path) -> None:
        """B12: thoughts at their place, and a line for each other tool."""
        shown = await self.chat(tmp_path, "--verbose")

        assert shown == (
            "Where do I look?\n"
            'I "look" now.\n'
            '  ✓ look(place="up")\n'
            "A bird 🙂\nup there.\n"
            "That was all.\n"
        )  # fmt: skip

    def test_a_repeated_text_is_shown_again(self, tmp_path: Path) -> None:
        """B10: two deliveries of the same text are two lines; the rehearsal model also talks by tool."""
        done = run("chat", "--preset", "talk", cwd=tmp_path, lines=["hello", "hello", "hello"])

        assert output_after_hint(done).count("You said: “hello”") == 3
        assert "The user was told." not in done.stdout

    def test_resuming_shows_what_was_said(self, tmp_path: Path) -> None:
        """P19: a resumed conversation is shown as the user knows it, without the model's text."""
        run("chat", "--preset", "talk", cwd=tmp_path, lines=["hello"])

        shown = shown_on_resume(tmp_path)

        assert "You said: “hello”" in shown
        assert "The user should hear this" not in shown


class TestExplicitResponses:
    """`turnwise chat --preset explicit-response`."""

    async def test_the_answer_is_shown_and_no_status_line(self, tmp_path: Path) -> None:
        """S1, S2: the user sees what was said by tool, once; the text around it is shown with the thoughts only."""
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

    async def test_resuming_shows_what_was_delivered(self, tmp_path: Path) -> None:
        """S3, P19: of two answers the last was delivered; neither the other is shown, nor one that was refused."""
        says = call_several(
            call("respond_to_user", text="Seven."),
            call("respond_to_user", text="Eight."),
            call("respond_to_user", text="Refused.", to="him"),
        )
        llm = ScriptedLlm([says, call("mark_work_complete", summary="Counted.")])
        tools, policy = ["respond_to_user", "mark_work_complete"], presets.explicit_response().replace(verify=0)
        async with Engine.open(tmp_path / "turnwise.db", model=llm, tools=tools) as engine:
            turn = await (await engine.create(policy=policy)).send("How many?")

        shown = shown_on_resume(tmp_path)

        assert turn.deliveries == ("Eight.",)
        assert "Eight." in shown
        assert "Seven." not in shown and "Refused." not in shown

    async def test_resuming_shows_a_text_that_was_delivered_instead(self, tmp_path: Path) -> None:
        """S2, P19: nothing was said by tool, so the last text was delivered; the one before it was a thought."""
        policy = presets.explicit_response().replace(nudges=1)
        llm = ScriptedLlm([reply("Let me see."), reply("Eight it is.")])
        tools = ["respond_to_user", "mark_work_complete"]
        async with Engine.open(tmp_path / "turnwise.db", model=llm, tools=tools) as engine:
            turn = await (await engine.create(policy=policy)).send("How many?")

        shown = shown_on_resume(tmp_path)

        assert turn.deliveries == ("Eight it is.",)
        assert "Eight it is." in shown and "Let me see." not in shown

    def test_the_events_show_the_verdict_of_the_check(self, tmp_path: Path) -> None:
        """S11: whether the claim was confirmed, and why."""
        done = run("chat", "--preset", "explicit-response", cwd=tmp_path, lines=["hello", "/events"])

        assert re.search(r"\d  work_verified +passed: A rehearsal takes every claim at its word\.\n", done.stdout)


async def test_escape_codes_of_a_model_are_removed(tmp_path: Path) -> None:
    """An answer cannot change colours or titles; with `--thoughts` the model's thinking is shown."""
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
