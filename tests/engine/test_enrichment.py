"""Enrichment with litellm over a real socket: what a provider answers, and what becomes of it."""

from __future__ import annotations

import pytest

from turnwise import Engine, LiteLlm, Policy, Settings, Turn
from turnwise.effects.model.system_message import MEMORY_TITLE
from turnwise.testing import ManualClock

from ..support.servers.openai_server import Body, OpenAiServer, Reply, fails, hangs, has_no_choices, says, sends


class Server(OpenAiServer):
    """A model's service that says "Yes.", and answers a request for the terms of a search with this reply."""

    def __init__(self, terms: Reply) -> None:
        self.bodies: list[Body] = []
        self._terms = terms
        super().__init__(self._choose)

    def _choose(self, body: Body) -> Reply:
        self.bodies.append(body)
        return self._terms if self.is_enrichment(body) else says("Yes.", tokens=(10, 5))

    def is_enrichment(self, body: Body) -> bool:
        """Whether this is a request for the terms of a search."""
        return '{"keywords"' in str(body["messages"][0]["content"])


async def converse(server: OpenAiServer, settings: Settings | None = None) -> Turn:
    """Have something said, and after an hour be asked about it in another conversation. Return that turn."""
    clock = ManualClock()
    model = LiteLlm("openai/test", api_base=server.url, api_key="test")
    async with Engine.open("sqlite://", model=model, clock=clock, settings=settings) as engine:
        await (await engine.create(owner="anna")).send("My cat is called Miuku.")
        await clock.advance(3_600)
        conversation = await engine.create(owner="anna", policy=Policy(recall=True))
        return await conversation.send("What is my cat called?")


async def test_what_a_model_names_is_found() -> None:
    """J4: the request has no tools, and what it used counts for the turn."""
    answer = 'Here it is:\n```json\n{"keywords": ["cat"], "from": "2026-01-01", "to": null}\n```'
    async with Server(says(answer, tokens=(100, 20))) as server:
        turn = await converse(server)

    (enrichment,) = filter(server.is_enrichment, server.bodies)
    system = server.bodies[-1]["messages"][0]["content"]
    assert [one["role"] for one in enrichment["messages"]] == ["system", "user"]
    assert "tools" not in enrichment
    assert turn.usage.tokens == 120 + 15
    assert f"{MEMORY_TITLE}\n" in system and "  My cat is called Miuku." in system


@pytest.mark.slow
@pytest.mark.parametrize(
    "terms",
    [
        says("I cannot say."),
        says('{"keywords": [["cat"], {"a": 1}, null]}'),
        has_no_choices(),
        fails(500),
        fails(429),
        sends("{"),
    ],
    ids=["no JSON", "no keywords", "no choices", "500", "429", "garbage"],
)
async def test_a_provider_that_fails_leaves_the_past_out(terms: Reply) -> None:
    """J4: the turn goes on, and nothing is asked twice."""
    await check_the_past_is_left_out(terms)


async def test_a_provider_that_hangs_leaves_the_past_out() -> None:
    """J4, J19: after the seconds of the setting."""
    await check_the_past_is_left_out(hangs(), Settings(llm_tools_timeout_sec=0.5))


async def check_the_past_is_left_out(terms: Reply, settings: Settings | None = None) -> None:
    """Have a provider answer the request for the terms of a search like this."""
    async with Server(terms) as server:
        turn = await converse(server, settings)

    assert turn.reply == "Yes."
    assert sum(map(server.is_enrichment, server.bodies)) == 1
    assert MEMORY_TITLE not in str(server.bodies[-1])
