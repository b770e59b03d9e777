"""The loggers of performers, which log no secrets where the rules of a conversation forbid it.

What a performer logs may quote what was said: the traceback of a tool holds the message of its exception, and a
provider quotes the prompt that it refuses. So a record that is logged while an effect of a conversation with `redact`
is carried out passes through the same redaction as the conversation itself. The traceback then is a text; the record
has no exception.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar, Token

from .redact import Redact, unchanged

_REDACT: ContextVar[Redact | None] = ContextVar("turnwise-redact", default=None)

_formatter = logging.Formatter()


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
    logger.addFilter(_without_secrets)
    return logger


def _without_secrets(record: logging.LogRecord) -> bool:
    redact = _REDACT.get()
    if redact is not None:
        record.msg, record.args = redact(record.getMessage()), None
        if record.exc_info:
            record.exc_text = redact(_formatter.formatException(record.exc_info))
            record.exc_info = None
    return True
