"""References to files: what the log, the states and the effects hold of an image, a PDF, a recording or a text file.

The bytes of a file are stored once, beside the log, under their SHA-256 digest. Everything else refers to them by that
digest, and says what a reader needs who does not have the bytes: media type, name and size. So a message with ten
megabytes of photos takes some hundred characters wherever it is written, and copies of a conversation share its files.

Nobody here sees bytes. What a file is, and whether it may be sent, is found out before it gets here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ..errors import read_up_to
from .value import MAX_QUOTED, Text, Value, shortened

MAX_ADDRESS = 8_000
"""The most characters of an address on the web: what every server should accept (RFC 9110, 4.1)."""

MAX_NAME = 255
"""The most characters of a file's name: what common file systems hold."""

MAX_FILES = 100
"""The most files of one message, or of one result, whatever the rules of a conversation say."""

FileKind = Literal["image", "document", "audio", "video", "text"]
"""What a model does with a file: sees, reads or hears it. A text file is sent as text."""

DOCUMENTS: Mapping[str, str] = {
    "application/pdf": "PDF",
    "application/msword": "Word",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "Word",
    "application/vnd.ms-excel": "Excel",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "Excel",
    "application/vnd.ms-powerpoint": "PowerPoint",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "PowerPoint",
}
"""The documents that some model takes, and what people call them."""

ANY_IMAGE = "image/*"
"""Stands for the media type of an image on the web whose address does not say it."""

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The images that all providers take which take images."""

ENDINGS: Mapping[str, str] = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".pdf": "application/pdf",
    ".mp3": "audio/mpeg",
    ".wav": "audio/wav",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
}
"""What addresses on the web end in, and the media types that they mean."""

TEXTS = frozenset({
    "application/json", "application/xml", "application/yaml", "application/toml", "application/x-ndjson",
    "application/javascript", "application/sql", "application/x-sh", "image/svg+xml",
})  # fmt: skip
"""The media types of texts, besides those that begin with `text/`."""


def kind_of(media_type: str) -> FileKind | None:
    """What a model does with a file of this media type; None if no model takes it. `Pure.`"""
    major = media_type.partition("/")[0]
    if major == "text" or media_type in TEXTS or media_type.endswith(("+json", "+xml")):
        return "text"
    if major in ("audio", "video"):
        return "audio" if major == "audio" else "video"
    if media_type in DOCUMENTS:
        return "document"
    return "image" if media_type in IMAGES or media_type == ANY_IMAGE else None


_ADDRESS = re.compile(r"https://(?![/?#])[!-~]+")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,80}/[a-z0-9][a-z0-9!#$&^_.+-]{0,80}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def is_address(url: str) -> bool:
    """Whether this is an address on the web that a model can be sent. `Pure.`"""
    return len(url) <= MAX_ADDRESS and _ADDRESS.fullmatch(url) is not None


def _checked_address(url: str) -> str:
    if url and not _ADDRESS.fullmatch(url):
        raise PydanticCustomError("file_address", "the address of a file is an https:// URL")
    if len(url) > MAX_ADDRESS:
        raise PydanticCustomError("file_address_long", f"the URL of a file has at most {MAX_ADDRESS:,} characters")
    return url


def _checked_type(media_type: str) -> str:
    if media_type != ANY_IMAGE and (not _MEDIA_TYPE.fullmatch(media_type) or kind_of(media_type) is None):
        raise PydanticCustomError("file_type", "no model takes files of this media type")
    return media_type


def _checked_name(name: str) -> str:
    if _CONTROL.search(name):
        raise PydanticCustomError("file_name", "the name of a file is one line")
    return name


class FileReference(Value):
    """A file that is stored beside the log, by the `sha256` digest of its bytes (64 hexadecimal digits), or one on the
    web, by its https:// `url`; one of the two is given.

    `size` is in bytes, and is 0 for a file on the web, whose media type is what its sender says of it. The provider
    fetches an address; for the few providers that take none (Bedrock, Ollama, sometimes Gemini) litellm fetches it from
    this machine, if it is public. The address must stay valid as long as the conversation goes on.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(hide_input_in_errors=True)

    sha256: Annotated[Text, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    url: Annotated[Text, AfterValidator(_checked_address)] = ""
    media_type: Annotated[Text, AfterValidator(_checked_type)]
    name: Annotated[Text, Field(max_length=MAX_NAME), AfterValidator(_checked_name)] = ""
    size: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _is_somewhere(self) -> FileReference:
        if bool(self.sha256) == bool(self.url):
            raise PydanticCustomError("file_place", "a file has either a digest or an address")
        return self

    @property
    def kind(self) -> FileKind:
        """What a model does with it. `Pure.`"""
        kind = kind_of(self.media_type)
        assert kind is not None, "the media type was checked"
        return kind

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, shortened(value, MAX_QUOTED) if name == "url" else value


def _few(given: object) -> object:
    files = read_up_to(given, MAX_FILES + 1)
    if isinstance(files, tuple) and len(files) > MAX_FILES:
        raise PydanticCustomError("files_many", f"at most {MAX_FILES} files go together")
    return files


FileReferences = Annotated[tuple[FileReference, ...], BeforeValidator(_few)]
"""The files of one message, or of one result, in order."""

FILE_FAULTS = frozenset({"file_address", "file_address_long", "file_type", "file_name", "file_place", "files_many"})
"""The types of the validation errors of files."""


NOUNS: Mapping[FileKind, str] = {
    "image": "image",
    "document": "document",
    "audio": "recording",
    "video": "video",
    "text": "text file",
}
"""What people call a file of each kind."""


def labels(files: Collection[FileReference]) -> str:
    """What people read in place of files, on one line: `[report.pdf] [2 images]`. `Pure.`"""
    named = [f"[{file.name}]" for file in files if file.name]
    counts = Counter(NOUNS[file.kind] for file in files if not file.name)
    return " ".join((*named, *(f"[{what}]" if many == 1 else f"[{many} {what}s]" for what, many in counts.items())))


STORED_FILE = "stored_file"
"""The member of a part of a message, and the type of a part, that holds a reference in place of the bytes."""


def reference_in(part: Mapping[str, Any]) -> FileReference | None:
    """The reference in a part of a message in OpenAI's format, or None if it has none that can be read. `Pure.`"""
    if STORED_FILE not in part:
        return None
    try:
        return FileReference.model_validate(part[STORED_FILE])
    except ValueError:
        return None


def file_of_part(part: Mapping[str, Any]) -> FileReference | None:
    """The file that a part of a message in OpenAI's format refers to or names by its address, or None. `Pure.`"""
    match part:
        case {"stored_file": _}:
            return reference_in(part)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return image_at(url)
        case {"type": "file", "file": {"file_id": str(url), "format": str(media_type)}}:
            return file_at(url, media_type)
        case _:
            return None


def image_at(url: str) -> FileReference | None:
    """The image on the web at this address, or None if it is no address that a model can be sent. `Pure.`"""
    known = media_type_at(url)
    return file_at(url, known if kind_of(known) == "image" else ANY_IMAGE)


def file_at(url: str, media_type: str) -> FileReference | None:
    """The file of this type on the web, or None if it is nothing that a model can be sent. `Pure.`"""
    try:
        return FileReference(url=url, media_type=media_type)
    except ValueError:
        return None


def media_type_at(url: str) -> str:
    """The media type that the path of an address says by its ending; that of any image if it says none. `Pure.`"""
    path = re.split(r"[?#]", url, maxsplit=1)[0].lower()
    return next((kind for ending, kind in ENDINGS.items() if path.endswith(ending)), ANY_IMAGE)
