"""The HTTP host: conversations over HTTP, with Server-Sent Events, for the page and for other clients.

Its libraries are installed with the extra `http` only. It uses the public API of the engine and knows no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...engine.requests import owned_id
    from .app import create_app
    from .security import HttpLimits

__all__ = ["HttpLimits", "create_app", "owned_id"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "create_app":
            try:
                from .app import create_app
            except ModuleNotFoundError as error:
                sentence = 'turnwise.hosts.http needs its extra `http`: pip install "turnwise[http]".'
                raise ModuleNotFoundError(sentence, name=error.name) from error
            return create_app
        if name == "HttpLimits":
            from .security import HttpLimits

            return HttpLimits
        if name == "owned_id":
            from ...engine.requests import owned_id

            return owned_id
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
