"""Writes what a tool returned as the text that a model reads, with the images that it sees beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from ...states.values.images import Image
from ...states.values.messages import ToolResult
from ..text import encodable, encodable_json

DONE = "Done."
"""The result of a tool that returns nothing: an empty text would look like a failure."""


def result_of(value: object) -> ToolResult:
    """What a tool says by returning this.

    An `Image` is shown to the model, and so is each image in a list, whose other values become the text, with blank
    lines between them. Raises `pydantic.ValidationError` for too many images, and what `written` raises. `Pure.`
    """
    values = value if isinstance(value, list | tuple) else [value]
    images = tuple(each for each in values if isinstance(each, Image))
    if not images:
        return ToolResult(text=written(value))
    text = "\n\n".join(written(each) for each in values if not isinstance(each, Image))
    return ToolResult(text=text, images=images)


def written(value: object) -> str:
    """A text as it is, nothing as "Done.", anything else as JSON (pydantic models, dataclasses, dicts, numbers, …).

    What JSON does not know is written as `str` writes it. Lone surrogates are replaced. Raises `TypeError` for an
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
    except PydanticSerializationError:  # a lone surrogate, or a reason that shows again here
        return encodable_json(json.dumps(value, default=_plain, allow_nan=False))


def _plain(value: object) -> object:
    return to_jsonable_python(value, fallback=str, inf_nan_mode="strings")
