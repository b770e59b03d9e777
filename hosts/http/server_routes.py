"""What the server offers beside conversations: health, sessions, the map of the machine, Markdown, and what may be
chosen.

The two routers differ in who may ask. `public_router` is for everybody: for what starts and watches servers, and for
browsers, which exchange the token for a session. `router` is for callers that the application knows.

Markdown goes out as trees of allowed nodes, which a page builds as elements without reading any markup. What holds for
all paths stands at the end: the methods that a refusal names in `Allow`, and HEAD.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import ConfigDict, Field
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...engine.choices import OfferedTool
from ...engine.json_forms import DescribedBy
from ...states.errors import EngineClosed
from ..diagrams.machine_map import MachineMap, machine_map
from .dependencies import CurrentCaller, CurrentEngine, CurrentHost
from .document import NEEDS_NO_TOKEN
from .markdown import markdown_tree
from .permissions import PERMISSIONS
from .problems import ProblemResponse, http_problem, problems
from .schemas import BODY_REFUSALS, Answer, Body
from .security import clear_session, set_session

public_router: APIRouter = APIRouter(tags=["server"])

router: APIRouter = APIRouter(tags=["engine"])


class Health(Answer):
    """The server answers, and its engine is open."""

    status: Literal["ok"]


@public_router.get("/health", operation_id="getHealth", openapi_extra=NEEDS_NO_TOKEN)
async def get_health(engine: CurrentEngine) -> Health:
    """Tell whether the engine is open. It needs no token and shows nothing of any conversation."""
    if not engine.is_open:
        raise EngineClosed
    return Health(status="ok")


class GivenToken(Body):
    """The token of the server."""

    token: str


@public_router.post(
    "/session",
    status_code=204,
    response_model=None,
    operation_id="openSession",
    responses=problems(*BODY_REFUSALS),
    openapi_extra=NEEDS_NO_TOKEN,
)
async def open_session(body: GivenToken, request: Request, response: Response, host: CurrentHost) -> None:
    """Exchange the token for a cookie that no script can read."""
    set_session(response, request, body.token, host.token, host.wrong_tokens)


@public_router.delete(
    "/session", status_code=204, response_model=None, operation_id="closeSession", openapi_extra=NEEDS_NO_TOKEN
)
async def close_session(request: Request, response: Response) -> None:
    """Remove the cookie."""
    clear_session(response, request)


@router.get("/machine", operation_id="getMachine")
async def get_machine(caller: CurrentCaller) -> MachineMap:
    """Return the states, the junctions and the ways between them, each with its place in a drawing."""
    return machine_map()


_MOST_TEXTS = 50
_LONGEST_TEXT = 200_000
"""How many texts a request may bring, and how many characters each may have. Chosen so that a page renders all that it
shows at once in one request."""


class MarkdownElement(Answer):
    """An element with what is inside. A link has an `href`, a list may have the number of its `start`, a cell of a
    table may be aligned, and a block of code may have a language. Keys that an element does not need are left out."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_serialization_defaults_required=False)

    tag: str
    children: list[str | MarkdownElement] = Field(default_factory=list)
    href: str = ""
    start: int = 1
    align: str = ""
    language: str = ""


MarkdownNode = Annotated[Any, DescribedBy(lambda: str | MarkdownElement)]
"""A text, or an element."""


class MarkdownTexts(Body):
    """Texts in Markdown."""

    texts: Annotated[list[Annotated[str, Field(max_length=_LONGEST_TEXT)]], Field(max_length=_MOST_TEXTS)]


class MarkdownTrees(Answer):
    """The nodes of each text, in the order of the texts."""

    trees: list[list[MarkdownNode]]


@router.post("/markdown", operation_id="renderMarkdown", responses=problems(*BODY_REFUSALS))
async def render_markdown(body: MarkdownTexts, caller: CurrentCaller, host: CurrentHost) -> MarkdownTrees:
    """Return a tree for each text. The server reads one text at a time, and those of several requests in turn."""
    trees = []
    for text in body.texts:
        async with host.reading_markdown:
            trees.append(await asyncio.to_thread(markdown_tree, text))
    return MarkdownTrees(trees=trees)


class ToolsAnswer(Answer):
    """The tools that conversations may choose."""

    tools: list[OfferedTool]


class ModelsAnswer(Answer):
    """The names of the models that conversations may choose. Those that choose none ask the first one."""

    models: list[str]


class PermissionsAnswer(Answer):
    """Whose conversations the caller sees, null for those of everybody, and the names of what the caller may do with
    them."""

    owner: str | None
    permissions: list[str]


@router.get("/models", operation_id="listModels")
async def list_models(engine: CurrentEngine, caller: CurrentCaller) -> ModelsAnswer:
    """List the models that conversations may choose."""
    return ModelsAnswer(models=list(engine.model_names))


@router.get("/tools", operation_id="listTools")
async def list_tools(engine: CurrentEngine, caller: CurrentCaller) -> ToolsAnswer:
    """List the tools that conversations may choose."""
    return ToolsAnswer(tools=list(engine.tools))


@router.get("/permissions", operation_id="listPermissions")
async def list_permissions(caller: CurrentCaller) -> PermissionsAnswer:
    """List what the caller may do, so that a client offers nothing else."""
    return PermissionsAnswer(owner=caller.owner, permissions=[name for name in PERMISSIONS if caller.may(name)])


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def name_methods(app: FastAPI) -> None:
    """Let the app name all methods of a path when it refuses another one, in the header `Allow` (RFC 9110, section
    15.5.6).

    The router asks one route after the other, and refuses with the methods of the first that has the path. A path may
    have a route for each of its methods. HEAD is supported by every path that supports GET.
    """
    app.add_exception_handler(405, _refuse)


async def _refuse(request: Request, error: Exception) -> Response:
    return ProblemResponse(http_problem("method_not_allowed"), {"allow": ", ".join(_allowed(request))})


def _allowed(request: Request) -> Iterator[str]:
    """Yield the methods for which a route has the path of the request."""
    for method in _METHODS:
        scope = {**request.scope, "method": "GET" if method == "HEAD" else method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes):
            yield method


class HeadAnswers:
    """Middleware that answers HEAD as GET would be answered, without the body (RFC 9110, section 9.3.2). A stream ends
    at once. It is the outermost, so that guards and endpoints know GET alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        if scope["type"] == "http" and scope["method"] == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, send_head)
        else:
            await self._app(scope, receive, send)
