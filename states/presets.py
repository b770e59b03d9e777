"""Ready sets of rules, one for each way of conversing that turnwise knows."""

from __future__ import annotations

from .policy import Policy


def assistant() -> Policy:
    """An assistant that answers in text, uses tools one at a time and may ask its user (seed 002). `Pure.`"""
    return Policy()
