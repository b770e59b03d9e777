"""What a person can be asked, and which answers are valid.

The shape and its bounds (1-4 questions, 2-4 options, a header of up to 12 characters, `multiSelect`) are those of the
ask_user_question tool that models know; the names in JSON are its names. A tool of an application may also ask without
offering options. Besides, a question must be answerable without ambiguity: questions and labels differ and are not
blank, no option is called "Other" (every form offers free text under that name), and options have no preview where
several may be chosen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from ..errors import read_up_to
from .value import MAX_QUOTED, RequestText, Text, Value, check_not_blank, shortened

MAX_QUESTIONS = 4
MIN_OPTIONS, MAX_OPTIONS = 2, 4
MAX_HEADER = 12

QUESTION_FAULT = "question"
"""The type of a validation error whose message is a whole sentence about a question, and needs no field name before
it."""


def _fault(sentence: str) -> PydanticCustomError:
    # The sentence travels as data: a question may hold braces, which a template would take for placeholders.
    return PydanticCustomError(QUESTION_FAULT, "{sentence}", {"sentence": sentence})


def _quoted(text: str) -> str:
    return f"'{shortened(text, MAX_QUOTED)}'"


def _repeated(texts: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            return text
        seen.add(text)
    return None


Filled = Annotated[Text, AfterValidator(check_not_blank)]


class QuestionOption(Value):
    """One of the answers offered. `preview` is a longer text to read before choosing, where only one option can be
    chosen."""

    label: Filled
    description: Filled | None = None
    preview: Filled | None = None


class UserQuestion(Value):
    """One question, with the answers offered. A person may always answer in their own words.

    A question without options is open: any text answers it. It comes from a tool of the application.
    """

    question: Annotated[Filled, Field(description="The full question text to display")]
    header: Annotated[
        Filled | None,
        Field(description="Short label for the question", json_schema_extra={"maxLength": MAX_HEADER}),
    ] = None
    options: tuple[QuestionOption, ...] = ()
    multi_select: Annotated[bool, Field(alias="multiSelect")] = False

    may_be_open: ClassVar[bool] = True

    @model_validator(mode="after")
    def _can_be_answered(self) -> UserQuestion:
        labels = [option.label for option in self.options]
        about = f"Question {_quoted(self.question)}"
        is_open = self.may_be_open and not labels and not self.multi_select
        if not is_open and not MIN_OPTIONS <= len(labels) <= MAX_OPTIONS:
            raise _fault(f"{about} must have {MIN_OPTIONS}-{MAX_OPTIONS} options")
        if (label := _repeated(labels)) is not None:
            raise _fault(f"{about} offers the option {_quoted(label)} twice")
        if any(label.strip().casefold() == "other" for label in labels):
            raise _fault(f"{about} must not offer 'Other': free text is always possible")
        if self.header is not None and len(self.header) > MAX_HEADER:
            raise _fault(f"{about} has a header of more than {MAX_HEADER} characters")
        if self.multi_select and any(option.preview is not None for option in self.options):
            raise _fault(f"{about} allows several answers, so its options cannot have a preview")
        return self


class ChoiceQuestion(UserQuestion):
    """One question with the answers offered. A person may always answer in their own words."""

    options: Annotated[
        tuple[QuestionOption, ...],
        Field(json_schema_extra={"minItems": MIN_OPTIONS, "maxItems": MAX_OPTIONS}),
    ]

    may_be_open: ClassVar[bool] = False


def _few(given: object) -> object:
    questions = read_up_to(given, MAX_QUESTIONS + 1)
    if isinstance(questions, tuple) and len(questions) > MAX_QUESTIONS:
        raise _number_of_questions()
    return questions


def _number_of_questions() -> PydanticCustomError:
    return _fault(f"Must have 1-{MAX_QUESTIONS} questions")


QuestionT = TypeVar("QuestionT", bound=UserQuestion)


def _askable(questions: tuple[QuestionT, ...]) -> tuple[QuestionT, ...]:
    if not questions:
        raise _number_of_questions()
    if (text := _repeated(question.question for question in questions)) is not None:
        raise _fault(f"Question {_quoted(text)} is asked twice")
    return questions


QuestionSet = Annotated[
    tuple[UserQuestion, ...],
    BeforeValidator(_few),
    AfterValidator(_askable),
    Field(json_schema_extra={"minItems": 1, "maxItems": MAX_QUESTIONS}),
]
"""The questions of one call, asked together."""

ChoiceQuestionSet = Annotated[
    tuple[ChoiceQuestion, ...],
    BeforeValidator(_few),
    AfterValidator(_askable),
    Field(json_schema_extra={"minItems": 1, "maxItems": MAX_QUESTIONS}),
]
"""The questions of one call of ask_user_question, each of which has options."""


@dataclass(frozen=True)
class OpenQuestion:
    """The questions that a person can answer now, under the id of the call that asks, since the moment `since`."""

    call_id: str
    questions: tuple[UserQuestion, ...]
    since: datetime | None = None


class AskUserQuestionInput(Value):
    """The arguments of ask_user_question."""

    questions: ChoiceQuestionSet


class Annotation(Value):
    """Notes that a person added to an answer."""

    notes: RequestText = ""


AnswerValue = RequestText | tuple[RequestText, ...]
"""One label or free text, or, for a multi-select question, any number of them."""

Answers = dict[RequestText, AnswerValue]
"""Answers by the text of their question."""


def unknown_question(questions: Iterable[UserQuestion], about: Iterable[str]) -> str | None:
    """The first of the texts that is no question that was asked, or None. `Pure.`"""
    asked = {question.question for question in questions}
    return next((text for text in about if text not in asked), None)


def unanswered_question(questions: Iterable[UserQuestion], answers: Answers) -> str | None:
    """The first question without an answer, or None. An empty text and an empty choice are no answers. `Pure.`"""
    return next((question.question for question in questions if not answers.get(question.question)), None)


def overanswered_question(questions: Iterable[UserQuestion], answers: Answers) -> str | None:
    """The first single-choice question that has a list as its answer, or None. `Pure.`"""
    return next(
        (q.question for q in questions if not q.multi_select and isinstance(answers.get(q.question), tuple)), None
    )


def answers_as_json(answers: Answers, annotations: dict[str, Annotation]) -> str:
    """The tool result `{"answers": …}` in the shape that was sent, with the annotations beside it if there are any.
    `Pure.`"""
    written: dict[str, object] = {"answers": answers}
    if annotations:
        written["annotations"] = {text: annotation.model_dump() for text, annotation in annotations.items()}
    return json.dumps(written, ensure_ascii=False)


def answers_as_text(questions: Iterable[UserQuestion], answers: Answers, annotations: dict[str, Annotation]) -> str:
    """The tool result for reading: question, answer, preview of the chosen option and notes, in the order of the
    questions. `Pure.`"""
    return "\n\n".join(
        _one_answer(question, answers[question.question], annotations.get(question.question))
        for question in questions
        if question.question in answers
    )


def _one_answer(question: UserQuestion, answer: AnswerValue, annotation: Annotation | None) -> str:
    chosen = (answer,) if isinstance(answer, str) else answer
    lines = [f"Question: {question.question}", f"Answer: {', '.join(chosen)}"]
    lines += [f"Preview: {o.preview}" for o in question.options if o.label in chosen and o.preview]
    if annotation is not None and annotation.notes:
        lines.append(f"Notes: {annotation.notes}")
    return "\n".join(lines)
