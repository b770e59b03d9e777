"""The sentences that people read when a model request fails."""

from typing import get_args

from turnwise.effects.model.failure_sentences import SENTENCES
from turnwise.states.values.failures import NO_FAULT_OF_A_MODEL, FailureKind


def test_every_kind_of_failure_has_a_sentence() -> None:
    """P33: one for each kind that a model request can have."""
    assert SENTENCES.keys() == set(get_args(FailureKind)) - NO_FAULT_OF_A_MODEL
