"""What is wrong with the arguments of a call, said in a sentence that a model can act on.

The sentence names the fields and never repeats their values: it is stored, logged and shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ...states.values.questions import QUESTION_FAULT
from ...states.values.value import shortened
from ..text import encodable

NOT_AN_OBJECT = "Invalid input: the arguments are not a JSON object"

_MAX_FIELD = 60
"""The most characters of a field's name; an undeclared one is the model's own invention."""


class InvalidArguments(Exception):
    """The arguments of a call do not fit its tool. `sentence` tells the model why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


def fault(error: ValidationError, data: object = None) -> str:
    """Everything that is wrong, in one sentence of bounded length.

    `data` is the JSON that was validated; without it no field is named. The sentences of our own rules for questions
    stand alone, in the words of seed 002; everything else begins with "Invalid input: ". `Pure.`
    """
    errors = error.errors(include_url=False, include_input=False)
    said = "; ".join(_one(each, data) for each in errors)
    ours = all(each["type"] == QUESTION_FAULT for each in errors)
    return shortened(encodable(said if ours else f"Invalid input: {said}"))


def _one(error: ErrorDetails, data: object) -> str:
    if error["type"] == QUESTION_FAULT:
        return error["msg"]
    path = ".".join(shortened(str(part), _MAX_FIELD) for part in _path(error, data))
    return f"{path}: {_message(error)}" if path else _message(error)


def _path(error: ErrorDetails, data: object) -> Iterable[int | str]:
    """The steps of the error's location that lead through the data: pydantic puts names of types between them."""
    for step in error["loc"]:
        if _leads_on(step, data):
            yield step
            data = data[step]  # type: ignore[index]
        elif isinstance(data, dict | list) and error["type"] == "missing" and step == error["loc"][-1]:
            yield step


def _leads_on(step: int | str, data: object) -> bool:
    if isinstance(data, list):
        return isinstance(step, int) and step < len(data)
    return isinstance(data, dict) and step in data


def _message(error: ErrorDetails) -> str:
    context: dict[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "value_error" | "assertion_error":  # raised by a host's validator, whose words need no class name
            return _first_line(str(context["error"])) or "Input is not valid"
        case "union_tag_invalid":  # pydantic's words for these two repeat the input
            return f"Input should be tagged as one of {context['expected_tags']}"
        case "uuid_parsing":
            return "Input should be a valid UUID"
        case _:
            return error["msg"]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
