"""Typed answers: how a model is asked for one, and whether what it wrote is one.

An answer has the form of a JSON schema. It is checked against the schema by whoever asked the model; where the program
knows the type that the schema was made from, the type's own validators check it, too, and what they say goes back to
the model. A program that does not know the type, such as a worker that was started later, checks the schema alone.

Providers want an object at the top of a schema. A schema of anything else, such as a list or a union, is wrapped in an
object with one field, and the answer is taken out of it again.
"""

from __future__ import annotations

import json
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from threading import Lock
from typing import Any, Final, NotRequired, cast, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from typing_extensions import TypedDict

from ...states.errors import InvalidInput
from ...states.policy import OutputField, OutputRendering, Policy
from ...states.replies import text_of_reply
from ...states.values.messages import ToolCall
from ...states.values.output import ModelOutput, OutputSchema, OutputWay
from ...states.values.value import DEEPEST, MAX_QUOTED, encodable, is_nested_deeper, json_object, shortened
from ..logs import performer_logger
from ..schemas.check import MAX_FIELD, SchemaCheck
from ..schemas.names import PropertyNames, property_names_of
from ..schemas.strict import strict_schema
from ..schemas.subschemas import Schema, mapped, resolve, subschemas, with_common_references
from ..schemas.wire import wire_schema
from .port import Llm, ModelAnswer, RequestedOutput, Token
from .written_messages import canonical_json

logger: Final = performer_logger("turnwise.model")

WRAPPED = "value"
"""The field that holds an answer whose schema describes no object."""

TOOL = "final_result"
"""The name of the tool by which a typed answer is given, unless a tool of the conversation is called so."""

_MAX_FAULTS = 5
"""How many faults are told at once. Chosen so that a model reads all of them."""

Renderings = Mapping[str, Callable[[Any], str]]
"""Functions that make of a typed answer what the user receives, by the names that policies use."""


def digest_of(schema: OutputSchema) -> str:
    """What tells this schema from others, however it was asked for: 16 hex digits. `Pure.`"""
    told = canonical_json([schema.name, schema.json_schema])
    return blake2b(told.encode(), digest_size=8).hexdigest()


class OutputForm:
    """A schema that answers must have, ready to be sent and to check with. `kind` is the type that it was made from, or
    None.

    Raises ConfigurationError for a schema that is not valid, of an unknown dialect, too much work to check, or that
    refers to something outside of it.
    """

    def __init__(self, schema: OutputSchema, kind: Any = None) -> None:
        name = f"the output {schema.name}"
        own = dict(schema.json_schema)
        self.digest: str = digest_of(schema)
        self.name: str = schema.name
        self.description: str = schema.description
        self.is_strict: bool = schema.strict
        self.is_wrapped: bool
        self.is_wrapped, self._checked = _with_object(own)
        self._check = SchemaCheck(self._checked, name)
        self._adapter: TypeAdapter[Any] | None = None if kind is None else TypeAdapter(readable(kind))

    @cached_property
    def sent(self) -> Schema:
        """The schema as it is sent, in the form that every provider takes."""
        return wire_schema(self._checked)

    @cached_property
    def strict(self) -> Schema | None:
        """The schema in the form in which providers hold an answer to it; None if it cannot be written so."""
        return strict_schema(self.sent) if self.is_strict else None

    @cached_property
    def _names(self) -> PropertyNames | None:
        return property_names_of(self._checked)

    def read(self, data: Mapping[str, Any]) -> tuple[Any, str]:
        """The answer in the object that a model wrote, and what is wrong with it; an empty text if nothing is."""
        written = dict(data)
        if self._names is not None:
            written = json_object(self._names.restored(json.dumps(written, ensure_ascii=False))) or written
        if (fault := self._check.fault_of(written)) is not None:
            return None, fault
        value = written[WRAPPED] if self.is_wrapped else written
        return value, self._fault_of_kind(value)

    def read_any(self, value: Any) -> tuple[Any, str]:
        """The answer in a JSON value that a model wrote as text, where it may have left out the object around it."""
        if not isinstance(value, dict) or (self.is_wrapped and WRAPPED not in value):
            return self.read({WRAPPED: value}) if self.is_wrapped else (None, "Input should be an object")
        return self.read(value)

    def typed(self, value_json: str) -> Any:
        """The answer as the type that the schema was made from; as JSON data where that is not known. Raises
        `InvalidInput` if the type does not take it."""
        if self._adapter is None:
            return json.loads(value_json)
        try:
            return self._adapter.validate_json(value_json)
        except Exception:
            raise InvalidInput(f"The stored answer is no {self.name} any more: its type has changed.") from None

    def _fault_of_kind(self, value: Any) -> str:
        """What the application's type says is wrong with the answer."""
        if self._adapter is None:
            return ""
        try:
            self._adapter.validate_json(json.dumps(value, ensure_ascii=False))
        except ValidationError as error:
            return encodable("; ".join(_faults_in(error))) or "Input is not valid"
        except Exception as error:
            logger.warning("A typed answer could not be checked by %s", self.name, exc_info=error)
            return f"the answer could not be checked by {self.name}"
        return ""


def readable(kind: Any) -> Any:
    """The type as pydantic reads it. Before Python 3.12 it reads no `typing.TypedDict`, but the same one of
    `typing_extensions`. `Pure.`"""
    if sys.version_info >= (3, 12) or not typing.is_typeddict(kind):
        return kind
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {name: hint if name in kind.__required_keys__ else NotRequired[hint] for name, hint in hints.items()}
    readable_kind: Any = TypedDict(kind.__name__, fields)  # type: ignore[misc]
    readable_kind.__doc__ = kind.__doc__
    return readable_kind


def _faults_in(error: ValidationError) -> Iterator[str]:
    for one in error.errors(include_url=False, include_input=False, include_context=False)[:_MAX_FAULTS]:
        place = ".".join(shortened(str(part), MAX_FIELD) for part in one["loc"])
        said = shortened(" ".join(one["msg"].split()), MAX_QUOTED)
        yield f"{place}: {said}" if place else said


def _with_object(schema: Schema) -> tuple[bool, Schema]:
    """Whether the schema is wrapped in an object, and the schema of an object that it becomes."""
    if schema.get("type") == "object":
        return False, schema
    target = resolve(schema, schema.get("$ref"))
    if isinstance(target, dict) and target.get("type") == "object" and schema["$ref"] != "#":
        return False, {**schema, **target} if "$ref" in target else _without_reference({**schema, **target})
    common = with_common_references(schema)
    definitions = common.get("$defs", {})
    inner = {keyword: value for keyword, value in common.items() if keyword != "$defs"}
    if any(one.get("$ref") == "#" for one in subschemas(common)):
        name = next(name for name in _root_names() if name not in definitions)
        definitions = {name: inner, **definitions}
        inner = {"$ref": f"#/$defs/{name}"}
        definitions = {key: mapped(one, lambda part: _pointing(part, name)) for key, one in definitions.items()}
    wrapped: Schema = {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED]}
    return True, {**wrapped, **({"$defs": definitions} if definitions else {})}


def _without_reference(schema: Schema) -> Schema:
    return {keyword: value for keyword, value in schema.items() if keyword != "$ref"}


def _root_names() -> Iterator[str]:
    yield "Root"
    number = 2
    while True:
        yield f"Root_{number}"
        number += 1


def _pointing(schema: Schema, name: str) -> Schema:
    return {**schema, "$ref": f"#/$defs/{name}"} if schema.get("$ref") == "#" else schema


class OutputForms:
    """The forms of typed answers that an engine knows, and the `renderings` of its application.

    A type is known to the process in which an application names it. It is remembered as long as the engine is open, so
    that the answer is checked by it, and read as it, wherever in the process the answer comes in.
    """

    def __init__(self, renderings: Renderings | None = None) -> None:
        self._renderings = dict(renderings or {})
        self._kinds: dict[str, Any] = {}
        self._forms: dict[str, OutputForm] = {}
        self._lock = Lock()

    def admit(self, schema: OutputSchema | None) -> None:
        """Remember the type of this schema, if it was made from one. Raises `ConfigurationError` for a schema with
        which no answer can be checked."""
        if schema is None:
            return
        digest = digest_of(schema)
        with self._lock:
            is_new = schema.kind is not None and self._kinds.get(digest) is not schema.kind
            if is_new:
                self._kinds[digest] = schema.kind
                self._forms.pop(digest, None)
        self.form_of(schema)

    def admit_rules(self, policy: Policy | None) -> None:
        """Remember the types of the schemas in these rules. Raises `ConfigurationError`."""
        for profile in () if policy is None else policy.profiles:
            self.admit(profile.output)

    def form_of(self, schema: OutputSchema) -> OutputForm:
        """The form of this schema. Raises `ConfigurationError` as `OutputForm` does."""
        digest = digest_of(schema)
        with self._lock:
            form = self._forms.get(digest)
            if form is None:
                if len(self._forms) >= _KEPT:
                    del self._forms[next(iter(self._forms))]
                form = self._forms[digest] = OutputForm(schema, self._kinds.get(digest))
            return form

    def kind_of(self, digest: str) -> Any:
        """The type of the schema with this digest, or None if it is not known here."""
        return self._kinds.get(digest)

    def faults_of(self, policy: Policy) -> Iterator[str]:
        """Yield what of these rules cannot be carried out here: a rendering that there is not."""
        reply = policy.output_reply
        if isinstance(reply, OutputRendering) and reply.rendering not in self._renderings:
            known = ", ".join(self._renderings) or "none"
            named = shortened(reply.rendering, MAX_QUOTED)
            yield f"This engine has no rendering called {named}. Known: {known}."

    def reply_of(self, form: OutputForm, value: Any, policy: Policy) -> str:
        """What the user receives of a valid answer; empty if that is the JSON."""
        reply = policy.output_reply
        if isinstance(reply, OutputField):
            found = value.get(reply.field) if isinstance(value, dict) else None
            text = found if isinstance(found, str) else "" if found is None else json.dumps(found, ensure_ascii=False)
        elif isinstance(reply, OutputRendering):
            text = self._rendered(form, value, reply.rendering)
        else:
            return ""
        text = encodable(text)
        return text if text_of_reply(text, policy).strip() else ""

    def _rendered(self, form: OutputForm, value: Any, name: str) -> str:
        function = self._renderings.get(name)
        if function is None:
            return ""
        try:
            rendered: object = function(form.typed(json.dumps(value, ensure_ascii=False)))
        except Exception as error:
            logger.warning("The rendering %s has failed, so the answer is delivered as JSON", name, exc_info=error)
            return ""
        return rendered if isinstance(rendered, str) else ""


_KEPT = 512
"""How many forms are kept ready: more than an application has, unless its clients bring schemas of their own."""


# --- asking


def way_of(model: Llm, schema: OutputSchema, *, has_tools: bool) -> OutputWay:
    """How this model is asked for an answer with this schema, in a request with other tools or without. A model tells
    by a method `output_way`; without it by a tool, which every model of the port is offered."""
    if schema.way is not None:
        return schema.way
    choose = getattr(model, "output_way", None)
    chosen: Any = choose(has_tools) if callable(choose) else "tool"
    return cast(OutputWay, chosen) if chosen in _WAYS else "tool"


_WAYS = frozenset(get_args(OutputWay))


def requested_output(
    form: OutputForm, way: OutputWay, tools: Iterable[str], *, must_answer: bool, strict_tools: bool = False
) -> RequestedOutput:
    """What a request says of the form of its answer. `tools` are the names of its tools, of which none may be called if
    the model `must_answer` now; with `strict_tools` a tool for the answer is strict, too. `Pure.`"""
    strict = form.strict if way == "native" or (way == "tool" and strict_tools) else None
    return RequestedOutput(
        way=way,
        name=form.name,
        schema=form.sent if strict is None else strict,
        strict=strict is not None,
        description=form.description,
        tool=_free_name(set(tools)) if way == "tool" else "",
        must_answer=must_answer,
    )


def _free_name(taken: set[str]) -> str:
    name, number = TOOL, 1
    while name in taken:
        number += 1
        name = f"{TOOL}_{number}"
    return name


def tool_of(output: RequestedOutput, description: str) -> dict[str, Any]:
    """The definition of the tool by which the answer is given. `Pure.`"""
    told = "\n".join(filter(None, (output.description, description)))
    function = {"name": output.tool, "description": told, "parameters": dict(output.schema)}
    held = {"strict": True} if output.strict else {}
    return {"type": "function", "function": {**function, **held}}


# --- reading


@dataclass(frozen=True)
class ReadOutput:
    """What a response is as a typed answer, and its calls, of which those that were to give it have what is wrong with
    them as their fault."""

    output: ModelOutput | None
    calls: tuple[ToolCall, ...]


class OutputReader:
    """Reads what models answer to requests for answers of this form."""

    def __init__(self, forms: OutputForms, form: OutputForm, requested: RequestedOutput, policy: Policy) -> None:
        self._forms = forms
        self._form = form
        self._requested = requested
        self._policy = policy

    def read(self, answer: ModelAnswer, calls: Sequence[ToolCall]) -> ReadOutput:
        """Read an answer; `calls` are its calls as they are stored."""
        tool = self._requested.tool
        places = [place for place, call in enumerate(answer.tool_calls) if tool and call.name == tool]
        if places:
            return self._read_calls(calls, places)
        if calls:
            return ReadOutput(None, tuple(calls))
        value, fault = self._read_text(answer.content)
        if fault:
            return ReadOutput(self._output((), errors=fault), ())
        return ReadOutput(self._valid((), value, answer.content), ())

    def _read_calls(self, calls: Sequence[ToolCall], places: list[int]) -> ReadOutput:
        read = {place: self._read_call(calls[place]) for place in places}
        counting = next((place for place in places if not read[place][1]), None)
        taken = list(calls)
        for place in places:
            fault = read[place][1] or ("" if place == counting else _TWICE)
            taken[place] = calls[place].replace(fault=fault or None, approval=False, exclusive=False, crash="pure")
        if counting is None:
            return ReadOutput(self._output(tuple(places), errors=read[places[0]][1]), tuple(taken))
        order = (counting, *(place for place in places if place != counting))
        return ReadOutput(self._valid(order, read[counting][0], calls[counting].raw_arguments), tuple(taken))

    def _read_call(self, call: ToolCall) -> tuple[Any, str]:
        data = json_object(call.raw_arguments)
        if data is None:
            return None, "Invalid input: the arguments are no JSON object"
        value, fault = self._form.read(data)
        return value, f"Invalid input: {fault}" if fault else ""

    def _read_text(self, text: str) -> tuple[Any, str]:
        first = ""
        for candidate in _json_in(text):
            value, fault = self._form.read_any(candidate)
            if not fault:
                return value, ""
            first = first or fault
        return None, first or self._missing(text)

    def _missing(self, text: str) -> str:
        if self._requested.tool:
            return f"call the tool {self._requested.tool} to give your answer"
        return "the answer holds no JSON" if text.strip() else "the answer is empty"

    def _valid(self, calls: tuple[int, ...], value: Any, written: str) -> ModelOutput:
        reply = self._forms.reply_of(self._form, value, self._policy)
        as_json = json.dumps(value, ensure_ascii=False)
        kept = "" if _is_just(value, written) else encodable(as_json)
        return self._output(calls, value=kept, reply=reply)

    def _output(self, calls: tuple[int, ...], *, value: str = "", reply: str = "", errors: str = "") -> ModelOutput:
        told = shortened(encodable(errors))
        way, form = self._requested.way, self._form.digest
        return ModelOutput(way=way, calls=calls, value=value, reply=reply, errors=told, form=form)


_TWICE = "Not taken: the answer was given by another call of this response."


def _is_just(value: Any, written: str) -> bool:
    """Whether what the model wrote is this value as JSON and nothing else, but for white space."""
    if written != written.strip():
        return False
    try:
        return bool(json.loads(written) == value)
    except (ValueError, RecursionError):
        return False


_FENCED = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)

_MAX_READ = 1_000_000
"""The most characters of a text in which JSON is looked for."""


def _json_in(text: str) -> Iterator[Any]:
    """Yield what a text holds as JSON: the text itself, what stands in fences, the last first, and what stands between
    the first bracket and the last."""
    text = text[:_MAX_READ].strip()
    fenced = [found.strip() for found in _FENCED.findall(text)][-8:]
    for candidate in (text, *reversed(fenced), *_between_brackets(text)):
        try:
            yield json.loads(candidate)
        except (ValueError, RecursionError):
            continue


def _between_brackets(text: str) -> Iterator[str]:
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            yield text[start : end + 1]


def as_prompted(output: RequestedOutput, guidance: str) -> str:
    """The instructions by which a model that has no other way is asked for the answer. `Pure.`"""
    written = json.dumps(dict(output.schema), ensure_ascii=False)
    text = guidance.replace("{schema}", written) if "{schema}" in guidance else f"{guidance}\n{written}"
    return f"{output.description}\n\n{text}".strip()


# --- while it is written

_PARSED_AGAIN = 16
"""A text is read again when it has grown by this part of its length, so that a long one costs no more than a few
readings of the whole."""


class PartialOutput:
    """The typed answer that a model is writing, as far as it can be read. `show` is called with each state of it."""

    def __init__(self, requested: RequestedOutput, form: OutputForm, show: Callable[[Any], None]) -> None:
        self._kind = "output" if requested.tool else "text"
        self._form = form
        self._show = show
        self._text = ""
        self._next = 1
        self._shown: Any = None

    def add(self, token: Token) -> None:
        """Add a piece of the answer."""
        if token.kind != self._kind:
            return
        self._text += token.text
        if len(self._text) < self._next:
            return
        self._next = len(self._text) + 1 + len(self._text) // _PARSED_AGAIN
        value = self._read()
        if value is not None and value != self._shown:
            self._shown = value
            self._show(value)

    def _read(self) -> Any:
        """The answer so far; None if there is nothing yet."""
        start = min((place for place in map(self._text.find, "{[") if place >= 0), default=-1)
        if start < 0:
            return None
        try:
            value = from_json(self._text[start:], allow_partial="trailing-strings")
        except ValueError:  # text that is no JSON, or that goes on behind it
            return None
        if self._form.is_wrapped and isinstance(value, dict):
            value = value.get(WRAPPED)
        return None if is_nested_deeper(value, DEEPEST) else value
