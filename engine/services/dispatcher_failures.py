"""Logs what a dispatcher raises, where the program has to go on all the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("turnwise.loop")


@contextmanager
def dispatcher_failures_logged() -> Iterator[None]:
    """Log an error that a dispatcher raises in this context, and go on behind it."""
    try:
        yield
    except Exception:
        logger.exception("The dispatcher failed.")
