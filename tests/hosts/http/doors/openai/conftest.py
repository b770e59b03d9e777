"""A client of the server, from the package `openai`."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from .....support.http.live_server import LiveServer


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    """A client with the settings that people have, but that a test need not wait for repeated requests."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client
