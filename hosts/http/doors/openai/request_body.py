"""The body of a chat completion, as far as this door reads it.

A parameter that the door does not know is refused, as the OpenAI API does. One that it knows and cannot carry out is
refused unless it has its neutral value; one that only concerns OpenAI's own service has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from .....engine.requests import LONGEST_ID
from .....states.events import Resolution
from ...schemas.body import Body
from ..turns.acts import Act, AnswerQuestions, DecideCall, DeclineQuestions, ResolveCall
from .refusals import OpenAiRefusal

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class ChatMessage(BaseModel):
    """A message of the history, or, as the last one, the message to answer."""

    model_config = ConfigDict(extra="allow")

    role: Role
    content: str | list[dict[str, Any]] | None = None


class StreamOptions(Body):
    """What a stream has besides the text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Metadata(BaseModel):
    """What the request notes. Besides the two names that the door reads, a new durable conversation keeps it."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, str]

    conversation_id: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)] | None = None
    message_id: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)] | None = None


class Decision(Body):
    """Whether the call that waits for approval may run, perhaps with other arguments."""

    allowed: bool
    note: str | None = None
    arguments: dict[str, Any] | None = None


class PersonReply(Body):
    """What a person does about a turn that waits for one, where plain text is not exact enough: exactly one of
    `answers`, `decline`, `approval` and `verdict`. It replaces the last message."""

    call_id: str
    answers: dict[str, str | list[str]] | None = None
    annotations: dict[str, dict[str, str]] = Field(default_factory=dict)
    decline: Literal[True] | None = None
    approval: Decision | None = None
    verdict: Resolution | None = None

    @property
    def act(self) -> Act:
        """What the person does. Raises `OpenAiRefusal` unless it is exactly one thing."""
        acts: list[Act] = []
        if self.answers is not None:
            acts.append(AnswerQuestions(call_id=self.call_id, answers=self.answers, annotations=self.annotations))
        if self.decline is not None:
            acts.append(DeclineQuestions(call_id=self.call_id))
        if (decision := self.approval) is not None:
            acts.append(DecideCall(call_id=self.call_id, **dict(decision)))
        if self.verdict is not None:
            acts.append(ResolveCall(call_id=self.call_id, verdict=self.verdict))
        if len(acts) != 1:
            sentence = "Give exactly one of answers, decline, approval and verdict."
            raise OpenAiRefusal("invalid_input", sentence, "turnwise")
        return acts[0]


class CompletionBody(Body):
    """A request for a chat completion."""

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    metadata: Metadata | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    turnwise: PersonReply | None = None

    # The model is asked with these.
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    reasoning_effort: Annotated[str, Field(min_length=1)] | None = None

    # Refused, unless they have their neutral value.
    n: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    response_format: Any = None
    stop: Any = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, Any] | None = None
    modalities: list[str] | None = None
    audio: Any = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    verbosity: str | None = None
    web_search_options: Any = None

    # Without effect.
    user: str | None = None
    store: bool | None = None
    service_tier: str | None = None
    parallel_tool_calls: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prediction: Any = None

    @property
    def settings(self) -> dict[str, Any]:
        """The parameters with which the model is asked, under the names of `ModelSettings`; only those given."""
        most = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        given = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": most,
            "seed": self.seed,
            "reasoning_effort": self.reasoning_effort,
        }
        return {name: value for name, value in given.items() if value is not None}


_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "stop": ([],),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "audio": (),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""The values under which a parameter that cannot be carried out asks for nothing."""

_TOOLS = ("tools", "tool_choice", "functions", "function_call")


def check_supported(body: CompletionBody) -> None:
    """Raise `OpenAiRefusal` for a parameter that would change the meaning of the request and cannot be carried out."""
    for name, neutral in _NEUTRAL.items():
        given = getattr(body, name)
        if given is None or given in neutral:
            continue
        sentence = f"The parameter {name} is not supported with this value."
        if name in _TOOLS:
            sentence = f"The parameter {name} is not supported: the server runs tools of its own."
        raise OpenAiRefusal("unsupported_parameter", sentence, name)
