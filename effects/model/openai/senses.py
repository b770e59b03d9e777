"""What is known of which files a model takes: what is said of it, and what it has refused.

A request with a file that a model does not take is refused as a whole. Once that is known, the request is not sent: it
fails at once, as the provider would have it fail, and the conversation goes on without the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....states.values.files import FileKind
from ..port import SENTENCES, LlmFailure, ModelRequest

_ENOUGH_REFUSALS = 2
"""So many requests with files of a kind in a row, of any conversations, are refused before a model counts as one that
takes none."""


class Senses:
    """What is known of which files a model takes. `given` is what the application says; for other kinds `listed` tells
    what else is known beforehand, and then what the provider answers decides. One refusal alone teaches nothing,
    because it may have been about one file, or may have been misread."""

    def __init__(
        self,
        given: Mapping[FileKind, bool] | None = None,
        listed: Callable[[FileKind], bool | None] = lambda kind: None,
    ) -> None:
        self._given = given or {}
        self._listed = listed
        self._learned: dict[FileKind, bool] = {}
        self._refused: dict[FileKind, int] = {}

    def declared(self, kind: FileKind) -> bool | None:
        """Whether the model takes files of this kind, by what is said of it."""
        return self._given[kind] if kind in self._given else self._listed(kind)

    def takes(self, kind: FileKind) -> bool | None:
        """Whether the model takes files of this kind, or None if that is not known."""
        if kind in self._learned and kind not in self._given:
            return self._learned[kind]
        return self.declared(kind)

    def check(self, request: ModelRequest) -> None:
        """Raise `LlmFailure` for a request that shows files of a kind that the model does not take."""
        if request.shows and any(self.takes(kind) is False for kind in request.shows):
            raise LlmFailure("unsupported_content", SENTENCES["unsupported_content"])

    def note_answer(self, request: ModelRequest) -> None:
        """Learn from a request that was answered."""
        for kind in request.shows:
            self._learned[kind] = True
            self._refused.pop(kind, None)

    def note_failure(self, request: ModelRequest, failure: LlmFailure) -> None:
        """Learn from a request that failed. A model that has taken such a file before has refused something else; and
        where a request shows files of several kinds, nobody knows which it was."""
        if failure.kind != "unsupported_content" or len(request.shows) != 1:
            return
        (kind,) = request.shows
        if kind not in self._learned:
            self._refused[kind] = self._refused.get(kind, 0) + 1
            if self._refused[kind] >= _ENOUGH_REFUSALS:
                self._learned[kind] = False
