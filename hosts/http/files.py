"""The files of a conversation over HTTP: the bytes of what people have sent and tools have returned.

A browser shows images, recordings and videos. Whatever it could run, or read as a page, it only saves: HTML, SVG and
PDF come from strangers, and are served from the same site as the page. Nothing of a file is run in either case, because
its answer is in a sandbox of its own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import Field
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ...effects.files import File, GivenFile
from ...effects.media_types import UNKNOWN, canonical
from ...engine.conversation import Conversation
from ...engine.files import UNKNOWN_FILE
from ...states.errors import InvalidInput, StoreError, UnknownConversation
from ...states.values.files import IMAGES, FileReference
from .dependencies import CONVERSATION, CurrentHost, TheConversation
from .problems import HttpError, problems
from .schemas import BODY_REFUSALS, Answer, Body
from .security import read_body
from .streams import PiecewiseSend

logger: logging.Logger = logging.getLogger("turnwise.http")

PART = 256 * 2**10
"""The bytes of a file that are read at once, and so how many a download holds."""

OF_FILES = "Files: each an address, `https:` or `data:`, or an object that says more."
"""What OpenAPI says of the files of a message."""


class SentFile(Body):
    """A file of a message: at a `url`, `https:` or `data:`, or by its `sha256` one that was uploaded to this
    conversation or that it has already. What a file is, its bytes say; `media_type` is needed only where they do not.
    """

    url: str | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    name: str | None = None
    media_type: str | None = None


class UploadedFile(Answer):
    """A file that is stored. `sha256` names it in a message of this conversation, together with its name and type."""

    sha256: str
    media_type: str
    name: str
    size: int


async def given_files(conversation: Conversation, files: Sequence[str | SentFile]) -> list[GivenFile]:
    """Return these files as `Conversation.send` takes them. What a client says of a stored file is held against its
    bytes as if it had sent them. Raises `InvalidInput`, also for a file that this conversation does not have."""
    left = conversation.policy.files.together
    given: list[GivenFile] = []
    for file in files:
        if isinstance(file, str):
            given.append(file)
            continue
        if (file.url is None) == (file.sha256 is None):
            raise InvalidInput("A file has either a url or a sha256.", "files")
        source: str | bytes | None = file.url
        if file.sha256 is not None:
            source = await conversation.read_file(file.sha256, 0, left + 1)
            left -= len(source or b"")
        if source is None:
            raise InvalidInput(UNKNOWN_FILE, "files")
        if left < 0:
            raise InvalidInput("The files of the message are too large together.", "files")
        given.append(File(source, file.name, file.media_type))
    return given


_Digest = Annotated[str, Path(description="The `sha256` of a file of a message or a result.", max_length=64)]
_Range = Annotated[str | None, Header(alias="range", description="`bytes=0-999`: a part of the file.")]
_IfRange = Annotated[str | None, Header(alias="if-range", description="The ETag of the parts that are there already.")]
_IfNoneMatch = Annotated[str | None, Header(alias="if-none-match", description="The ETag of what is there already.")]

_BYTES: dict[str, Any] = {"content": {"*/*": {"schema": {"type": "string"}}}}
"""How OpenAPI describes the bytes of a file, whose media type its sender has chosen."""

router: APIRouter = APIRouter(tags=["files"], prefix=CONVERSATION)


_ANY_TYPE = ("", UNKNOWN, "application/x-www-form-urlencoded")
"""Content types that say nothing of a file: clients send them by default."""


@router.post(
    "/files",
    status_code=201,
    operation_id="uploadFile",
    openapi_extra={"requestBody": {"required": True, **_BYTES}},
    responses=problems(*BODY_REFUSALS, 404, 409),
)
async def upload_file(
    request: Request,
    conversation: TheConversation,
    host: CurrentHost,
    name: Annotated[str, Query(max_length=1000, description="What people and the model call the file.")] = "",
) -> UploadedFile:
    """Store a file for a later message, which names it by its `sha256`. The body is the file itself.

    One that no message has had for a day is removed.
    """
    limit, limits = conversation.policy.files.size, host.limits
    seconds = limits.body_seconds * max(1, limit / limits.body_bytes)  # so much time for as many bytes as other bodies
    data = await read_body(request.headers, request.receive, limit, seconds)
    if data is None:  # the client has gone, and nobody reads this
        raise HttpError("malformed_request")
    if not data:
        raise HttpError("invalid_input", "The body is empty; it is the file itself.")
    declared = canonical(request.headers.get("content-type", ""))
    try:
        kept = await conversation.keep_file(File(data, name or None, None if declared in _ANY_TYPE else declared))
    except InvalidInput as error:
        if error.subject != "files":
            raise
        raise HttpError("unsupported_media_type", error.sentence) from None
    return UploadedFile(sha256=kept.sha256, media_type=kept.media_type, name=kept.name, size=kept.size)


@router.get(
    "/files/{sha256}",
    operation_id="getFile",
    response_class=Response,
    responses={
        200: {"description": "The bytes of the file, of its media type.", **_BYTES},
        206: {"description": "A part of them.", **_BYTES},
        304: {"description": "The client has the file already."},
        **problems(404, 416, 422),
    },
)
async def get_file(
    sha256: _Digest,
    conversation: TheConversation,
    host: CurrentHost,
    wanted: _Range = None,
    if_range: _IfRange = None,
    if_none_match: _IfNoneMatch = None,
) -> Response:
    """Return the bytes of a file that a message or a result of the transcript refers to, or a part of them."""
    file = await conversation.file(sha256)
    if file is None or await conversation.read_file(file, 0, 0) is None:
        raise HttpError("not_found", "This conversation shows no such file.")
    headers = _headers(file)
    tag = headers["etag"]
    if _names(tag, if_none_match):
        return Response(status_code=304, headers=headers)
    part = None if wanted is None or if_range not in (None, tag) else _part_in(wanted, file.size)
    start, end = (0, file.size) if part is None else part
    headers["content-length"] = str(end - start)
    if part is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{file.size}"
    content = _bytes_of(conversation, file, start, end)
    return _FileResponse(content, 200 if part is None else 206, headers, seconds=host.limits.send_seconds)


def _headers(file: FileReference) -> dict[str, str]:
    """What a file is sent with. Its name is written as RFC 6266 and RFC 8187 say; its bytes never change."""
    is_shown = file.media_type in IMAGES or file.media_type.startswith(("audio/", "video/"))
    named = f"; filename*=UTF-8''{quote(file.name, safe='')}" if file.name else ""
    return {
        "content-type": file.media_type,
        "content-disposition": f"{'inline' if is_shown else 'attachment'}{named}",
        "content-security-policy": "sandbox; default-src 'none'",
        "etag": f'"{file.sha256}"',
        "cache-control": "private, no-cache",  # a browser asks each time whether its user may still see the file
        "accept-ranges": "bytes",
    }


def _names(tag: str, given: str | None) -> bool:
    """Whether an `If-None-Match` names this tag (RFC 9110, section 13.1.2). `Pure.`"""
    tags = () if given is None else tuple(one.strip().removeprefix("W/") for one in given.split(","))
    return tag in tags or tags == ("*",)


_ONE_RANGE = re.compile(r"bytes=\s*([0-9]{0,15})-([0-9]{0,15})\s*", re.ASCII)


def _part_in(wanted: str, size: int) -> tuple[int, int] | None:
    """Return the part of a file that a `Range` asks for: its first byte, and the one behind its last. None for what may
    be answered with the whole file: several ranges, other units, and what cannot be read (RFC 9110, section 14.2).

    Raises `HttpError` for a part that the file does not have.
    """
    found = _ONE_RANGE.fullmatch(wanted)
    first, last = found.groups() if found is not None else ("", "")
    if (not first and not last) or (first and last and int(last) < int(first)):
        return None
    start = int(first) if first else max(size - int(last), 0)
    end = min(int(last) + 1, size) if first and last else size
    if start >= end:
        raise HttpError("range_not_satisfiable", headers={"content-range": f"bytes */{size}"})
    return start, end


async def _bytes_of(conversation: Conversation, file: FileReference, start: int, end: int) -> AsyncIterator[bytes]:
    """Yield bytes of a file, of which little is held at a time. Raises `UnknownConversation` if the conversation is
    deleted meanwhile."""
    for place in range(start, end, PART):
        data = await conversation.read_file(file, place, min(place + PART, end))
        if not data:
            raise UnknownConversation(conversation.id)
        yield data


class _FileResponse(StreamingResponse):
    """The bytes of a file. A client that does not read them within `seconds` is disconnected."""

    def __init__(self, content: AsyncIterator[bytes], status: int, headers: Mapping[str, str], seconds: float) -> None:
        super().__init__(content, status, headers)
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the bytes until they end, or the client has gone. If they cannot all be sent, the response ends
        incomplete, and the server closes the connection."""
        try:
            await super().__call__(scope, receive, PiecewiseSend(send, self._seconds))
        except (TimeoutError, ClientDisconnect):
            logger.info("A client stopped reading %r.", scope["path"])
        except (StoreError, UnknownConversation) as error:
            logger.warning("A download ended early: %s", error)
