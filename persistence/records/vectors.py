"""Vectors of texts, as every store compares them: by the angle between them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...states.errors import InvalidInput


def unit_vector(vector: Sequence[float]) -> tuple[float, ...]:
    """Return the vector with length 1, so that a sum of products tells the angle between two of them; a vector of zeros
    stays as it is. `Pure.`

    Raises `InvalidInput` if it is empty, or holds anything but finite numbers.
    """
    try:
        numbers = [float(number) for number in vector]
        length = math.hypot(*numbers)
    except (TypeError, ValueError, OverflowError):
        numbers, length = [], 0.0
    if not numbers or not math.isfinite(length):
        raise InvalidInput("A vector of a text must be a list of finite numbers, with at least one.")
    return tuple(number / length if length else 0.0 for number in numbers)
