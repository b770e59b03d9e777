"""Replaces secrets in texts by labels."""

from __future__ import annotations


class Redaction:
    """What counts as a secret in the texts of an engine."""
