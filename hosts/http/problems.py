"""Refusals as RFC 9457 `application/problem+json`."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from ...states.errors import (
    CompactionFailed,
    ConfigurationError,
    EngineClosed,
    InvalidInput,
    Refused,
    StoreError,
    TurnwiseError,
    UnknownConversation,
)

_STATUS: Mapping[type[TurnwiseError], tuple[int, str]] = {
    InvalidInput: (422, "invalid_input"),
    UnknownConversation: (404, "unknown_conversation"),
    ConfigurationError: (422, "configuration"),
    CompactionFailed: (502, "compaction_failed"),
    StoreError: (503, "store_error"),
    EngineClosed: (503, "engine_closed"),
}
_REFUSED = {
    "storage": 503,
    "unknown_question": 422,
    "missing_answer": 422,
    "invalid_answer": 422,
    "unknown_profile": 422,
}
_PATHS = {404: "not_found", 405: "method_not_allowed"}


class Problem(BaseModel):
    """Why a request was refused, in one sentence; `code` is for programs."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    subject: str | None = None


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of these refusals for a route. `Pure.`"""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def _answer(status: int, code: str, sentence: str, **more: Any) -> JSONResponse:
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=sentence, code=code, **more)
    content = problem.model_dump(exclude_none=True)
    return JSONResponse(content, status, media_type="application/problem+json")


def _of_turnwise(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TurnwiseError)
    if isinstance(error, Refused):
        return _answer(_REFUSED.get(error.code, 409), error.code, error.sentence, subject=error.subject or None)
    status, code = next((found for kind, found in _STATUS.items() if isinstance(error, kind)), (500, "internal_error"))
    return _answer(status, code, error.sentence)


def _of_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _answer(error.status_code, _PATHS.get(error.status_code, "internal_error"), str(error.detail))


def _of_validation(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fault = error.errors()[0]
    if fault["type"] == "json_invalid":
        return _answer(400, "malformed_json", "The body is not JSON.")
    where = ".".join(str(part) for part in fault["loc"][1:])
    return _answer(422, "invalid_input", f"{where}: {fault['msg']}.")


def _of_permission(request: Request, error: Exception) -> JSONResponse:
    return _answer(401, "unauthorized", "The caller is not known.")


def install_problems(app: FastAPI) -> None:
    """Answer every error with a problem."""
    app.add_exception_handler(TurnwiseError, _of_turnwise)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(PermissionError, _of_permission)
