"""How long to wait before something that has failed is tried again."""

import pytest

from turnwise.effects.retry_queues import wait_after


@pytest.mark.parametrize(("failures", "wait"), [(1, 1.0), (2, 2.0), (6, 32.0), (7, 60.0), (10**9, 60.0)])
def test_the_wait_is_doubled_up_to_the_longest_one(failures: int, wait: float) -> None:
    """Also after more failures than a power of two can hold."""
    assert wait_after(failures, 1.0, 60.0) == wait
