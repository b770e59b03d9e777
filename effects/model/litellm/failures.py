"""The failure that an error of litellm stands for, as the machine and people are told of it."""

from __future__ import annotations

from collections.abc import Iterable

from ..failures import make_failure
from ..port import LlmFailure
from .error_kinds import kind_of
from .redaction import redact
from .retry_after import retry_after


def failure_of(error: BaseException, model: str, secrets: Iterable[str] = ()) -> LlmFailure:
    """The failure that an error of litellm stands for. The error message is logged without any of the `secrets`."""
    detail = redact(f"{type(error).__name__}: {error}", secrets)
    return make_failure(kind_of(error), model, detail, retry_after(error))
