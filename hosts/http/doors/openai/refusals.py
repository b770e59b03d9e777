"""Refusals in the words of the OpenAI API: a message, a type, the parameter at fault and a code."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.responses import Response

from ...problems import Problem

RETRIED = frozenset({"busy", "storage", "store_error", "engine_closed", "server_stopping", "too_many_connections"})
"""The codes of refusals that may pass by themselves. Clients of the OpenAI API send every 409 and 5xx again unless the
header `x-should-retry` says otherwise."""

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class ErrorBody(BaseModel):
    """What was wrong, as one sentence and for programs."""

    message: str
    type: str
    param: str | None = Field(default=None, description="The parameter of the request that was at fault.")
    code: str | None = Field(default=None, description="The same codes as in the problems of the other endpoints.")


class ErrorAnswer(BaseModel):
    """An error in the shape of the OpenAI API."""

    error: ErrorBody


class OpenAiRefusal(Exception):
    """A refusal that only this door knows. `param` names the parameter of the request that is at fault."""

    def __init__(self, code: str, message: str, param: str | None = None, *, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.status = status


def error_of(problem: Problem) -> tuple[int, ErrorAnswer]:
    """Return the status and the body of a problem in this API, where invalid input is always a 400. `Pure.`"""
    status = 400 if problem.status == 422 else problem.status
    return status, error_answer(status, problem.code, problem.detail, problem.subject)


def error_answer(status: int, code: str, message: str, param: str | None = None) -> ErrorAnswer:
    """Return the body of a refusal. `Pure.`"""
    kind = "server_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    return ErrorAnswer(error=ErrorBody(message=message, type=kind, param=param, code=code))


def retry_header(code: str) -> dict[str, str]:
    """Return the header that tells a client whether to send the request again by itself. `Pure.`"""
    return {"x-should-retry": "true" if code in RETRIED else "false"}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return how a route of this door declares these refusals. `Pure.`"""
    return {status: {"model": ErrorAnswer} for status in statuses}


class OpenAiRoute(APIRoute):
    """A route whose own refusals have the shape of the OpenAI API."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of this route, with an answer to each `OpenAiRefusal`."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except OpenAiRefusal as refusal:
                body = error_answer(refusal.status, refusal.code, refusal.message, refusal.param)
                return JSONResponse(body.model_dump(), refusal.status, retry_header(refusal.code))

        return answer
