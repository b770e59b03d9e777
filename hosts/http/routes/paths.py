"""How paths name a conversation. The id of a sub-agent is that of its parent, a number and a mark, behind slashes."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class ConversationIdConvertor(Convertor[str]):
    """Takes an id in a path, with the slashes of a sub-agent's id."""

    regex = "[^/]+(?:/[0-9]+(?:/[0-9a-f]{12})?)*"

    def convert(self, value: str) -> str:
        """Return the id as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Return the id as it is."""
        return value


register_url_convertor("conversation_id", ConversationIdConvertor())

CONVERSATION = "/conversations/{conversation_id:conversation_id}"
"""The path of a conversation."""
