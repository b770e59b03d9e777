"""When the model of this process was asked, which every system notes in the same way."""

from __future__ import annotations

from time import perf_counter


class Requests:
    """The first request since `begin`, and the last one, in seconds of `perf_counter`."""

    def __init__(self) -> None:
        self.first = self.last = 0.0

    def begin(self) -> None:
        """The next request is the first one."""
        self.first = 0.0

    def note(self) -> None:
        """The model is asked now."""
        self.last = perf_counter()
        self.first = self.first or self.last


REQUESTS = Requests()
"""Those of this process, which measures one system."""
