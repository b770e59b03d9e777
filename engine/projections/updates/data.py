"""The fields of an update as JSON, which is made when somebody asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any

from pydantic import BaseModel

from ....states.values.questions import UserQuestion

NOT_DATA = {"position", "type"}
"""Fields that are no data: they say which update it is, and where it stands."""


@cache
def data_fields(kind: Any) -> Mapping[str, Field[Any]]:
    """Return the fields of a dataclass that are data. `Pure.`"""
    return {one.name: one for one in fields(kind) if one.name not in NOT_DATA}


def data_of(shown: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as a JSON object. A field that has its default is left out. `Pure.`"""
    kind: Any = type(shown)
    values = ((name, getattr(shown, name), one.default) for name, one in data_fields(kind).items())
    return {name: _as_json(value) for name, value, default in values if default is MISSING or value != default}


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_json(one) for one in value]
    if isinstance(value, UserQuestion):
        return question_data(value)
    return value.model_dump(mode="json", exclude_defaults=True) if isinstance(value, BaseModel) else value


def question_data(question: UserQuestion) -> dict[str, Any]:
    """Return a question as JSON. It always has `options`, which are empty if any text answers it. `Pure.`"""
    return {"options": [], **question.model_dump(mode="json", exclude_defaults=True)}
