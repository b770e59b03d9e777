"""Reports a failure as the shortest conversation that leads to it, written as a short program.

Hypothesis runs a failing test many times, each time with a smaller example, and runs the smallest once more at the end.
That one is made shorter still, event by event. A failure outside of Hypothesis is reported as it happened.

Hypothesis shrinks the choices from which a conversation was generated, one at a time. So what can be removed only in
pairs stays, such as a message and its cancel. Here whole events are left out, several at once, and fields are set to
their defaults. After each change the rest must still fail. A conversation that was recorded, and not generated, is made
shorter in the same way.

Printed as values such a conversation is a page of fields; as a program it is one line for each event, which can be
read, pasted into a test and run. Fields at their default are left out, and moments are given in seconds after the first
event. Nothing else is shortened: a text that is cut might be the one that causes the failure, and a trace that was
shrunk is small anyway.
"""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from .. import states
from ..states.effects import Effect
from ..states.errors import Refused
from ..states.events import Answer, Event, LlmResponse, Request
from ..states.states import State
from ..states.values.value import Record, Value, later
from .history import History, Observation, observe

if TYPE_CHECKING:
    from .history import Law

Known = Observation | Event
"""What is known of an event: everything that was observed, or the event alone."""

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


AT = """
def at(seconds: float) -> datetime:
    return {start} + timedelta(seconds=seconds)
"""

NEAR = timedelta(days=365)
"""Moments farther than this from the first event are written out: in seconds they would be unreadable and inexact."""


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
            case Value() | Record():
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

    def _value(self, value: Value | Record) -> str:
        kind = type(value)
        self.needs(states.__name__ if getattr(states, kind.__name__, None) is kind else kind.__module__, kind.__name__)
        given = {name: (getattr(value, name), default) for name, default in _defaults(kind).items()}
        arguments = [f"{name}={self.of(said)}" for name, (said, default) in given.items() if said != default]
        return f"{kind.__name__}({', '.join(arguments)})"

    def _moment(self, moment: datetime) -> str:
        after = moment - self._start
        return f"at({after.total_seconds():.15g})" if abs(after) < NEAR else _written_out(moment)


def _defaults(kind: type[Value | Record]) -> dict[str, Any]:
    """The fields of values of this kind, each with its default, or with what equals no value if it has none."""
    if issubclass(kind, Value):
        return {name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items()}
    made = {field.name: field.default_factory for field in fields(kind) if field.default_factory is not MISSING}
    return {field.name: made[field.name]() if field.name in made else field.default for field in fields(kind)}


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


def _line(source: _Source, each: Known) -> str:
    comment = became(each)
    return f"    history.take({source.of(event_of(each))}){comment and f'  # {comment}'}"


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


def _name(law: Law | None) -> str:
    if law is None:
        return "trace"
    return law.__name__ if law.__name__.isidentifier() else "law"


def _docstring(law: Law | None) -> list[str]:
    text = "" if law is None else claim(law)
    return [f'    """{text}"""'] if text and '"' not in text and "\\" not in text else []


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


def shrink_trace(trace: Iterable[Known], law: Law) -> tuple[Known, ...]:
    """Return the shortest and plainest trace found that breaks the law with the same type of exception.

    The events are put to the machine again from the first on. Answers follow the effects that they answer, whose ids
    may change. Where it does not matter, requests and calls get short ids, and events come a second apart. The last
    event of the trace may raise instead of having an outcome. A trace that breaks nothing when it is repeated is
    returned unchanged. `Pure.`
    """
    search = _Search(law)
    smallest = tuple(trace)
    found = search.again(smallest)
    if found is None:
        return smallest
    while found is not None:
        smallest = found
        found = next(filter(None, map(search.somehow, _smaller(smallest))), None)
    return search.again(_tidy(smallest)) or smallest


MAX_EVENTS = 50_000
"""How many events are tried in search of a shorter trace: this takes some seconds."""


class _Search:
    """Tries traces against a law, until it has tried enough."""

    def __init__(self, law: Law) -> None:
        self._law = law
        self._fault: type[Exception] | None = None
        self._events = 0

    def somehow(self, trace: tuple[Known, ...]) -> tuple[Known, ...] | None:
        """The trace as it happens now, if it still fails; if need be, with answers to other effects than before."""
        return self.again(trace) or self.again(trace, redirect=True)

    def again(self, trace: tuple[Known, ...], *, redirect: bool = False) -> tuple[Known, ...] | None:
        """The trace as it happens now, if it still fails with the same type of exception as the first one tried."""
        self._events += len(trace)
        if self._events > MAX_EVENTS:
            return None
        happened: list[Known] = []
        try:
            self._law(_happen(trace, happened, redirect))
        except Exception as fault:
            self._fault = self._fault or type(fault)
            return tuple(happened) if type(fault) is self._fault else None
        return None


def _happen(trace: Iterable[Known], happened: list[Known], redirect: bool) -> History:
    """Put the events of a trace to the machine again. Each is added to `happened`, also one that raises."""
    history = History()
    moved: dict[int, int] = {}
    for each in trace:
        event = event_of(each)
        if isinstance(event, Answer):
            effect_id = moved.get(event.effect_id, event.effect_id)
            event = event.model_copy(update={"effect_id": effect_id})
            event = _redirected(event, history.state) if redirect else event
        happened.append(event)
        happened[-1] = now = observe(history.state, event, history.context)
        history.add(now)
        if isinstance(each, Observation):
            new = _ids(now.effects)
            moved.update((old, new[key]) for key, old in _ids(each.effects).items() if key in new)
    return history


def _redirected(answer: Answer, state: State) -> Answer:
    """The answer, directed to an effect that awaits one of its type: the one it answered may not have been started."""
    fitting = [effect_id for effect_id, kinds in state.awaited().items() if type(answer) in kinds]
    if not fitting or answer.effect_id in fitting:
        return answer
    return answer.model_copy(update={"effect_id": fitting[0]})


def _ids(effects: Iterable[Effect]) -> dict[tuple[type[Effect], str], int]:
    """The ids of a step's effects, by the type of the effect and the call that it is for."""
    return {
        (type(effect), getattr(getattr(effect, "call", None), "call_id", "")): effect.effect_id
        for effect in effects
        if hasattr(effect, "effect_id")
    }


def _smaller(trace: tuple[Known, ...]) -> Iterator[tuple[Known, ...]]:
    """The trace without several successive events, the longest omission first; then with one event made plainer."""
    size = len(trace) - 1
    while size:
        for start in range(1, len(trace) - size + 1):
            yield (*trace[:start], *trace[start + size :])
        size //= 2
    for place, each in enumerate(trace):
        for plainer in _plainer(event_of(each)):
            yield (*trace[:place], _saying(each, plainer), *trace[place + 1 :])


def _plainer(value: Any) -> Iterator[Any]:
    """Values that are plainer by one thing: a field at its default, or a tuple without one of its items."""
    if isinstance(value, Value):
        yield from _plainer_value(value)
    elif isinstance(value, tuple):
        yield from (value[:place] + value[place + 1 :] for place in range(len(value)))
        for place, item in enumerate(value):
            yield from ((*value[:place], plainer, *value[place + 1 :]) for plainer in _plainer(item))


def _plainer_value(value: Value) -> Iterator[Value]:
    given = {name: getattr(value, name) for name in type(value).model_fields}
    for name, field in type(value).model_fields.items():
        for plainer in (*_usual(name, field, given[name]), *_plainer(given[name])):
            try:
                yield type(value).model_validate({**given, name: plainer})
            except ValidationError:
                continue  # the plainer value is not valid


ID_FIELDS = ("event_id", "message_id", "call_id")
"""The fields of events that hold the id of a request or of a call."""

WORDS = ("a", "b")
"""Texts for where it does not matter what is said."""


def _usual(name: str, field: FieldInfo, said: Any) -> tuple[Any, ...]:
    """The plain values of a field that come before its value. Names and ids are left as they are: they refer to
    something."""
    default = field.get_default(call_default_factory=True)
    if default is not PydanticUndefined:
        return () if said == default else (default,)
    if not isinstance(said, str) or name in (*ID_FIELDS, "name"):
        return ()
    return WORDS[: WORDS.index(said)] if said in WORDS else WORDS


def _saying(each: Known, event: Event) -> Known:
    return Observation(each.before, event, each.context, each.outcome) if isinstance(each, Observation) else event


def _tidy(trace: tuple[Known, ...]) -> tuple[Known, ...]:
    """The trace with numbered ids, and a second between two events."""
    events = [event_of(each) for each in trace]
    names: dict[str, str] = {}
    calls = count(1)
    for number, event in enumerate(events):
        if isinstance(event, Request):
            names.setdefault(event.event_id, f"request-{number}")
        elif isinstance(event, LlmResponse):
            for call in event.tool_calls:
                names.setdefault(call.call_id, f"call-{next(calls)}")
    moments = (later(events[0].at, number) for number in range(len(events)))
    tidied = (_renamed(event, names).model_copy(update={"at": at}) for event, at in zip(events, moments, strict=True))
    return tuple(map(_saying, trace, tidied))


def _renamed(value: Any, names: Mapping[str, str], field: str = "") -> Any:
    """The value with the ids replaced in the fields that hold one."""
    if isinstance(value, Value | Record):
        return value.replace(**{name: _renamed(getattr(value, name), names, name) for name in _defaults(type(value))})
    if isinstance(value, tuple):
        return tuple(_renamed(item, names) for item in value)
    return names.get(value, value) if field in ID_FIELDS else value
