"""Reads what a speaking tool is to say, as strictly as the rules of the conversation want it.

Such a tool has one parameter that matters: the words for the user. Where they are missing the model reads one and the
same refusal, whatever else it wrote (case S7). Other rules never let a speaking tool fail: then whatever words there
are go out, and a call without any is acknowledged all the same (case B4).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json

from ....states.policy.policy import Policy
from ....states.policy.texts import Texts
from ..acts import refusal
from ..argument_errors import InvalidArguments
from ..arguments import Arguments


class NothingToSay(Exception):
    """A call holds no words, and the rules want it acknowledged all the same."""


class Words(Arguments):
    """What a tool can be called with whose parameter `says` holds the words for the user.

    `missing` picks, of the texts of a policy, what the model reads where there are none.
    """

    def __init__(self, function: Callable[..., Any], says: str, missing: Callable[[Texts], str]) -> None:
        super().__init__(function)
        self._says = says
        self._missing = missing
        self._policy = Policy()

    def under(self, policy: Policy) -> Words:
        """The same, read by the rules of this policy."""
        bound = copy(self)
        bound._policy = policy
        return bound

    def check(self, text: str) -> None:
        """Raises InvalidArguments if a call with these arguments could not run, unless the rules let none fail."""
        if not self._policy.speech.never_fail:
            super().check(text)

    def _validated(self, text: str) -> BaseModel:
        """Raises InvalidArguments, or NothingToSay under rules that let no call fail."""
        said = self._said(text)
        if self._policy.speech.never_fail:
            return super()._validated(json.dumps({self._says: self._meant(said)}))
        if said is not _UNREADABLE and self._is_missing(said):
            raise InvalidArguments(refusal(self._missing(self._policy.texts)))
        return super()._validated(text)

    def _said(self, text: str) -> object:
        """What stands in the place of the words; None if nothing does."""
        try:
            data = from_json(text, allow_inf_nan=False) if text.strip() else {}
        except ValueError:
            return _UNREADABLE
        return data.get(self._says) if isinstance(data, dict) else _UNREADABLE

    def _is_missing(self, said: object) -> bool:
        return not isinstance(said, str) or (not said.strip() and self._policy.speech.empty == "error")

    def _meant(self, said: object) -> str:
        """The words that the model meant: a number is taken as it reads. Raises NothingToSay."""
        words = str(said) if isinstance(said, int | float) and not isinstance(said, bool) else said
        if not isinstance(words, str) or self._is_missing(words):
            raise NothingToSay
        return words


_UNREADABLE = object()
"""In the place of the words where the arguments are no JSON object."""
