"""One server for each module, with a model that does what it is told.

A client of the server, from the package `openai`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from turnwise import Engine, Policy, Retry

from ....support.doors.commanded_model import CommandedLlm, book, look
from ....support.http.live_server import LiveServer, serving

RULES = Policy(text="reply", retry=Retry(base=0.0))
"""Under these rules a text streams as an answer, although the engine has a tool that speaks."""


@pytest.fixture(scope="module")
def model() -> CommandedLlm:
    """The model of the server."""
    return CommandedLlm()


@pytest.fixture(scope="module")
def engine(model: CommandedLlm) -> Engine:
    """The engine of the server, which is used in the server's event loop only."""
    tools: list[Any] = ["ask_user_question", "respond_to_user", look, book]
    second = CommandedLlm("second")
    return Engine.open("sqlite://", model=model, models=[second], tools=tools, policy=RULES)


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[LiveServer]:
    """The server."""
    with serving(engine) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    """A client with the settings that people have, but that a test need not wait for repeated requests."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client
