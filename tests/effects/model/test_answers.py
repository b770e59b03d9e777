"""The sentences that people read when a model request fails."""

from turnwise.effects.model.answers import SENTENCES
from turnwise.effects.model.port import LLM_FAILURES


def test_every_kind_of_failure_has_a_sentence() -> None:
    """P33: one for each kind that a model request can have."""
    assert tuple(SENTENCES) == LLM_FAILURES
