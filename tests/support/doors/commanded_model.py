"""A model that does what the user's last message says, so that one server serves many tests.

"say X" answers X; "think X" thinks before it does; "speak X" says X by tool; "ask", "ask two" and "ask many" ask
questions; "look X" writes a text and calls a tool; "book X" calls a tool that needs approval; "fail" fails; "wait X"
begins to answer, and goes on when `release` is called; "break off X" does so too, and then fails once; "recall" says
which messages it was sent, and "settings" with which parameters. After results of tools it says what they returned.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from turnwise import tool
from turnwise.effects.model.port import LlmFailure, ModelAnswer, ModelRequest, Token
from turnwise.states import Usage
from turnwise.testing import call, calls, failure, reply

AIRPORT = {"question": "Which airport?", "options": [{"label": "Haneda"}, {"label": "Narita", "description": "far"}]}
CLASS = {"question": "Which class?", "options": [{"label": "Economy"}, {"label": "Business"}]}
MEALS = {"question": "Which meals?", "multiSelect": True, "options": [{"label": "Fish"}, {"label": "Rice"}]}

USAGE = Usage(input_tokens=7, output_tokens=3)


@tool(crash="pure")
async def look(place: str) -> str:
    """Look something up."""
    return f"found {place}"


@tool(approval=True)
async def book(place: str) -> str:
    """Book something."""
    return f"booked {place}"


class CommandedLlm:
    """The model. `cancelled` counts requests that were cancelled."""

    def __init__(self, name: str = "commanded") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self.cancelled = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._broken: set[str] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether a request waits for `release`."""
        return bool(self._waiting)

    def release(self) -> None:
        """Answer the requests that wait; from any thread."""
        for loop, released in self._waiting:
            loop.call_soon_threadsafe(released.set)

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Do what the last message says."""
        self.requests.append(request)
        last = request.messages[-1]
        if last["role"] == "tool":
            return self._shown(reply(f"The tool said: {last['content']}", usage=USAGE), show)
        said = _text(last["content"])
        command = next((name for name in sorted(_COMMANDS, key=len, reverse=True) if said.startswith(name)), "say")
        answer: Any = _COMMANDS[command](self, said.removeprefix(command).strip(), request, show)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, LlmFailure):
            raise answer
        made: ModelAnswer = answer
        return self._shown(made, show, "Wait" if command == "wait" else "")

    def _shown(self, answer: ModelAnswer, show: Callable[[Token], None], before: str = "") -> ModelAnswer:
        """Show what is not shown yet of an answer, line by line."""
        if answer.thinking:
            show(Token(answer.thinking, "thinking"))
        for piece in answer.content.removeprefix(before).splitlines(keepends=True):
            show(Token(piece))
        return answer

    async def _break_off(self, said: str, request: ModelRequest, show: Callable[[Token], None]) -> Any:
        if said in self._broken:
            return reply(f"Now whole: {said}", usage=USAGE)
        self._broken.add(said)
        show(Token("Half an"))
        await self._released()
        return failure("server_error")

    async def _wait(self, said: str, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        show(Token("Wait"))
        await self._released()
        return reply(f"Waited {said}")

    async def _released(self) -> None:
        """Wait for `release`."""
        waiting = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.append(waiting)
        try:
            await waiting[1].wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self._waiting.remove(waiting)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "[image]") for part in content)


def _asking(*questions: Any) -> ModelAnswer:
    return call("ask_user_question", questions=list(questions))


_COMMANDS: dict[str, Callable[[CommandedLlm, str, ModelRequest, Any], Any]] = {
    "say": lambda self, said, request, show: reply(said, usage=USAGE),
    "ask": lambda self, said, request, show: _asking(AIRPORT),
    "ask two": lambda self, said, request, show: _asking(AIRPORT, CLASS),
    "ask many": lambda self, said, request, show: _asking(MEALS),
    "look": lambda self, said, request, show: calls(call("look", place=said or "Rome"), text="Let me look."),
    "book": lambda self, said, request, show: call("book", place=said or "Rome"),
    "think": lambda self, said, request, show: reply(said, thinking="Hmm.", usage=USAGE),
    "speak": lambda self, said, request, show: call("respond_to_user", text=said),
    "break off": CommandedLlm._break_off,
    "fail": lambda self, said, request, show: failure("invalid_request", "The provider refused."),
    "wait": CommandedLlm._wait,
    "recall": lambda self, said, request, show: reply(json.dumps([m["role"] for m in request.messages])),
    "settings": lambda self, said, request, show: reply(json.dumps(request.settings.model_dump(exclude_none=True))),
}
