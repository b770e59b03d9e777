"""Puts the HTTP host together: the endpoints, who may call them, and what refusals look like."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI

from ...engine.engine import Engine
from ..page.files import page_routes
from .dependencies import FindOwner, HostState
from .problems import install_problems
from .routes import conversation_path as conversation_path  # paths are read with the convertor that this registers
from .routes import conversations, requests
from .security.limits import HttpLimits


def create_app(
    engine: Engine,
    *,
    token: str | None = None,
    owner: FindOwner | None = None,
    hosts: Sequence[str] | None = None,
    origins: Sequence[str] = (),
    page: bool = True,
    limits: HttpLimits | None = None,
) -> FastAPI:
    """Return an ASGI application that offers the conversations of an engine over HTTP.

    The application opens the engine when it starts and closes it when it stops, unless the engine is open already.
    Mounted into another application it gets no such notice: then open the engine there.

    With a `token` a caller must present it, as a bearer token or by a session cookie. An application that has users of
    its own gives `owner`, a function or coroutine function of the request that returns whose conversations the caller
    sees; it raises `PermissionError`, or returns None, for a caller that it does not know. Everything that belongs to
    others is then not found.

    `hosts` are the names under which the server may be addressed, and `origins` the origins of other sites whose pages
    may call it. `page` says whether the page for browsers is served. `limits` bound what one client may use.
    """
    app = FastAPI(
        title="turnwise",
        lifespan=_lifespan(engine),
        separate_input_output_schemas=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.host = HostState(engine, owner, token, HttpLimits() if limits is None else limits)
    install_problems(app)
    for module in (conversations, requests):
        app.include_router(module.router)
    if page:
        app.router.routes.extend(page_routes())
    return app


def _lifespan(engine: Engine) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return what opens the engine when the application starts, and closes it when the application stops."""

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncGenerator[None]:
        async with engine:
            yield

    return run
