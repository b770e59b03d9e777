"""The port of embedding functions, by which texts are found that mean the same in other words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

Embed = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""A coroutine function that returns a vector for each text. Its optional attribute `name` identifies the model."""
