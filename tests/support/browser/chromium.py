"""Finds the Chromium that is installed on this machine; the tests download no browser."""

from __future__ import annotations

import shutil

from ..programs.missing import missing

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

FLAGS = (
    "--no-sandbox",  # the tests may run as root, in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",  # nothing leaves this machine
)


def chromium_or_skip() -> str:
    """Return the path of Chromium. Skips the test if there is none, but fails it where `CI` is set."""
    if path := next((path for name in NAMES if (path := shutil.which(name))), None):
        return path
    missing("Chromium is not installed: `make browser` installs it, or `apt-get install chromium`.")
