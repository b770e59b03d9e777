"""What refusals teach of whether a model takes images."""

from turnwise import LlmFailure, ModelRequest
from turnwise.effects.model.litellm.llm import Sight

LOOK = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SEEING = ModelRequest("openai/m", ({"role": "user", "content": [LOOK]},), (), "auto")
READING = ModelRequest("openai/m", ({"role": "user", "content": "Hi"},), (), "auto")
REFUSED = LlmFailure("unsupported_content", "No images.")


def test_one_refusal_teaches_nothing() -> None:
    """It may have been about one image, or may have been misread."""
    sight = Sight("openai/m", None)
    sight.note_failure(SEEING, REFUSED)
    sight.note_failure(READING, REFUSED)
    sight.note_answer(READING)

    assert sight.takes_images is None


def test_two_in_a_row_teach_that_there_is_no_sight() -> None:
    """Requests without images in between say nothing."""
    sight = Sight("openai/m", None)
    sight.note_failure(SEEING, REFUSED)
    sight.note_answer(READING)
    sight.note_failure(SEEING, REFUSED)

    assert sight.takes_images is False


def test_an_image_that_is_taken_shows_that_there_is_sight() -> None:
    """Also where a request that was under way is answered after refusals."""
    sight = Sight("openai/m", None)
    for _ in range(2):
        sight.note_failure(SEEING, REFUSED)
    sight.note_answer(SEEING)
    for _ in range(2):
        sight.note_failure(SEEING, REFUSED)

    assert sight.takes_images is True
