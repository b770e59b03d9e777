"""Makes a chat completion of a turn, at once or in chunks."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from pydantic import BaseModel

from .....engine.turns import FailedTurn, Turn
from .....states.errors import TurnwiseError
from ...problems import http_problem, problem_of
from ...streams.events import data_line
from ..turns.requested_turn import RequestedTurn
from ..turns.spoken_turn import spoken_turn
from .refusals import OpenAiRefusal, error_answer, error_of
from .response_body import (
    AnswerMessage,
    Choice,
    ChunkChoice,
    Completion,
    CompletionChunk,
    Delta,
    TurnReport,
    counts_of,
    finish_reason_of,
)

logger = logging.getLogger("turnwise.http")

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Asked:
    """A completion that a client asked for: the turn, the model that it named, when it asked, in seconds since 1970,
    and what it calls the conversation, None if that is not kept."""

    requested: RequestedTurn
    model: str
    created: int
    conversation_id: str | None

    @property
    def completion_id(self) -> str:
        """The id of the completion: the same if the request is repeated."""
        return f"chatcmpl-{self.requested.request_id}"

    def report(self, turn: Turn) -> TurnReport:
        """Return what is told of the turn besides its text."""
        return TurnReport(conversation_id=self.conversation_id, turn=turn.data)


async def completion_of(asked: Asked) -> Completion:
    """Wait for the turn, and return it as a completion. Raises `OpenAiRefusal` if it failed, and what the engine
    raises."""
    texts: list[str] = []
    turn: Turn | None = None
    async with aclosing(spoken_turn(asked.requested, live=False)) as spoken:
        async for piece in spoken:
            if isinstance(piece, str):
                texts.append(piece)
            else:
                turn = piece
    assert turn is not None, "a spoken turn ends with the turn"
    if isinstance(turn, FailedTurn):
        raise _failed(turn)
    choice = Choice(message=AnswerMessage(content="".join(texts)), finish_reason=finish_reason_of(turn))
    return Completion(
        id=asked.completion_id,
        created=asked.created,
        model=asked.model,
        choices=[choice],
        usage=counts_of(turn.usage),
        turnwise=asked.report(turn),
    )


async def chunks_of(asked: Asked, *, usage: bool, at_end: Callable[[], Awaitable[None]]) -> AsyncIterator[bytes]:
    """Yield a completion as Server-Sent Events. `at_end` is awaited before the last one. An error in the middle is the
    last event, in the shape of the OpenAI API."""
    last = DONE
    try:
        async with aclosing(_chunks(asked, usage=usage)) as chunks:
            async for chunk in chunks:
                yield _event(chunk)
    except OpenAiRefusal as refusal:
        last = _event(error_answer(refusal.status, refusal.code, refusal.message))
    except TurnwiseError as error:
        last = _event(error_of(problem_of(error))[1])
    except Exception:
        logger.exception("A completion failed in the middle of its stream.")
        last = _event(error_of(http_problem("internal_error"))[1])
    await at_end()
    yield last


async def _chunks(asked: Asked, *, usage: bool) -> AsyncGenerator[CompletionChunk, None]:
    def chunk(delta: Delta) -> CompletionChunk:
        return _chunk(asked, [ChunkChoice(index=0, delta=delta, logprobs=None, finish_reason=None)])

    yield chunk(Delta(role="assistant", content=""))
    async with aclosing(spoken_turn(asked.requested, live=True)) as spoken:
        async for piece in spoken:
            if isinstance(piece, str):
                if piece:
                    yield chunk(Delta(content=piece))
                continue
            if isinstance(piece, FailedTurn):
                raise _failed(piece)
            choice = ChunkChoice(index=0, delta=Delta(), logprobs=None, finish_reason=finish_reason_of(piece))
            yield _chunk(asked, [choice]).model_copy(update={"turnwise": asked.report(piece)})
            if usage:
                yield _chunk(asked, []).model_copy(update={"usage": counts_of(piece.usage)})


def _chunk(asked: Asked, choices: list[ChunkChoice]) -> CompletionChunk:
    return CompletionChunk(
        id=asked.completion_id,
        object="chat.completion.chunk",
        created=asked.created,
        model=asked.model,
        choices=choices,
    )


def _failed(turn: FailedTurn) -> OpenAiRefusal:
    return OpenAiRefusal("turn_failed", turn.failure, status=502)


def _event(data: BaseModel) -> bytes:
    return data_line(data.model_dump(exclude_unset=True)) + b"\n"
