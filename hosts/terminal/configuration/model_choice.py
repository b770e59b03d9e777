"""The models that a chat can ask, and which of them it asks."""

from __future__ import annotations

from .settings import Settings


class ModelChoice:
    """The models of the settings, and the one that was `chosen` for the conversation, if one was.

    A conversation keeps a chosen model when it is resumed. Otherwise it asks the model of the settings.
    """

    def __init__(self, settings: Settings, chosen: str | None = None) -> None:
        self.chosen = chosen
        self._settings = settings

    @property
    def names(self) -> list[str]:
        """The names of the models; the one that is asked from the next turn on comes first."""
        asked = (self.chosen,) if self.chosen is not None else ()
        return list(dict.fromkeys((*asked, self._settings.model, *self._settings.models)))
