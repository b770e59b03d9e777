"""Every error becomes one problem, with a status, a stable code and a sentence."""

from __future__ import annotations

from typing import get_args

import httpx
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from turnwise import (
    CompactionFailed,
    ConfigurationError,
    EngineClosed,
    InvalidInput,
    NoOutput,
    Refused,
    StoreError,
    TurnwiseError,
    UnknownConversation,
)
from turnwise.hosts.http import answer_error
from turnwise.hosts.http.problems import (
    HttpError,
    Problem,
    ProblemResponse,
    http_problem,
    install_problems,
    problem_of,
    problems,
)
from turnwise.states.errors import RefusalCode

from ...support.cases import holds_for


class TestTheTable:
    """What each error is for a client."""

    @holds_for("code", get_args(RefusalCode))
    def test_a_refusal_keeps_its_code_and_sentence(self, code: RefusalCode) -> None:
        """A refusal of the engine is 409, but for faults of the input (422) and of the storage (503)."""
        problem = problem_of(Refused(code, "When?"))

        is_fault = code.startswith("unknown_") or code in ("missing_answer", "invalid_answer")
        assert problem.status == (422 if is_fault else 503 if code == "storage" else 409)
        assert (problem.code, problem.detail, problem.subject) == (code, Refused(code, "When?").sentence, "When?")

    @holds_for(
        ("error", "status", "code"),
        [
            (InvalidInput("No."), 422, "invalid_input"),
            (UnknownConversation("c"), 404, "unknown_conversation"),
            (ConfigurationError("No."), 422, "configuration"),
            (CompactionFailed("provider", "No."), 502, "compaction_failed"),
            (NoOutput("No."), 502, "no_output"),
            (StoreError("No."), 503, "store_error"),
            (EngineClosed(), 503, "engine_closed"),
            (PermissionError("a file of the database"), 500, "internal_error"),
            (HTTPException(404, "x"), 404, "not_found"),
            (HTTPException(405, "x"), 405, "method_not_allowed"),
            (HTTPException(418, "x"), 418, "i'm_a_teapot"),
            (HttpError("too_large"), 413, "too_large"),
        ],
    )
    def test_an_error_has_a_status_and_a_code(self, error: Exception, status: int, code: str) -> None:
        """Each kind of error has one status and one code."""
        assert (problem_of(error).status, problem_of(error).code) == (status, code)

    def test_what_is_invalid_is_named(self) -> None:
        """Where the engine knows the field, a client can mark it."""
        assert problem_of(InvalidInput("No.", "arguments")).subject == "arguments"
        assert problem_of(InvalidInput("No.")).subject is None

    def test_an_unexpected_error_tells_nothing(self) -> None:
        """The text of an unexpected error may quote a conversation, and is not sent."""
        problem = problem_of(ValueError("the password is 1234"))

        assert (problem.status, problem.code) == (500, "internal_error")
        assert "1234" not in problem.model_dump_json()

    def test_what_is_quoted_can_be_sent(self) -> None:
        """A subject that is huge and holds lone surrogates is shortened, and encodable."""
        response = ProblemResponse(problem_of(Refused("unknown_question", "\ud800" * 100_000)))

        assert len(bytes(response.body)) < 5_000

    def test_a_declared_refusal_names_its_codes(self) -> None:
        """The description of a status in the OpenAPI document lists the codes that it may have."""
        declared = problems(404, 409)

        assert "`unknown_conversation`" in declared[404]["description"]
        assert "`wrong_state`" in declared[409]["description"]
        assert list(declared[404]["content"]) == ["application/problem+json"]


class Body(BaseModel):
    """A body with one field."""

    text: str


def _app() -> FastAPI:
    app = FastAPI()
    install_problems(app)

    @app.post("/texts")
    async def take(body: Body) -> str:
        return body.text

    @app.get("/refused")
    async def refuse() -> None:
        raise Refused("busy")

    return app


class TestRoutes:
    """What a client receives."""

    @holds_for(
        ("method", "path", "body", "status", "code"),
        [
            ("GET", "/refused", b"", 409, "busy"),
            ("GET", "/nothing", b"", 404, "not_found"),
            ("PUT", "/texts", b"{}", 405, "method_not_allowed"),
            ("POST", "/texts", b"{", 400, "malformed_json"),
            ("POST", "/texts", b'{"text": "\xff"}', 400, "malformed_json"),
            ("POST", "/texts", b"[" * 100_000, 400, "malformed_json"),
            ("POST", "/texts", b'{"text": ' + b"1" * 10_000 + b"}", 400, "malformed_json"),
            ("POST", "/texts", b'{"text": 1}', 422, "invalid_input"),
            ("POST", "/texts", b"[]", 422, "invalid_input"),
            ("POST", "/texts", b"null", 422, "invalid_input"),
        ],
    )
    async def test_every_refusal_is_a_problem(
        self, method: str, path: str, body: bytes, status: int, code: str
    ) -> None:
        """H6: malformed JSON and broken UTF-8 are 400, another type is 422, and each answer is a problem+json."""
        async with httpx.AsyncClient(transport=httpx.ASGITransport(_app()), base_url="http://localhost") as client:
            response = await client.request(method, path, content=body, headers={"content-type": "application/json"})

        assert response.headers["content-type"] == "application/problem+json"
        problem = Problem.model_validate(response.json())
        assert (response.status_code, problem.status, problem.code) == (status, status, code)

    async def test_a_refusal_by_the_router_keeps_its_headers(self) -> None:
        """405 says which methods the path supports."""
        async with httpx.AsyncClient(transport=httpx.ASGITransport(_app()), base_url="http://localhost") as client:
            response = await client.delete("/texts")

        assert response.headers["allow"] == "POST"

    async def test_an_application_has_errors_of_turnwise_answered(self) -> None:
        """By the handler that it is given, for these errors alone: the other answers of the application stay as they
        are."""
        app = FastAPI()
        app.add_exception_handler(TurnwiseError, answer_error)

        @app.get("/refused")
        async def refuse() -> None:
            raise Refused("busy")

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            refused, unknown = await client.get("/refused"), await client.get("/nothing")

        assert (refused.status_code, refused.json()["code"]) == (409, "busy")
        assert unknown.json() == {"detail": "Not Found"}

    def test_an_unknown_caller_learns_how_to_identify_himself(self) -> None:
        """401 comes with the scheme of authentication."""
        assert ProblemResponse(http_problem("unauthorized")).headers["www-authenticate"] == "Bearer"
