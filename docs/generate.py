"""Writes the generated parts of the pages, or checks that they are up to date.

python docs/generate.py              write docs/reference/machine.md, and the generated parts of the other pages
python docs/generate.py --check      exit with status 1 unless they are up to date
python docs/generate.py … PAGE …     these pages only
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from generator.pages import PAGES, is_fresh, write


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages. Returns the exit status: 0, or 1 with a sentence on stderr."""
    parser = argparse.ArgumentParser(description="Write the generated parts of the pages.")
    parser.add_argument("--check", action="store_true", help="exit with status 1 unless they are up to date")
    parser.add_argument("pages", metavar="PAGE", type=Path, nargs="*", default=PAGES)
    chosen = parser.parse_args(arguments)
    return max((_check if chosen.check else _write)(page) for page in chosen.pages)


def _write(page: Path) -> int:
    try:
        write(page)
    except OSError as error:
        return _fail(f"{page} cannot be written: {error.strerror}.")
    return 0


def _check(page: Path) -> int:
    return 0 if is_fresh(page) else _fail(f"{page} is not what the code gives; run `make docs`.")


def _fail(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
