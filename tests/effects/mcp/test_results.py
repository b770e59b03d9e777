"""What a server returns becomes a text, and the images beside it."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from mcp_types import CallToolResult

from turnwise.effects.mcp.tools import result_of
from turnwise.states.values.messages import MAX_IMAGES, Image, ToolResult

from ...support.pictures import PNG

DATA = b64encode(PNG).decode()


def returned(*content: dict[str, Any], **more: Any) -> ToolResult:
    """Return the result for what a server sends."""
    return result_of(CallToolResult.model_validate({"content": list(content), **more}))


def text(words: str) -> dict[str, Any]:
    """Return a text as a server sends it."""
    return {"type": "text", "text": words}


def image(data: str = DATA, kind: str = "image/png") -> dict[str, Any]:
    """Return an image as a server sends it."""
    return {"type": "image", "data": data, "mimeType": kind}


class TestContent:
    """Blocks of content stand one below the other."""

    @pytest.mark.parametrize(
        ("block", "written"),
        [
            (text("seen"), "seen"),
            ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, "[audio: audio/wav, 3 bytes, not shown]"),
            (image(kind="image/tiff"), f"[image: image/tiff, {len(PNG)} bytes, not shown]"),
            (image(data="AAA="), "[image: image/png, 2 bytes, not shown]"),
            (
                {"type": "resource_link", "name": "log", "uri": "file:///log", "description": "Today's log"},
                "[resource log: file:///log] Today's log",
            ),
            ({"type": "resource", "resource": {"uri": "a:b", "text": "inside"}}, "[resource a:b]\ninside"),
            (
                {"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA"}},
                "[resource a:b: of an unknown type, 3 bytes, not shown]",
            ),
        ],
    )
    def test_each_kind_of_block(self, block: dict[str, Any], written: str) -> None:
        """A text is repeated, anything else that a model cannot take is described."""
        assert returned(text("First."), block) == ToolResult(text=f"First.\n\n{written}")

    def test_images_are_shown(self) -> None:
        """Beside the text."""
        assert returned(image(), text("A map.")) == ToolResult(text="A map.", images=(Image.of(PNG),))
        assert returned(image()) == ToolResult(text="", images=(Image.of(PNG),))

    def test_more_images_than_a_model_takes(self) -> None:
        """Those that are too many are described."""
        result = returned(*[image()] * (MAX_IMAGES + 1))

        assert len(result.images) == MAX_IMAGES
        assert result.text == f"[image: image/png, {len(PNG)} bytes, not shown]"

    def test_images_that_are_too_large_together(self) -> None:
        """The ones that fit are shown."""
        large = b64encode(PNG + bytes(7_000_000)).decode()
        result = returned(image(large), image(large), image(large), image())

        assert len(result.images) == 3
        assert result.text == f"[image: image/png, {len(PNG) + 7_000_000:,} bytes, not shown]"

    def test_nothing_at_all(self) -> None:
        """An empty text would look like a failure."""
        assert returned() == ToolResult(text="Done.")

    def test_an_error(self) -> None:
        """The model reads it as one."""
        assert returned(text("The disk is full."), isError=True) == ToolResult(text="The disk is full.", error=True)


class TestStructuredContent:
    """It is written as JSON, unless a text says the same."""

    @pytest.mark.parametrize(
        ("texts", "structured"),
        [
            ([json.dumps({"count": 3}, indent=2)], {"count": 3}),
            (["seen"], {"result": "seen"}),
            (["[1, 2]"], {"result": [1, 2]}),
            (["1", "2"], {"result": [1, 2]}),
            (["a", "b"], {"result": ["a", "b"]}),
            (["a"], {"result": ["a"]}),
        ],
    )
    def test_what_a_text_says_is_not_repeated(self, texts: list[str], structured: object) -> None:
        """The SDK for servers writes a value as texts, too."""
        assert returned(*map(text, texts), structuredContent=structured).text == "\n\n".join(texts)

    @pytest.mark.parametrize(
        ("texts", "structured", "written"),
        [
            ([], {"count": 3}, '{"count":3}'),
            (["Three were found."], {"count": 3}, 'Three were found.\n\n{"count":3}'),
            ([], {"result": None}, '{"result":null}'),
            (["x"], [1], "x\n\n[1]"),
        ],
    )
    def test_what_no_text_says_is_added(self, texts: list[str], structured: object, written: str) -> None:
        """Nothing is lost."""
        assert returned(*map(text, texts), structuredContent=structured).text == written

    def test_deep_texts_are_compared_without_harm(self) -> None:
        """A text may be nested deeper than Python reads."""
        deep = "[" * 100_000

        assert returned(text(deep), structuredContent={"a": 1}).text == f'{deep}\n\n{{"a":1}}'
