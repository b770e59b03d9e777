"""Models that answer what a test tells them to: doubles of the `Llm` port.

llm = ScriptedLlm([call("find_table", party=2), reply("Table 4 is free.")])
async with Engine.open("sqlite://", model=llm, tools=[find_table]) as engine: ...
llm.assert_finished()
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..states.values.messages import Usage
from ..states.values.value import FailureKind

if TYPE_CHECKING:
    from ..effects.model.port import LlmFailure, ModelAnswer, ModelRequest, Purpose, Token


def reply(text: str, *, thinking: str = "", finish_reason: str = "stop", usage: Usage | None = None) -> ModelAnswer:
    """An answer with a text."""
    from ..effects.model.port import ModelAnswer

    return ModelAnswer(content=text, thinking=thinking, finish_reason=finish_reason, usage=usage or Usage())


def call(tool_name: str, /, **arguments: Any) -> ModelAnswer:
    """An answer that calls one tool."""
    from ..effects.model.port import ModelAnswer, ModelCall

    made = ModelCall(id="call_0", name=tool_name, arguments=json.dumps(arguments, ensure_ascii=False))
    return ModelAnswer(tool_calls=(made,), finish_reason="tool_calls")


def calls(*answers: ModelAnswer, text: str = "") -> ModelAnswer:
    """An answer with the calls of all these answers, and a text if one is given."""
    from ..effects.model.port import ModelAnswer

    made = tuple(made for answer in answers for made in answer.tool_calls)
    return ModelAnswer(content=text, tool_calls=made, finish_reason="tool_calls")


def verdict(passed: bool, reason: str = "", missing: Iterable[str] = ()) -> ModelAnswer:
    """The answer to a request that checks whether the work is complete: whether it is, why it is not, and what is
    missing."""
    return reply(json.dumps({"passed": passed, "reason": reason, "missing": list(missing)}, ensure_ascii=False))


def failure(kind: FailureKind, sentence: str = "The model failed.", *, retry_after: float | None = None) -> LlmFailure:
    """A failure of the request; `retry_after` is in seconds."""
    from ..effects.model.port import LlmFailure

    return LlmFailure(kind, sentence, retry_after)


class FunctionLlm:
    """A model that is a function of the request, which has `.messages`, `.tools` and so on.

    The function returns an answer, a failure, or a text. It may be a coroutine function, so that a test can hold an
    answer back. `requests` are the requests so far.
    """

    def __init__(self, function: Callable[[ModelRequest], Any], *, name: str = "function") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._function = function

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer the request. A text is shown as one token before it is returned."""
        from ..effects.model.port import LlmFailure, Token

        self.requests.append(request)
        answer: Any = self._function(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, LlmFailure):
            raise answer
        if isinstance(answer, str):
            answer = reply(answer)
        if answer.content:
            show(Token(answer.content))
        made: ModelAnswer = answer
        return made


class ScriptedLlm(FunctionLlm):
    """A model that gives these answers (or failures, or texts), one to a request, in this order.

    Every request takes one: those of the conversation itself and of its sub-agents, the check whether the work is
    complete (answer it with `verdict`), and summaries. A request for which no answer is left fails. Call
    `assert_finished` at the end of a test: it raises if that happened, or if answers are left.
    """

    def __init__(self, answers: Iterable[ModelAnswer | LlmFailure | str | Awaitable[Any]], *, name: str = "scripted"):
        super().__init__(self._next, name=name)
        self._answers = list(answers)
        self._unexpected: list[str] = []

    def assert_finished(self) -> None:
        """Raise AssertionError if a request found no answer, or if an answer was not used."""
        assert not self._unexpected, " ".join(self._unexpected)
        assert not self._answers, f"{len(self._answers)} answers of the script were never used"

    def _next(self, request: ModelRequest) -> Any:
        if not self._answers:
            self._unexpected.append(_unanswered(request, len(self.requests)))
            return failure("internal", self._unexpected[-1])
        return self._answers.pop(0)


def _unanswered(request: ModelRequest, number: int) -> str:
    return f"The script has no answer to request {number}, {_WANTED[request.purpose]}."


_WANTED: Mapping[Purpose, str] = {
    "converse": "the next answer in the conversation",
    "check": "the check of a claim that the work is complete",
    "summarize": "the summary of a turn for display",
    "condense": "the summary in place of what no longer fits the window",
    "reword": "words for a voice",
}
