"""The definitions of tools as they are sent to a model: copies that every provider accepts.

Which of the tools are sent, and how each is written, is found out once for a list of tools. The same tools always give
the same bytes, because providers keep the beginning of a request and the tools stand in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...states.openai_writing import legal_name
from ...states.values.value import MAX_QUOTED, shortened
from .schemas import wire_schema

MAX_TOOLS = 128
"""The most tools of a request: what OpenAI, Azure and others take."""

MAX_DESCRIPTION = 1_024
"""The most characters of a tool's description: what OpenAI takes."""

Definition = dict[str, Any]
"""A function tool of OpenAI's chat completions."""


@dataclass(frozen=True)
class WireTools:
    """Tools as they are sent. `left_out` are those that are not, by name, each with the reason as a sentence."""

    definitions: tuple[Definition, ...]
    left_out: dict[str, str]


def wire_tools(definitions: Iterable[Definition], condition: str = "") -> WireTools:
    """These tools as they are sent, in the same order. Of too many, those are left out that stand last at the servers
    with the most tools; tools of no server are kept first. `condition` says of
    these when they are left out, where that is not always so. `Pure.`"""
    left_out: dict[str, str] = {}
    written: dict[str, Definition] = {}
    for definition in definitions:
        name = str(definition["function"]["name"])
        try:
            written[name] = wire_definition(definition)
        except (TypeError, ValueError, AttributeError, RecursionError):
            left_out[name] = f"The tool {_quoted(name)} is left out: its schema cannot be written for a model."
    kept = _kept(list(written))
    for name in written.keys() - kept:
        left_out[name] = f"The tool {_quoted(name)} is left out{condition}: a request holds at most {MAX_TOOLS} tools."
    order = {name: left_out[name] for name in (*written, *left_out) if name in left_out}
    return WireTools(tuple(one for name, one in written.items() if name in kept), order)


def wire_definition(definition: Definition) -> Definition:
    """The definition of one tool as it is sent; a description says something, or is not there. Raises for a schema that
    is none. `Pure.`"""
    function = definition["function"]
    name = legal_name(function["name"])
    written = {**function, "name": name}
    if "description" in written and not str(written["description"] or "").strip():
        del written["description"]
    elif "description" in written:
        written["description"] = _cut(written["description"])
    if function.get("parameters") is not None:
        written["parameters"] = wire_schema(function["parameters"])
    return {**definition, "function": written}


def _cut(text: str) -> str:
    """The text, cut behind a word where it is too long."""
    if len(text) <= MAX_DESCRIPTION:
        return text
    beginning, blank, _ = text[: MAX_DESCRIPTION - 1].rpartition(" ")
    return f"{beginning if blank and len(beginning) > MAX_DESCRIPTION // 2 else text[: MAX_DESCRIPTION - 1]}…"


def _kept(names: Sequence[str]) -> frozenset[str]:
    """The names of the tools that are sent: in rounds, one of each server, after those of no server."""
    if len(names) <= MAX_TOOLS:
        return frozenset(names)
    servers: dict[str, list[str]] = {}
    for name in names:
        servers.setdefault(name.partition(":")[0] if ":" in name else "", []).append(name)
    own = servers.pop("", [])
    return frozenset([*own, *_in_rounds(list(servers.values()))][:MAX_TOOLS])


def _in_rounds(lists: Sequence[Sequence[str]]) -> Iterator[str]:
    for place in range(max(map(len, lists), default=0)):
        yield from (one[place] for one in lists if place < len(one))


def _quoted(name: str) -> str:
    return shortened(name, MAX_QUOTED)
