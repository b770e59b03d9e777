"""Finds the API keys that a model needs and the environment does not have.

litellm knows which variables the provider of a model reads, and takes a variable for a key even if it is blank. A blank
key is missing here. So litellm's function is run with an environment of its own, without the blank variables; that of
the process is not changed.
"""

from __future__ import annotations

import inspect
import os
from types import FunctionType, SimpleNamespace
from typing import Any


def missing_keys(litellm: Any, model: str) -> list[str]:
    """The environment variables of which one must hold a key; empty if there is one, or if none is needed. Other ways
    to sign in, such as AWS's, are not checked."""
    if (litellm.api_key or "").strip():
        return []
    environment = {name: value for name, value in os.environ.items() if value.strip()}
    function: Any = inspect.unwrap(litellm.validate_environment)
    validate = FunctionType(
        function.__code__,
        {**function.__globals__, "os": SimpleNamespace(environ=environment, getenv=environment.get)},
        argdefs=function.__defaults__,
    )
    return [name for name in validate(model=model)["missing_keys"] if name.endswith("_API_KEY")]
