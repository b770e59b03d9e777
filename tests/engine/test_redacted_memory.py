"""What conversations without the rule `redact` have stored, in a conversation of the same owner that has the rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnwise import DocumentQuery, Engine, ModelRequest, Policy, Profile, ToolContext, presets, tool
from turnwise.testing import FunctionLlm, call

CARD = "4111 1111 1111 1111"
HALF = "4111 1111"


def filled(length: int) -> str:
    """Return innocent words of this length."""
    return ("so it was " * length)[:length]


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 455, 465])
async def test_no_secret_crosses_over(database: Path, before: int) -> None:
    """J1: neither the router, nor the model, nor a tool gets a secret, nor half of one where a text is cut."""
    seen: list[str] = []

    @tool(crash="pure")
    async def look_back(context: ToolContext) -> str:
        """Look at what was said."""
        assert context.memory is not None
        seen.extend(found.text for found in await context.memory.search(["sushi"]))
        return "Seen."

    def answer(request: ModelRequest) -> Any:
        if request.purpose == "route":
            return json.dumps({"profile": "b"})
        if request.purpose == "enrich":
            return json.dumps({"keywords": ["sushi"], "from": None, "to": None})
        return "Noted." if request.messages[-1]["role"] == "tool" else call("look_back")

    def documents(query: DocumentQuery) -> str:
        return f"{filled(13_250 + before)} {CARD} {filled(20_000)}"

    model = FunctionLlm(answer)
    profiles = [Profile(name="a"), Profile(name="b")]
    async with Engine.open(database, model=model, tools=[look_back], profiles=profiles, documents=documents) as engine:
        told = await engine.create(owner="anna", policy=Policy())
        await told.send(f"{filled(before)} {CARD} sushi {filled(600)}")
        asked = len(model.requests)
        conversation = await engine.create(owner="anna", policy=presets.reply_flow())
        await conversation.send("More sushi?")

    requests = model.requests[asked:]
    assert {request.purpose for request in requests} == {"route", "enrich", "converse"}
    assert seen and all("[CARD]" in text for text in seen)
    assert not [request.purpose for request in requests if HALF in str(request.messages)]
