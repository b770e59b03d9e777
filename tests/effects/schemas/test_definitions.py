"""Which tools are sent, and what is sent of them beside their schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwise.effects.schemas.wire import MAX_DESCRIPTION, MAX_TOOLS, wire_tools


def offer(name: str, **function: Any) -> dict[str, Any]:
    """Return a definition."""
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **function}}


def sent(*definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the functions that are sent."""
    return [one["function"] for one in wire_tools(definitions).definitions]


class TestTexts:
    """Names and descriptions."""

    @pytest.mark.parametrize("text", ["d" * 3_000, "word " * 1_000, "\u57ce" * 2_000])
    def test_a_long_description_is_cut(self, text: str) -> None:
        """At the length that every provider takes."""
        (function,) = sent(offer("a", description=text))

        assert MAX_DESCRIPTION // 2 < len(function["description"]) <= MAX_DESCRIPTION
        assert function["description"].endswith("\u2026")

    @pytest.mark.parametrize("text", ["", "  \n", None])
    def test_an_empty_description_is_not_sent(self, text: str | None) -> None:
        """Some providers refuse it."""
        assert sent(offer("a", description=text)) == [offer("a")["function"]]

    def test_names_are_legal(self) -> None:
        """And those of different tools different."""
        names = [one["name"] for one in sent(offer("s:a.b/c"), offer("s:a.b_c"), offer("s:" + "n" * 128))]

        assert len(set(names)) == 3
        assert all(len(name) <= 64 and name.replace("_", "").isalnum() for name in names)


class TestNumber:
    """More tools than a request holds."""

    def test_no_more_are_sent_than_every_provider_takes(self) -> None:
        """The others are named, each with a sentence."""
        tools = wire_tools([offer(f"s:t{n}") for n in range(130)])

        assert len(tools.definitions) == MAX_TOOLS
        assert tools.left_out == {
            f"s:t{n}": f"The tool s:t{n} is left out: a request holds at most 128 tools." for n in (128, 129)
        }

    def test_a_large_server_does_not_displace_the_others(self) -> None:
        """Nor the tools of the application, wherever they stand."""
        few = [offer("own"), offer("small:a"), offer("small:b")]
        tools = wire_tools([*(offer(f"large:t{n}") for n in range(400)), *few])

        assert len(tools.definitions) == MAX_TOOLS
        assert not {"own", "small:a", "small:b"} & tools.left_out.keys()

    def test_the_same_tools_give_the_same_bytes(self) -> None:
        """In the order in which they were given."""
        given = [offer(f"s{n % 7}:t{n}") for n in range(300)]
        texts = {json.dumps(wire_tools(given).definitions) for _ in range(3)}
        names = [one["function"]["name"] for one in json.loads(texts.pop())]
        order = [one["function"]["name"] for one in wire_tools(given).definitions]

        assert texts == set()
        assert names == order

    @pytest.mark.parametrize("schema", ["text", 3, ["a"]])
    def test_a_schema_that_is_none_leaves_its_tool_out(self, schema: Any) -> None:
        """The others are sent."""
        tools = wire_tools([offer("good"), offer("bad", parameters=schema)])

        assert [one["function"]["name"] for one in tools.definitions] == ["good"]
        assert tools.left_out == {"bad": "The tool bad is left out: its schema cannot be written for a model."}
