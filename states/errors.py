"""The errors that turnwise raises. Each is one sentence for people, sorted by who can mend it.

TurnwiseError
├── Refused              the conversation does not take this request now; nothing happened, nothing is stored
├── InvalidInput         the request is not valid; nothing happened
│   └── CannotForkThere  a copy up to this step would lose something; it names the nearest steps that are possible
├── UnknownConversation  there is no conversation with this id
├── ConfigurationError   a model, a tool or a setting cannot work as it was given
├── CompactionFailed     the history could not be compacted and is unchanged
├── StoreError           the database cannot be used, or not now
├── EngineClosed         the engine was closed before this could be done
│   └── EngineNotOpen    the engine was never opened
├── EngineElsewhere      the engine was opened in another event loop, thread or process
└── NotAwaited           a coroutine was used without `await`; also an AttributeError
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from .values.failures import FailureKind
from .values.surrogates import encodable
from .values.value import MAX_QUOTED, shortened

RefusalCode = Literal[
    "busy",
    "awaiting_user_response",
    "awaiting_approval",
    "in_doubt",
    "wrong_state",
    "unknown_question",
    "missing_answer",
    "invalid_answer",
    "not_waiting",
    "unknown_profile",
    "no_schedule",
    "withdrawn",
    "failed",
    "closed",
    "already_open",
    "event_id_reused",
    "storage",
    "read_only",
]

_SENTENCES: dict[RefusalCode, str] = {
    "busy": "The conversation is busy with the turn before this one.",
    "awaiting_user_response": "The conversation waits for the answer to a question.",
    "awaiting_approval": "The conversation waits for somebody to allow a tool.",
    "in_doubt": "The conversation waits for somebody to say whether a tool ran.",
    "wrong_state": "The conversation is not in a state that takes this.",
    "unknown_question": "This was not asked: {subject}",
    "missing_answer": "An answer is missing: {subject}",
    "invalid_answer": "This question takes one answer: {subject}",
    "not_waiting": "No message waits under this id.",
    "unknown_profile": "The conversation has no profile of this name: {subject}",
    "no_schedule": "A sub-agent has no schedule.",
    "withdrawn": "The message was withdrawn before its turn came.",
    "failed": "The turn before this message failed; the message waits until a retry, another message or a withdrawal.",
    "closed": "The conversation is closed.",
    "already_open": "The conversation is already open.",
    "event_id_reused": "A different request was sent before under this id.",
    "storage": "The request could not be stored; nothing happened, and it may be sent again.",
    "read_only": "The engine was opened for reading only; nothing happened.",
}

NOTHING_WAITS: dict[str, str] = {
    "user_question_response": "No question waits for this answer.",
    "tool_approval": "No call with this id waits for an approval.",
    "doubt_resolved": "No call with this id is in doubt.",
    "retry_requested": "There is no failed turn to try again.",
}
"""What `wrong_state` means for a request of this type."""


class TurnwiseError(Exception):
    """The base class of all errors that turnwise raises on purpose. `sentence` can be shown to people, and written as
    UTF-8 whatever it quotes."""

    def __init__(self, sentence: str) -> None:
        self.sentence = encodable(sentence)
        super().__init__(self.sentence)


class Refused(TurnwiseError):
    """A request that this state does not take.

    Nothing changed and nothing is stored, so the same request may be sent again. `code` is for programs. `subject`
    names what the refusal is about, where there is such a thing: the question without an answer, for example. A
    `sentence` that is given replaces that of the code.
    """

    def __init__(self, code: RefusalCode, subject: str = "", *, sentence: str = "") -> None:
        super().__init__(sentence or _SENTENCES[code].format(subject=shortened(subject, MAX_QUOTED)))
        self.code: RefusalCode = code
        self.subject = subject


class InvalidInput(TurnwiseError):
    """A request or a value that is not valid. `subject` names the field that a host may mark, where that is known."""

    def __init__(self, sentence: str, subject: str = "") -> None:
        super().__init__(sentence)
        self.subject = subject


class CannotForkThere(InvalidInput):
    """A copy up to this step would lose something that was said by then. `steps` are the nearest steps before and after
    it up to which the conversation can be copied."""

    def __init__(self, step: int, steps: Iterable[int]) -> None:
        self.steps = tuple(steps)
        possible = " or ".join(f"step {each}" for each in self.steps)
        super().__init__(
            f"A copy up to step {step} would lose a turn or a message: fork the conversation at {possible}.", "at"
        )


class UnknownConversation(TurnwiseError):
    """There is no conversation with this id."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"There is no conversation with the id {shortened(conversation_id, MAX_QUOTED)}.")
        self.conversation_id = conversation_id


class ConfigurationError(TurnwiseError):
    """A model, a tool or a setting cannot work as it was given."""


class CompactionFailed(TurnwiseError):
    """The history could not be compacted and is unchanged. `kind` is for programs."""

    def __init__(self, kind: FailureKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: FailureKind = kind


class StoreError(TurnwiseError):
    """The database cannot be used, or not now."""


class EngineClosed(TurnwiseError):
    """The engine was closed before this could be done. What was stored is kept."""

    def __init__(self, sentence: str = "The engine is closed.") -> None:
        super().__init__(sentence)


class EngineNotOpen(EngineClosed):
    """The engine has not been opened."""

    def __init__(self, opening: str = "`async with Engine.open(...)` or `await Engine.open(...)`") -> None:
        super().__init__(f"The engine is not open: use {opening}.")


class EngineElsewhere(TurnwiseError):
    """The engine was opened in another event loop, thread or process than the one that calls it. Nothing happened."""

    def __init__(self, sentence: str = "") -> None:
        super().__init__(
            sentence
            or "This engine can only be called in the event loop in which it was opened; for programs with several"
            " threads or event loops there is `Engine.open_blocking`, which any of them may call."
        )


class NotAwaited(TurnwiseError, AttributeError):
    """A coroutine was used as if it were what it returns."""
