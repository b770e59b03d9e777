"""Whether a model takes images: as the application says, as litellm's list says, or as refusals have taught.

A request with an image that a model does not take is refused as a whole. Once that is known the request is not sent:
it fails at once, as the provider would have it fail, and the conversation goes on without the image. One refusal alone
teaches nothing, because it may have been about one image, or may have been misread.
"""

from __future__ import annotations

from ..failure_sentences import SENTENCES
from ..port import LlmFailure, ModelRequest
from .model_list import listed_model

ENOUGH_REFUSALS = 2
"""So many requests with images in a row, of any conversations, are refused before a model counts as one that takes
none."""


class Sight:
    """What is known of whether a model takes images. `given` is what the application says; with None, litellm's list of
    models decides, by the name `model`, and then what the provider answers. All conversations of an engine share it."""

    def __init__(self, model: str, given: bool | None) -> None:
        self._model = model
        self._given = given
        self._learned: bool | None = None
        self._refused = 0

    @property
    def takes_images(self) -> bool | None:
        """Whether the model takes images, or None if that is not known. Does not import litellm."""
        for known in (self._given, self._learned):
            if known is not None:
                return known
        return listed_model(self._model).takes_images

    def check(self, request: ModelRequest) -> None:
        """Raise `LlmFailure` for a request that has images if the model takes none."""
        if self.takes_images is False and request.has_images:
            raise LlmFailure("unsupported_content", SENTENCES["unsupported_content"])

    def note_answer(self, request: ModelRequest) -> None:
        """Learn from a request that was answered."""
        if (self._refused or not self._learned) and request.has_images:
            self._learned, self._refused = True, 0

    def note_failure(self, request: ModelRequest, failure: LlmFailure) -> None:
        """Learn from a request that failed. A model that has taken an image before has refused something else."""
        if failure.kind == "unsupported_content" and self._learned is None and request.has_images:
            self._refused += 1
            if self._refused >= ENOUGH_REFUSALS:
                self._learned = False
