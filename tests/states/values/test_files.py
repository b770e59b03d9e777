"""References to files: what they may say, and how little of a message they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from turnwise.states import FileReference, HistoryMessage, Opened, ToolComplete, ToolResult, UserMessage
from turnwise.states.events import AnyEvent, Event, files_of
from turnwise.states.values.files import (
    FILE_FAULTS,
    MAX_ADDRESS,
    MAX_FILES,
    MAX_NAME,
    file_of_part,
    kind_of,
    labels,
    reference_in,
)
from turnwise.states.values.value import MAX_QUOTED
from turnwise.testing.generation.chance import FILES
from turnwise.testing.strategies import NOON, texts

from ...support.cases import holds_for
from ...support.pictures import PNG, shown, stored

ADDRESS = "https://example.org/menu.jpg?size=2#page"
STORED = {"sha256": "a" * 64, "media_type": "image/png"}

SEVERAL = st.lists(st.sampled_from(FILES), max_size=3)
EVENTS = st.builds(
    UserMessage,
    event_id=st.just("a"),
    at=st.just(NOON),
    text=texts(),
    files=st.lists(st.sampled_from(FILES), min_size=1, max_size=3),
) | st.builds(
    ToolComplete,
    effect_id=st.just(1),
    at=st.just(NOON),
    result=st.builds(ToolResult, text=texts(), files=SEVERAL),
)


class TestAReference:
    """It is validated where it is made, since a file that no model takes would make every later request fail."""

    @holds_for(
        "given",
        [
            STORED,
            {**STORED, "name": "menü.png", "size": 0},
            {**STORED, "name": "x" * MAX_NAME},
            {**STORED, "media_type": "text/x-anything"},
            {**STORED, "media_type": "application/vnd.api+json"},
            {"url": ADDRESS, "media_type": "image/jpeg"},
            {"url": ADDRESS, "media_type": "image/*"},
            {"url": f"https://a/{'x' * (MAX_ADDRESS - 10)}", "media_type": "application/pdf"},
        ],
    )
    def test_what_is_in_order_is_taken(self, given: Any) -> None:
        """Stored, or on the web."""
        assert FileReference.model_validate(given).model_dump(exclude_defaults=True).items() <= given.items()

    @holds_for(
        "given",
        [
            {"media_type": "image/png"},
            {**STORED, "url": ADDRESS},
            {**STORED, "sha256": "A" * 64},
            {**STORED, "sha256": "a" * 63},
            {**STORED, "sha256": f"{'a' * 64}\n"},
            {**STORED, "media_type": "application/zip"},
            {**STORED, "media_type": "image/bmp"},
            {**STORED, "media_type": "Image/PNG"},
            {**STORED, "media_type": "text/plain\nX: y"},
            {**STORED, "name": "a\nb"},
            {**STORED, "name": "x" * (MAX_NAME + 1)},
            {**STORED, "name": "half \ud83d"},
            {**STORED, "size": -1},
            {**STORED, "data": "AAAA"},
            *(
                {"url": url, "media_type": "image/png"}
                for url in (
                    "photo.png",
                    "http://example.org/a.png",
                    "https:///a.png",
                    "https://example.org/a b.png",
                    "file:///etc/passwd",
                    "javascript:alert(1)",
                    "data:image/png;base64,AAAA",
                    f"https://a/{'x' * (MAX_ADDRESS - 9)}",
                )
            ),
            None,
            "photo.png",
            PNG,
        ],
    )
    def test_what_is_not_is_refused_without_a_word_of_it(self, given: Any) -> None:
        """P33: the error quotes nothing of the value."""
        with pytest.raises(ValidationError) as caught:
            FileReference.model_validate(given)

        assert "passwd" not in str(caught.value)
        assert "AAAA" not in str(caught.value)

    def test_the_faults_of_its_own_have_kinds(self) -> None:
        """By which a tool's error is known to be about a file."""
        given = ({**STORED, "url": ADDRESS}, {**STORED, "media_type": "a/b"}, {"url": "x", "media_type": "image/png"})

        kinds = []
        for one in given:
            with pytest.raises(ValidationError) as caught:
                FileReference.model_validate(one)
            kinds += [error["type"] for error in caught.value.errors()]

        assert set(kinds) <= FILE_FAULTS

    def test_its_repr_is_short(self) -> None:
        """A long address is cut."""
        file = FileReference(url=f"https://a/{'x' * 1000}", media_type="image/png")

        assert len(repr(file)) < MAX_QUOTED + 100

    @pytest.mark.parametrize(
        ("media_type", "kind"),
        [
            ("image/webp", "image"),
            ("application/pdf", "document"),
            ("audio/flac", "audio"),
            ("video/mp4", "video"),
            ("text/csv", "text"),
            ("image/svg+xml", "text"),
            ("application/json", "text"),
            ("application/zip", None),
            ("image/tiff", None),
        ],
    )
    def test_its_kind_follows_from_its_media_type(self, media_type: str, kind: str | None) -> None:
        """What a model does with it; None if no model takes it."""
        assert kind_of(media_type) == kind


class TestEvents:
    """An event brings files by reference."""

    @given(EVENTS)
    def test_an_event_with_files_is_exact_in_json(self, event: Event) -> None:
        """Written as JSON and read back it is equal, and is written alike."""
        family: TypeAdapter[Event] = TypeAdapter(AnyEvent)

        assert family.validate_json(event.to_json()) == event

    @given(SEVERAL)
    def test_all_files_of_an_event_are_found(self, files: list[FileReference]) -> None:
        """In a message, a result, and a history that was given."""
        result = ToolResult(text="x", files=tuple(files))
        message = HistoryMessage(role="user", content=[shown(file) for file in files if file.sha256])

        assert files_of(UserMessage(event_id="a", at=NOON, text="x", files=tuple(files))) == tuple(files)
        assert files_of(ToolComplete(effect_id=1, at=NOON, result=result)) == tuple(files)
        opened = Opened(event_id="1", at=NOON, messages=(message,))
        assert files_of(opened) == tuple(file for file in files if file.sha256)

    @pytest.mark.parametrize("text", ["", " \n"])
    def test_a_message_may_be_a_file_and_nothing_else(self, text: str) -> None:
        """A message needs a text or a file."""
        message = UserMessage(event_id="a", at=NOON, text=text, files=(stored(PNG),))

        assert message.text == text
        with pytest.raises(ValidationError, match="must not be empty"):
            UserMessage(event_id="a", at=NOON, text=text)

    def test_a_message_has_a_greatest_number_of_files(self) -> None:
        """Whatever the rules of its conversation say."""
        message = UserMessage(event_id="a", at=NOON, text="x", files=(stored(PNG),) * MAX_FILES)

        assert len(message.files) == MAX_FILES
        with pytest.raises(ValidationError, match=f"at most {MAX_FILES} files"):
            ToolResult(text="x", files=(stored(PNG),) * (MAX_FILES + 1))


class TestWords:
    """What stands in place of a file."""

    def test_people_read_names_and_kinds(self) -> None:
        """On one line."""
        files = (stored(PNG), stored(PNG), FILES[1], FILES[3])

        assert labels(files) == "[menu.pdf] [2 images] [recording]"

    @pytest.mark.parametrize(
        "part",
        [{}, {"stored_file": None}, {"stored_file": {"sha256": "x"}}, {"type": "image_url", "image_url": {"url": "x"}}],
    )
    def test_a_part_without_a_file_has_none(self, part: dict[str, Any]) -> None:
        """Whatever a log holds can be read."""
        assert file_of_part(part) is reference_in(part) is None
