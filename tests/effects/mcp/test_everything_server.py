"""The SDK's own example server, which has a tool for each feature of the protocol: as a program, and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from turnwise.effects.mcp.server import McpServer
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states.values.messages import ToolResult

from ...support.servers.mcp_programs import (
    AnsweringContext,
    answering,
    call,
    everything_over_http,
    everything_over_stdio,
    free_port,
    opened,
    until,
)
from ...support.tools import error

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of the server, which runs for all tests of this module."""
    with everything_over_http(free_port()) as url:
        yield url


async def check_contents(registry: ToolRegistry) -> None:
    """Check one tool for each kind of result."""
    text = await call(registry, "all:test_simple_text")
    mixed = await call(registry, "all:test_multiple_content_types")
    audio = await call(registry, "all:test_audio_content")
    failed = await call(registry, "all:test_error_handling")

    assert text == ToolResult(text="This is a simple text response for testing.")
    assert len(mixed.images) == 1
    assert mixed.text == (
        'Multiple content types test:\n\n[resource test://mixed-content-resource]\n{"test": "data", "value": 123}'
    )
    assert audio.text == "[audio: audio/wav, 44 bytes, not shown]"
    assert failed == error("Error executing tool test_error_handling")


class TestAsAProgram:
    """Over standard input and output."""

    async def test_it_is_called(self) -> None:
        """Results, progress, a schema of the newest dialect, and a question to the user, in the newest version."""
        shown: list[str] = []
        context = answering(lambda text: "Ada")
        async with opened(all=everything_over_stdio(protocol="newest")) as registry:
            await check_contents(registry)
            await call(registry, "all:test_tool_with_progress", shown.append)
            greeting = await call(registry, "all:test_input_required_result_elicitation", context=context)
            schema = registry.find("all:json_schema_2020_12_tool")

        assert shown[0] == "Completed step 0 of 100"
        assert greeting == ToolResult(text="Hello, Ada!")
        assert [question.question for question in context.asked] == ["all: What is your name?\nname"]
        assert schema is not None
        assert {"$schema", "$defs", "allOf", "if", "then"} <= schema.parameters.keys()


class TestOverHttp:
    """Over streamable HTTP, by uvicorn."""

    async def test_it_is_called(self, address: str) -> None:
        """J7, J9: as a program is."""
        async with opened(all=McpServer(url=address, headers={"X-Test": "1"})) as registry:
            await check_contents(registry)

            assert (await call(registry, "all:test_x_mcp_header", region="north")).text == "region=north"

    async def test_questions_in_several_rounds(self, address: str) -> None:
        """Each round asks the user of the call, and the server gets its own state back."""
        context = answering(lambda text: "Ada" if "name" in text else "green")
        confirming = answering(lambda text: "Yes")
        async with opened(all=McpServer(url=address, protocol="newest")) as registry:
            rounds = await call(registry, "all:test_input_required_result_multi_round", context=context)
            confirmed = await call(registry, "all:test_input_required_result_request_state", context=confirming)

        assert rounds == ToolResult(text="Ada likes green.")
        assert confirmed == ToolResult(text="state-ok: confirmation received")

    async def test_what_is_not_asked_of_a_user(self, address: str) -> None:
        """The call fails, and the model reads why."""
        async with opened(all=McpServer(url=address, protocol="newest")) as registry:
            sampling = await call(registry, "all:test_input_required_result_sampling")
            roots = await call(registry, "all:test_input_required_result_list_roots")

        assert sampling == error("The server asks for sampling/createMessage, which it cannot have here.")
        assert roots == error("The server asks for roots/list, which it cannot have here.")

    async def test_two_users_of_a_server_that_asks_in_the_middle_of_a_call(self, address: str) -> None:
        """Versions before 2026 do not say which call a question belongs to. Each user is asked only for their own."""

        def user(name: str) -> AnsweringContext:
            return answering(lambda text: name)

        users = {name: user(name) for name in ("Ada", "Bob", "Cyd")}
        async with opened(all=McpServer(url=address)) as registry:
            calls = [
                call(registry, "all:test_elicitation", context=context, message=f"Who is {name}?")
                for name, context in users.items()
            ]
            results = await asyncio.gather(*calls)

        answers = [f'User response: action=accept, content={{"response":"{name}"}}' for name in users]
        assert [result.text for result in results] == answers
        asked = [question.question for context in users.values() for question in context.asked]
        assert asked == [f"all: Who is {name}?\nResponse: User's response" for name in users]

    async def test_forms_with_every_kind_of_field(self, address: str) -> None:
        """Values come back in their types; what does not fit is asked again."""
        answers: dict[str, str | list[str]] = {
            "Untitledsingle": "pending", "Titledsingle": "High Priority", "Untitledmulti": ["read", "execute"],
            "Titledmulti": ["Bug Fix"], "Legacyenum": "Large Size",
        }  # fmt: skip
        ages = iter(["old", "31"])
        numbers = {"Name": "Ada", "Score": "7.5", "Status": "active", "Verified": "No"}

        def choose(text: str) -> str | list[str]:
            return next(answer for title, answer in answers.items() if f"\n{title}" in text)

        def fill_in(text: str) -> str:
            return next((answer for title, answer in numbers.items() if f"\n{title}" in text), "") or next(ages)

        async with opened(all=McpServer(url=address)) as registry:
            chosen = await call(registry, "all:test_elicitation_sep1330_enums", context=answering(choose))
            filled = await call(registry, "all:test_elicitation_sep1034_defaults", context=answering(fill_in))

        assert chosen.text == (
            'Elicitation completed: action=accept, content={"untitledSingle":"pending","titledSingle":"high",'
            '"untitledMulti":["read","execute"],"titledMulti":["bug"],"legacyEnum":"large"}'
        )
        assert filled.text == (
            'Elicitation result: action=accept, content={"name":"Ada","age":31,"score":7.5,"status":"active",'
            '"verified":false}'
        )

    async def test_it_vanishes_and_comes_back(self) -> None:
        """J17: the call under way fails, its tools are withdrawn, and they are offered again when it is there."""
        port, begun = free_port(), asyncio.Event()
        with everything_over_http(port) as url:
            servers = opened(all=McpServer(url=url, protocol="newest"))
            registry = await servers.__aenter__()
            running = asyncio.create_task(call(registry, "all:test_tool_with_progress", lambda line: begun.set()))
            await begun.wait()
        try:
            assert await running == error("The connection to all was lost, so it is not known whether the call ran.")
            await until(lambda: registry.find("all:test_simple_text") is None)
            with everything_over_http(port):
                await until(lambda: registry.find("all:test_simple_text") is not None)

                assert not (await call(registry, "all:test_simple_text")).error
        finally:
            await servers.__aexit__(None, None, None)
