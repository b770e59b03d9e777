"""What a chat completion answers: the shapes of the OpenAI API, with one field more."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from .....engine.turns import Turn
from .....states.values.messages import Usage
from ...schemas.states import TurnJson

FinishReason = Literal["stop", "length"]


class TurnReport(BaseModel):
    """What the format has no place for: the conversation, null if it is not kept, and the turn, with the questions and
    the call that it waits for."""

    conversation_id: str | None
    turn: TurnJson


class CachedTokens(BaseModel):
    """Tokens of the input that the provider read from its cache."""

    cached_tokens: int


class ReasoningTokens(BaseModel):
    """Tokens of the output that the model spent on thinking."""

    reasoning_tokens: int


class TokenCounts(BaseModel):
    """What the turn has used so far, in all its model requests."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens


class AnswerMessage(BaseModel):
    """What the assistant says in the turn."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class Choice(BaseModel):
    """The one answer."""

    index: Literal[0] = 0
    message: AnswerMessage
    logprobs: None = None
    finish_reason: FinishReason


class Completion(BaseModel):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: TokenCounts
    turnwise: TurnReport


class Delta(BaseModel):
    """What a chunk adds."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(BaseModel):
    """A piece of the one answer."""

    index: Literal[0] = 0
    delta: Delta
    logprobs: None = None
    finish_reason: FinishReason | None = None


class CompletionChunk(BaseModel):
    """A piece of a chat completion. The last one with a choice has a `finish_reason` and the report on the turn."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: TokenCounts | None = None
    turnwise: TurnReport | None = None


class ModelEntry(BaseModel):
    """A model that completions may name. When it was made is not known."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "turnwise"


class ModelList(BaseModel):
    """The models that completions may name."""

    object: Literal["list"] = "list"
    data: list[ModelEntry] = Field(default_factory=list)


def counts_of(usage: Usage) -> TokenCounts:
    """Return a usage as token counts. `Pure.`"""
    return TokenCounts(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.tokens,
        prompt_tokens_details=CachedTokens(cached_tokens=usage.cached_tokens),
        completion_tokens_details=ReasoningTokens(reasoning_tokens=usage.reasoning_tokens),
    )


def finish_reason_of(turn: Turn) -> FinishReason:
    """Return why the text ends: a limit cut it off, or it was said. `Pure.`"""
    return "length" if turn.truncated or turn.limit is not None else "stop"
