"""The door to a language model: one method.

Whatever answers `complete` is a model to turnwise: litellm, a scripted double, a host's own client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from ...states.values.failures import FailureKind
from ...states.values.messages import Usage

Purpose = Literal["converse", "check", "summarize", "condense", "reword"]
"""What a request is for: the next answer in the conversation, the check of a claim that the work is complete, the
summary of a turn for display, the summary in place of what no longer fits the window, or words for a voice."""


@dataclass(frozen=True)
class ModelRequest:
    """What a model is sent: `messages` and `tools` in the shape of OpenAI's chat completions, as plain dicts.

    `tool_choice="none"` lists the tools but allows no call. The dicts are those of later requests, too: whoever has to
    change them changes copies. `purpose` is not sent; it tells an `Llm` what is wanted of it.
    """

    model: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: Literal["auto", "none"] = "auto"
    purpose: Purpose = "converse"


@dataclass(frozen=True)
class ModelCall:
    """A call as the model made it: the provider's id, which may repeat or be empty, and raw JSON arguments."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True)
class ModelAnswer:
    """What a model said. `opaque` are sealed thinking blocks, to be sent back unchanged."""

    content: str = ""
    thinking: str = ""
    opaque: tuple[dict[str, Any], ...] = ()
    tool_calls: tuple[ModelCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str = ""


@dataclass(frozen=True)
class Token:
    """A piece of a streamed answer, to be shown while the rest is on its way."""

    text: str
    kind: Literal["text", "thinking"] = "text"


class LlmFailure(Exception):
    """A request failed. `sentence` is for people: no payload, no repr. `retry_after` is in seconds."""

    def __init__(self, kind: FailureKind, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.kind: FailureKind = kind
        self.sentence = sentence
        self.retry_after = retry_after


@runtime_checkable
class Llm(Protocol):
    """A language model.

    It may have a `name`, under which policies and logs know it (else that is the name of its class), and a `window`:
    how many tokens one request may hold. Of a model without a window nothing is condensed ahead, only when it says
    that a request was too long.
    """

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer the request; call `show` with each piece as it comes.

        Raises `LlmFailure`. When the task is cancelled the implementation closes its connection before it lets
        `CancelledError` pass.
        """
        ...


def name_of(model: Llm) -> str:
    """The name under which policies and logs know this model. `Pure.`"""
    return str(getattr(model, "name", type(model).__name__))
