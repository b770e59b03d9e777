"""Keeps the SDK from writing what servers send to the log.

It logs each message at the level DEBUG, and messages that are not valid as errors. They hold what tools return, which
may be personal. What goes wrong with a server is logged here without its content, by the logger `turnwise.mcp`.
"""

from __future__ import annotations

import logging

_LEVELS = {"mcp": logging.CRITICAL, "client": logging.CRITICAL, "httpx2": logging.WARNING}
"""The loggers of the SDK, and of its HTTP client, which logs addresses."""


def keep_sdk_quiet() -> None:
    """Set the levels of the SDK's loggers. Those that the application has set stay as they are."""
    for name, level in _LEVELS.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)
