"""An image is validated when it is made, and the images of a message have bounds."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from turnwise.effects.tools.results import result_of
from turnwise.states import Image, InvalidInput, ToolComplete, ToolResult, UserMessage
from turnwise.states.events import AnyEvent, Event
from turnwise.states.values.messages import MAX_ADDRESS, MAX_IMAGE, MAX_IMAGES, MAX_TOGETHER, Images, media_type
from turnwise.states.values.value import MAX_QUOTED
from turnwise.testing.strategies import NOON, texts

from ...support.cases import holds_for
from ...support.pictures import GIF, JPEG, PNG, WEBP, data_url, padded_png

ADDRESS = "https://example.org/menu.jpg?size=2#page"
LARGEST = padded_png(MAX_IMAGE // 4 * 3 - 18)
"""A file that just fits: its data: URL has 22 characters before the base64."""

WANTED = "an image is an https:// URL, a data: URL, or the bytes of a PNG, JPEG, GIF or WebP file"

IMAGES = st.sampled_from([Image.of(each) for each in (ADDRESS, PNG, GIF, JPEG, WEBP)])
EVENTS = st.builds(
    UserMessage, event_id=st.just("a"), at=st.just(NOON), text=texts(), images=st.lists(IMAGES, min_size=1, max_size=3)
) | st.builds(
    ToolComplete,
    effect_id=st.just(1),
    at=st.just(NOON),
    result=st.builds(ToolResult, text=texts(), images=st.lists(IMAGES, max_size=3)),
)


class TestAnImage:
    """An image is validated when it is made, since an unreadable one would make every later request fail."""

    @pytest.mark.parametrize(
        ("data", "kind"), [(PNG, "image/png"), (JPEG, "image/jpeg"), (GIF, "image/gif"), (WEBP, "image/webp")]
    )
    def test_the_bytes_of_a_file_become_a_data_url(self, data: bytes, kind: str) -> None:
        """The bytes of a file become a `data:` URL with the media type by which they begin."""
        assert (media_type(data), Image.of(data).url) == (kind, data_url(kind, data))

    @pytest.mark.parametrize("url", [ADDRESS, data_url("image/png", PNG), f"https://a/{'x' * (MAX_ADDRESS - 10)}"])
    def test_a_url_stays_as_it_is(self, url: str) -> None:
        """An address and a `data:` URL are kept unchanged."""
        assert Image.of(url) == Image(url=url)

    @holds_for(
        "given",
        [
            "",
            "photo.png",
            "http://example.org/a.png",
            "https:///a.png",
            "https://example.org/a b.png",
            "https://example.org/\ud83c.png",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "data:,",
            "data:image/png;base64,",
            "data:image/svg+xml;base64,PHN2Zz4=",
            "data:text/html;base64,PGI+",
            data_url("image/png", PNG)[:-1],
            data_url("image/png", PNG) + "\n",
            data_url("image/png", PNG).replace(";base64", ""),
            data_url("image/jpeg", PNG),
            data_url("image/png", b"no image"),
            b"",
            b"no image",
            b"RIFF1234WAVE",
            f"https://a/{'x' * (MAX_ADDRESS - 9)}",
            None,
            7,
            Path("photo.png"),
            {},
            {"url": ADDRESS, "detail": "high"},
        ],
    )
    def test_what_is_no_image_is_refused_in_one_sentence(self, given: Any) -> None:
        """P33: the error says what an image is and quotes nothing of the value."""
        with pytest.raises(InvalidInput) as caught:
            Image.of(given)

        sentence = caught.value.sentence
        assert sentence.startswith("This is no image that can be used: ")
        assert (sentence[-1], "\n" in sentence, len(sentence) < 200) == (".", False, True)
        assert "passwd" not in sentence

    @pytest.mark.parametrize(
        ("given", "kind", "sentence"),
        [
            ("photo.png", "image_address", WANTED),
            (7, "image_given", WANTED),
            (b"no image", "image_unknown", "these are not the bytes of a PNG, JPEG, GIF or WebP file"),
            (
                "data:" + "x" * (MAX_IMAGE - 5),
                "image_data",
                "a data: URL holds a PNG, JPEG, GIF or WebP file in base64, and names its media type",
            ),
            (
                "data:" + "x" * (MAX_IMAGE - 4),
                "image_long",
                "an image takes at most 10,000,000 characters as a data: URL",
            ),
            (
                f"https://a/{'x' * (MAX_ADDRESS - 9)}",
                "image_address_long",
                "the URL of an image has at most 8,000 characters",
            ),
        ],
        ids=["a path", "a number", "bytes", "data", "long", "long address"],
    )
    def test_a_refusal_says_what_is_wrong_with_this_one(self, given: Any, kind: str, sentence: str) -> None:
        """P33: the error has a sentence for people and a kind for programs."""
        with pytest.raises(ValidationError) as unchecked:
            Image.model_validate(given)
        with pytest.raises(InvalidInput) as caught:
            Image.of(given)

        (error,) = unchecked.value.errors()
        assert (error["type"], error["msg"]) == (kind, sentence)
        assert caught.value.sentence == f"This is no image that can be used: {sentence}."

    def test_an_image_has_a_greatest_length(self) -> None:
        """An image of the greatest length is accepted, and one with a character more is refused."""
        assert len(Image.of(LARGEST).url) <= MAX_IMAGE

        with pytest.raises(InvalidInput, match="at most 10,000,000 characters"):
            Image.of(LARGEST + b"xxx")

    def test_its_repr_is_short(self) -> None:
        """The repr of an image does not hold its data."""
        assert repr(Image.of(LARGEST)) == f"Image(url={Image.of(LARGEST).url[: MAX_QUOTED - 1] + '…'!r})"
        assert repr(Image.of(ADDRESS)) == f"Image(url={ADDRESS!r})"

    @given(EVENTS)
    def test_an_event_with_images_is_exact_in_json(self, event: Event) -> None:
        """An event with images that is written as JSON and read back is equal, and is written alike."""
        family: TypeAdapter[Event] = TypeAdapter(AnyEvent)

        assert family.validate_json(event.to_json()) == event


class TestAMessage:
    """A person's message may hold images."""

    @pytest.mark.parametrize("text", ["", " \n"])
    def test_it_may_be_an_image_and_nothing_else(self, text: str) -> None:
        """A message needs a text or an image."""
        message = UserMessage(event_id="a", at=NOON, text=text, images=(Image.of(PNG),))

        assert message.text == text
        with pytest.raises(ValidationError, match="must not be empty"):
            UserMessage(event_id="a", at=NOON, text=text)

    @pytest.mark.parametrize(
        ("images", "reason"),
        [
            ((PNG,) * (MAX_IMAGES + 1), f"at most {MAX_IMAGES} images"),
            ((LARGEST,) * 3, f"at most {MAX_TOGETHER:,} characters together"),
        ],
        ids=["many", "large"],
    )
    def test_images_have_bounds_together(self, images: tuple[bytes, ...], reason: str) -> None:
        """The number and the total size of images have the same bounds in a message and in a result."""
        with pytest.raises(ValidationError, match=reason):
            UserMessage(event_id="a", at=NOON, text="Hi", images=images)  # type: ignore[arg-type]
        with pytest.raises(ValidationError, match=reason):
            result_of([Image.of(image) for image in images])

    def test_as_many_images_go_together_as_the_bounds_say(self) -> None:
        """Images up to the bounds are accepted."""
        family: TypeAdapter[tuple[Image, ...]] = TypeAdapter(Images)
        two = (Image.of(LARGEST[:-3]),) * 2
        left = MAX_TOGETHER - sum(len(image.url) for image in two)
        full = (*two, Image(url="https://a".ljust(left, "x")))

        assert len(family.validate_python((ADDRESS,) * MAX_IMAGES)) == MAX_IMAGES
        assert family.validate_python(full) == full
        with pytest.raises(ValidationError) as large:
            family.validate_python((*two, Image(url="https://a".ljust(left + 1, "x"))))
        with pytest.raises(ValidationError) as many:
            family.validate_python((ADDRESS,) * (MAX_IMAGES + 1))

        refusals = [(error["type"], error["msg"]) for caught in (large, many) for error in caught.value.errors()]
        assert refusals == [
            ("images_large", "images take at most 20,000,000 characters together"),
            ("images_many", "at most 20 images go together"),
        ]
