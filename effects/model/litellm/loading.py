"""Imports litellm on first use, and keeps it quiet.

litellm takes seconds to import. By default it also downloads its price list and prints advice. All imports of litellm
go through this module, which turns both off first.
"""

from __future__ import annotations

import functools
import logging
import os
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


def is_loaded() -> bool:
    """Whether litellm is imported, so that nothing waits for it."""
    return load_litellm.cache_info().currsize > 0


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
