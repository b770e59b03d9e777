"""The version of turnwise, as its installed package tells it.

Import this where the version is needed: to find it among the installed packages takes tens of milliseconds.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    try:
        return version("turnwise")
    except PackageNotFoundError:  # in a source tree that is not installed
        return "0"


__version__ = _installed()
"""The version; "0" in a source tree that is not installed."""
