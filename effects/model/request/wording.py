"""Words the messages of a transcript for a model.

A message of another agent stands between tags, and a result whose speech did not reach the user says so. What a
provider has refused is withheld: a note stands in its place, so that the model neither misses it nor guesses at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....states.values.messages import Matter, Message, escaped_message, text_for_model
from ....states.values.value import FailureKind

WITHHELD_MESSAGE = "[This message is not shown to you: the provider refused its content.]"
WITHHELD_RESULT = "[The result of this tool is not shown to you: the provider refused its content.]"
"""What a model reads in place of a text that was refused."""

_IMAGES_WITHHELD: Mapping[FailureKind, str] = {
    "unsupported_content": "that you cannot see: you take no images. Do not guess what is on it.",
    "unreadable_content": "that you cannot see: it cannot be read. Do not guess what is on it.",
}
_IMAGE_REFUSED = "that is not shown to you: the provider refused it. Do not guess what is on it."
"""What a model reads in place of an image, by the kind of failure because of which it is withheld."""


@dataclass(frozen=True)
class Wording:
    """The words in which `model` reads messages. A message of another agent stands between tags, and nothing else can
    look like one; a result whose speech did not reach the user has the note `undelivered`, which says so; and what is
    withheld from the model has a note in its place.

    A message that does not come from a step of the log, such as a summary of earlier ones, is made for the model and
    stays as it is.
    """

    undelivered: str
    model: str = ""

    def read(self, message: Message) -> Message:
        """The message in the words that a model reads. `Pure.`"""
        if not message.seq:
            return message
        if message.withheld:
            message = without_withheld(message, self.model)
        read = escaped_message(message) if message.audience is None else message.replace(text=text_for_model(message))
        if message.undelivered:
            read = read.replace(text=f"{read.text}\n\n{self.undelivered}".strip())
        return read


def without_withheld(message: Message, model: str) -> Message:
    """The message with notes in place of what is withheld from this model; itself if nothing is. Without its text it is
    also without the arguments of its calls, and without its thinking. `Pure.`"""
    reasons: dict[Matter, FailureKind] = {one.what: one.kind for one in message.withheld if one.concerns(model)}
    if not reasons:
        return message
    shown = message
    if "text" in reasons:
        note = WITHHELD_RESULT if message.role == "tool" else WITHHELD_MESSAGE
        calls = tuple(call.replace(raw_arguments="{}") for call in message.tool_calls)
        places = tuple(range(len(message.images))) if message.parts else ()
        parts = (note, *places) if message.parts else ()
        shown = message.replace(
            text=note, parts=parts, tool_calls=calls, edited_arguments="", thinking="", opaque=(), provider=None
        )
    if "images" in reasons and message.images:
        shown = _without_images(shown, reasons["images"])
    return shown


def text_shown(message: Message, model: str) -> str:
    """The text of a message as this model reads it, with a note in place of what is withheld. `Pure.`"""
    return without_withheld(message, model).text if message.withheld else message.text


def text_in_record(message: Message) -> str:
    """The text of a message in a record of the dialogue, which any model may read. `Pure.`"""
    refusing = (one.model for one in message.withheld if one.what == "text")
    return next((text_shown(message, model) for model in refusing), message.text)


def _without_images(message: Message, kind: FailureKind) -> Message:
    parts = message.parts or (message.text, *range(len(message.images)))
    return message.replace(text="\n\n".join(_described(parts, kind)), images=(), parts=())


def _described(parts: tuple[str | int, ...], kind: FailureKind) -> Iterator[str]:
    """The texts, with a note in place of each image."""
    for part in parts:
        if isinstance(part, int):
            yield f"[Here is an image {_IMAGES_WITHHELD.get(kind, _IMAGE_REFUSED)}]"
        elif part.strip():
            yield part
