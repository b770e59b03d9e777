"""Imports litellm on first use, and keeps it quiet.

litellm takes seconds to import. By default it also downloads its price list and prints advice. All imports of litellm
go through this module, which turns both off first.

Its errors may quote the keys of this program, which are removed before an error is logged. They are known by their
values, and removed whatever the rules of a conversation are. Secrets of what was said are another matter:
`effects/logs.py` keeps them out of the log where a conversation asks for it.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Iterable
from concurrent.futures import Future
from pkgutil import resolve_name
from threading import Lock, Thread
from typing import Any

_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")

_lock = Lock()
_loading: Future[Any] | None = None


def begin_loading() -> Future[Any]:
    """Begin to import litellm in a thread of its own, unless that has begun, and return the result to come. However
    many models and engines wait for it, it takes one thread. An import that failed is tried again."""
    global _loading
    with _lock:
        if _loading is None or (_loading.done() and _loading.exception() is not None):
            _loading = Future()
            _loading.set_running_or_notify_cancel()  # so that nobody who stops waiting for it cancels it for others
            Thread(target=_load_into, args=(_loading,), daemon=True, name="turnwise-litellm").start()
        return _loading


def _load_into(result: Future[Any]) -> None:
    try:
        result.set_result(load_litellm())
    except BaseException as error:
        result.set_exception(error)


@functools.cache
def load_litellm() -> Any:
    """Import litellm so that it neither prints nor downloads anything. Takes seconds the first time.

    Variables that are already in the environment keep their values: `LITELLM_LOCAL_MODEL_COST_MAP`, and `LITELLM_LOG`,
    which turns litellm's own log on.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    if "LITELLM_LOG" not in os.environ:
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    # Imported by name, so that a type checker does not read all of litellm to check this file.
    litellm = resolve_name("litellm")
    litellm.suppress_debug_info = True
    if litellm.disable_hf_tokenizer_download is None:
        litellm.disable_hf_tokenizer_download = True
    return litellm


_KEY = re.compile(r"\b(?:Bearer\s+\S+|(?:sk|pk|rk|gsk|hf|xai|AIza|key)[-_]?[\w*-]{8,})", re.IGNORECASE)
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)

_SHORTEST_SECRET = 6
"""Characters. Shorter values are not replaced: they occur in ordinary words, and the log would become unreadable."""


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with `***` in place of each of the `secrets`, of the values of environment variables whose names suggest
    a secret, and of everything that has the form of a key."""
    known = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)} | set(secrets)
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return _KEY.sub("***", text)
