"""What a test does that needs a program which is not on this machine."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(sentence: str) -> NoReturn:
    """Skip the test for this reason. Where the environment variable `CI` is set, fail it: there every test runs."""
    if os.environ.get("CI"):
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)
