"""Words the messages of a transcript for a model."""

from __future__ import annotations

from dataclasses import dataclass

from ....states.values.mail import escaped_message, text_for_model
from ....states.values.messages import Message


@dataclass(frozen=True)
class Wording:
    """The words in which a model reads messages. A message of another agent stands between tags, and nothing else can
    look like one; a result whose speech did not reach the user has the note `undelivered`, which says so.

    A message that does not come from a step of the log, such as a summary of earlier ones, is made for the model and
    stays as it is.
    """

    undelivered: str

    def read(self, message: Message) -> Message:
        """The message in the words that a model reads. `Pure.`"""
        if not message.seq:
            return message
        read = escaped_message(message) if message.audience is None else message.replace(text=text_for_model(message))
        if message.undelivered:
            read = read.replace(text=f"{read.text}\n\n{self.undelivered}".strip())
        return read
