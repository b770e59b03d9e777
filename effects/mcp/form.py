"""Turns the form that a server wants to be filled in into questions to the user, and the answers into its values.

A form is a flat object: texts, numbers, booleans, and choices of one or several values. A person answers each question
by a label or in their own words, so each answer is converted to the type that the server wants, and checked against
the server's schema. The server's patterns are not applied; the server checks them itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...states.errors import ConfigurationError
from ...states.values.questions import MAX_HEADER, MAX_OPTIONS, MIN_OPTIONS, QuestionOption, UserQuestion
from ...states.values.value import MAX_QUOTED, encodable, shortened
from ..tools.arguments.argument_errors import InvalidArguments
from .arguments import McpArguments

MAX_FIELDS = 20
"""The most fields of a form. More would be an interrogation."""

MAX_TEXT = 2_000
"""The most characters of a text of the server that a question repeats."""

LEFT_OUT = "-"
"""The answer that leaves an optional field out."""

Answer = str | Sequence[str]
Content = dict[str, Any]

_YES_AND_NO = ((True, "Yes"), (False, "No"))
_WANTED = {"integer": "a whole number", "number": "a number"}
_CONVERTED_TYPES = {"string", "integer", "number", "boolean", "array"}


class InvalidAnswer(Exception):
    """An answer cannot be the value of its field. `sentence` tells the user why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


@dataclass(frozen=True)
class Field:
    """One field of a form. `choices` are the values to choose from, each with its label; several if `is_multiple`."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool
    choices: tuple[tuple[Any, str], ...]
    is_multiple: bool

    def question(self, introduction: str, fault: str = "") -> UserQuestion:
        """The question for this field, which begins with the introduction. `Pure.`"""
        title = str(self.schema.get("title") or self.name)
        described = f"{title}: {text}" if (text := self.schema.get("description")) else title
        lines = [introduction, f"{described}{self._hint()}", fault]
        labels = [label for _, label in self.choices] if self._offers_options() else []
        return UserQuestion(
            question=encodable("\n".join(shortened(line, MAX_TEXT) for line in lines if line)),
            header=encodable(title) if 0 < len(title) <= MAX_HEADER and title.strip() else None,
            options=tuple(QuestionOption(label=encodable(label)) for label in labels),
            multi_select=self.is_multiple and bool(labels),
        )

    def value(self, answer: Answer) -> Content:
        """The field with its value, or nothing if it is left out. Raises InvalidAnswer. `Pure.`"""
        if not self.is_required and answer in (LEFT_OUT, (), []):
            return {}
        content = {self.name: self._converted(answer)}
        try:
            _arguments_of({self.name: dict(self.schema)}).values(json.dumps(content))
        except InvalidArguments as invalid:
            raise InvalidAnswer(invalid.sentence) from None
        return content

    def _hint(self) -> str:
        hints = [_WANTED.get(str(self.schema.get("type")), "")]
        if self.choices and not self._offers_options():
            hints.append(f"{'some' if self.is_multiple else 'one'} of: {', '.join(label for _, label in self.choices)}")
        if not self.is_required:
            hints.append(f"optional, {LEFT_OUT} leaves it out")
        told = "; ".join(hint for hint in hints if hint)
        return f" ({told})" if told else ""

    def _offers_options(self) -> bool:
        """Whether the choices can be offered as they are. Otherwise the question is open and names them."""
        labels = [label.strip().casefold() for _, label in self.choices]
        is_few = MIN_OPTIONS <= len(labels) <= MAX_OPTIONS
        return is_few and len({*labels}) == len(labels) and not {"", "other"}.intersection(labels)

    def _converted(self, answer: Answer) -> Any:
        if self.is_multiple:
            parts = answer.split(",") if isinstance(answer, str) else answer
            return [self._chosen(part) for part in parts if part.strip()]
        text = answer if isinstance(answer, str) else ", ".join(answer)
        if self.choices:
            return self._chosen(text)
        try:
            match self.schema.get("type"):
                case "integer":
                    return int(text)
                case "number" if math.isfinite(number := float(text)):
                    return number
                case "number":
                    raise ValueError(text)
                case _:
                    return text
        except ValueError:
            raise InvalidAnswer(f"The answer must be {_WANTED[self.schema['type']]}.") from None

    def _chosen(self, text: str) -> Any:
        wanted = text.strip().casefold()
        for value, label in self.choices:
            if wanted in (label.strip().casefold(), str(value).casefold()):
                return value
        raise InvalidAnswer(f"The answer must be one of: {', '.join(label for _, label in self.choices)}.")


def fields_of(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """The fields of a form. Raises ConfigurationError for a schema that is no form that a person can fill in.
    `Pure.`"""
    _arguments_of(schema.get("properties", {}))
    properties: dict[str, Any] = schema.get("properties", {})
    if len(properties) > MAX_FIELDS:
        raise ConfigurationError(f"A form has more than {MAX_FIELDS} fields.")
    required = schema.get("required", ())
    return tuple(_field(name, field, name in required) for name, field in properties.items())


def _field(name: str, schema: Any, is_required: bool) -> Field:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    items = schema.get("items") if kind == "array" else None
    choices = _YES_AND_NO if kind == "boolean" else _choices(schema if items is None else items)
    if kind not in _CONVERTED_TYPES or (kind == "array" and not choices):
        raise ConfigurationError(f"Nobody can fill in the field {shortened(name, MAX_QUOTED)} of a form.")
    return Field(name, schema, is_required, tuple(choices), kind == "array")


def _choices(schema: Any) -> list[tuple[Any, str]]:
    """The values to choose from, with their labels: of `enum` with or without `enumNames`, or of `oneOf` or `anyOf`."""
    if not isinstance(schema, Mapping):
        return []
    if isinstance(values := schema.get("enum"), list):
        names = schema.get("enumNames")
        labels = names if isinstance(names, list) and len(names) == len(values) else values
        return [(value, str(label)) for value, label in zip(values, labels, strict=True)]
    alternatives = schema.get("oneOf") or schema.get("anyOf") or ()
    return [(each["const"], str(each.get("title") or each["const"])) for each in alternatives if "const" in each]


def _arguments_of(properties: Any) -> McpArguments:
    """What checks an object with these properties. Raises ConfigurationError."""
    if not isinstance(properties, Mapping):
        raise ConfigurationError("A form has no fields that can be read.")
    return McpArguments("a form", {"type": "object", "properties": dict(properties)}, checks_patterns=False)
