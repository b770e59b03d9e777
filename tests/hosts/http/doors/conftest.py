"""One server for each module, with a model that does what it is told; and another one that performs nothing itself,
beside a process that does. What a client sees is the same.

A client of the server, from the package `openai`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from turnwise import Engine, Policy, Retry
from turnwise.persistence.ports import Store

from ....simulation.shared_store import steady_storage
from ....support.doors.commanded_model import CommandedLlm, book, look
from ....support.http.live_server import LiveServer, serving

RULES = Policy(text="reply", retry=Retry(base=0.0))
"""Under these rules a text streams as an answer, although the engine has a tool that speaks."""


@pytest.fixture(scope="module", params=["alone", pytest.param("apart", marks=pytest.mark.slow)])
def is_apart(request: pytest.FixtureRequest) -> bool:
    """Whether the server performs nothing, and another process does."""
    return request.param == "apart"  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def model(is_apart: bool) -> CommandedLlm:
    """The model of the server, and of the process that performs."""
    return CommandedLlm()


@pytest.fixture(scope="module")
def stores(is_apart: bool) -> tuple[Store, ...]:
    """The stores of the server and of the process that performs, if there is one."""
    if not is_apart:
        return ()
    storage = steady_storage()
    return tuple(asyncio.run(storage.open(name)).store for name in ("P1", "P2"))


def opened(model: CommandedLlm, **where: Any) -> Engine:
    """An engine with what the tests use."""
    tools: list[Any] = ["ask_user_question", "respond_to_user", look, book]
    return Engine.open(**where, model=model, models=[CommandedLlm("second")], tools=tools, policy=RULES)


@pytest.fixture(scope="module")
def engine(model: CommandedLlm, stores: tuple[Store, ...]) -> Engine:
    """The engine of the server, which is used in the server's event loop only."""
    return opened(model, store=stores[0], worker=False) if stores else opened(model, url="sqlite://")


@pytest.fixture(scope="module")
def server(engine: Engine, model: CommandedLlm, stores: tuple[Store, ...]) -> Iterator[LiveServer]:
    """The server. What performs for it, if it does not do so itself, runs in the same thread."""
    with serving(engine) as server:
        if not stores:
            yield server
            return
        worker = opened(model, store=stores[1])
        server.run(worker.__aenter__)
        yield server
        server.run(worker.close)


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    """A client with the settings that people have, but that a test need not wait for repeated requests."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client
