"""Takes the pictures of the page in README.md: it starts the demonstration and opens it in Chromium.

    python docs/picture.py [FOLDER]

It writes page.png and page-dark.png to docs/images/, or to FOLDER. It needs the extra `dev`, and a Chromium on the
path.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

CONVERSATION = "vienna"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
SIZE = {"width": 1360, "height": 850}
PATIENCE = 60_000
"""How many milliseconds to wait for the page."""


@contextmanager
def demonstration() -> Iterator[str]:
    """Serve the demonstration at a free port, and yield its address."""
    command = [sys.executable, "-m", "turnwise", "serve", "--demo", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        yield next(found[0] for line in server.stdout if (found := re.search(r"http://[^\s/]+", line)))
    finally:
        server.terminate()
        server.communicate()


def take(browser: Browser, address: str, scheme: str, file: Path) -> None:
    """Open a conversation of the demonstration and its inspector, and write what they look like.

    `scheme` is "light" or "dark".
    """
    page = browser.new_page(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}/#/c/{CONVERSATION}")
    expect(page.get_by_role("table")).to_be_visible(timeout=PATIENCE)  # the Markdown is rendered
    expect(page.get_by_text("Step 11 of 11")).to_be_visible(timeout=PATIENCE)  # and the machine is drawn
    page.screenshot(path=file, animations="disabled", caret="hide")
    page.close()


def main(folder: Path) -> None:
    """Write both pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with demonstration() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        take(browser, address, "light", folder / "page.png")
        take(browser, address, "dark", folder / "page-dark.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images")
