"""Writes a conversation as a short Python program, so that a failure can be read, pasted into a test and run.

A property test ends with the smallest conversation that it could find. Printed as values that is a page of fields; as a
program it is one line for each event, and running it shows the failure again. Fields at their default are left out, and
moments are given in seconds after the first event. Nothing else is shortened: a text that is cut might be the one that
causes the failure, and a trace that was shrunk is small anyway.
"""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from .. import states
from ..states.errors import Refused
from ..states.events import Event
from ..states.values.value import Value
from .history import History, Observation

if TYPE_CHECKING:
    from .law import Law

Known = Observation | Event
"""What is known of an event: everything that was observed, or the event alone."""

NEAR = timedelta(days=365)
"""Moments farther than this from the first event are written out: in seconds they would be unreadable and inexact."""

AT = """
def at(seconds: float) -> datetime:
    return {start} + timedelta(seconds=seconds)
"""


def as_program(trace: History | Iterable[Known], law: Law | None = None) -> str:
    """Return a test function in which these events happen again, one on each line, with its outcome as a comment.

    An event may stand in the place of an observation. The test ends by checking `law` at the last step, or without one
    all laws along the whole trace. It imports the law from the module that defines it; a law that is defined in a
    function cannot be imported and must be added by hand. `Pure.`
    """
    observed = list(trace.observations if isinstance(trace, History) else trace)
    source = _Source(event_of(observed[0]).at if observed else datetime.min.replace(tzinfo=UTC))
    lines = [_line(source, each) for each in observed]
    check = _check(source, law)
    test = [f"def test_{_name(law)}() -> None:", *_docstring(law), "    history = History()", *lines, "", check, ""]
    return "\n".join([*source.head(), *test])


def became(each: Known) -> str:
    """Return the outcome of an event in a word or two: the type of the state it led to, `ignored`, or the refusal. The
    text is empty if the outcome is not known. `Pure.`"""
    if isinstance(each, Event):
        return ""
    if isinstance(each.outcome, Refused):
        return f"refused: {each.outcome.code}"
    return "ignored" if each.step is None else each.after.type


def event_of(each: Known) -> Event:
    """Return the event. `Pure.`"""
    return each.event if isinstance(each, Observation) else each


def claim(law: Law) -> str:
    """Return what a law says, on one line: the first paragraph of its docstring. `Pure.`"""
    return " ".join((inspect.getdoc(law) or "").partition("\n\n")[0].split())


def _line(source: _Source, each: Known) -> str:
    comment = became(each)
    return f"    history.take({source.of(event_of(each))}){comment and f'  # {comment}'}"


def _name(law: Law | None) -> str:
    if law is None:
        return "trace"
    return law.__name__ if law.__name__.isidentifier() else "law"


def _docstring(law: Law | None) -> list[str]:
    text = "" if law is None else claim(law)
    return [f'    """{text}"""'] if text and '"' not in text and "\\" not in text else []


def _check(source: _Source, law: Law | None) -> str:
    source.needs(__name__.rpartition(".")[0], "History", "check_laws" if law is None else "check_newest")
    if law is None:
        return "    check_laws(history.observations)"
    if _can_be_imported(law):
        source.needs(_home_of(law), law.__name__)
    return f"    check_newest(history, {_name(law)})"


def _can_be_imported(law: Law) -> bool:
    module = sys.modules.get(law.__module__)
    return law.__module__ != "__main__" and getattr(module, law.__name__, None) is law


def _home_of(law: Law) -> str:
    """The module to import a law from: turnwise's own laws are exported by one."""
    package = __package__ + ".laws"
    return package if law.__module__.startswith(package) else law.__module__


class _Source:
    """Writes values as Python expressions, and collects the imports that these need."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._imports: dict[str, set[str]] = defaultdict(set)

    def needs(self, module: str, *names: str) -> None:
        """Import these names."""
        self._imports[module].update(names)

    def head(self) -> list[str]:
        """The lines before the test: the imports, and the function that makes moments."""
        ours = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(self._imports.items())]
        clock = AT.format(start=_written_out(self._start))
        return ["from datetime import UTC, datetime, timedelta", "", *ours, "", clock, ""]

    def of(self, value: Any) -> str:
        """The value as an expression."""
        match value:
            case Value():
                return self._value(value)
            case datetime():
                return self._moment(value)
            case str():
                return _quoted(value)
            case tuple() | list():
                return self._sequence(value)
            case dict():
                return f"{{{', '.join(f'{self.of(key)}: {self.of(each)}' for key, each in value.items())}}}"
            case _:
                return repr(value)

    def _sequence(self, value: tuple[Any, ...] | list[Any]) -> str:
        items = ", ".join(map(self.of, value))
        if isinstance(value, list):
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"

    def _value(self, value: Value) -> str:
        kind = type(value)
        self.needs(states.__name__ if getattr(states, kind.__name__, None) is kind else kind.__module__, kind.__name__)
        given = {name: getattr(value, name) for name in kind.model_fields}
        arguments = [
            f"{name}={self.of(given[name])}"
            for name, field in kind.model_fields.items()
            if given[name] != field.get_default(call_default_factory=True)
        ]
        return f"{kind.__name__}({', '.join(arguments)})"

    def _moment(self, moment: datetime) -> str:
        after = moment - self._start
        return f"at({after.total_seconds():.15g})" if abs(after) < NEAR else _written_out(moment)


def _written_out(moment: datetime) -> str:
    moment = moment.astimezone(UTC)
    parts = [moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond]
    while parts[-1] == 0 and len(parts) > 3:
        del parts[-1]
    return f"datetime({', '.join(map(str, parts))}, tzinfo=UTC)"


def _quoted(text: str) -> str:
    """A text in double quotes, unless it contains some."""
    # With an apostrophe in front, Python itself chooses double quotes.
    return repr(text) if '"' in text else f'"{repr(chr(39) + text)[2:]}'
