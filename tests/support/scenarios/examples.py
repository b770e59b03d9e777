"""The examples as modules."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[3] / "examples"


def example(name: str) -> ModuleType:
    """Import an example. It must do nothing when it is imported."""
    full_name = f"turnwise_example_{name}"
    if full_name not in sys.modules:
        spec = spec_from_file_location(full_name, EXAMPLES / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = sys.modules[full_name] = module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[full_name]
