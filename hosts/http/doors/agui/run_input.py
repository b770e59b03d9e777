"""Reads the input of a run: what came before, and the message to answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ag_ui.core import (
    AssistantMessage,
    ContentPart,
    DataSource,
    DeveloperMessage,
    ImagePart,
    Message,
    RunAgentInput,
    SystemMessage,
    TextPart,
    ToolMessage,
    UrlSource,
    UserMessage,
)

from ..turns.requested_turn import Said
from .refusal import RunRefused


def check_supported(run: RunAgentInput) -> None:
    """Raise `RunRefused` for what would change the meaning of the run and cannot be carried out."""
    if run.tools:
        raise RunRefused("unsupported_tools", "Tools of the client are not supported: the server runs its own.")
    if run.context:
        raise RunRefused("unsupported_context", "Context is not supported: write what the agent has to know as text.")


def message_to_answer(run: RunAgentInput) -> tuple[str, Said]:
    """Return the last message, with its id. Raises `RunRefused` if it is not one of the user. `Pure.`"""
    last = run.messages[-1] if run.messages else None
    if not isinstance(last, UserMessage):
        raise RunRefused("no_message", "The last message of a run must be one of the user, unless it resumes another.")
    parts = last.content if isinstance(last.content, list) else [TextPart(text=last.content)]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    images = tuple(_url(part) for part in parts if not isinstance(part, TextPart))
    return last.id, Said("\n\n".join(texts), images)


def history_before(run: RunAgentInput) -> list[dict[str, Any]]:
    """Return the messages before the last one in OpenAI's chat format, as `Engine.create` takes them. Raises
    `RunRefused` for parts that no model is sent. `Pure.`"""
    return [written for message in run.messages[:-1] for written in _written(message)]


def _written(message: Message) -> Iterator[dict[str, Any]]:
    match message:
        case SystemMessage() | DeveloperMessage():
            yield {"role": "system", "content": message.content}
        case UserMessage():
            yield {"role": "user", "content": _content(message.content)}
        case AssistantMessage():
            calls = [call.model_dump(include={"id", "type", "function"}) for call in message.tool_calls or ()]
            yield {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
        case ToolMessage():
            yield {"role": "tool", "tool_call_id": message.tool_call_id, "content": _content(message.content)}
        case _:
            pass  # what an agent thought, and what a client displays, was not said


def _content(content: str | Sequence[ContentPart]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": "image_url", "image_url": {"url": _url(part)}}
        for part in content
    ]


def _url(part: ContentPart) -> str:
    """The address of an image, or the image itself as a data: URL."""
    source = part.source if isinstance(part, ImagePart) else None
    if isinstance(source, DataSource):
        return f"data:{source.mime_type};base64,{source.value}"
    if isinstance(source, UrlSource):
        return source.value
    raise RunRefused("unsupported_content", "A message can have texts, and images that are data or a URL.")
