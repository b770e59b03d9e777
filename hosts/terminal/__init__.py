"""The command `turnwise`: hold a conversation in a terminal, and work with stored ones.

Its libraries are installed with the extra `terminal` only, so `main` looks for them before it imports anything else.
"""

from __future__ import annotations

import gc
import signal
import sys
from importlib.util import find_spec
from io import TextIOWrapper

EXTRA = ("prompt_toolkit", "pydantic_settings", "questionary", "rich", "typer")
"""The packages that the extra `terminal` installs."""


def main() -> None:
    """Run the command, and exit: 0 for success, 1 for a negative result, 2 for what cannot be done.

    While modules are imported nothing is collected: they stay, and looking through them again and again takes a
    twentieth of the time until a command runs. `_run` in `commands/app.py` turns the collector on.
    """
    gc.disable()
    if any(find_spec(name) is None for name in EXTRA):
        print('The command turnwise needs its extra `terminal`: pip install "turnwise[terminal]"', file=sys.stderr)
        sys.exit(2)
    from .commands.app import app
    from .output.lines import exit_code

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that the terminal's encoding lacks becomes "?"
    code = exit_code(lambda: app(prog_name="turnwise", standalone_mode=False))
    # Ctrl-C during the shutdown ends the process at once; Python would print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A model library leaves so many objects behind that collecting them at exit would take a second.
    gc.freeze()
    sys.exit(code)
