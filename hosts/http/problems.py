"""Refusals as clients read them: problem details for HTTP APIs (RFC 9457), with a code for programs and a sentence for
people.

Everything that refuses a request (the engine, a guard, the validation of a body, the router, an error in the program
itself) answers in this one form. The table from errors to statuses stands here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Literal, get_args

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ...states.errors import (
    CannotForkThere,
    CompactionFailed,
    ConfigurationError,
    EngineClosed,
    InvalidInput,
    NoOutput,
    RefusalCode,
    Refused,
    StoreError,
    TurnwiseError,
    UnknownConversation,
)
from ...states.values.value import MAX_QUOTED, encodable, shortened

MEDIA_TYPE = "application/problem+json"

HttpCode = Literal[
    "malformed_request",
    "malformed_json",
    "unauthorized",
    "forbidden",
    "forbidden_host",
    "forbidden_origin",
    "not_found",
    "method_not_allowed",
    "timeout",
    "too_large",
    "unsupported_media_type",
    "range_not_satisfiable",
    "invalid_input",
    "too_many_attempts",
    "internal_error",
]
"""The codes of refusals that concern the request as HTTP."""

_HTTP: dict[HttpCode, tuple[int, str]] = {
    "malformed_request": (400, "The request is not valid HTTP."),
    "malformed_json": (400, "The body is not valid JSON in UTF-8."),
    "unauthorized": (401, "A valid bearer token or session is needed."),
    "forbidden": (403, "This is not allowed."),
    "forbidden_host": (403, "This server does not answer to the host name of the request."),
    "forbidden_origin": (403, "Pages of this origin may not use this server."),
    "not_found": (404, "There is nothing at this path."),
    "method_not_allowed": (405, "This path does not support the method of the request."),
    "timeout": (408, "The request did not arrive in time."),
    "too_large": (413, "The body is too large."),
    "unsupported_media_type": (415, "The body must be of the type application/json."),
    "range_not_satisfiable": (416, "The file has no such bytes."),
    "invalid_input": (422, "The request is not valid."),
    "too_many_attempts": (429, "Too many wrong tokens came from this address; the right one is still taken."),
    "internal_error": (500, "An unexpected error occurred."),
}

_REFUSED: dict[RefusalCode, int] = {
    "unknown_question": 422,
    "missing_answer": 422,
    "invalid_answer": 422,
    "unknown_profile": 422,
    "unknown_message": 422,
    "unknown_turn": 422,
    "unknown_branch": 422,
    "storage": 503,
}
"""The statuses of refusals that are not about the state of the conversation. All others are 409."""

_STATUSES: tuple[tuple[type[TurnwiseError], int, str], ...] = (
    (CannotForkThere, 422, "cannot_fork_there"),
    (InvalidInput, 422, "invalid_input"),
    (UnknownConversation, 404, "unknown_conversation"),
    (ConfigurationError, 422, "configuration"),
    (CompactionFailed, 502, "compaction_failed"),
    (NoOutput, 502, "no_output"),
    (StoreError, 503, "store_error"),
    (EngineClosed, 503, "engine_closed"),
)

_CODES: dict[int, HttpCode] = {
    400: "malformed_json",  # raised by FastAPI for a body that it cannot parse
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_input",
}
"""What the exceptions of Starlette and FastAPI mean, by their status."""


SignIn = Literal["token", "application"]
"""Who knows callers: the server itself, by its token, or the application that it is a part of, by its users."""


class Problem(BaseModel):
    """Why a request was refused. Nothing was stored unless the description of the endpoint says otherwise."""

    type: str = Field(default="about:blank", description="The problem has no page of its own; `code` tells it apart.")
    title: str = Field(description="The phrase of the status.")
    status: int = Field(description="The status of the response.")
    detail: str = Field(description="One sentence for people.")
    code: str = Field(description="A stable code for programs.")
    subject: str | None = Field(default=None, description="What the refusal is about, where there is such a thing.")
    steps: tuple[int, ...] | None = Field(
        default=None, description="The nearest steps that are possible, where the step of the request is not."
    )
    sign_in: SignIn | None = Field(
        default=None, description="By what a caller becomes known, with the status 401: the token, or the application."
    )
    login_url: str | None = Field(
        default=None, description="Where people sign in to the application, if it says so; relative to the page."
    )


class HttpError(Exception):
    """A refusal that concerns the request as HTTP. `sentence` replaces that of the code."""

    def __init__(
        self,
        code: HttpCode,
        sentence: str = "",
        *,
        subject: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(sentence or _HTTP[code][1])
        self.problem: Problem = http_problem(code, sentence, subject)
        self.headers: dict[str, str] = dict(headers or {})


class UnknownCaller(HttpError):
    """The application, which has users of its own, does not know the caller. No token helps: people sign in at
    `login_url`, if the application has said where that is."""

    def __init__(self, login_url: str | None = None) -> None:
        super().__init__("unauthorized", "The application does not know the caller.")
        self.problem: Problem = self.problem.model_copy(update={"sign_in": "application", "login_url": login_url})


def http_problem(code: HttpCode, sentence: str = "", subject: str | None = None) -> Problem:
    """Return the problem with this code. `sentence` replaces that of the code. `Pure.`"""
    status, default = _HTTP[code]
    return _problem(status, code, sentence or default, subject)


def problem_of(error: BaseException) -> Problem:
    """Return the problem that an error is for the client. What the program did not raise on purpose is an
    `internal_error`, without its text, which may quote a conversation. `Pure.`"""
    match error:
        case HttpError():
            return error.problem
        case Refused():
            return _problem(_REFUSED.get(error.code, 409), error.code, error.sentence, error.subject or None)
        case TurnwiseError():
            return _problem_of_engine(error)
        case RequestValidationError():
            return _problem_of_validation(error)
        case HTTPException():
            return _problem_of_exception(error)
        case _:
            return http_problem("internal_error")


def _problem_of_engine(error: TurnwiseError) -> Problem:
    subject = error.subject if isinstance(error, InvalidInput) else ""
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            problem = _problem(status, code, error.sentence, subject or None)
            steps = error.steps if isinstance(error, CannotForkThere) else None
            return problem.model_copy(update={"steps": steps})
    return http_problem("internal_error")


def _problem_of_validation(error: RequestValidationError) -> Problem:
    """Return the problem of a request whose body, path or query has the wrong form: its first fault, without what was
    given."""
    faults = error.errors()
    if any(fault["type"] == "json_invalid" for fault in faults):
        return http_problem("malformed_json")
    if not faults:
        return http_problem("invalid_input")
    place = faults[0]["loc"]  # begins with "body", "path" or "query"
    where = ".".join(shortened(str(part), MAX_QUOTED) for part in place[1:] or place)
    return http_problem("invalid_input", shortened(f"{where}: {faults[0]['msg']}."), where)


def _problem_of_exception(error: HTTPException) -> Problem:
    code = _CODES.get(error.status_code)
    if code is not None:
        return http_problem(code)
    title = _title(error.status_code)
    return _problem(error.status_code, title.lower().replace(" ", "_"), f"{title}.")


def _problem(status: int, code: str, sentence: str, subject: str | None = None) -> Problem:
    known = None if subject is None else encodable(shortened(subject, MAX_QUOTED))
    sign_in: SignIn | None = "token" if status == HTTPStatus.UNAUTHORIZED else None
    return Problem(
        title=_title(status), status=status, detail=encodable(sentence), code=code, subject=known, sign_in=sign_in
    )


_RENAMED = {413: "Content Too Large", 422: "Unprocessable Content"}
"""Phrases of RFC 9110 that older versions of Python know under other names."""


def _title(status: int) -> str:
    try:
        return _RENAMED.get(status) or HTTPStatus(status).phrase
    except ValueError:
        return "Error"


class ProblemResponse(Response):
    """A problem as the answer to a request. A 401 names the scheme by which a client identifies itself."""

    media_type = MEDIA_TYPE

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        known = {"cache-control": "no-store", **(headers or {})}
        if problem.status == HTTPStatus.UNAUTHORIZED:
            known.setdefault("www-authenticate", "Bearer")
        super().__init__(body_of(problem), status_code=problem.status, headers=known)


def body_of(problem: Problem) -> bytes:
    """Return a problem as JSON; members that are not set are left out. `Pure.`"""
    return problem.model_dump_json(exclude_none=True).encode()


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return how a route declares these refusals: `responses=problems(404, 409, 422)`. The OpenAPI document must have
    the component `Problem`, which `problem_schema` returns. `Pure.`"""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _description(status), "content": content} for status in statuses}


def _description(status: int) -> str:
    codes = sorted(codes_of(status))
    return f"{_title(status)}: {', '.join(f'`{code}`' for code in codes)}." if codes else f"{_title(status)}."


def codes_of(status: int) -> Iterable[str]:
    """Return the codes that a problem with this status may have. `Pure.`"""
    refused = {code for code in get_args(RefusalCode) if _REFUSED.get(code, 409) == status}
    raised = {code for _, known, code in _STATUSES if known == status}
    return refused | raised | {code for code, (known, _) in _HTTP.items() if known == status}


def problem_schema() -> dict[str, Any]:
    """Return the JSON schema of a problem, for the components of an OpenAPI document. `Pure.`"""
    return Problem.model_json_schema()


def install_problems(app: FastAPI) -> None:
    """Let the app answer every error of its routes with a problem."""
    for kind in (HttpError, TurnwiseError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer_error)


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer an error of a route with its problem. The headers that an exception brings with it are kept.

    An application whose endpoints are its own has errors of turnwise answered as `create_app` does by
    `app.add_exception_handler(TurnwiseError, answer_error)`."""
    headers = getattr(error, "headers", None) if isinstance(error, HttpError | HTTPException) else None
    return ProblemResponse(problem_of(error), headers)
