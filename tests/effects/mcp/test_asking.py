"""A server asks the user while one of its tools runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams

from turnwise.effects.mcp.asking import Asker
from turnwise.effects.mcp.server import McpTool
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states.values.questions import QuestionOption, UserQuestion

from ...support.servers.mcp_programs import AnsweringContext, Program, answering, call, opened

FORM: dict[str, Any] = {
    "message": "Where to?",
    "requestedSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CONSENT = {"message": "May I?", "requestedSchema": {"type": "object", "properties": {}}}
PAGE = {"mode": "url", "message": "Please log in.", "url": "https://example.com/login", "elicitationId": "1"}
NOBODY_CAN = {"message": "Hm?", "requestedSchema": {"type": "object", "properties": {"it": {"type": "object"}}}}


async def told(registry: ToolRegistry, context: AnsweringContext, asks: dict[str, Any]) -> dict[str, Any]:
    """Return what the server is told after it asked so."""
    result = await call(registry, "files:ask", context=context, **asks)
    answer: dict[str, Any] = json.loads(result.text)
    return answer


class TestAnswers:
    """The server learns what the user did."""

    @pytest.mark.slow
    async def test_what_the_server_is_told(self, tmp_path: Path) -> None:
        """Answers as values; a refusal and a missing answer as what they are."""
        async with opened(files=Program(tmp_path, ["ask"]).server()) as registry:
            answered = await told(registry, answering(lambda text: "Turku"), FORM)
            declined = await told(registry, answering(None), FORM)
            unanswered = await told(registry, answering(None, otherwise="unanswered"), FORM)
            unfit = await told(registry, answering(lambda text: "x"), NOBODY_CAN)

        assert answered == {"action": "accept", "content": {"city": "Turku"}}
        assert declined == {"action": "decline"}
        assert unanswered == {"action": "cancel"}
        assert unfit == {"action": "cancel"}

    @pytest.mark.parametrize(
        ("asks", "text"), [(CONSENT, "files: May I?"), (PAGE, "files: Please log in.\nhttps://example.com/login")]
    )
    async def test_consent(self, tmp_path: Path, asks: dict[str, Any], text: str) -> None:
        """A form without fields, and a page to open, need a yes. No page is opened here."""
        agreeing, refusing = answering(lambda text: "Yes"), answering(lambda text: "not now")
        async with opened(files=Program(tmp_path, ["ask"]).server()) as registry:
            accepted = await told(registry, agreeing, asks)
            refused = await told(registry, refusing, asks)

        options = (QuestionOption(label="Yes"), QuestionOption(label="No"))
        assert agreeing.asked == [UserQuestion(question=text, options=options)]
        assert (accepted["action"], refused["action"]) == ("accept", "decline")

    @pytest.mark.slow
    async def test_an_answer_that_never_fits(self, tmp_path: Path) -> None:
        """The user is asked three times, each time with what is wrong."""
        number = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
        context = answering(lambda text: "old")
        async with opened(files=Program(tmp_path, ["ask"]).server()) as registry:
            answer = await told(registry, context, {"message": "Age?", "requestedSchema": number})

        first = "files: Age?\nage (a whole number)"
        again = f"{first}\nThe answer must be a whole number."
        assert [question.question for question in context.asked] == [first, again, again]
        assert answer == {"action": "cancel"}


@pytest.mark.slow
class TestWhoIsAsked:
    """Only the user of the call is asked, and only in a call that may ask."""

    async def test_a_server_that_may_not_ask(self, tmp_path: Path) -> None:
        """It is not told that it could; one that asks nevertheless is refused."""
        context = answering(lambda text: "Turku")
        program = Program(tmp_path, ["ask"])
        async with opened(files=program.server(elicitation=False)) as registry:
            refused = await told(registry, context, FORM)

        assert refused == {"code": -32600, "message": "Elicitation not supported"}
        assert context.asked == []
        assert all("elicitation" not in params["capabilities"] for params in program.received("initialize"))

    async def test_a_tool_that_does_not_run_alone(self, tmp_path: Path) -> None:
        """It cannot wait for the user."""
        context = answering(lambda text: "Turku")
        server = Program(tmp_path, ["ask"]).server(tools={"ask": McpTool(exclusive=False)})
        async with opened(files=server) as registry:
            refused = await told(registry, context, FORM)

        assert refused == {"action": "cancel"}
        assert context.asked == []

    async def test_where_nobody_can_be_asked(self, tmp_path: Path) -> None:
        """The server is told that nobody answered."""
        async with opened(files=Program(tmp_path, ["ask"]).server()) as registry:
            result = await call(registry, "files:ask", **FORM)

        assert json.loads(result.text) == {"action": "cancel"}

    async def test_a_program_that_serves_two_users_at_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An old version of the protocol does not tell whose question it is, so nobody is asked."""
        waiting = asyncio.Event()
        first = answering(lambda text: "Turku")
        async with opened(files=Program(tmp_path, ["ask", "hang"]).server(timeout=5)) as registry:
            hanging = asyncio.create_task(call(registry, "files:hang", lambda line: waiting.set()))
            await waiting.wait()
            answer = await told(registry, first, FORM)
            hanging.cancel()
            await asyncio.wait({hanging})
            alone = await told(registry, first, FORM)

        assert answer == {"action": "cancel"}
        assert "files asks, and it cannot be told which user it means; nobody is asked" in caplog.text
        assert alone["action"] == "accept"


class TestEnding:
    """Nobody is asked for a call that is over."""

    async def test_the_question_ends_with_the_call(self) -> None:
        """The server learns that nobody answers any more."""
        begun = asyncio.Event()

        class Never(AnsweringContext):
            async def ask(self, questions: Any) -> Any:
                begun.set()
                await asyncio.Event().wait()

        asker = Asker("files", Never("c", "c/3", "call_2_0", lambda line: None), may_ask=True)
        asking = asyncio.create_task(asker.ask(ElicitRequestFormParams.model_validate(FORM)))
        await begun.wait()

        asker.close()

        assert (await asking).action == "cancel"
