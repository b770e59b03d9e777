"""Reads the verdict of a check from the text of the model that made it.

Models write JSON between code fences and sentences, so the text is searched for the object. A text without a complete
verdict, or with several, counts as a failed check.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from ....states.values.value import shortened
from ..json_objects import json_objects

MALFORMED = "The check gave no clear verdict, so the work counts as not verified."
NO_REASON = "The check failed without a reason."

_MAX_MISSING = 20
"""How many missing things are passed on to the model: more than it can mend at once."""


class Verdict(BaseModel):
    """Whether the work is complete, why, and what is missing."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", hide_input_in_errors=True)

    passed: bool
    reason: str | None = None
    missing: tuple[str, ...] | None = None


def read_verdict(text: str) -> Verdict:
    """The verdict in this text. A malformed one counts as failed, with a reason that says so.

    The texts of the verdict have a bounded length, and a failed verdict always has a reason. `Pure.`
    """
    candidates = json_objects(text, "passed")
    try:
        (verdict,) = map(Verdict.model_validate_json, candidates)
    except ValueError:
        return Verdict(passed=False, reason=MALFORMED)
    return _shorten(verdict)


def _shorten(verdict: Verdict) -> Verdict:
    reason = shortened((verdict.reason or "").strip())
    missing = tuple(shortened(item.strip()) for item in verdict.missing or () if item.strip())[:_MAX_MISSING]
    return Verdict(passed=verdict.passed, reason=reason or ("" if verdict.passed else NO_REASON), missing=missing)
