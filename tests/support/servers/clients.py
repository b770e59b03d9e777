"""What asks the scripted servers: litellm, or the client of turnwise itself where a server speaks OpenAI's protocol.

A test that holds for both asks for the fixture `each_client`, and makes its models by `served_model`.
"""

from __future__ import annotations

from typing import Any

import pytest

from turnwise import LiteLlm, OpenAICompatible

OF_THE_CLIENT = ("window", "takes", "dialect", "timeout", "family", "schema")
"""Options that both clients have under the same name. Others are parameters of the requests."""

_asks_directly = False


def asks_directly() -> bool:
    """Whether models that `served_model` makes ask without litellm."""
    return _asks_directly


@pytest.fixture(params=["litellm", "directly"])
def each_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with each of the clients."""
    monkeypatch.setattr(f"{__name__}._asks_directly", request.param == "directly")


def served_model(
    url: str, name: str, key: str = "test", *, model: str | None = None, **options: Any
) -> LiteLlm | OpenAICompatible:
    """Return a model with litellm's name that the server at this address has under the name behind the provider."""
    if not asks_directly():
        return LiteLlm(name, model=model, api_base=url, api_key=key, **options)
    own = {option: options.pop(option) for option in OF_THE_CLIENT if option in options}
    own.setdefault("schema", "never")  # as litellm's list, which has no model of this server
    return OpenAICompatible(url, key, (model or name).partition("/")[2], name=name, parameters=options, **own)
