"""Asks the user what a server wants to know while one of its tools runs.

The protocol calls this elicitation. The call waits in the conversation until the user has answered or declined; if the
process dies meanwhile, the crash contract of the tool decides about the call. A server may also ask the user to open a
web page; the address is then part of a question, and nothing is opened by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import mcp_types
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitRequestURLParams, ElicitResult
from pydantic import ValidationError

from ...states.errors import ConfigurationError
from ...states.values.questions import MAX_QUESTIONS, QuestionOption, UserQuestion
from ...states.values.value import encodable, shortened
from ..logs import performer_logger
from ..tools.context import ToolContext
from ..tools.tool_error import ToolError
from .form import MAX_TEXT, Answer, Content, Field, InvalidAnswer, fields_of

MAX_ATTEMPTS = 3
"""How often a question is asked whose answer does not fit."""

ACCEPT, DECLINE = "Yes", "No"

_LOGGER = performer_logger("turnwise.mcp")


class NotOffered(Exception):
    """A server asks for something that it was not told it may ask for, such as a completion of a model."""


class _NotAnswered(Exception):
    """The user declined, or did not answer in time. `result` tells the server."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.result = ElicitResult(action="decline" if action == "declined" else "cancel")


class Asker:
    """Asks the user on behalf of one call of a server's tool. `may_ask` is false for a call that does not run alone."""

    def __init__(self, server: str, context: ToolContext, may_ask: bool) -> None:
        self._server = server
        self._context = context
        self._may_ask = may_ask
        self._asking: set[asyncio.Task[ElicitResult]] = set()

    async def ask(self, params: ElicitRequestParams) -> ElicitResult:
        """Return the answer in the form that the server wants, or a result that says that nobody answered. The question
        is asked in a task of its own, which ends with the call."""
        task = asyncio.create_task(self._ask(params))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:  # the server no longer wants to know
            task.cancel()
            raise
        return ElicitResult(action="cancel") if task.cancelled() else task.result()

    def close(self) -> None:
        """Stop asking: the call is over."""
        for task in self._asking:
            task.cancel()

    async def _ask(self, params: ElicitRequestParams) -> ElicitResult:
        if not self._may_ask:
            _LOGGER.warning("%s wants to ask the user in a call that may not ask", self._server)
            return ElicitResult(action="cancel")
        try:
            if isinstance(params, ElicitRequestURLParams):
                return await self._confirm(f"{self._introduction(params)}\n{shortened(params.url, MAX_TEXT)}", params)
            return await self._fill_in(params)
        except _NotAnswered as unanswered:
            return unanswered.result
        except ToolError as error:  # nobody can be asked here
            _LOGGER.warning("%s asks, but %s", self._server, error)
            return ElicitResult(action="cancel")
        except (ConfigurationError, ValidationError):
            _LOGGER.warning("%s asks in a form that nobody can fill in", self._server)
            return ElicitResult(action="cancel")

    async def _fill_in(self, params: ElicitRequestFormParams) -> ElicitResult:
        fields = fields_of(params.requested_schema)
        introduction = self._introduction(params)
        if not fields:
            return await self._confirm(introduction, params)
        content: Content = {}
        for first in range(0, len(fields), MAX_QUESTIONS):
            content |= await self._ask_fields(introduction, fields[first : first + MAX_QUESTIONS])
        return ElicitResult(action="accept", content=content)

    async def _ask_fields(self, introduction: str, fields: Sequence[Field]) -> Content:
        """Ask for these fields together, and again for those whose answers do not fit."""
        content: Content = {}
        left, faults = list(fields), dict[str, str]()
        for _ in range(MAX_ATTEMPTS):
            questions = [
                field.question(introduction if not place else f"{self._server}:", faults.get(field.name, ""))
                for place, field in enumerate(left)
            ]
            answers = await self._answers(questions)
            faults = {}
            for field, question in zip(left, questions, strict=True):
                try:
                    content |= field.value(answers[question.question])
                except InvalidAnswer as invalid:
                    faults[field.name] = invalid.sentence
            left = [field for field in left if field.name in faults]
            if not left:
                return content
        raise _NotAnswered("unanswered")

    async def _confirm(self, text: str, params: ElicitRequestParams) -> ElicitResult:
        """Ask for consent alone."""
        options = (QuestionOption(label=ACCEPT), QuestionOption(label=DECLINE))
        answers = await self._answers([UserQuestion(question=text, options=options)])
        is_accepted = str(answers[text]).strip().casefold() == ACCEPT.casefold()
        has_content = is_accepted and not isinstance(params, ElicitRequestURLParams)
        return ElicitResult(action="accept" if is_accepted else "decline", content={} if has_content else None)

    async def _answers(self, questions: Sequence[UserQuestion]) -> dict[str, Answer]:
        """The answers by the texts of their questions. Raises _NotAnswered."""
        answers = await self._context.ask(questions)
        if answers.action != "answered":
            raise _NotAnswered(answers.action)
        return dict(answers.answers)

    def _introduction(self, params: ElicitRequestParams) -> str:
        return encodable(f"{self._server}: {shortened(params.message, MAX_TEXT)}")


async def answer_requests(requests: mcp_types.InputRequests, asker: Asker) -> dict[str, mcp_types.InputResponse]:
    """The answers to what a server needs before it can go on, one after the other. Raises `NotOffered` for what is not
    asked of a user."""
    answers: dict[str, mcp_types.InputResponse] = {}
    for key, request in requests.items():
        if not isinstance(request, mcp_types.ElicitRequest):
            raise NotOffered(request.method)
        answers[key] = await asker.ask(request.params)
    return answers
