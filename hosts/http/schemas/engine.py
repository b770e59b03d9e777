"""What an engine offers to conversations, and what the server offers beside them."""

from __future__ import annotations

from typing import Any, Literal, Self

from ....engine.choices import OfferedTool
from .body import Answer, Body


class ShownTool(Answer):
    """A tool that conversations may choose. `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]

    @classmethod
    def of(cls, tool: OfferedTool) -> Self:
        """Return a tool as clients read it."""
        return cls(**tool.data)


class ToolsAnswer(Answer):
    """The tools that conversations may choose."""

    tools: list[ShownTool]


class ModelsAnswer(Answer):
    """The names of the models that conversations may choose. Those that choose none ask the first one."""

    models: list[str]


class PermissionsAnswer(Answer):
    """Whose conversations the caller sees, null for those of everybody, and the names of what the caller may do with
    them."""

    owner: str | None
    permissions: list[str]


class Health(Answer):
    """The server answers, and its engine is open."""

    status: Literal["ok"]


class GivenToken(Body):
    """The token of the server."""

    token: str
