"""Rules that a host chooses for its conversations: plain data, checked whenever a person writes it."""

from __future__ import annotations

from typing import Any, Self

from ..values.value import Value


class Rules(Value):
    """Rules that belong together."""

    def replace(self, **changes: Any) -> Self:
        """These rules with some of them changed. `Pure.`

            presets.talk().replace(silent="nudge")

        Raises ValueError (pydantic's ValidationError) for what is no rule, or cannot be one, like the class itself.
        """
        chosen = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**chosen, **changes})
