"""Values that are JSON already, described in OpenAPI by the models that the engine makes of its own data classes.

An update, a state or a turn knows its JSON form (`.data`), and the schema of that form is made from the same class. So
an endpoint sends `.data` as it is; validating it again would only cost time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class DescribedBy:
    """Metadata of an `Annotated` type: its schema is that of a model, and its values are not validated."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema(metadata={"pydantic_js_functions": [self._describe]})

    def _describe(self, schema: CoreSchema, handler: Callable[[CoreSchema], JsonSchemaValue]) -> JsonSchemaValue:
        return handler(self._model.__pydantic_core_schema__)
