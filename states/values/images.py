"""Images of people and of tools.

A model gets an image as an address on the web, or as the image itself in a `data:` URL. A provider that cannot read an
image refuses the whole request, and every later request of the conversation too, since the image stays in the history.
So an image is validated when it is made, against what all providers that take images have in common: PNG, JPEG, GIF and
WebP, with the media type that is declared.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from ..errors import InvalidInput
from ..faults import read_up_to
from .value import MAX_QUOTED, Value, shortened

MAX_IMAGE = 10_000_000
"""The most characters of one image as a `data:` URL, which is a file of 7.5 MB. Chosen to be more than a camera's JPEG
needs."""

MAX_ADDRESS = 8_000
"""The most characters of an address on the web: what every server should accept (RFC 9110, 4.1)."""

MAX_IMAGES = 20
"""The most images of one message, or of one result."""

MAX_TOGETHER = 20_000_000
"""The most characters of all images of one message. Chosen to be about what providers take in one request."""

IMAGE_FAULTS = frozenset({
    "image_unknown", "image_long", "image_data", "image_address", "image_address_long", "image_given", "images_many",
    "images_large",
})  # fmt: skip
"""The types of the validation errors of images."""

_SIGNATURES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
"""How the files of each media type begin."""

_WANTED = "an image is an https:// URL, a data: URL, or the bytes of a PNG, JPEG, GIF or WebP file"
_ADDRESS = re.compile(r"https://(?![/?#])[!-~]+")
_DATA = re.compile(r"data:(image/[a-z]+);base64,([A-Za-z0-9+/]+={0,2})")
_BEGINNING = 16
"""Characters of base64 that hold the longest signature."""


def media_type(data: bytes) -> str | None:
    """The media type of these bytes, by how they begin; None if it is no known image. `Pure.`"""
    return next((kind for kind, signature in _SIGNATURES.items() if signature.match(data)), None)


def _data_url(data: bytes) -> str:
    kind = media_type(data)
    if kind is None:
        raise PydanticCustomError("image_unknown", "these are not the bytes of a PNG, JPEG, GIF or WebP file")
    return f"data:{kind};base64,{b64encode(data).decode()}"


def _checked(url: str) -> str:
    if not url.startswith("data:"):
        return _checked_address(url)
    if len(url) > MAX_IMAGE:
        raise PydanticCustomError("image_long", f"an image takes at most {MAX_IMAGE:,} characters as a data: URL")
    found = _DATA.fullmatch(url)
    if found is None or len(found[2]) % 4 or media_type(b64decode(found[2][:_BEGINNING])) != found[1]:
        sentence = "a data: URL holds a PNG, JPEG, GIF or WebP file in base64, and names its media type"
        raise PydanticCustomError("image_data", sentence)
    return url


def _checked_address(url: str) -> str:
    if not _ADDRESS.fullmatch(url):
        raise PydanticCustomError("image_address", _WANTED)
    if len(url) > MAX_ADDRESS:
        raise PydanticCustomError("image_address_long", f"the URL of an image has at most {MAX_ADDRESS:,} characters")
    return url


class Image(Value):
    """An image. `url` is its https:// address, or a `data:` URL that holds it.

    The provider fetches an address; for the few providers that take none (Bedrock, Ollama, sometimes Gemini) litellm
    fetches it from this machine, if it is public. The address must stay valid as long as the conversation goes on.

    `Image.of` also takes the bytes of a file. Where another value expects an image, an address or bytes are accepted
    too.
    """

    # An image that was built past its validation is found where it is handed in.
    model_config: ClassVar[ConfigDict] = ConfigDict(hide_input_in_errors=True, revalidate_instances="always")

    url: Annotated[str, AfterValidator(_checked)]

    @classmethod
    def of(cls, given: str | bytes) -> Image:
        """The image at this URL, or the image file with these bytes, whose type is recognised by how they begin.

        Raises `InvalidInput` if it is no image, or is too large. `Pure.`
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            sentence = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise InvalidInput(f"This is no image that can be used: {sentence}.") from None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: object) -> object:
        match given:
            case str():
                return {"url": given}
            case bytes():
                return {"url": _data_url(given)}
            case dict() | Image():
                return given
            case _:
                raise PydanticCustomError("image_given", _WANTED)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        yield "url", shortened(self.url, MAX_QUOTED)


def _few(given: object) -> object:
    images = read_up_to(given, MAX_IMAGES + 1)
    if isinstance(images, tuple) and len(images) > MAX_IMAGES:
        raise PydanticCustomError("images_many", f"at most {MAX_IMAGES} images go together")
    return images


def _small_enough(images: tuple[Image, ...]) -> tuple[Image, ...]:
    if sum(len(image.url) for image in images) > MAX_TOGETHER:
        raise PydanticCustomError("images_large", f"images take at most {MAX_TOGETHER:,} characters together")
    return images


Images = Annotated[tuple[Image, ...], BeforeValidator(_few), AfterValidator(_small_enough)]
"""The images of one message, or of one result, in order."""
