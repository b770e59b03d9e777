"""The texts that references refer to, and the images of such a text, looked up in the events that brought them."""

from __future__ import annotations

from collections.abc import Mapping

from ..events import Event, ToolComplete, ToolReconciled
from ..values.images import Image
from ..values.messages import Heard, Joined, Made, Outcomes, Said


def words(said: Said, events: Mapping[int, Event]) -> str:
    """Return the text that `said` refers to, given the events by their steps. Raises LookupError if there is no such
    text. `Pure.`"""
    match said:
        case Heard(seq=seq, index=index):  # first, because most references are of this type
            return events[seq].texts[index]
        case Made(text=text):
            return text
        case Joined() | Outcomes():
            return said.text_of(words(part, events) for part in said.parts)


def images(said: Said, events: Mapping[int, Event]) -> tuple[Image, ...]:
    """Return the images that belong to the text of a result. `Pure.`"""
    match said:
        case Heard(seq=seq, index=0):
            event = events[seq]
            return event.result.images if isinstance(event, ToolComplete | ToolReconciled) and event.result else ()
        case Joined(parts=parts) | Outcomes(parts=parts):
            return tuple(image for part in parts for image in images(part, events))
        case _:
            return ()
