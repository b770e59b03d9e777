"""Conversations that earlier versions wrote get the same requests, to the byte, as when they were written."""

from __future__ import annotations

from turnwise.persistence.ports import Store

from .requests import digest_of_requests


async def test_requests_are_the_same_to_the_byte(store: Store, expected: dict[str, dict[str, object]]) -> None:
    """J5: a provider caches the beginning of a request, and the log keeps the digest of each. So whatever is added to
    the system message is added only where a rule asks for it."""
    digests = {each: digest_of_requests(await store.entries(each)) for each in expected}

    assert digests == {each: one["requests"] for each, one in expected.items()}
