"""The loggers of performers, which log no secrets where the rules of a conversation forbid it.

What a performer logs may quote what was said: the traceback of a tool holds the message of its exception, and a
provider quotes the prompt that it refuses. So a record that is logged while an effect of a conversation with `redact`
is carried out passes through the same redaction as the conversation itself. The traceback then is a text; the record
has no exception.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .redact import Redact, unchanged

_REDACT: ContextVar[Redact | None] = ContextVar("turnwise-redact", default=None)

_formatter = logging.Formatter()


@contextmanager
def redacting(redact: Redact) -> Iterator[None]:
    """Within this context, in this task and the tasks that it starts, performers log nothing that `redact` replaces."""
    token = _REDACT.set(None if redact is unchanged else redact)
    try:
        yield
    finally:
        _REDACT.reset(token)


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
