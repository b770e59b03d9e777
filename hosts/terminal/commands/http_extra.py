"""Looks for the libraries of the HTTP host, which are installed with the extra `http` only."""

from __future__ import annotations

from importlib.util import find_spec

from ....states.errors import ConfigurationError

LIBRARIES = ("ag_ui", "fastapi", "markdown_it", "sse_starlette", "uvicorn")


def require_http() -> None:
    """Raise `ConfigurationError` if a library is missing."""
    if any(find_spec(name) is None for name in LIBRARIES):
        raise ConfigurationError('turnwise serve needs its extra `http`: pip install "turnwise[http]".')
