"""The loggers of performers, which log no secrets where the rules of a conversation forbid it.

What a performer logs may quote what was said: the traceback of a tool holds the message of its exception, and a
provider quotes the prompt that it refuses. So a record that is logged while an effect of a conversation with `redact`
is carried out passes through the same redaction as the conversation itself. The traceback then is a text; the record
has no exception. So it is with an error of pydantic that would take seconds to write, because it has very many
faults.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextvars import ContextVar, Token
from itertools import islice
from traceback import format_exception_only, format_tb

from pydantic import ValidationError

from ..states.errors import has_many_faults, sentence_of_many
from .context import Redact, unchanged

_REDACT: ContextVar[Redact | None] = ContextVar("turnwise-redact", default=None)

_formatter = logging.Formatter()

_MAX_CAUSES = 10
"""How many causes behind one another are logged of an error with very many faults."""


class redacting:
    """Within this context, in this task and the tasks that it starts, performers log nothing that `redact` replaces.

    Every effect enters one, so it is a class: a context manager made from a generator takes twice as many calls. Where
    the same applies already, as in conversations that redact nothing, nothing is noted.
    """

    __slots__ = ("_redact", "_token")

    def __init__(self, redact: Redact) -> None:
        self._redact = None if redact is unchanged else redact
        self._token: Token[Redact | None] | None = None

    def __enter__(self) -> None:
        if self._redact is not _REDACT.get():
            self._token = _REDACT.set(self._redact)

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            _REDACT.reset(self._token)


def performer_logger(name: str) -> logging.Logger:
    """Return the logger with this name, for a module of effects. Each of them gets its logger here."""
    logger = logging.getLogger(name)
    logger.addFilter(_prepare)
    return logger


def without_secrets(text: str) -> str:
    """Return a text that is shown beside the conversation, as in a span, without what `redacting` replaces here."""
    redact = _REDACT.get()
    return text if redact is None else redact(text)


def _prepare(record: logging.LogRecord) -> bool:
    if record.exc_info:
        errors = [*islice(_chain(record.exc_info[1]), _MAX_CAUSES)]
        if any(isinstance(error, ValidationError) and has_many_faults(error) for error in errors):
            record.exc_text = "\n\n".join(map(_brief, reversed(errors)))
            record.exc_info = None
    redact = _REDACT.get()
    if redact is not None:
        record.msg, record.args = redact(record.getMessage()), None
        if record.exc_info:
            record.exc_text = _formatter.formatException(record.exc_info)
            record.exc_info = None
        if record.exc_text:
            record.exc_text = redact(record.exc_text)
    return True


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, as a traceback shows them."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _brief(error: BaseException) -> str:
    """The traceback of one error, without those of its causes, and with the number of its faults if they are many."""
    if isinstance(error, ValidationError) and has_many_faults(error):
        last = [f"{type(error).__name__}: {sentence_of_many(error)}"]
    else:
        last = format_exception_only(error)
    return "".join(["Traceback (most recent call last):\n", *format_tb(error.__traceback__), *last])
