"""Answers errors that nobody raised on purpose, without a word of what they say.

Starlette would answer them in plain text and raise them again, and the server would then write them to its log with
their text, which may quote a conversation.
"""

from __future__ import annotations

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..problems import ProblemResponse, http_problem

logger = logging.getLogger("turnwise.http")


class UnexpectedErrors:
    """Middleware that answers an unexpected error with the problem `internal_error`, and logs where it arose."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. An error after the response has begun is raised again, so that the server ends the
        connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = False

        async def noted(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            if began:
                raise
            logger.error("A request failed unexpectedly with %s, raised in %s.", type(error).__name__, origin(error))
            logger.debug("The request was %s %r.", scope["method"], scope["path"], exc_info=error)
            await ProblemResponse(http_problem("internal_error"))(scope, receive, send)


def origin(error: BaseException) -> str:
    """Return the module and the line that raised an error. `Pure.`"""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
