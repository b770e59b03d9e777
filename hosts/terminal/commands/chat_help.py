"""The help of `turnwise chat`, which lists the presets and the built-in tools.

They are looked up only when the help is shown: importing them takes longer than the rest of the help.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand
from typing_extensions import override


class ChatHelp(TyperCommand):
    """A command whose help ends with the presets and the built-in tools that its options may name."""

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        from ....effects.tools.catalogue import BUILT_IN
        from ..configuration.presets import known_presets

        self.epilog = f"Presets: {', '.join(known_presets())}.\n\nBuilt-in tools: {', '.join(BUILT_IN)}."
        super().format_help(ctx, formatter)
