"""Reads the words that a speaking tool is to say, as strictly as the policy wants.

Such a tool has one parameter that matters: the words for the user. If they are missing, the model reads one and the
same refusal, whatever else it wrote. A policy may also say that speaking tools never fail: then whatever words there
are go out, and a call without any is acknowledged all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from typing import Any

from ....states.policy import Policy, Texts
from ...printable import is_blank
from ..act_results import refusal
from ..arguments.argument_errors import InvalidArguments, NothingToSay
from ..arguments.normalization import Normalized
from ..arguments.typed_arguments import TypedArguments


class SpeechArguments(TypedArguments):
    """The arguments of a tool whose parameter `parameter` holds the words for the user.

    `refusal_in` picks, among the texts of a policy, the one that the model reads if the words are missing.
    """

    def __init__(self, function: Callable[..., Any], parameter: str, refusal_in: Callable[[Texts], str]) -> None:
        super().__init__(function)
        self._parameter = parameter
        self._refusal_in = refusal_in
        self._policy = Policy()

    def under(self, policy: Policy) -> SpeechArguments:
        """The arguments as read under this policy."""
        bound = copy(self)
        bound._policy = policy
        return bound

    def accepted(self, text: str) -> str:
        """The arguments as a call runs with them. Raises InvalidArguments, unless no call may fail."""
        try:
            return super().accepted(text)
        except (InvalidArguments, NothingToSay):
            if not self._policy.speech.never_fail:
                raise
            return text

    def values(self, text: str) -> dict[str, Any]:
        """The keyword arguments. Raises InvalidArguments, or NothingToSay under a policy that lets no call fail."""
        try:
            return super().values(text)
        except InvalidArguments:
            if not self._policy.speech.never_fail:
                raise
            raise NothingToSay from None

    def _values(self, written: Normalized) -> dict[str, Any]:
        value = written.data.get(self._parameter)
        if self._policy.speech.never_fail:
            words = {self._parameter: self._words_in(value)}
            return super()._values(Normalized(json.dumps(words), words))
        if self._is_missing(value):
            raise InvalidArguments(refusal(self._refusal_in(self._policy.texts)))
        return super()._values(written)

    def _is_missing(self, value: object) -> bool:
        return not isinstance(value, str) or (is_blank(value) and self._policy.speech.empty == "error")

    def _words_in(self, value: object) -> str:
        """The words that the model meant; a number is taken for its digits. Raises NothingToSay."""
        words = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
        if not isinstance(words, str) or self._is_missing(words):
            raise NothingToSay
        return words
