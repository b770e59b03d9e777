"""The texts of a log, and what else is asked of the steps that brought them.

The events themselves are not kept: they take several times the memory, and time of the garbage collector.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..events import EVENTS, AgentMessage, Event, MemoryRecalled, ToolComplete, ToolReconciled, WakeUp
from ..values.images import Image
from ..values.messages import Heard, Joined, Made, Outcomes, Said

_WITH_TEXTS = frozenset(kind for kind in EVENTS if kind.texts is not Event.texts)


@dataclass
class HeardTexts:
    """The texts to which references may refer. Call `note` with the event of every step."""

    _texts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The texts that each step brought."""
    _images: dict[int, tuple[Image, ...]] = field(default_factory=dict)
    """The images of each result that has any, by step."""
    _origins: dict[int, str] = field(default_factory=dict)
    """The agent that wrote each message which is not a person's, by step."""
    _found: dict[int, MemoryRecalled] = field(default_factory=dict)
    """What each search in older conversations has found, by step."""

    def note(self, seq: int, event: Event) -> None:
        """Note what the event of this step brought."""
        if type(event) not in _WITH_TEXTS:
            return
        self._texts[seq] = event.texts
        if type(event) is ToolComplete or type(event) is ToolReconciled:
            if event.result is not None and event.result.images:
                self._images[seq] = event.result.images
        elif type(event) is AgentMessage or type(event) is WakeUp:
            self._origins[seq] = event.origin
        elif type(event) is MemoryRecalled:
            self._found[seq] = event

    def copy(self) -> HeardTexts:
        """Return the same texts, which grow on their own. `Pure.`"""
        return HeardTexts(self._texts.copy(), self._images.copy(), self._origins.copy(), self._found.copy())

    def words(self, said: Said) -> str:
        """The text that `said` refers to. Raises LookupError if there is no such text. `Pure.`"""
        if isinstance(said, Heard):  # first, because most references are of this type
            return self._texts[said.seq][said.index]
        match said:
            case Made(text=text):
                return text
            case Joined() | Outcomes():
                return said.text_of(map(self.words, said.parts))

    def images(self, said: Said) -> tuple[Image, ...]:
        """The images that belong to the text of a result. `Pure.`"""
        if not self._images:
            return ()
        match said:
            case Heard(seq=seq, index=0):
                return self._images.get(seq, ())
            case Joined(parts=parts) | Outcomes(parts=parts):
                return tuple(image for part in parts for image in self.images(part))
            case _:
                return ()

    def origin(self, said: Said) -> str:
        """The agent that said this, or an empty text if it was no agent. `Pure.`"""
        return self._origins.get(said.seq, "") if isinstance(said, Heard) else ""

    def found(self, memory: Heard | None) -> MemoryRecalled | None:
        """What the search to which `memory` refers has found. `Pure.`"""
        return None if memory is None else self._found.get(memory.seq)
