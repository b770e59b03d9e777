"""What the tests of tools share."""

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """An event for which a thread waits in vain. It is set after the test, so that the thread ends."""
    event = threading.Event()
    yield event
    event.set()
