"""What a server asks the user in the middle of a call, and the form in which it is asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams

from turnwise.effects.mcp.asking import MAX_FIELDS, Asker, Field, InvalidAnswer, fields_of
from turnwise.effects.mcp.server import McpTool
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states.errors import ConfigurationError
from turnwise.states.values.questions import QuestionOption, UserQuestion

from ...support.cases import holds_for
from ...support.servers.mcp_programs import AnsweringContext, Program, answering, call, opened

# --- A server asks the user while one of its tools runs.


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


# --- A form of a server becomes questions to the user, and the answers become its values.


SIZES, LONG = ["S", "M", "L"], ["small", "medium", "large"]
MANY = ["red", "green", "blue", "black", "white"]


def field(schema: dict[str, Any], *, is_required: bool = True) -> Field:
    """Return the only field of a form."""
    form = {"type": "object", "properties": {"it": schema}, "required": ["it"] if is_required else []}
    (only,) = fields_of(form)
    return only


def question(schema: dict[str, Any], *, is_required: bool = True) -> UserQuestion:
    """Return the question for the only field of a form."""
    return field(schema, is_required=is_required).question("Tell me.")


def labels(asked: UserQuestion) -> list[str]:
    """Return the options that are offered."""
    return [option.label for option in asked.options]


class TestQuestions:
    """Each kind of field has its kind of question."""

    def test_a_text_is_an_open_question(self) -> None:
        """With the title and the description of the server."""
        asked = question({"type": "string", "title": "Seat", "description": "Row and letter"})

        assert asked == UserQuestion(question="Tell me.\nSeat: Row and letter", header="Seat")

    def test_numbers_say_what_they_are(self) -> None:
        """And optional fields, how they are left out."""
        assert question({"type": "integer"}).question == "Tell me.\nit (a whole number)"
        assert question({"type": "number"}, is_required=False).question == (
            "Tell me.\nit (a number; optional, - leaves it out)"
        )

    @pytest.mark.parametrize(
        ("schema", "offered", "is_multiple"),
        [
            ({"type": "boolean"}, ["Yes", "No"], False),
            ({"type": "string", "enum": SIZES}, SIZES, False),
            ({"type": "string", "enum": SIZES, "enumNames": LONG}, LONG, False),
            ({"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, ["A", "b"], False),
            ({"type": "array", "items": {"type": "string", "enum": SIZES}}, SIZES, True),
            ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b"}]}}, ["A", "b"], True),
        ],
    )
    def test_choices_are_offered(self, schema: dict[str, Any], offered: list[str], is_multiple: bool) -> None:
        """With the labels of the server; of several values where it wants an array."""
        asked = question(schema)

        assert (labels(asked), asked.multi_select) == (offered, is_multiple)

    @pytest.mark.parametrize("values", [MANY, ["one"], ["Other", "b"], ["A", "a"], [" ", "b"]])
    def test_choices_that_cannot_be_offered_are_named(self, values: list[str]) -> None:
        """A question has two to four options, and none is called Other."""
        asked = question({"type": "string", "enum": values})

        assert labels(asked) == []
        assert asked.question == f"Tell me.\nit (one of: {', '.join(values)})"

    def test_a_long_text_is_cut(self) -> None:
        """A server may say anything."""
        assert len(question({"type": "string", "description": "a" * 1_000_000}).question) < 5_000


class TestAnswersOfForm:
    """An answer gets the type that the server wants."""

    @holds_for(
        ("schema", "answer", "value"),
        [
            ({"type": "string"}, " 7 ", " 7 "),
            ({"type": "string"}, "-", "-"),
            ({"type": "integer"}, " 7 ", 7),
            ({"type": "number"}, "7.5", 7.5),
            ({"type": "boolean"}, "Yes", True),
            ({"type": "boolean"}, "no", False),
            ({"type": "boolean"}, "true", True),
            ({"type": "string", "enum": SIZES, "enumNames": ["small", "medium", "large"]}, "Medium", "M"),
            ({"type": "string", "enum": SIZES, "enumNames": ["small", "medium", "large"]}, "m", "M"),
            ({"type": "string", "oneOf": [{"const": "a", "title": "A thing"}, {"const": "b"}]}, "A thing", "a"),
            ({"type": "array", "items": {"type": "string", "enum": SIZES}}, ["S", "L"], ["S", "L"]),
            ({"type": "array", "items": {"type": "string", "enum": MANY}}, "red, Blue", ["red", "blue"]),
            ({"type": "string"}, ["a", "b"], "a, b"),
        ],
    )
    def test_the_value(self, schema: dict[str, Any], answer: str | list[str], value: object) -> None:
        """Labels are read whatever their case, and the text of a choice counts like its label."""
        (found,) = field(schema).value(answer).values()

        assert (type(found), found) == (type(value), value)

    @pytest.mark.parametrize(
        ("schema", "answer", "sentence"),
        [
            ({"type": "integer"}, "many", "The answer must be a whole number."),
            ({"type": "number"}, "nan", "The answer must be a number."),
            ({"type": "boolean"}, "perhaps", "The answer must be one of: Yes, No."),
            ({"type": "string", "enum": SIZES}, "XL", "The answer must be one of: S, M, L."),
            ({"type": "integer", "minimum": 1}, "0", "Invalid input: it: Input should be at least 1"),
            ({"type": "string", "maxLength": 2}, "abc", "Invalid input: it: Input should have at most 2 characters"),
            (
                {"type": "array", "items": {"enum": SIZES}, "minItems": 2},
                ["S"],
                "Invalid input: it: Input should have at least 2 items",
            ),
        ],
    )
    def test_what_does_not_fit(self, schema: dict[str, Any], answer: str | list[str], sentence: str) -> None:
        """One sentence tells the user why."""
        with pytest.raises(InvalidAnswer) as invalid:
            field(schema).value(answer)

        assert invalid.value.sentence == sentence

    @pytest.mark.parametrize("answer", ["-", [], ()])
    def test_an_optional_field_may_be_left_out(self, answer: str | list[str]) -> None:
        """It then does not stand in the form at all."""
        assert field({"type": "string"}, is_required=False).value(answer) == {}


class TestForms:
    """What nobody can fill in is refused."""

    @pytest.mark.parametrize(
        "form",
        [
            {"properties": {"it": {"type": "object"}}},
            {"properties": {"it": {"type": "array", "items": {"type": "string"}}}},
            {"properties": {"it": {}}},
            {"properties": {"it": True}},
            {"properties": {"it": {"type": "string", "minLength": "x"}}},
            {"properties": []},
            {"properties": {f"field {number}": {"type": "string"} for number in range(MAX_FIELDS + 1)}},
        ],
    )
    def test_it_is_refused(self, form: dict[str, Any]) -> None:
        """By a typed error."""
        with pytest.raises(ConfigurationError):
            fields_of(form)

    def test_a_form_without_fields(self) -> None:
        """It asks for consent alone."""
        assert fields_of({"type": "object"}) == ()
