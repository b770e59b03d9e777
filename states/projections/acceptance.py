"""What models have accepted of what was said, and what of it a refused request makes suspicious.

A model that answers has accepted the whole request. So what entered the transcript before its answer is not what the
next request is refused for, unless another model refuses it, or the provider has changed its mind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from ..values.failures import FailureKind
from ..values.messages import Message
from ..values.withheld import Matter, Suspect, Withheld

_NOTHING: tuple[Matter, ...] = ()
_TEXT: tuple[Matter, ...] = ("text",)
_IMAGES: tuple[Matter, ...] = ("images",)
_ALL: tuple[Matter, ...] = ("text", "images")

_Matters = Mapping[Suspect, tuple[Matter, ...]]

_OLD: _Matters = {"sight": _IMAGES, "images": _IMAGES}
_NEW: _Matters = {**_OLD, "new_images": _IMAGES}
_SAID: _Matters = {**_NEW, "additions": _IMAGES, "words": _ALL}
_ADDED: _Matters = {**_NEW, "additions": _ALL}
"""What of a message each suspect is: of an accepted one, of one that was not, of what people said in the turn, and of
what came in otherwise."""

_FROM_ITS_MODEL: frozenset[Suspect] = frozenset({"sight", "images", "earlier"})
"""What is withheld only from the model that refused it: others have accepted it, or take what this one does not."""


@dataclass(slots=True)
class Acceptance:
    """Which steps each model has accepted. `newest` is the step of the newest answer: what entered in it or behind it,
    no model has accepted yet."""

    newest: int = 0
    by_model: dict[str, int] = field(default_factory=dict)
    """By model, the step of its newest answer."""
    sightless: dict[str, FailureKind] = field(default_factory=dict)
    """The models that take no images, with the kind of failure that told."""
    refused: int | None = None
    """The first turn that was refused for its content since the newest answer."""
    tried: list[tuple[int, Withheld]] = field(default_factory=list)
    """What was withheld since the newest answer, by the place of its message; -1 stands for the summary. As long as no
    model has answered without it, it may be innocent."""

    def accept(self, model: str, seq: int) -> None:
        """Note that this model has answered, at this step."""
        self.by_model[model] = self.newest = seq
        if self.refused is not None or self.tried:
            self.refused = None
            self.tried.clear()

    def refuse(self, turn: int) -> None:
        """Note that a request of this turn was refused for its content."""
        if self.refused is None:
            self.refused = turn

    def copy(self) -> Acceptance:
        """Return the same acceptance, which grows on its own. `Pure.`"""
        return Acceptance(self.newest, self.by_model.copy(), self.sightless.copy(), self.refused, self.tried.copy())

    def withheld_from_the_sightless(self) -> tuple[Withheld, ...]:
        """What is withheld of a message that enters with images now. `Pure.`"""
        return tuple(Withheld(what="images", kind=kind, model=model) for model, kind in self.sightless.items())

    def suspicion(self, model: str, turn: int, first_try: int) -> Suspicion:
        """What is suspicious when this model refuses a request of this turn, which answers what was said since the turn
        `first_try`. `Pure.`"""
        accepted = self.by_model.get(model, 0)
        is_repeated = self.refused is not None and self.refused < turn
        return Suspicion(model, first_try, self.newest, accepted, is_repeated)


@dataclass(frozen=True)
class Suspicion:
    """Sorts messages by whether they may be what `model` has refused in a turn that answers what people said since
    `turn`. What came in before the step `accepted` this model has accepted, and what came in before the step `newest`
    any model. `is_repeated` says that an earlier turn was refused, too, and nothing was accepted since."""

    model: str
    turn: int
    newest: int
    accepted: int
    is_repeated: bool

    def held(self, shown: Sequence[Message], all_messages: Iterable[Message]) -> Iterator[Suspect]:
        """Yield what a request that shows these messages, out of all, has of each suspect. `Pure.`"""
        for suspect in get_args(Suspect):
            if suspect == "sight" and any(map(self._has_taken_images, all_messages)):
                continue
            if any(self.matters(suspect, message) for message in shown):
                yield suspect

    def matters(self, suspect: Suspect, message: Message) -> tuple[Matter, ...]:
        """What of this message the model sees and is under this suspicion. `Pure.`"""
        hidden = {one.what for one in message.withheld if one.concerns(self.model)}
        has: dict[Matter, bool] = {
            "text": bool(message.text.strip() or message.tool_calls),
            "images": bool(message.images),
        }
        return tuple(one for one in self._suspected(suspect, message) if has[one] and one not in hidden)

    def mark(self, suspect: Suspect, kind: FailureKind, what: Matter) -> Withheld:
        """How it is noted that this is withheld because of a failure of this kind. `Pure.`"""
        is_of_model = suspect in _FROM_ITS_MODEL or kind == "unsupported_content"
        return Withheld(what=what, kind=kind, model=self.model if is_of_model else "")

    def _suspected(self, suspect: Suspect, message: Message) -> tuple[Matter, ...]:
        if message.seq < self.newest:
            is_earlier = suspect == "earlier" and (self.is_repeated or message.seq >= self.accepted)
            return _ALL if is_earlier else _OLD.get(suspect, _NOTHING)
        if message.role == "assistant":
            is_suspect = suspect == "answers" and (self.is_repeated or message.turn >= self.turn)
            return _TEXT if is_suspect else _NOTHING
        return (_SAID if self.is_said(message) else _ADDED).get(suspect, _NOTHING)

    def is_said(self, message: Message) -> bool:
        """Whether a person has said this in the turn. `Pure.`"""
        return message.role == "user" and message.audience is None and message.turn >= self.turn

    def _has_taken_images(self, message: Message) -> bool:
        return message.seq < self.accepted and "images" in self.matters("images", message)
