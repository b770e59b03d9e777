"""How a tool function asks a person while it runs, and waits for the answer.

The function may be a coroutine of the engine's event loop, or run in a thread of its own. It waits for a future, which
the performer of the tool settles when the person has acted. Several questions of one call are asked one after the
other.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from ...states.values.questions import Annotation, QuestionSet, UserQuestion
from ..redact import unchanged
from .question import Question
from .tool_error import ToolError

IS_OVER = "The call is over, so it cannot ask any more."


@dataclass(frozen=True)
class Answers:
    """What came of asking a person, who has answered, has declined, or did nothing until the deadline of the question.
    Only with the `action` "answered" there are `answers`.

    They are given by the text of the question: a text, or a list of texts where several options may be chosen.
    `annotations` are what the person noted beside them.
    """

    action: Literal["answered", "declined", "unanswered"]
    answers: Mapping[str, str | list[str]] = field(default_factory=dict)
    annotations: Mapping[str, Annotation] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Answers:
        """The answers in this JSON text, which the event of the answer holds. `Pure.`"""
        written = json.loads(text)
        notes = _ANNOTATIONS.validate_python(written.get("annotations", {}))
        return cls("answered", written["answers"], notes)

    def by_texts(self, texts: Mapping[str, str]) -> Answers:
        """These answers by other texts of the questions, given those that they have now. `Pure.`"""
        answers = {texts.get(text, text): answer for text, answer in self.answers.items()}
        annotations = {texts.get(text, text): noted for text, noted in self.annotations.items()}
        return Answers(self.action, answers, annotations)


_ANNOTATIONS: TypeAdapter[dict[str, Annotation]] = TypeAdapter(dict[str, Annotation])


@dataclass(frozen=True, eq=False)
class _Asked:
    questions: QuestionSet
    reply: Future[Answers]


class Asking:
    """The questions that one call asks. Made in the event loop of the engine; `ask` and `ask_blocking` may be called
    from anywhere."""

    def __init__(self, refusal: str | None = None) -> None:
        self._refusal = refusal
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Asked] = deque()
        self._open: _Asked | None = None
        self._is_over = False
        self.is_waiting = None if refusal is not None else self._loop.create_future()
        """Done when a question waits to be taken; None where nothing may be asked."""

    # --- for the function

    async def ask(self, questions: Iterable[UserQuestion | Mapping[str, Any]]) -> Answers:
        """Ask, and wait for what the person does."""
        return await asyncio.wrap_future(self._ask(questions))

    def ask_blocking(self, questions: Iterable[UserQuestion | Mapping[str, Any]]) -> Answers:
        """Ask, and block the calling thread until the person has acted."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._ask(questions).result()
        raise RuntimeError("ask_blocking would block an event loop: await ask instead")

    def _ask(self, questions: Iterable[UserQuestion | Mapping[str, Any]]) -> Future[Answers]:
        if self._refusal is not None:
            raise ToolError(self._refusal)
        asked = _Asked(Question(questions).questions, Future())  # type: ignore[arg-type]
        self._loop.call_soon_threadsafe(self._add, asked)
        return asked.reply

    # --- for whoever runs the function

    def _add(self, asked: _Asked) -> None:
        if self._is_over:
            if asked.reply.set_running_or_notify_cancel():
                asked.reply.set_exception(ToolError(IS_OVER))
        else:
            self._waiting.append(asked)
            if self.is_waiting is not None and not self.is_waiting.done():
                self.is_waiting.set_result(None)

    def take_next(self) -> QuestionSet | None:
        """Return the next question to ask a person; None if the function no longer waits for any."""
        while self._waiting:
            self._open = self._waiting.popleft()
            if not self._open.reply.cancelled():
                return self._open.questions
        self.is_waiting = self._loop.create_future()
        return None

    def reply(self, answers: Answers, redact: Callable[[str], str] = unchanged) -> None:
        """Pass on what came of the questions that were taken last, if the function still waits for it. The person saw
        the questions as `redact` leaves them; the function gets the answers by its own texts."""
        if self._open is not None and self._open.reply.set_running_or_notify_cancel():
            own_texts = {redact(asked.question): asked.question for asked in self._open.questions}
            self._open.reply.set_result(answers.by_texts(own_texts))
        self._open = None

    def close(self) -> None:
        """Ask nothing more. Whoever waits for an answer is cancelled."""
        self._is_over = True
        for asked in (self._open, *self._waiting):
            if asked is not None:
                asked.reply.cancel()
