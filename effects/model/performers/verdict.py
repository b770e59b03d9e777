"""What a check of the model's work came to, read from the words of the model that checked it.

Models put JSON between marks and sentences, so the object is looked for; other braces around it mean nothing. What is
no verdict, or only half of one, is never taken for a good one, and of two nobody knows which was meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from json import JSONDecoder

from pydantic import BaseModel, ConfigDict

from ....states.values.value import shortened
from ...text import encodable

MALFORMED = "The check gave no clear verdict, so the work counts as not verified."
NO_REASON = "The check failed without a reason."

_MOST_MISSING = 20
"""How many missing things are passed on. Ours: more than anybody mends in one go."""

_MOST_BRACES = 100
"""At how many braces an object is looked for. Ours: more than any model writes around its verdict."""

_DECODER = JSONDecoder()


class Verdict(BaseModel):
    """Whether the work is done, why, and what is missing."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", hide_input_in_errors=True)

    passed: bool
    reason: str | None = None
    missing: tuple[str, ...] | None = None


def read_verdict(text: str) -> Verdict:
    """The verdict in this text; one that is malformed failed, and says so. `Pure.`

    Its texts are of bounded length, and one that failed has a reason.
    """
    found = list(_verdicts(encodable(text)))
    try:
        (verdict,) = map(Verdict.model_validate_json, found)
    except ValueError:
        return Verdict(passed=False, reason=MALFORMED)
    return _bounded(verdict)


def _verdicts(text: str) -> Iterator[str]:
    """The JSON objects in the text, one behind the other, that say whether something passed."""
    start = text.find("{")
    for _ in range(_MOST_BRACES):
        if start < 0:
            return
        try:
            value, end = _DECODER.raw_decode(text, start)
            if "passed" in value:
                yield text[start:end]
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)


def _bounded(verdict: Verdict) -> Verdict:
    reason = shortened((verdict.reason or "").strip())
    missing = tuple(shortened(one.strip()) for one in verdict.missing or () if one.strip())[:_MOST_MISSING]
    return Verdict(passed=verdict.passed, reason=reason or ("" if verdict.passed else NO_REASON), missing=missing)
