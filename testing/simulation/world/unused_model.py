"""The model of a simulation in which performers answer in the place of models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....states.policy import ModelSpec

if TYPE_CHECKING:
    from ....effects.model.port import ModelAnswer, ModelRequest, Token


class UnusedLlm:
    """A model that is never asked: the performers of the simulation answer in its place."""

    def __init__(self, spec: ModelSpec) -> None:
        self.name = spec.name
        self.window = spec.window

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Raises AssertionError."""
        raise AssertionError("a model was asked in a simulation")
