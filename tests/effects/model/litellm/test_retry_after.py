"""The wait that a provider asks for, read from the header `retry-after`."""

import pytest

from turnwise.effects.model.litellm.errors import retry_after
from turnwise.effects.model.litellm.refusals import Refusal

from ....support.cases import holds_for


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("-3", 0), ("0.5", 0.5), ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("soon", None), ("nan", None), ("inf", None)],
)
def test_a_header_is_a_wait_of_zero_seconds_or_more(header: str, seconds: float | None) -> None:
    """A moment in the past needs no wait; a header that cannot be read counts as none."""
    assert retry_after(Refusal(429, headers={"retry-after": header})) == seconds


@holds_for(
    ("sentence", "seconds"),
    [
        ("retry attempts: 3", None),
        ("retry budget 500 exceeded", None),
        ("Retry after 3 attempts.", None),
        ("Retries: 5. Resets 12 limits.", None),
        ("Quota available: 20", None),
        ("retry in 3", 3),
        ("please retry your request after 20", 20),
        ("retry_after: 7", 7),
        ("Try again in 500ms", 0.5),
        ("The limit resets in 1m30s.", 90),
        ("Please wait 5 seconds.", 5),
    ],
)
def test_a_number_is_a_wait_if_the_sentence_says_so(sentence: str, seconds: float | None) -> None:
    """It has a unit, or a word before it that tells a time."""
    assert retry_after(Refusal.of_body(sentence, 429)) == seconds
