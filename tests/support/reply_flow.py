"""A model's web service for conversations under `reply_flow()`: it answers each kind of request by its own rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from .servers.openai_server import Body, OpenAiServer, Reply, says

CONTEXT, HISTORY = "Current context:", "Relevant conversation history:"


class ReplyFlowServer(OpenAiServer):
    """Chooses `profile` for each turn, names the `keywords` to search for, and answers the requests in the conversation
    by `answers`, in order."""

    def __init__(self, answers: Iterable[Reply], *, profile: str = "guide", keywords: Sequence[str] = ()) -> None:
        self.conversing: list[Body] = []
        self.choosing: list[Body] = []
        self.searching: list[Body] = []
        self._answers = iter(answers)
        self._profile = profile
        self._keywords = keywords
        super().__init__(self._answer)

    def _answer(self, body: Body) -> Reply:
        instruction = text_of(body["messages"][0])
        if '{"profile": ' in instruction:
            self.choosing.append(body)
            return says(json.dumps({"profile": self._profile}))
        if '{"keywords": ' in instruction:
            self.searching.append(body)
            return says(json.dumps({"keywords": self._keywords, "from": None, "to": None}))
        self.conversing.append(body)
        return next(self._answers)


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message, whether its content is a text, a list of parts or nothing."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def system_of(body: Body) -> str:
    """Return the system message of a request."""
    return text_of(body["messages"][0]) if body["messages"][0]["role"] == "system" else ""


def dialogue_of(body: Body) -> list[tuple[str, str]]:
    """Return the roles and texts behind the system message, without the note on the time and the place, and without
    what was recalled."""
    said = [(message["role"], without_context(text_of(message))) for message in body["messages"][1:]]
    return [(role, text) for role, text in said if text or role != "user"]


def recalled_of(body: Body) -> str:
    """Return what was recalled for a request, which stands at its end."""
    return text_of(body["messages"][-1]).partition(HISTORY)[2]


def without_context(text: str) -> str:
    """Return the text of a user without the note in front of it and what was recalled behind it."""
    said = text.partition("\n\n")[2] if text.startswith(CONTEXT) else text
    return said.partition(HISTORY)[0].rstrip()
