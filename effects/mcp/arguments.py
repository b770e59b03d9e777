"""The arguments of a tool of a server, which describes them by a JSON schema of its own.

The schema goes to the model unchanged. A server that the application does not trust could write a regular expression
that takes hours to check, and every conversation of the process would wait. So its patterns are left to the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tools.arguments.schema_arguments import SchemaArguments
from ..tools.context import ToolContext


class McpArguments(SchemaArguments):
    """The arguments of a call as one object, beside the context of the call.

    Raises ConfigurationError for a schema that is invalid, does not describe an object or refers to another document.
    """

    def __init__(self, name: str, schema: Mapping[str, Any], *, checks_patterns: bool) -> None:
        def takes_anything(**arguments: Any) -> None:
            """Stand for the server, which takes whatever its schema allows."""

        takes_anything.__name__ = name
        super().__init__(takes_anything, schema, checks_patterns=checks_patterns)

    @property
    def takes_context(self) -> bool:
        """Always: the server may ask the user, and report progress."""
        return True

    def read(self, text: str, context: ToolContext) -> dict[str, Any]:
        """The arguments under `arguments`, and the context under `context`. Raises InvalidArguments."""
        return {"arguments": self.values(text), "context": context}
