"""Reports a failure as the conversation that led to it, written as a short program.

Hypothesis runs a failing test many times, each time with a smaller example, and runs the smallest once more at the end.
That one is made shorter still, event by event. A failure outside of Hypothesis is reported as it happened.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .program import Known, as_program
from .shrink import shrink_trace

if TYPE_CHECKING:
    from .law import Law

MAX_SHOWN = 20_000
"""The longest program, in characters, that a failure shows: about two hundred events, far more than a shrunk trace has,
and still readable in the log of a build."""


def tell(broken: Exception, trace: Iterable[Known], law: Law, *, repeatable: bool = True) -> tuple[Known, ...]:
    """Add the trace that breaks the law to the exception, as a program. Returns the trace that was added.

    Where Hypothesis shows its smallest example the trace is made shorter if it is `repeatable`, that is, if its events
    have the same outcome when they happen again.
    """
    reported = happened = tuple(trace)
    if repeatable and _is_smallest():
        reported = shrink_trace(happened, law)
    program = as_program(reported, law)
    if len(program) <= MAX_SHOWN:
        shorter = " and made shorter" if len(reported) < len(happened) else ""
        broken.add_note(f"The same, written as a program{shorter}:\n\n{program}")
    else:
        broken.add_note(
            f"The {len(reported)} events that led there are too long to print; as_program() writes them down."
        )
    return reported


def _is_smallest() -> bool:
    """Whether Hypothesis runs the example that it is going to show."""
    control = sys.modules.get("hypothesis.control")  # a test that does without Hypothesis does not load it
    if control is None or not control.currently_in_test_context():
        return False
    return bool(control.current_build_context().is_final)
