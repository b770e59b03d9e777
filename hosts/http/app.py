"""Puts the HTTP host together: the endpoints, who may call them, and what refusals look like."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from ...effects.version import __version__
from ...engine.engine import Engine
from ..page.files import page_routes
from . import branches, conversations, files, history, requests, server_routes, streams
from .dependencies import FindOwner, HostState, current_caller
from .document import completed
from .doors import a2a as a2a_door
from .doors import agui as agui_door
from .doors import openai as openai_door
from .doors.openai import OpenAiErrors, delete_abandoned
from .permissions import permissions_of
from .problems import install_problems, problems
from .security import HttpLimits, WrongTokens, check_login_url, middleware_of
from .server_routes import HeadAnswers, name_methods

PUBLIC = (server_routes.public_router,)
"""The endpoints for everybody: one begins the session of a browser, the other is for what starts and watches servers.
The files of the page are for everybody, too. Everything else is for callers that the application knows."""

ROUTERS = (
    conversations.router,
    requests.router,
    branches.router,
    files.router,
    history.router,
    history.log_router,
    streams.router,
    server_routes.router,
    *PUBLIC,
)
"""The endpoints of the host itself."""

DOORS = (openai_door.router, agui_door.router, *([a2a_door.router] if a2a_door.IS_INSTALLED else []))
"""The endpoints for clients of other protocols."""


def create_app(
    engine: Engine,
    *,
    token: str | None = None,
    owner: FindOwner | None = None,
    allow: Collection[str] = (),
    hosts: Sequence[str] | None = None,
    origins: Sequence[str] = (),
    login_url: str | None = None,
    page: bool = True,
    limits: HttpLimits | None = None,
) -> FastAPI:
    """Return an ASGI application that offers the conversations of an engine over HTTP.

    The application opens the engine when it starts and closes it when it stops, unless the engine is open already.
    Mounted into another application it gets no such notice: then open the engine there.

    With a `token` a caller must present it, as a bearer token or by a session cookie. An application that has users of
    its own gives `owner`, a function or coroutine function of the request that returns whose conversations the caller
    sees; it raises `PermissionError`, or returns None, for a caller that it does not know. Everything that belongs to
    others is then not found. To a caller whom `owner` does not know, the page says that the application must know who
    they are, and leads to `login_url`, if there is one: an address of `http` or `https`, or a path.

    A user may talk in conversations of their own, but not lift or read the rules that the application gives them: its
    policy, its system prompt, its tools, its metadata, and approvals that a tool leaves to the operator. `allow` opens
    that by names (`PERMISSIONS` in `permissions.py`): `allow={"preset", "log"}`. Without `owner` everything is allowed.

    `hosts` are the names under which the server may be addressed, and `origins` the origins of other sites whose pages
    may call it. `page` says whether the page for browsers is served. `limits` bound what one client may use.

    Raises `ConfigurationError` for a token, an origin or a `login_url` that cannot be used, and for a permission that
    there is not.
    """
    allowed = permissions_of(allow)
    check_login_url(login_url)
    limits = HttpLimits() if limits is None else limits
    wrong_tokens = WrongTokens(limits.wrong_tokens)
    bound = token is not None or owner is not None
    app = HostApplication(
        title="turnwise",
        summary="Conversations of an explicit state machine",
        version=__version__,
        lifespan=_lifespan(engine),
        docs_url=None,  # pages that load their scripts from another server
        redoc_url=None,
        openapi_url=None,  # FastAPI would show it to everybody; `_document` does not
        redirect_slashes=False,
        middleware=middleware_of(
            token=token, hosts=hosts, origins=origins, bound=bound, limits=limits, wrong_tokens=wrong_tokens
        ),
    )
    app.openapi_version = "3.1.0"  # the newest that most generators of clients read
    app.state.host = HostState(engine, owner, token, limits, wrong_tokens, login_url, allowed)
    install_problems(app)
    name_methods(app)
    app.router.routes.extend(_endpoints().routes)
    app.add_middleware(OpenAiErrors)  # it rewrites what all that are inside of it answer
    app.add_middleware(HeadAnswers)
    if page:
        app.router.routes.extend(page_routes())
    return app


@cache
def _endpoints() -> APIRouter:
    """Return all endpoints. All applications have the same ones, because FastAPI takes a tenth of a second to work out
    what each of them depends on."""
    endpoints, known = APIRouter(), [Depends(current_caller)]
    for router in ROUTERS:
        guards = [] if router in PUBLIC else known
        endpoints.include_router(router, responses=problems(401, 403, 429, 503), dependencies=guards)
    for router in (*DOORS, _document):
        endpoints.include_router(router, dependencies=known)
    return endpoints


class HostApplication(FastAPI):
    """A FastAPI application whose OpenAPI document says what FastAPI does not know."""

    openapi_schema: dict[str, Any] | None

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document. It is made once."""
        if self.openapi_schema is None:
            host: HostState = self.state.host
            self.openapi_schema = completed(super().openapi(), needs_token=host.token is not None)
        return self.openapi_schema


_document = APIRouter(include_in_schema=False)


@_document.get("/openapi.json")
async def _show_document(request: Request) -> JSONResponse:
    """Show the OpenAPI document, with the place where the application is mounted."""
    document: dict[str, Any] = request.app.openapi()
    place: str = request.scope.get("root_path", "").rstrip("/")
    return JSONResponse({**document, "servers": [{"url": place}]} if place else document)


def _lifespan(engine: Engine) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return what opens the engine when the application starts, and closes it when the application stops. An engine
    that is open already belongs to somebody else and stays open."""

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncGenerator[None]:
        if engine.is_open:
            yield
            return
        async with engine:
            await delete_abandoned(engine)
            yield

    return run
