"""What a host may tune without changing the rules of a conversation. It is not stored and does not affect replay."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from ..effects.tools.result_length import MAX_RESULT, MIN_RESULT


class Settings(BaseModel):
    """Settings of an engine."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    llm_chat_timeout_sec: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    """Seconds that one model request may take as a whole, however slowly its pieces come."""

    kept_updates: int = Field(default=1024, ge=1)
    """How many updates of each conversation are kept for those who watch it, live ones included: several long streamed
    answers. A watcher that falls further behind reads what it missed from the log."""

    max_result: int = Field(default=MAX_RESULT, ge=MIN_RESULT)
    """The most characters that a model reads of a tool's result, unless the tool has a limit of its own. Of a longer
    one it reads the beginning and the end, and between them how much is left out."""
