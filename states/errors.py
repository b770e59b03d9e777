"""The errors that turnwise raises. Each is one sentence for people, sorted by who can mend it.

TurnwiseError
├── Refused              the conversation does not take this request now; nothing happened, nothing is stored
├── InvalidInput         the request is not valid; nothing happened
│   └── CannotForkThere  a copy up to this step would lose something; it names the nearest steps that are possible
├── UnknownConversation  there is no conversation with this id
├── ConfigurationError   a model, a tool or a setting cannot work as it was given
├── NoOutput             a typed answer was asked for, and the turn has none
├── CompactionFailed     the history could not be compacted and is unchanged
├── StoreError           the database cannot be used, or not now
├── EngineClosed         the engine was closed before this could be done
│   └── EngineNotOpen    the engine was never opened
└── EngineElsewhere      the engine was opened in another event loop, thread or process
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Literal

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from .values.value import MAX_QUOTED, FailureKind, encodable, shortened

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
    "no_branches",
    "moved_on",
    "unknown_message",
    "unknown_turn",
    "unknown_branch",
    "hidden",
    "nothing_to_regenerate",
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
    "no_branches": "A sub-agent has one task, so it does not go back.",
    "moved_on": "The conversation has gone on meanwhile, or to another branch.",
    "unknown_message": "No turn has taken a message of a user under this id: {subject}",
    "unknown_turn": "The conversation has had no turn with this number: {subject}",
    "unknown_branch": "The conversation has no branch of this number: {subject}",
    "hidden": "This is hidden in another branch: {subject}",
    "nothing_to_regenerate": "No message of this branch has been answered yet.",
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
        self.sentence: str = encodable(sentence)
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
        self.steps: tuple[int, ...] = tuple(steps)
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


class NoOutput(TurnwiseError):
    """A turn was asked for a typed answer and has none: it failed, was stopped, or has not ended; or its type does not
    take the stored answer any more."""


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


# What pydantic finds wrong with a value is told in bounded time, whatever the value is. pydantic looks for every fault:
# a list of a million wrong items has a million of them, and to describe one takes many times as long as to find it. So
# of very many faults only their number is told, and where a few items are allowed, no more are read than show that
# there are too many.
MAX_FAULTS = 2_000
"""The most faults that are described, which takes hundredths of a second. Nobody reads that many."""


def faults_of(error: ValidationError) -> list[ErrorDetails]:
    """What is wrong, at least one fault, without what was given. More than `MAX_FAULTS` faults are told as one, which
    has no location. `Pure.`"""
    if has_many_faults(error):
        return [ErrorDetails(type="faults_many", loc=(), msg=sentence_of_many(error), input=None)]
    return error.errors(include_url=False, include_input=False)


def path_of(fault: ErrorDetails, given: object) -> Iterator[int | str]:
    """Yield the parts of the location of a fault that exist in what was given, and the name of a field that is missing
    there. Between these pydantic puts the names of types that it tried. `Pure.`"""
    for part in fault["loc"]:
        if _exists(part, given):
            yield part
            given = given[part]  # type: ignore[index]
        elif isinstance(given, dict | list | tuple) and fault["type"] == "missing" and part == fault["loc"][-1]:
            yield part


def _exists(part: int | str, given: object) -> bool:
    if isinstance(given, list | tuple):
        return isinstance(part, int) and part < len(given)
    return isinstance(given, dict) and part in given


def has_many_faults(error: ValidationError) -> bool:
    """Whether these are more faults than are described. `Pure.`"""
    return error.error_count() > MAX_FAULTS


def sentence_of_many(error: ValidationError) -> str:
    """How many faults there are, in a sentence without a full stop, like those of pydantic. `Pure.`"""
    return f"Input has {error.error_count():,} faults"


def read_up_to(given: object, number: int) -> object:
    """Return the first items of what is given for a tuple, at most so many: the rest is neither read nor validated.
    What is no collection of items is returned as it is, and pydantic says so."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        return given
    return tuple(islice(given, number))
