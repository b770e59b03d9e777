"""Serves the page: a few files, read once and sent as they are.

A browser runs nothing but these files. The Content-Security-Policy allows no script, style or request that is not this
server's own, and no string to become markup or code, so a text that a model or a person writes stays text even where
the page has a mistake.

The files hold nothing secret and are served to everybody; what they show comes from the API, which asks for a token if
the server has one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePath

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

INDEX = "index.html"

CONTENT_SECURITY_POLICY = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
))  # fmt: skip

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cache-Control": "no-cache",  # browsers keep a file, and ask by its ETag whether it is still the same
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""What every file of the page is sent with."""

MEDIA_TYPES: Mapping[str, str] = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
"""The media types by suffix. They are not left to the operating system, which may call a module plain text: then a
browser does not run it."""


@dataclass(frozen=True)
class PageFile:
    """A file of the page, and the tag that changes with its content."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """Return the files of the page by their names."""
    directory = files(__package__).joinpath("static")
    return {
        one.name: _page_file(one.read_bytes(), MEDIA_TYPES[PurePath(one.name).suffix])
        for one in directory.iterdir()
        if PurePath(one.name).suffix in MEDIA_TYPES
    }


def page_routes() -> list[Route]:
    """Return the routes of the page: itself at `/`, and what it loads below `/page/`. All addresses in the page are
    relative, so the routes work below any prefix that ends in a slash."""
    return [
        Route("/", _send_page, methods=["GET"], name="page"),
        Route("/page/{name}", _send_page, methods=["GET"], name="page-file"),
    ]


async def _send_page(request: Request) -> Response:
    """Send one of the known files. A name is looked up and never becomes a path, so no name reaches another file."""
    file = page_files().get(request.path_params.get("name", INDEX))
    if file is None:
        raise HTTPException(404)
    headers = {**HEADERS, "ETag": file.etag}
    if file.etag in (tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


def _page_file(content: bytes, media_type: str) -> PageFile:
    return PageFile(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
