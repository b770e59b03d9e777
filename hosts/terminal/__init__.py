"""The command `turnwise`: hold a conversation in a terminal, and look at stored ones.

What it draws with is installed only on request, so it is looked for here before anything else is imported.
"""

from __future__ import annotations

import gc
import signal
import sys
from importlib.util import find_spec
from io import TextIOWrapper

EXTRA = ("prompt_toolkit", "pydantic_settings", "questionary", "rich", "typer")
"""What the extra `terminal` installs, by the names to import."""


def main() -> None:
    """Run the command, and exit: 0 if all went well, 1 if what was done did not, 2 for what cannot be done."""
    if any(find_spec(name) is None for name in EXTRA):
        sys.exit(_say_what_is_missing())
    from .commands.app import app
    from .output.error_messages import exit_code

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # What a terminal cannot show comes out as "?", rather than as an error.
            stream.reconfigure(errors="replace")
    code = exit_code(lambda: app(prog_name="turnwise"))
    # From here on Ctrl-C may end the process as it is: there is nothing left to do, and Python would print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A model library leaves so many objects behind that to search them for garbage, on the way out, takes a second.
    gc.freeze()
    sys.exit(code)


def _say_what_is_missing() -> int:
    print('The command turnwise needs its extra `terminal`: pip install "turnwise[terminal]"', file=sys.stderr)
    return 2
