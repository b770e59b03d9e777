"""Prints the result of a command as one JSON document, for programs.

Only ASCII is written: it reads the same under every encoding, and a terminal finds nothing in it to execute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def print_json(document: Mapping[str, Any]) -> None:
    """Write the document to stdout, indented, with its keys in the order given."""
    print(json.dumps(document, indent=2))
