"""What a check of the model's work came to, read from the words of the model that checked it.

Models put JSON between marks and sentences, so the object is looked for. What is no verdict, or only half of one, is
never taken for a good one.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from ...states.value import shortened
from ..text import encodable

MALFORMED = "The check gave no clear verdict, so the work counts as not verified."
NO_REASON = "The check failed without a reason."

_MOST_MISSING = 20
"""How many missing things are passed on. Ours: more than anybody mends in one go."""


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
    text = encodable(text)
    for candidate in (text, text[text.find("{") : text.rfind("}") + 1]):
        try:
            return _bounded(Verdict.model_validate_json(candidate))
        except ValidationError:
            continue
    return Verdict(passed=False, reason=MALFORMED)


def _bounded(verdict: Verdict) -> Verdict:
    reason = shortened((verdict.reason or "").strip())
    missing = tuple(shortened(one.strip()) for one in verdict.missing or () if one.strip())[:_MOST_MISSING]
    return Verdict(passed=verdict.passed, reason=reason or ("" if verdict.passed else NO_REASON), missing=missing)
