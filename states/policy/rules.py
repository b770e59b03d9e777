"""The base class of all rules: plain data, validated whenever an application writes it."""

from __future__ import annotations

from typing import Any, Self

from ..values.value import Value


class Rules(Value):
    """Rules that belong together."""

    def replace(self, **changes: Any) -> Self:
        """Return these rules with some of them changed. `Pure.`

            presets.talk().replace(silent="nudge")

        Raises ValueError (pydantic's ValidationError) for a name or a value that is not valid, like the constructor.
        """
        chosen = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**chosen, **changes})
