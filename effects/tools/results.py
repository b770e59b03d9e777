"""Turns the value that a tool returned into the text that a model reads, and the images that it sees beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from ...states.values.messages import Image, ToolResult
from ...states.values.value import encodable, unvalidated
from ..text import encodable_json

DONE = "Done."
"""The result of a tool that returns nothing. An empty text would look like a failure."""


def result_of(value: object) -> ToolResult:
    """The result for this value.

    An `Image` is shown to the model, and so is each image in a list; the other values of the list become the text, with
    blank lines between them. Raises `pydantic.ValidationError` for too many images, and what `text_of` raises. `Pure.`
    """
    values = value if isinstance(value, list | tuple) else [value]
    images = tuple(item for item in values if isinstance(item, Image))
    if not images:
        return unvalidated(ToolResult, text=text_of(value))
    text = "\n\n".join(text_of(item) for item in values if not isinstance(item, Image))
    return ToolResult(text=text, images=images)


def text_of(value: object) -> str:
    """A string as it is, None as "Done.", anything else as JSON: pydantic models, dataclasses, dicts, numbers, ….

    A value that JSON does not know is written by `str`. Lone surrogates are replaced. Raises `TypeError` for an
    iterator, and whatever a value raises that cannot be written. `Pure.`
    """
    if value is None:
        return DONE
    if isinstance(value, str):
        return encodable(str.__str__(value))
    if isinstance(value, Iterator):
        raise TypeError("an iterator may never end")
    try:
        return to_json(value, fallback=str, inf_nan_mode="strings").decode()
    except PydanticSerializationError:  # a lone surrogate, or an error that is raised again below
        return encodable_json(json.dumps(value, default=_jsonable, allow_nan=False))


def _jsonable(value: object) -> object:
    return to_jsonable_python(value, fallback=str, inf_nan_mode="strings")
