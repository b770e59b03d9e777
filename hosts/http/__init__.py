"""The HTTP host: conversations over HTTP, with Server-Sent Events, for the page and for other clients.

Its libraries are installed with the extra `http` only. It uses the public API of the engine and knows no store.
"""

from ...engine.requests import owned_id

try:
    from .app import create_app
    from .problems import answer_error
    from .security import HttpLimits
    from .streams import update_stream
except ModuleNotFoundError as _missing:
    sentence = 'turnwise.hosts.http needs its extra `http`: pip install "turnwise[http]".'
    raise ModuleNotFoundError(sentence, name=_missing.name) from _missing

__all__ = ["HttpLimits", "answer_error", "create_app", "owned_id", "update_stream"]
