"""litellm, brought in late and kept quiet.

It takes seconds to import, and left to itself it fetches its price list from the network and prints advice. So it is
imported on first use, by this door only, and told beforehand to do neither.
"""

from __future__ import annotations

import functools
import logging
import os
from pkgutil import resolve_name
from typing import Any

_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")


@functools.cache
def load_litellm() -> Any:
    """Import litellm, set up so that it neither prints nor fetches anything by itself. Takes seconds, once.

    What the host has set in the environment is left alone: `LITELLM_LOCAL_MODEL_COST_MAP`, and `LITELLM_LOG`, with
    which litellm's own log is heard.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    if "LITELLM_LOG" not in os.environ:
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    # By name, so that a type checker need not read all of litellm to check this file.
    litellm = resolve_name("litellm")
    litellm.suppress_debug_info = True
    if litellm.disable_hf_tokenizer_download is None:
        litellm.disable_hf_tokenizer_download = True
    return litellm
