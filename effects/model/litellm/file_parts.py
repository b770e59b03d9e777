"""What becomes of files on their way through litellm.

A request holds files in OpenAI's parts, and litellm writes them in the form of each provider. Where it leaves a file
out without a word, the model would answer as if nothing had been attached; so such files are refused before the step.
And where a provider has a form that litellm does not write, it is written here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ....states.values.files import FileKind
from ..families import STRIPPED
from ..openai.body import with_own_parts
from ..openai.traits import Arguments, copy_json, further_fields

_BUT_IMAGES: frozenset[FileKind] = frozenset({"document", "audio", "video"})
_ALL: frozenset[FileKind] = frozenset({"image", "document", "audio", "video"})

NEVER_TAKEN: Mapping[str, Collection[FileKind]] = {
    "anthropic": frozenset({"audio", "video"}),
    "mistral": frozenset({"video"}),
    "codestral": frozenset({"video"}),
    "ollama": _BUT_IMAGES,
    "ollama_chat": _BUT_IMAGES,
    "deepseek": _ALL,
    "sambanova": _ALL,
    "docker_model_runner": _ALL,
    "heroku": _ALL,
}
"""The files that no model gets over a protocol, by litellm's name of it: it has no form for them, or litellm keeps
nothing of a message but its texts."""

_WITH_OWN_PARTS = ("mistral", "codestral")


def with_own_messages(arguments: Arguments, protocol: str) -> Arguments:
    """The request with all its messages in its body, if litellm keeps some of their fields out of requests over this
    protocol, or does not write their files as the provider has them. `Pure.`"""
    stripped = STRIPPED.get(protocol)
    messages = _of_provider(arguments["messages"], protocol)
    is_whole = stripped is None or stripped.isdisjoint(further_fields(messages))
    if is_whole and messages is arguments["messages"]:
        return arguments
    return {**arguments, "extra_body": {**(arguments.get("extra_body") or {}), "messages": copy_json(messages)}}


def _of_provider(messages: Sequence[Any], protocol: str) -> Sequence[Any]:
    """The messages with their files in the form that the provider has for them; themselves if litellm writes it.

    Mistral's API has documents and recordings at an address, which may be a data: URL, and recordings as base64.
    """
    return with_own_parts(messages, ("file", "input_audio"), _own_part) if protocol in _WITH_OWN_PARTS else messages


def _own_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    match part:
        case {"type": "input_audio", "input_audio": {"data": data}}:
            return {"type": "input_audio", "input_audio": data}
        case {"type": "file", "file": {"file_id": url, "format": str(media_type)}} if media_type.startswith("audio/"):
            return {"type": "input_audio", "input_audio": url}
        case {"type": "file", "file": {"file_id": url}}:
            return {"type": "document_url", "document_url": url}
        case {"type": "file", "file": {"file_data": url, "filename": name}}:
            return {"type": "document_url", "document_url": url, "document_name": name}
        case _:
            return part
