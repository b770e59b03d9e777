"""The tools that run at a provider, as each provider wants to be asked for them.

An application names what it wants, `web_search` for example; here stands what that is called where. What has no name
here is given as the provider defines it, and sent as it is. Where a provider has no such tool among its tools, a search
is asked for by a parameter, which litellm translates for those that have one; what it does not know is refused before
anything is sent, and learned like every refusal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..families import Need, maker_of

Json = dict[str, Any]

_ANTHROPIC: Mapping[str, Json] = {
    "web_search": {"type": "web_search_20250305", "name": "web_search"},
    "web_fetch": {"type": "web_fetch_20250910", "name": "web_fetch"},
    "code_execution": {"type": "code_execution_20250825", "name": "code_execution"},
}
_GEMINI: Mapping[str, Json] = {
    "web_search": {"googleSearch": {}},
    "web_fetch": {"urlContext": {}},
    "code_execution": {"codeExecution": {}},
}
_RESPONSES: Mapping[str, Json] = {
    "web_search": {"type": "web_search"},
    "code_execution": {"type": "code_interpreter", "container": {"type": "auto"}},
}
_NATIVE = ("anthropic", "vertex_ai", "azure_ai", "gemini")
"""The protocols in which the makers' own tools can be asked for."""

BOTH = "include_server_side_tool_invocations"
"""litellm's parameter for a request with tools of both kinds."""

SEARCH = "web_search_options"
"""The parameter by which a search is asked for where it is no tool."""


def server_tools(wanted: tuple[str | Json, ...], model: str, *, is_response: bool) -> tuple[list[Json], list[str]]:
    """The tools of a request to the model of this name, and the names of those for which it has no tool. `Pure.`"""
    known = _tools_of(model, is_response=is_response)
    tools = [
        one if isinstance(one, dict) else dict(known[one]) for one in wanted if isinstance(one, dict) or one in known
    ]
    return tools, [*_unknown(wanted, known)]


def needs_both(model: str) -> bool:
    """Whether the model of this name must be told that it may use its provider's tools beside others: Gemini 3 and
    later, while earlier ones take either. `Pure.`"""
    maker = maker_of(model)
    return maker is not None and maker.need is Need.SIGNATURE and model.partition("/")[0] in _NATIVE


def _unknown(wanted: tuple[str | Json, ...], known: Mapping[str, Json]) -> Iterator[str]:
    return (one for one in wanted if isinstance(one, str) and one not in known)


def _tools_of(model: str, *, is_response: bool) -> Mapping[str, Json]:
    if is_response:
        return _RESPONSES
    protocol, _, name = model.lower().partition("/")
    if protocol not in _NATIVE:
        return {}
    if "claude" in name:
        return _ANTHROPIC
    return _GEMINI if "gemini" in name else {}
