"""A request as OpenAI's chat completions have it.

Messages and tools stand in a `ModelRequest` as they are sent, but for files that the protocol has no part for. Servers
that take them have parts of their own: vLLM and SGLang for videos and for recordings at an address, OpenRouter for
documents at an address.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from ..port import ModelRequest, RequestedOutput
from .traits import copy_json

_OF_TOOLS = {"tool_choice", "parallel_tool_calls"}
"""The settings that mean nothing in a request without tools, in which some providers refuse them."""


def settings_of(request: ModelRequest) -> dict[str, Any]:
    """The settings of the request under the names that everybody gives them. `Pure.`"""
    left_out = {"strict", "cache", "server_tools", *({"tool_choice"} if request.tools else _OF_TOOLS)}
    given = request.settings.model_dump(exclude_none=True, exclude=left_out)
    if "stop" in given:
        given["stop"] = list(given["stop"])
    return {"logprobs": True, **given} if "top_logprobs" in given else given


def tool_choice_of(choice: str) -> str | dict[str, Any]:
    """How the tool choice of a request is written. `Pure.`"""
    return choice if choice in ("none", "required") else {"type": "function", "function": {"name": choice}}


def response_format_of(output: RequestedOutput) -> dict[str, Any]:
    """How a request asks for an answer in this form by the provider's own means. `Pure.`"""
    described = {"description": output.description} if output.description else {}
    schema = {"name": output.name, **described, "schema": copy_json(dict(output.schema)), "strict": output.strict}
    return {"type": "json_schema", "json_schema": schema}


def messages_of(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The messages with each file in the part that servers have for it. `Pure.`"""
    return with_own_parts(messages, ("file",), _part)


def with_own_parts(
    messages: Sequence[Mapping[str, Any]],
    types: Collection[str],
    own: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> Sequence[Mapping[str, Any]]:
    """The messages with `own` of each part in place of it, where a part is of one of these types. Others are the same
    objects, and so are all if there is none. `Pure.`"""

    def has_one(message: Mapping[str, Any]) -> bool:
        content = message.get("content")
        return isinstance(content, list | tuple) and any(part.get("type") in types for part in content)

    if not any(map(has_one, messages)):
        return messages
    return [
        {**message, "content": [*map(own, message["content"])]} if has_one(message) else message for message in messages
    ]


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    match part:
        case {"type": "file", "file": {"file_data": str(url)}} if url.startswith("data:video/"):
            return {"type": "video_url", "video_url": {"url": url}}
        case {"type": "file", "file": {"file_id": str(url), "format": str(media_type)}}:
            kind = media_type.partition("/")[0]
            if kind in ("video", "audio"):
                return {"type": f"{kind}_url", f"{kind}_url": {"url": url}}
            return {"type": "file", "file": {"filename": PurePosixPath(urlsplit(url).path).name, "file_data": url}}
        case _:
            return part
