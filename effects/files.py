"""Files that are sent: what an application hands over, and what is stored of it.

A file comes as bytes, as a path, or as an address. Before it gets into a conversation, its bytes are read, found out
what they are, and held against the rules; a text is without its secrets where the rules say so. Then it has a digest,
the SHA-256 of what is stored, and everybody else refers to it by that. Where the bytes lie, `KeptFiles` knows.
"""

from __future__ import annotations

import asyncio
import os
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Protocol, TypeAlias
from urllib.parse import unquote, unquote_to_bytes

from pydantic import ValidationError

from ..states.errors import InvalidInput, read_up_to
from ..states.policy import FileRules
from ..states.values.files import (
    IMAGES,
    MAX_FILES,
    MAX_NAME,
    FileReference,
    is_address,
    kind_of,
    media_type_at,
)
from ..states.values.value import MAX_QUOTED, encodable, shortened
from .media_types import UNKNOWN, Contradiction, canonical, described, media_type_of, text_in


class File:
    """A file to send: `File(Path("report.pdf"))`, `File(b"…", name="voice.wav")`, `File("https://example.org/a.png")`.

    `source` is a path, the bytes themselves, an https:// URL, or a data: URL that holds the bytes. The type of a
    file is determined from its bytes, or from the ending of a URL; `media_type` is needed only where they do not tell
    it. Without it, a URL with an unknown ending counts as an image. `name` is what people and the model call the file;
    by default it is the last part of the path.

    A path is read when the file is sent. A file at a URL is not stored: the provider fetches it with each request that
    shows it.
    """

    __slots__ = ("media_type", "name", "source")

    def __init__(
        self, source: bytes | str | os.PathLike[str], name: str | None = None, media_type: str | None = None
    ) -> None:
        self.source: bytes | str | os.PathLike[str] = source
        self.name: str | None = name
        self.media_type: str | None = media_type

    def __repr__(self) -> str:
        source = self.source
        shown = f"{len(source):,} bytes" if isinstance(source, bytes) else shortened(str(source), MAX_QUOTED)
        return f"File({shown}{f', name={self.name!r}' if self.name else ''})"


GivenFile: TypeAlias = "File | FileReference | bytes | str | os.PathLike[str]"
"""A file as an application hands it over: `File` says what each may be. A `FileReference` is that of a file that the
conversation has already."""

Redact = Callable[[str], str]
"""Returns a text without its secrets."""

DEFAULT_RULES = FileRules()


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file that is in order: the reference to it, and the bytes that are to be stored under its digest. They are None
    if there is nothing to store: for a file on the web, and for one that the conversation has already."""

    reference: FileReference
    data: bytes | None = None


class KeptFiles(Protocol):
    """The files of one conversation."""

    async def keep(self, given: Sequence[GivenFile]) -> tuple[FileReference, ...]:
        """Store these files, and return the references to them, which belong into an event of this conversation. Raises
        `InvalidInput` for what cannot be used, and `StorageFailed`."""
        ...

    async def read(self, file: FileReference) -> bytes | None:
        """Return the bytes of a file of this conversation; None if it has no such file. Raises `StorageFailed`."""
        ...


class NoFiles:
    """The files of a conversation that has no store: there are none but those on the web."""

    async def keep(self, given: Sequence[GivenFile]) -> tuple[FileReference, ...]:
        """Return the references to files on the web. Raises `InvalidInput` for any other."""
        prepared = await prepare(given)
        if any(one.data is not None or one.reference.sha256 for one in prepared):
            raise InvalidInput("Files cannot be stored here.", "files")
        return tuple(one.reference for one in prepared)

    async def read(self, file: FileReference) -> bytes | None:
        """Return None."""
        return None


NO_FILES = NoFiles()

NOT_FILES = "The files are given as a list: each is a File, a path, bytes, or an https:// URL."


async def prepare(
    given: Iterable[GivenFile], rules: FileRules = DEFAULT_RULES, redact: Redact | None = None
) -> tuple[PreparedFile, ...]:
    """Return these files as they are to be stored, in order. They are read in a thread. Raises `InvalidInput`, in one
    sentence that names the file."""
    files = read_up_to(given, MAX_FILES + 1)
    if not isinstance(files, tuple):
        raise InvalidInput(NOT_FILES, "files")
    if len(files) > rules.number:
        raise InvalidInput(f"A message has at most {rules.number} files.", "files")
    return await asyncio.to_thread(_prepare_all, files, rules, redact) if files else ()


def _prepare_all(files: Sequence[GivenFile], rules: FileRules, redact: Redact | None) -> tuple[PreparedFile, ...]:
    prepared: list[PreparedFile] = []
    left = rules.together
    for place, file in enumerate(files, 1):
        one = prepare_one(file, rules, redact, f"File {place}")
        left -= one.reference.size
        if left < 0:
            raise InvalidInput(f"The files of a message have at most {rules.together:,} bytes together.", "files")
        prepared.append(one)
    return tuple(prepared)


def prepare_one(
    given: GivenFile, rules: FileRules = DEFAULT_RULES, redact: Redact | None = None, called: str = "The file"
) -> PreparedFile:
    """Return one file as it is to be stored; `called` names it where it has no name. It may read the disk. Raises
    `InvalidInput`."""
    if isinstance(given, FileReference):
        known = _reference(called, **vars(given))  # it may have been built past its validation
        _check_size(known.size, rules, known.name or called)
        return PreparedFile(known)
    file = given if isinstance(given, File) else File(given)
    source, name = file.source, _name_of(file)
    called = name or called
    if isinstance(source, str) and not source.startswith("data:"):
        return PreparedFile(_on_the_web(source, name, file.media_type, called))
    data, declared = _bytes_of(source, rules, called), file.media_type or ""
    if isinstance(source, str):
        declared = declared or _declared_in(source)
    _check_size(len(data), rules, called)
    media_type = _media_type(data, name, declared, called)
    if redact is not None and kind_of(media_type) == "text":
        data = _redacted(data, redact)
    reference = _reference(called, media_type=media_type, name=name, size=len(data), sha256=sha256(data).hexdigest())
    return PreparedFile(reference, data)


def _name_of(file: File) -> str:
    """The name of a file without folders and control characters; empty if it has none."""
    given = file.name
    if given is None:
        given = file.source.name if isinstance(file.source, PurePath) else ""
        if not given and isinstance(file.source, os.PathLike):
            given = PurePath(os.fspath(file.source)).name
    if not isinstance(given, str):
        raise InvalidInput("The name of a file is a text.", "files")
    last = re.split(r"[/\\]", given.strip())[-1]
    return encodable("".join(one for one in last if one.isprintable()))[:MAX_NAME]


def _check_size(size: int, rules: FileRules, called: str) -> None:
    if size > rules.size:
        raise InvalidInput(f"{called} is too large: a file has at most {rules.size:,} bytes.", "files")


def _on_the_web(url: str, name: str, media_type: str | None, called: str) -> FileReference:
    if not is_address(url):
        raise InvalidInput(f"{called} is neither an https:// URL nor a data: URL; a path is given as a Path.", "files")
    return _reference(
        called, url=url, name=name, media_type=canonical(media_type) if media_type else media_type_at(url)
    )


def _reference(called: str, **fields: object) -> FileReference:
    try:
        return FileReference.model_validate(fields)
    except ValidationError as error:
        sentence = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise InvalidInput(f"{called} cannot be sent: {sentence}.", "files") from None


def _bytes_of(source: object, rules: FileRules, called: str) -> bytes:
    match source:
        case bytes():
            return source
        case bytearray() | memoryview():
            return bytes(source)
        case str():
            return bytes_of_data_url(source, rules, called)
        case os.PathLike():
            return _read(Path(source), rules, called)
        case _:
            raise InvalidInput(NOT_FILES, "files")


def _read(path: Path, rules: FileRules, called: str) -> bytes:
    """Read a file, but no more of it than may be sent."""
    try:
        with path.open("rb") as stream:
            return stream.read(rules.size + 1)
    except OSError as error:
        raise InvalidInput(f"{called} cannot be read: {error.strerror}.", "files") from None
    except ValueError:  # such a path cannot even be looked for
        raise InvalidInput(f"{called} cannot be read: this is no path of a file.", "files") from None


_DATA_URL = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),", re.DOTALL)


def _declared_in(url: str) -> str:
    found = _DATA_URL.match(url)
    return "" if found is None else found[1]


def bytes_of_data_url(url: str, rules: FileRules = DEFAULT_RULES, called: str = "The file") -> bytes:
    """Return the bytes in a data: URL. Raises `InvalidInput` if it cannot be read, or holds too many. `Pure.`"""
    found = _DATA_URL.match(url)
    if found is None:
        raise InvalidInput(f"{called} is a data: URL that cannot be read.", "files")
    content = url[found.end() :]
    if len(content) // 4 * 3 > rules.size + 3:
        _check_size(len(content) // 4 * 3, rules, called)
    if not found[2].lower().endswith(";base64"):
        return unquote_to_bytes(content)
    try:
        return b64decode(unquote(content) if "%" in content else content, validate=True)
    except ValueError:
        raise InvalidInput(f"{called} is a data: URL whose base64 cannot be read.", "files") from None


def _media_type(data: bytes, name: str, declared: str, called: str) -> str:
    try:
        found = media_type_of(data, name, declared)
    except Contradiction as other:
        what = "nothing that is known" if other.found == UNKNOWN else described(other.found)
        raise InvalidInput(
            f"{called} is declared as {canonical(declared)}, but its bytes are {what}.", "files"
        ) from None
    if kind_of(found) is not None:
        return found
    if found == UNKNOWN:
        raise InvalidInput(f"{called} cannot be sent: its bytes are of no type that is known.", "files")
    if found.startswith("image/"):
        known = ", ".join(one.partition("/")[2].upper() for one in IMAGES)
        raise InvalidInput(f"{called} cannot be sent: models take images as {known}, not as {found}.", "files")
    raise InvalidInput(f"{called} cannot be sent: no model takes files of the type {found}.", "files")


def _redacted(data: bytes, redact: Redact) -> bytes:
    """The text without secrets, in UTF-8; the same bytes if it has none."""
    text = text_in(data) or ""
    redacted = redact(text)
    return data if redacted == text else encodable(redacted).encode()
