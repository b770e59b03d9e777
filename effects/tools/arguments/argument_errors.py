"""Describes what is wrong with the arguments of a call, in a sentence that a model can act on.

The sentence is stored, logged and shown. So it names the fields and never repeats their values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ....states.errors import faults_of
from ....states.values.messages import IMAGE_FAULTS
from ....states.values.questions import QUESTION_FAULT
from ....states.values.value import encodable, shortened

NOT_AN_OBJECT = "Invalid input: the arguments are not a JSON object"

MAX_FIELD = 60
"""The most characters of a field's name. A model may make up names of any length."""

_ACT_FAULTS = {QUESTION_FAULT, "text_blank", "text_broken", "summary_blank", "message_empty", *IMAGE_FAULTS}
"""The types of the errors of questions, acts and images."""


class InvalidArguments(Exception):
    """The arguments of a call do not fit its tool. `sentence` tells the model why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence

    @property
    def reason(self) -> str:
        """What is wrong, without the words with which most sentences begin."""
        return self.sentence.removeprefix("Invalid input: ")


class NothingToSay(Exception):
    """A call of a speaking tool holds no words, and the policy wants it acknowledged all the same."""


def describe_fault(error: ValidationError, data: object = None) -> str:
    """Everything that is wrong, in one sentence of bounded length; of very many faults their number.

    `data` is the JSON that was validated; without it no field is named. The sentences of the rules for questions stand
    alone; any other sentence begins with "Invalid input: ". `Pure.`
    """
    sentences = "; ".join(_describe(details, data) for details in faults_of(error))
    return shortened(encodable(sentences if is_about_questions(error) else f"Invalid input: {sentences}"))


def is_about_questions(error: ValidationError) -> bool:
    """Whether all that is wrong is told by the rules for questions. `Pure.`"""
    return all(details["type"] == QUESTION_FAULT for details in faults_of(error))


def is_about_acts(error: ValidationError) -> bool:
    """Whether all that is wrong is told by the rules for what a tool returns besides text: questions, speech, images.
    These sentences hold nothing that is secret. `Pure.`"""
    return all(details["type"] in _ACT_FAULTS for details in faults_of(error))


def _describe(error: ErrorDetails, data: object) -> str:
    if error["type"] == QUESTION_FAULT:
        return error["msg"]
    path = ".".join(shortened(str(part), MAX_FIELD) for part in _path(error, data))
    return f"{path}: {_message(error)}" if path else _message(error)


def _path(error: ErrorDetails, data: object) -> Iterable[int | str]:
    """The parts of the error's location that exist in the data. Between these pydantic puts names of types."""
    for part in error["loc"]:
        if _exists(part, data):
            yield part
            data = data[part]  # type: ignore[index]
        elif isinstance(data, dict | list) and error["type"] == "missing" and part == error["loc"][-1]:
            yield part


def _exists(part: int | str, data: object) -> bool:
    if isinstance(data, list):
        return isinstance(part, int) and part < len(data)
    return isinstance(data, dict) and part in data


def _message(error: ErrorDetails) -> str:
    context: dict[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "value_error" | "assertion_error":  # raised by a validator of the application; its class says nothing
            return _first_line(str(context["error"])) or "Input is not valid"
        case "union_tag_invalid":  # pydantic's own sentences for these two repeat the input
            return f"Input should be tagged as one of {context['expected_tags']}"
        case "uuid_parsing":
            return "Input should be a valid UUID"
        case _:
            return error["msg"]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
