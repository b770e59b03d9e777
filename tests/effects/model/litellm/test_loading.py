"""No secret reaches the log with an error message."""

import pytest

from turnwise.effects.model.litellm.loading import redact


def test_secrets_are_found_by_value_and_by_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those given, those in the environment, and everything that looks like a key."""
    monkeypatch.setenv("ACME_API_KEY", "open-sesame")

    text = redact("open-sesame, hush-hush, sk-proj-abcdefgh1234, sk-***********5678, Bearer x.y-z", ["hush-hush"])

    assert text == "***, ***, ***, ***, ***"
