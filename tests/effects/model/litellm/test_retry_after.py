"""The wait that a provider asks for, read from the header `retry-after`."""

import pytest

from turnwise.effects.model.litellm.refusals import Refusal
from turnwise.effects.model.litellm.retry_after import retry_after


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("-3", 0), ("0.5", 0.5), ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("soon", None), ("nan", None), ("inf", None)],
)
def test_a_header_is_a_wait_of_zero_seconds_or_more(header: str, seconds: float | None) -> None:
    """A moment in the past needs no wait; a header that cannot be read counts as none."""
    assert retry_after(Refusal(429, headers={"retry-after": header})) == seconds
