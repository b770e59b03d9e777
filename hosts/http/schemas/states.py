"""States, turns, steps and messages, whose JSON form and schema the engine makes from its own data classes."""

from __future__ import annotations

from typing import Annotated, Any

from ....engine.inspection import StepView
from ....engine.update_schema import complete_model, message_model, state_model, turn_model
from .described import DescribedBy

StateJson = Annotated[dict[str, Any], DescribedBy(state_model())]
"""A state: its type, and what it tells."""

TurnJson = Annotated[dict[str, Any], DescribedBy(turn_model())]
"""A turn."""

StepJson = Annotated[dict[str, Any], DescribedBy(complete_model(StepView))]
"""A step of the log."""

MessageJson = Annotated[dict[str, Any], DescribedBy(message_model())]
"""A message of the transcript."""
