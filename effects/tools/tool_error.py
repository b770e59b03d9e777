"""The error by which a tool says something to the model."""

from __future__ import annotations


class ToolError(Exception):
    """Raise it in a tool to tell the model why the call failed, in these words.

    The model reads the message as the result of the call, which is an error. Of any other exception it reads only the
    class, because the message may hold what is not meant for it.
    """
