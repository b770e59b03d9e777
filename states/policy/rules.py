"""The base class of all rules: plain data, validated whenever an application writes it."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import model_serializer

from ..values.value import Value


class Rules(Value):
    """Rules that belong together.

    `ADDED` names the rules that were added to a class after logs had been written with it. They are left out when they
    hold their default, so older rules are written as they were. To change such a default changes the rules of logs.
    """

    ADDED: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_added_defaults(self, write: Any) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name in self.ADDED:
            if getattr(self, name) == type(self).model_fields[name].default:
                written.pop(name, None)
        return written

    def replace(self, **changes: Any) -> Self:
        """Return these rules with some of them changed. `Pure.`

            presets.talk().replace(silent="nudge")

        Raises ValueError (pydantic's ValidationError) for a name or a value that is not valid, like the constructor.
        """
        chosen = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**chosen, **changes})
