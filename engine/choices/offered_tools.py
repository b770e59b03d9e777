"""The tools of an engine as an application shows them to people who choose among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...effects.tools.registry import ToolRegistry


@dataclass(frozen=True)
class OfferedTool:
    """A tool that conversations may choose by its `name`. `description` is written for the model, and `parameters` is
    the JSON schema of the arguments."""

    name: str
    description: str
    parameters: dict[str, Any]

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


def offered_tools(registry: ToolRegistry) -> tuple[OfferedTool, ...]:
    """Return all tools of this registry, in the order in which they were given."""
    functions = (definition["function"] for definition in registry.definitions())
    return tuple(OfferedTool(one["name"], one.get("description", ""), one["parameters"]) for one in functions)
