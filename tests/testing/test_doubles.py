"""The doubles of a model, as a host's own tests use them: what they answer, and what they say when they have no
answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import turnwise.testing
from turnwise import Conversation, Engine, Policy, presets
from turnwise.effects.model.performers.verification import Verdict, read_verdict
from turnwise.effects.model.port import ModelRequest
from turnwise.testing import ScriptedLlm, call, calls, reply, verdict

TOOLS = ("respond_to_user", "mark_work_complete")
WORK = calls(call("respond_to_user", text="Rice."), call("mark_work_complete", summary="Read it."))
RULES = presets.explicit_response().replace(summarize=True)


async def say(text: str, llm: ScriptedLlm, database: Path, policy: Policy = RULES) -> Conversation:
    """Send this text in a new conversation with that model."""
    async with Engine.open(database, model=llm, tools=TOOLS, policy=policy) as engine:
        conversation = await engine.create()
        await conversation.send(text)
        return conversation


class TestWhatARequestIsFor:
    """`ModelRequest.purpose`."""

    async def test_every_kind_of_request_says_what_it_is_for(self, database: Path) -> None:
        """S11, S12, P21: the work, its check and its summary, and later the summary of all that was said."""
        llm = ScriptedLlm([WORK, verdict(True), "They read a note.", "Notes were read."])
        async with Engine.open(database, model=llm, tools=TOOLS, policy=RULES) as engine:
            conversation = await engine.create()
            await conversation.send("Read me my note.")
            await conversation.compact()

        assert [request.purpose for request in llm.requests] == ["converse", "check", "summarize", "condense"]
        llm.assert_finished()

    def test_a_request_of_ones_own_is_the_conversation_s(self) -> None:
        """`converse` is the default."""
        assert ModelRequest("m", ({"role": "user", "content": "Hi"},)).purpose == "converse"


class TestAScriptThatHasRunOut:
    """P33: the error says which request the script has no answer for."""

    @pytest.mark.parametrize(
        ("script", "sentence"),
        [
            ([], "The script has no answer to request 1, the next answer in the conversation."),
            ([WORK], "The script has no answer to request 2, the check of a claim that the work is complete."),
            ([WORK, verdict(True)], "The script has no answer to request 3, the summary of a turn for display."),
        ],
        ids=["work", "check", "summary"],
    )
    async def test_it_says_what_was_asked_for(self, script: list[object], sentence: str, database: Path) -> None:
        """Requests are counted from 1."""
        llm = ScriptedLlm(script)  # type: ignore[arg-type]

        await say("Read me my note.", llm, database)

        with pytest.raises(AssertionError) as failed:
            llm.assert_finished()
        assert str(failed.value).startswith(sentence)

    async def test_the_turn_says_so_too(self, database: Path) -> None:
        """The error is the failure of the turn, so a test that prints the turn shows it."""
        conversation = await say("Hi", llm := ScriptedLlm([]), database, Policy())

        assert conversation.state.type == "failed"
        assert getattr(conversation.state, "sentence", "") == (
            "The script has no answer to request 1, the next answer in the conversation."
        )
        assert len(llm.requests) == 1

    async def test_answers_that_are_left_are_told(self, database: Path) -> None:
        """`assert_finished` reports answers that were not requested."""
        await say("Hi", llm := ScriptedLlm(["Hello.", "And?"]), database, Policy())

        with pytest.raises(AssertionError, match="1 answers of the script were never used"):
            llm.assert_finished()


class TestAnswers:
    """`calls` and `verdict`."""

    def test_calls_are_one_answer(self) -> None:
        """The calls are in one response, in order, with the text."""
        answer = calls(call("find_table", party=2), call("find_taxi"), text="One moment.")

        assert [(made.name, made.arguments) for made in answer.tool_calls] == [
            ("find_table", '{"party": 2}'),
            ("find_taxi", "{}"),
        ]
        assert answer.content == "One moment."

    @pytest.mark.parametrize(
        ("given", "read"),
        [
            (verdict(True), Verdict(passed=True, reason="", missing=())),
            (verdict(True, "Ünd “so”."), Verdict(passed=True, reason="Ünd “so”.", missing=())),
            (verdict(False, "No.", ["a", "b"]), Verdict(passed=False, reason="No.", missing=("a", "b"))),
        ],
    )
    def test_a_verdict_is_read_as_it_was_given(self, given: object, read: Verdict) -> None:
        """S11: the verifier reads what `verdict` writes."""
        assert read_verdict(getattr(given, "content", "")) == read

    def test_a_verdict_is_no_more_than_a_text(self) -> None:
        """So it can be used wherever a model answers."""
        assert verdict(True) == reply('{"passed": true, "reason": "", "missing": []}')


SEARCHES = {
    *("ConversationMachine", "call_of", "calls_of", "conversation_settings", "effects", "events", "events_for"),
    *("policies", "states", "traces"),
}
"""What searches for examples, and so needs hypothesis."""


class TestWithoutHypothesis:
    """The extra `testing` is needed only for what generates conversations."""

    @pytest.mark.slow
    def test_it_is_told_by_its_extra(self, tmp_path: Path) -> None:
        """P33: each name of the kit can be imported, or says in a sentence what to install."""
        program = """
import sys
sys.modules["hypothesis"] = None
import turnwise.testing
for name in turnwise.testing.__all__:
    try:
        getattr(turnwise.testing, name)
    except ModuleNotFoundError as error:
        print(error)
    else:
        print(name)
from turnwise.testing import traces
"""
        ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)

        told = ran.stdout.splitlines()
        assert {"ScriptedLlm", "ManualClock", "RecordingChannel", "call", "verdict"} <= {*told}
        assert [line for line in told if " " in line] == [
            f'{name} needs the package hypothesis: pip install "turnwise[testing]".'
            for name in sorted(turnwise.testing.__all__)
            if name in SEARCHES
        ]
        assert ran.stderr.splitlines()[-1] == (
            'ModuleNotFoundError: traces needs the package hypothesis: pip install "turnwise[testing]".'
        )
