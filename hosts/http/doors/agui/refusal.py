"""Refusals that only this door knows."""

from __future__ import annotations


class RunRefused(Exception):
    """A run that cannot begin. `code` is for programs."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
