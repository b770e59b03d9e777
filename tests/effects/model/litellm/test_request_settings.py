"""Settings of a profile over litellm and a real socket, also those that a model does not take."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine, ModelSettings, Policy, Profile, Retry
from turnwise.effects.model.written_messages import request_digest
from turnwise.testing import FunctionLlm, reply

from ....engine.test_litellm import model_at
from ....support.servers.openai_server import Body, OpenAiServer, fails, says

NAMES = set(ModelSettings.model_fields)
POLICY = Policy(retry=Retry(attempts=1))


def profile(**settings: Any) -> Profile:
    """Return a profile with these settings."""
    return Profile(name="cook", settings=ModelSettings(**settings))


def sent(body: Body) -> dict[str, Any]:
    """Return the settings that a request holds."""
    return {name: value for name, value in body.items() if name in NAMES}


class TestSending:
    """What a request holds of the settings."""

    async def test_those_that_are_given_are_sent(self, database: Path) -> None:
        """And no others; without settings there are none."""
        given = {"temperature": 0.0, "max_tokens": 50, "top_p": 0.5, "seed": 7}
        async with OpenAiServer([says("One."), says("Two.")]) as server:
            for profiles in ([profile(**given)], []):
                async with Engine.open(database, model=model_at(server), profiles=profiles, policy=POLICY) as engine:
                    await (await engine.create()).send("Hi")

        assert [sent(body) for body in server.requests] == [given, {}]

    async def test_they_go_with_the_profile_of_the_turn(self) -> None:
        """To every `Llm`, and only with the turn's own requests."""
        seen: list[tuple[str, ModelSettings]] = []

        def note(request: Any) -> Any:
            seen.append((request.purpose, request.settings))
            return reply("clerk")

        profiles = [profile(temperature=1), Profile(name="clerk", settings=ModelSettings(temperature=0))]
        options: dict[str, Any] = {"profiles": profiles, "policy": Policy(route=True)}
        async with Engine.open("sqlite://", model=FunctionLlm(note), **options) as engine:
            await (await engine.create()).send("Hi")

        assert seen == [("route", ModelSettings()), ("converse", ModelSettings(temperature=0))]

    async def test_they_are_part_of_the_digest(self) -> None:
        """Requests that differ in a setting alone are two requests; one without settings has the digest that it had
        before there were any."""
        requests: list[Any] = []

        def note(request: Any) -> Any:
            requests.append(request)
            return reply("Done.")

        digests = []
        for profiles in ([], [profile()], [profile(seed=1)], [profile(seed=2)]):
            async with Engine.open("sqlite://", model=FunctionLlm(note, name="it"), profiles=profiles) as engine:
                conversation = await engine.create()
                await conversation.send("Hi")
                digests += [
                    entry.event.digest for entry in await conversation.events() if hasattr(entry.event, "digest")
                ]

        assert digests == [request_digest(request) for request in requests]
        assert digests[0] == digests[1]
        assert len(set(digests)) == 3


class TestRefused:
    """A model that does not take a setting is asked without it."""

    async def test_the_one_that_the_error_names_is_left_out_from_then_on(
        self, database: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The turn goes on, it is logged once, and the next request is sent without it at once."""
        caplog.set_level(logging.WARNING, "turnwise.model")

        def answer(body: Body) -> Any:
            if "temperature" in body:
                return fails(400, "`temperature` is deprecated for this model.")
            return says("Done.")

        options: dict[str, Any] = {"profiles": [profile(temperature=0.2, seed=7)], "policy": POLICY}
        async with (
            OpenAiServer(answer) as server,
            Engine.open(database, model=model_at(server), **options) as engine,
        ):
            conversation = await engine.create()
            turns = [await conversation.send("Hi") for _ in range(2)]

        assert [turn.reply for turn in turns] == ["Done.", "Done."]
        assert [sent(body) for body in server.requests] == [{"temperature": 0.2, "seed": 7}, {"seed": 7}, {"seed": 7}]
        assert [record.getMessage() for record in caplog.records] == [
            "The model openai/test does not take temperature, so its requests are sent without."
        ]

    async def test_what_litellm_knows_to_be_unsupported_is_not_sent(self, database: Path) -> None:
        """It says so before it sends anything."""
        options: dict[str, Any] = {"profiles": [profile(reasoning_effort="low", seed=7)], "policy": POLICY}
        async with (
            OpenAiServer([says("Done.")]) as server,
            Engine.open(database, model=model_at(server, "openai/gpt-4.1-mini"), **options) as engine,
        ):
            turn = await (await engine.create()).send("Hi")

        assert turn.reply == "Done."
        assert [sent(body) for body in server.requests] == [{"seed": 7}]

    async def test_an_error_about_something_else_stays_one(self, database: Path) -> None:
        """A refused request that names no setting fails; nothing is sent twice."""
        options: dict[str, Any] = {"profiles": [profile(temperature=0.2)], "policy": POLICY}
        async with (
            OpenAiServer([fails(400, "The messages are wrong.")]) as server,
            Engine.open(database, model=model_at(server), **options) as engine,
        ):
            turn = await (await engine.create()).send("Hi")

        assert turn.status == "failed"
        assert len(server.requests) == 1

    async def test_what_is_only_quoted_is_not_left_out(self, database: Path) -> None:
        """An error that only quotes the name of a setting refuses nothing, so nothing is tried."""
        quoting = fails(400, 'Bad message: "what temperature is it?"')
        options: dict[str, Any] = {"profiles": [profile(temperature=0.2)], "policy": POLICY}
        async with (
            OpenAiServer([quoting, says("Done.")]) as server,
            Engine.open(database, model=model_at(server), **options) as engine,
        ):
            conversation = await engine.create()
            first = await conversation.send("Hi")
            second = await conversation.send("Hi again")

        assert (first.status, second.reply) == ("failed", "Done.")
        assert [sent(body) for body in server.requests] == [{"temperature": 0.2}, {"temperature": 0.2}]
