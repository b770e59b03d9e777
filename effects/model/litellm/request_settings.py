"""The parameters of a request that its model does not take: they are left out, and the request is sent without them.

Which parameters a model takes differs from model to model, and neither litellm's lists nor its `drop_params` know all
of them: newer models refuse a temperature that their lists allow. So the error decides. A request that was refused
because of a parameter has had no effect, and it is sent again without the parameters that the error names.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from ....states.policy.model_settings import ModelSettings
from ...logs import performer_logger
from .error_kinds import kind_of

logger = performer_logger("turnwise.model")


class RequestSettings:
    """What is known of the parameters that one model takes."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._refused: frozenset[str] = frozenset()

    async def send(self, settings: ModelSettings, send: Callable[[dict[str, Any]], Awaitable[Any]]) -> Any:
        """Return what `send` returns for those of the settings that the model takes. Raises what it raises for any
        other reason."""
        given = settings.model_dump(exclude_none=True, exclude=set(self._refused))
        refused = self._refused
        while True:
            try:
                sent = await send(given)
            except Exception as error:
                named = _named_in(error, given)
                if not named:
                    raise
                refused |= named
                given = {name: value for name, value in given.items() if name not in named}
            else:
                self._note(refused)
                return sent

    def _note(self, refused: frozenset[str]) -> None:
        """Remember what the model does not take, now that a request without it was taken."""
        if refused - self._refused:
            names = ", ".join(sorted(refused - self._refused))
            logger.warning("The model %s does not take %s, so its requests are sent without.", self._model, names)
            self._refused |= refused


def _named_in(error: Exception, given: dict[str, Any]) -> frozenset[str]:
    """The parameters that an error names, if it says that the request is not valid."""
    if not given or kind_of(error) != "invalid_request":
        return frozenset()
    return frozenset(name for name in given if re.search(rf"\b{name}\b", str(error)))
