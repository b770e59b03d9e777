"""What a tool function may know about the call that it serves, and what it may do meanwhile.

It may ask a person while it runs, and wait for the answer. The function may be a coroutine of the engine's event
loop, or run in a thread of its own. It waits for a future, which the performer of the tool settles when the person
has acted. Several questions of one call are asked one after the other.

It may show its progress. What a conversation shows belongs to the event loop, so a line is shown there, whether it
comes from a thread or from a coroutine function.

And it may raise a `ToolError`, to say something to the model, or return a `Question`, to ask the user and end.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ...states.errors import InvalidInput
from ...states.values.acts import ActKind
from ...states.values.questions import Annotation, QuestionSet, UserQuestion
from ...states.values.value import adapter_of, encodable
from ..agents import Agents, ReachableAgents
from ..context import EffectContext, unchanged
from ..recall.search import ConversationMemory, ConversationSearch
from ..shown_results import StoredResults

_IS_OVER = "The call is over, so it cannot ask any more."


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
        notes = adapter_of(dict[str, Annotation]).validate_python(written.get("annotations", {}))
        return cls("answered", written["answers"], notes)

    def by_texts(self, texts: Mapping[str, str]) -> Answers:
        """These answers by other texts of the questions, given those that they have now. `Pure.`"""
        answers = {texts.get(text, text): answer for text, answer in self.answers.items()}
        annotations = {texts.get(text, text): noted for text, noted in self.annotations.items()}
        return Answers(self.action, answers, annotations)


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
                asked.reply.set_exception(ToolError(_IS_OVER))
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


_NOTHING_NOTED: Mapping[str, Any] = MappingProxyType({})
"""What an application has noted about most conversations."""

_NOBODY_TO_ASK = "Nobody can be asked here."


@dataclass(frozen=True)
class ToolContext:
    """The argument for a parameter of this type, which the model neither sees nor fills.

    `key` is `<conversation id>/<effect id>/<mark>` and stays the same when the call is run again after a crash. No call
    of another conversation ever has it, also not one that was created under the same id, in another database or from a
    backup. A tool that acts on the world passes it on as its idempotency key. If a person decides that a call in doubt
    is to run again, that run has a key of its own. `progress` shows a line to everybody who watches the conversation;
    it may be called from any thread, and raises `InvalidInput` for what has no text. `metadata` is what the application
    noted about the conversation, as of the step that asked for the call; it cannot be changed here. `memory` searches
    older conversations of the same owner; it is None where there is no such search. `agents` finds the agents that this
    one may write to; it is None where there are none. `results` reads the results of earlier calls. `asking` serves
    `ask`.
    """

    conversation_id: str
    key: str
    call_id: str
    progress: Callable[[str], None]
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING_NOTED, hash=False)
    memory: ConversationMemory | None = field(default=None, compare=False, repr=False)
    agents: ReachableAgents | None = field(default=None, compare=False, repr=False)
    results: StoredResults | None = field(default=None, compare=False, repr=False)
    asking: Asking | None = field(default=None, repr=False, compare=False)

    async def ask(self, questions: Iterable[UserQuestion | Mapping[str, Any]]) -> Answers:
        """Ask the user, and go on when the user has answered, declined, or done nothing until the policy's deadline.

        The conversation rests in `AwaitingUserResponse` meanwhile, and the timeout of the tool does not run. If the
        process dies, the call is interrupted, and the crash contract of the tool decides whether it runs again and asks
        again. If the turn is cancelled, so is the call. A call may ask several times.

        Only a tool that is declared `exclusive` may ask: in the call of another one this raises `ToolError`, which the
        model reads. So it does when the call is over. Raises `pydantic.ValidationError` for questions that do not
        follow the rules for questions.
        """
        return await self._asking.ask(questions)

    def ask_blocking(self, questions: Iterable[UserQuestion | Mapping[str, Any]]) -> Answers:
        """Ask as `ask` does, in a plain function, whose thread is blocked until the user has acted. If the call is
        stopped meanwhile, this raises `concurrent.futures.CancelledError`."""
        return self._asking.ask_blocking(questions)

    @property
    def _asking(self) -> Asking:
        if self.asking is None:
            raise ToolError(_NOBODY_TO_ASK)
        return self.asking


def tool_context_of(
    call_id: str,
    context: EffectContext,
    effect_id: int,
    started_as: int,
    search: ConversationSearch | None = None,
    agents: Agents | None = None,
) -> ToolContext:
    """The context for a function that serves this call as the effect `effect_id`.

    `started_as` is the effect as which the call was first started; it is another one if a crash lies between, or if the
    call has asked a person.
    """

    def progress(text: str) -> None:
        context.progress(effect_id, "tool_progress", {"call_id": call_id, "text": text})

    return ToolContext(
        conversation_id=context.conversation_id,
        key=context.key(started_as),
        call_id=call_id,
        progress=progress,
        metadata=MappingProxyType(deepcopy(noted)) if (noted := context.context.metadata) else _NOTHING_NOTED,
        memory=None if search is None else ConversationMemory(search, context),
        agents=None if agents is None else ReachableAgents(context.conversation_id, agents),
        results=StoredResults(context),
    )


class ToolError(Exception):
    """Raise it in a tool to tell the model why the call failed, in these words.

    The model reads the message as the result of the call, which is an error. Of any other exception it reads only the
    class, because the message may hold what is not meant for it.
    """


@pydantic_dataclass(frozen=True, config=ConfigDict(hide_input_in_errors=True, defer_build=True))
class Question:
    """Ask the user and wait. The answers become the result of the call.

    Raises `pydantic.ValidationError` for questions that do not follow the rules for questions.
    """

    kind: ClassVar[ActKind] = "question"

    questions: QuestionSet


_NO_TEXT = "What a tool shows of its progress must be readable as text."


class Progress:
    """Forwards progress from any thread to the event loop in which this is made, until the call is over.

    Set `show`, which shows a line, before the function begins.
    """

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        self.show = show
        self._loop = asyncio.get_running_loop()
        self._is_over = False

    def __call__(self, line: object) -> None:
        """Show the line soon. Raises `InvalidInput` for one that has no text: here, where the tool reports it, because
        an error in the event loop would be nobody's."""
        try:
            text = encodable(str(line))  # a tool may report a number
        except Exception as error:
            raise InvalidInput(_NO_TEXT) from error
        self._loop.call_soon_threadsafe(self._forward, text)

    def close(self) -> None:
        """Show nothing more: the call is over."""
        self._is_over = True

    def _forward(self, line: str) -> None:
        if self.show is not None and not self._is_over:
            self.show(line)
