"""Asks the user what a server wants to know while one of its tools runs.

The protocol calls this elicitation. The call waits in the conversation until the user has answered or declined; if
the process dies meanwhile, the crash contract of the tool decides about the call. A server may also ask the user to
open a web page; the address is then part of a question, and nothing is opened by itself.

The form that a server wants to be filled in is a flat object: texts, numbers, booleans, and choices of one or several
values. A person answers each question by a label or in their own words, so each answer is converted to the type that
the server wants, and checked against the server's schema. The server's patterns are not applied; the server checks
them itself.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitRequestURLParams, ElicitResult
from pydantic import ValidationError

from ...states.errors import ConfigurationError
from ...states.values.questions import MAX_HEADER, MAX_OPTIONS, MAX_QUESTIONS, MIN_OPTIONS, QuestionOption, UserQuestion
from ...states.values.value import MAX_QUOTED, encodable, shortened
from ..logs import performer_logger
from ..tools.context import ToolContext, ToolError
from ..tools.normalization import InvalidArguments
from ..tools.schema_arguments import SchemaArguments

MAX_ATTEMPTS = 3
"""How often a question is asked whose answer does not fit."""

ACCEPT, DECLINE = "Yes", "No"

_LOGGER = performer_logger("turnwise.mcp")


class NotOffered(Exception):
    """A server asks for something that it was not told it may ask for, such as a completion of a model."""


class _NotAnswered(Exception):
    """The user declined, or did not answer in time. `result` tells the server."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.result = ElicitResult(action="decline" if action == "declined" else "cancel")


class Asker:
    """Asks the user on behalf of one call of a server's tool. `may_ask` is false for a call that does not run alone."""

    def __init__(self, server: str, context: ToolContext, may_ask: bool) -> None:
        self._server = server
        self._context = context
        self._may_ask = may_ask
        self._asking: set[asyncio.Task[ElicitResult]] = set()

    async def ask(self, params: ElicitRequestParams) -> ElicitResult:
        """Return the answer in the form that the server wants, or a result that says that nobody answered. The question
        is asked in a task of its own, which ends with the call."""
        task = asyncio.create_task(self._ask(params))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:  # the server no longer wants to know
            task.cancel()
            raise
        return ElicitResult(action="cancel") if task.cancelled() else task.result()

    def close(self) -> None:
        """Stop asking: the call is over."""
        for task in self._asking:
            task.cancel()

    async def _ask(self, params: ElicitRequestParams) -> ElicitResult:
        if not self._may_ask:
            _LOGGER.warning("%s wants to ask the user in a call that may not ask", self._server)
            return ElicitResult(action="cancel")
        try:
            if isinstance(params, ElicitRequestURLParams):
                return await self._confirm(f"{self._introduction(params)}\n{shortened(params.url, MAX_TEXT)}", params)
            return await self._fill_in(params)
        except _NotAnswered as unanswered:
            return unanswered.result
        except ToolError as error:  # nobody can be asked here
            _LOGGER.warning("%s asks, but %s", self._server, error)
            return ElicitResult(action="cancel")
        except (ConfigurationError, ValidationError):
            _LOGGER.warning("%s asks in a form that nobody can fill in", self._server)
            return ElicitResult(action="cancel")

    async def _fill_in(self, params: ElicitRequestFormParams) -> ElicitResult:
        fields = fields_of(params.requested_schema)
        introduction = self._introduction(params)
        if not fields:
            return await self._confirm(introduction, params)
        content: Content = {}
        for first in range(0, len(fields), MAX_QUESTIONS):
            content |= await self._ask_fields(introduction, fields[first : first + MAX_QUESTIONS])
        return ElicitResult(action="accept", content=content)

    async def _ask_fields(self, introduction: str, fields: Sequence[Field]) -> Content:
        """Ask for these fields together, and again for those whose answers do not fit."""
        content: Content = {}
        left, faults = list(fields), dict[str, str]()
        for _ in range(MAX_ATTEMPTS):
            questions = [
                field.question(introduction if not place else f"{self._server}:", faults.get(field.name, ""))
                for place, field in enumerate(left)
            ]
            answers = await self._answers(questions)
            faults = {}
            for field, question in zip(left, questions, strict=True):
                try:
                    content |= field.value(answers[question.question])
                except InvalidAnswer as invalid:
                    faults[field.name] = invalid.sentence
            left = [field for field in left if field.name in faults]
            if not left:
                return content
        raise _NotAnswered("unanswered")

    async def _confirm(self, text: str, params: ElicitRequestParams) -> ElicitResult:
        """Ask for consent alone."""
        options = (QuestionOption(label=ACCEPT), QuestionOption(label=DECLINE))
        answers = await self._answers([UserQuestion(question=text, options=options)])
        is_accepted = str(answers[text]).strip().casefold() == ACCEPT.casefold()
        has_content = is_accepted and not isinstance(params, ElicitRequestURLParams)
        return ElicitResult(action="accept" if is_accepted else "decline", content={} if has_content else None)

    async def _answers(self, questions: Sequence[UserQuestion]) -> dict[str, Answer]:
        """The answers by the texts of their questions. Raises _NotAnswered."""
        answers = await self._context.ask(questions)
        if answers.action != "answered":
            raise _NotAnswered(answers.action)
        return dict(answers.answers)

    def _introduction(self, params: ElicitRequestParams) -> str:
        return encodable(f"{self._server}: {shortened(params.message, MAX_TEXT)}")


async def answer_requests(requests: mcp_types.InputRequests, asker: Asker) -> dict[str, mcp_types.InputResponse]:
    """The answers to what a server needs before it can go on, one after the other. Raises `NotOffered` for what is not
    asked of a user."""
    answers: dict[str, mcp_types.InputResponse] = {}
    for key, request in requests.items():
        if not isinstance(request, mcp_types.ElicitRequest):
            raise NotOffered(request.method)
        answers[key] = await asker.ask(request.params)
    return answers


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
    return McpArguments("a form", {"type": "object", "properties": dict(properties)})


class McpArguments(SchemaArguments):
    """The arguments of a call as one object, beside the context of the call.

    Raises ConfigurationError for a schema that is invalid, does not describe an object or refers to another document.

    The schema goes to the model unchanged.
    """

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        def takes_anything(**arguments: Any) -> None:
            """Stand for the server, which takes whatever its schema allows."""

        takes_anything.__name__ = name
        super().__init__(takes_anything, schema)

    @property
    def takes_context(self) -> bool:
        """Always: the server may ask the user, and report progress."""
        return True

    def read(self, text: str, context: ToolContext) -> dict[str, Any]:
        """The arguments under `arguments`, and the context under `context`. Raises InvalidArguments."""
        return {"arguments": self.values(text), "context": context}
