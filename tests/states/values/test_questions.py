"""What a person can be asked, what is refused, and how answers are written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from turnwise.effects.model.port import ModelCall
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states.events import AnyEvent, AskUserQuestionPending, UserQuestionResponse
from turnwise.states.values.questions import (
    Annotation,
    Answers,
    QuestionOption,
    UserQuestion,
    answers_as_json,
    overanswered_question,
    unanswered_question,
)

from ...support.cases import holds_for

NOW = datetime(2030, 1, 1, tzinfo=UTC)

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ['say "yes"', "one\ntwo\r\n\tthree", "back\\slash", "日本語", "مرحبا", "👩‍👩‍👧", "\u2028\u0000", "{sentence}"]
)
ANSWERS = st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS).map(tuple))


def options(*labels: str) -> list[dict[str, Any]]:
    """Options as a model writes them."""
    return [{"label": label} for label in labels]


def question(text: str = "Which day?", **changed: Any) -> dict[str, Any]:
    """A valid question as a model writes it, with these changes."""
    return {"question": text, "options": options("Today", "Tomorrow"), **changed}


def fault_of(arguments: object) -> str | None:
    """What is wrong with these arguments of ask_user_question, or None."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    (call,) = ToolRegistry(["ask_user_question"]).resolve_calls(1, [ModelCall("c", "ask_user_question", written)])
    return call.fault


def fault_of_questions(*questions: object) -> str | None:
    """What is wrong with these questions, or None."""
    return fault_of({"questions": list(questions)})


class TestWhatCanBeAsked:
    """P16: arguments that cannot be put to a person are refused, with a sentence that names the fault."""

    @pytest.mark.parametrize("count", [1, 4])
    def test_one_to_four_questions_are_taken(self, count: int) -> None:
        """One question and four questions are accepted."""
        assert fault_of_questions(*(question(f"Question {n}?") for n in range(count))) is None

    @pytest.mark.parametrize("count", [0, 5])
    def test_no_question_or_five_are_refused_in_the_words_of_the_seed(self, count: int) -> None:
        """P16: no question and five questions are refused, in the words of the seed."""
        assert fault_of_questions(*(question(f"Question {n}?") for n in range(count))) == "Must have 1-4 questions"

    @pytest.mark.parametrize("count", [2, 3, 4])
    def test_two_to_four_options_are_taken(self, count: int) -> None:
        """Two options and four options are accepted."""
        assert fault_of_questions(question(options=options(*"abcd"[:count]))) is None

    @pytest.mark.parametrize("count", [0, 1, 5])
    def test_one_option_or_five_are_refused_in_the_words_of_the_seed(self, count: int) -> None:
        """P16: one option and five options are refused, and the sentence names the question."""
        fault = fault_of_questions(question("Which?"), question("How?", options=options(*"abcde"[:count])))

        assert fault == "Question 'How?' must have 2-4 options"

    def test_each_question_at_fault_is_named(self) -> None:
        """The sentence names every faulty question."""
        fault = fault_of_questions(question("A?", options=options("a")), question("B?", options=options("b")))

        assert fault == "Question 'A?' must have 2-4 options; Question 'B?' must have 2-4 options"

    @pytest.mark.parametrize(
        ("questions", "fault"),
        [
            ([question("Which?"), question("Which?")], "Question 'Which?' is asked twice"),
            ([question("W?", options=options("a", "b", "a"))], "Question 'W?' offers the option 'a' twice"),
            (
                [question("W?", options=options("a", " OTHER "))],
                "Question 'W?' must not offer 'Other': free text is always possible",
            ),
            ([question("W?", header="x" * 13)], "Question 'W?' has a header of more than 12 characters"),
            (
                [question("W?", multiSelect=True, options=[{"label": "a", "preview": "p"}, {"label": "b"}])],
                "Question 'W?' allows several answers, so its options cannot have a preview",
            ),
        ],
        ids=["question twice", "label twice", "Other", "long header", "preview on multi-select"],
    )
    def test_what_could_not_be_answered_without_doubt_is_refused(self, questions: list[Any], fault: str) -> None:
        """P16: duplicates, an option called Other, a header of more than 12 characters and a preview on a multi-select
        are refused."""
        assert fault_of_questions(*questions) == fault

    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            (question(""), "questions.0.question"),
            (question(" \n"), "questions.0.question"),
            (question(header=""), "questions.0.header"),
            (question(options=options("a", "")), "questions.0.options.1.label"),
            (
                question(options=[{"label": "a", "description": ""}, {"label": "b"}]),
                "questions.0.options.0.description",
            ),
            (question(options=[{"label": "a", "preview": " "}, {"label": "b"}]), "questions.0.options.0.preview"),
        ],
    )
    def test_an_empty_text_is_refused_where_it_stands(self, asked: object, field: str) -> None:
        """P16: an empty text is refused, and the sentence names its place."""
        assert fault_of_questions(asked) == f"Invalid input: {field}: Input should not be empty"

    @holds_for(
        ("arguments", "fault"),
        [
            ({}, "questions: Field required"),
            ({"questions": question()}, "questions: Input should be a valid array"),
            ({"questions": json.dumps([question()])}, "questions: Input should be a valid array"),
            ({"questions": None}, "questions: Input should be a valid array"),
            ({"questions": ["Which day?"]}, "questions.0: Input should be an object"),
            ({"questions": [{"options": options("a", "b")}]}, "questions.0.question: Field required"),
            ({"questions": [question(options=None)]}, "questions.0.options: Input should be a valid array"),
            ({"questions": [question(options="a, b")]}, "questions.0.options: Input should be a valid array"),
            ({"questions": [question(options=["a", "b"])]}, "questions.0.options.0: Input should be an object"),
            ({"questions": [question()], "why": 1}, "why: Extra inputs are not permitted"),
            ({"questions": [question(kind=1)]}, "questions.0.kind: Extra inputs are not permitted"),
            ([question()], "the arguments are not a JSON object"),
            (json.dumps("questions"), "the arguments are not a JSON object"),
            (json.dumps(json.dumps([question()])), "the arguments are not a JSON object"),
        ],
    )
    def test_another_shape_is_refused_where_it_differs(self, arguments: object, fault: str) -> None:
        """P16: a value that is no list, and a JSON string in the place of an object or a list, are refused."""
        said = fault_of(arguments)

        assert said is not None
        assert said.split("; ")[0] == f"Invalid input: {fault}"

    @pytest.mark.parametrize("text", ["{sentence}", "{}", "{0!r}", "100 % \\ 'quoted'"])
    def test_a_question_is_named_as_it_was_asked(self, text: str) -> None:
        """Braces and quotes in a question are quoted unchanged."""
        assert fault_of_questions(question(text, options=[])) == f"Question '{text}' must have 2-4 options"

    def test_a_long_question_does_not_hide_what_is_wrong_with_it(self) -> None:
        """A long question is shortened in the sentence, so that the fault can still be read."""
        fault = fault_of_questions(question("x" * 10_000, options=[]))

        assert fault is not None
        assert fault.endswith("x…' must have 2-4 options")
        assert len(fault) < 500

    def test_what_is_optional_may_be_null(self) -> None:
        """Optional fields may be null."""
        assert fault_of_questions(question(header=None)) is None

    def test_a_header_has_up_to_twelve_characters_of_any_script(self) -> None:
        """The length of a header is counted in characters, not in bytes."""
        assert fault_of_questions(question(header="日" * 12)) is None


class TestOpenQuestions:
    """A tool of an application may ask without offering options; ask_user_question may not."""

    def test_a_question_needs_no_options(self) -> None:
        """None are written, so questions with options are stored as before."""
        asked = UserQuestion(question="What is your name?", header="Name")
        event = AskUserQuestionPending(effect_id=7, at=NOW, questions=(asked,))

        assert json.loads(event.to_json())["questions"] == [{"question": "What is your name?", "header": "Name"}]
        assert TypeAdapter(AnyEvent).validate_json(event.to_json()) == event

    @pytest.mark.parametrize(
        "facts", [{"options": options("a")}, {"options": options(*"abcde")}, {"multiSelect": True}], ids=str
    )
    def test_one_option_or_none_to_choose_from_is_refused(self, facts: dict[str, Any]) -> None:
        """A single option is no choice, and several answers need options."""
        with pytest.raises(ValidationError, match="Question 'W\\?' must have 2-4 options"):
            UserQuestion.model_validate({"question": "W?", **facts})

    def test_the_model_cannot_ask_an_open_question(self) -> None:
        """The schema of ask_user_question requires options, and so does the check."""
        assert fault_of_questions(question("W?", options=[])) == "Question 'W?' must have 2-4 options"
        assert fault_of_questions(question("W?", options=[], multiSelect=True)) == "Question 'W?' must have 2-4 options"
        assert fault_of_questions({"question": "W?"}) == "Invalid input: questions.0.options: Field required"

    @pytest.mark.parametrize(("given", "is_taken"), [("Ann", True), ("", False), (("Ann",), False)])
    def test_any_text_answers_it(self, given: Any, is_taken: bool) -> None:
        """But no empty one, and no list."""
        asked = [UserQuestion(question="Who?")]
        answers: Answers = {"Who?": given}

        faults = [unanswered_question(asked, answers), overanswered_question(asked, answers)]

        assert (faults == [None, None]) is is_taken


class TestQuestionsAsJson:
    """Questions are stored under the names of seed 002."""

    def test_questions_survive_being_stored(self) -> None:
        """An event with questions that is written as JSON and read back is equal; the name in JSON is `multiSelect`."""
        asked = UserQuestion(
            question="Which days?",
            header="Days",
            options=(QuestionOption(label="Mon", description="the first"), QuestionOption(label="Tue")),
            multi_select=True,
        )
        event = AskUserQuestionPending(effect_id=7, at=NOW, questions=(asked, UserQuestion(**question())))

        stored = event.to_json()

        assert TypeAdapter(AnyEvent).validate_json(stored) == event
        assert json.loads(stored)["questions"][0]["multiSelect"] is True
        assert "multiSelect" not in json.loads(stored)["questions"][1]

    @given(st.lists(TEXTS.filter(str.strip), min_size=1, max_size=4, unique=True), st.booleans())
    def test_any_question_survives_being_stored(self, texts: list[str], multi_select: bool) -> None:
        """Law 2: questions in any script survive the JSON round trip."""
        asked = tuple(
            UserQuestion(
                question=text,
                options=(QuestionOption(label=f"a {text}"), QuestionOption(label=f"b {text}")),
                multi_select=multi_select,
            )
            for text in texts
        )
        event = AskUserQuestionPending(effect_id=7, at=NOW, questions=asked)

        stored = event.to_json()

        assert TypeAdapter(AnyEvent).validate_json(stored) == event


class TestAnswersAsJson:
    """Law 16: any map of answers gives a tool result that is valid JSON and reads back equal."""

    @given(ANSWERS)
    def test_any_answers_read_back_equal(self, answers: Answers) -> None:
        """P14, P15: answers in any script, with quotes, newlines and emoji, read back equal; several choices are a
        list."""
        result = answers_as_json(answers, {})

        written = json.loads(result)
        assert list(written) == ["answers"]
        assert TypeAdapter(Answers).validate_python(written["answers"]) == answers
        assert result.encode().decode() == result

    @given(ANSWERS)
    def test_answers_survive_being_stored(self, answers: Answers) -> None:
        """The stored event with the answers is exact too."""
        event = UserQuestionResponse(event_id="1", at=NOW, answers=answers)

        assert TypeAdapter(AnyEvent).validate_json(event.to_json()) == event

    def test_a_choice_that_holds_a_comma_is_not_two(self) -> None:
        """P15: the choices `["a", "b, c"]` stay two texts, and the same as one string stays one."""
        answers: Answers = {"Which?": ("a", "b, c"), "And?": "a, b"}

        assert json.loads(answers_as_json(answers, {})) == {"answers": {"Which?": ["a", "b, c"], "And?": "a, b"}}

    @given(TEXTS)
    def test_notes_stand_beside_the_answers(self, notes: str) -> None:
        """Notes stand beside the answers and do not change their shape."""
        written = json.loads(answers_as_json({"Which?": "a"}, {"Which?": Annotation(notes=notes)}))

        assert written == {"answers": {"Which?": "a"}, "annotations": {"Which?": {"notes": notes}}}
