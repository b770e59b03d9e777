"""Makes a conversation that fails shorter, until nothing more can be left out of it.

Hypothesis shrinks the choices that a conversation was made up from, and takes away one thing at a time. So what goes
away only in pairs stays: a message and its cancel, say. Here whole events are left out, several at once, and what is
said gives way to what is usually said. After each change the rest must still fail. A conversation that was not made
up, but happened, becomes a short one in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from ..states.effects import Effect
from ..states.events import Answer, Event
from ..states.value import Value
from .history import History, Observation, observe
from .program import Known, event_of

if TYPE_CHECKING:
    from .laws import Law

MAX_EVENTS = 50_000
"""How many events may happen in search of a shorter trace: some seconds."""


def shrink_trace(trace: Iterable[Known], law: Law) -> tuple[Known, ...]:
    """The shortest and plainest trace found that breaks the law as this one does.

    The events happen again from the first on, and answers follow the effects that they answer, whose ids may change.
    A trace whose last event cannot happen at all (it raises) stays one. One that breaks nothing when it happens again
    is returned as it is. `Pure.`
    """
    smallest = tuple(trace)
    search = _Search(law)
    found = search.again(smallest)
    while found is not None:
        smallest = found
        found = next((each for each in map(search.again, _smaller(smallest)) if each is not None), None)
    return smallest


class _Search:
    """Tries traces against a law, until it has tried enough."""

    def __init__(self, law: Law) -> None:
        self._law = law
        self._fault: type[Exception] | None = None
        self._events = 0

    def again(self, trace: tuple[Known, ...]) -> tuple[Known, ...] | None:
        """This trace as it happens now, if it still fails, and fails as the first did that was tried."""
        self._events += len(trace)
        if self._events > MAX_EVENTS:
            return None
        happened: list[Known] = []
        try:
            self._law(_happen(trace, happened))
        except Exception as fault:
            self._fault = self._fault or type(fault)
            return tuple(happened) if type(fault) is self._fault else None
        return None


def _happen(trace: Iterable[Known], happened: list[Known]) -> History:
    """Let the events of a trace happen again; `happened` gets each, also one that raises."""
    history = History()
    moved: dict[int, int] = {}
    for each in trace:
        event = event_of(each)
        if isinstance(event, Answer):
            event = event.model_copy(update={"effect_id": moved.get(event.effect_id, event.effect_id)})
        happened.append(event)
        happened[-1] = now = observe(history.state, event, history.context)
        history.add(now)
        if isinstance(each, Observation):
            new = _ids(now.effects)
            moved.update((old, new[key]) for key, old in _ids(each.effects).items() if key in new)
    return history


def _ids(effects: Iterable[Effect]) -> dict[tuple[type[Effect], str], int]:
    """The ids of a step's effects, by what tells these apart: the type, and the call that an effect is for."""
    return {
        (type(effect), getattr(getattr(effect, "call", None), "call_id", "")): effect.effect_id
        for effect in effects
        if hasattr(effect, "effect_id")
    }


def _smaller(trace: tuple[Known, ...]) -> Iterator[tuple[Known, ...]]:
    """This trace without some events in a row, the most first; then with one event that says less."""
    size = len(trace) - 1
    while size:
        for start in range(1, len(trace) - size + 1):
            yield (*trace[:start], *trace[start + size :])
        size //= 2
    for place, each in enumerate(trace):
        for plainer in _plainer(event_of(each)):
            yield (*trace[:place], _saying(each, plainer), *trace[place + 1 :])


def _saying(each: Known, event: Event) -> Known:
    return Observation(each.before, event, each.context, each.outcome) if isinstance(each, Observation) else event


def _plainer(value: Any) -> Iterator[Any]:
    """Values of the same kind that say one thing less: a field at its default, or a tuple without one of its items."""
    if isinstance(value, Value):
        yield from _plainer_value(value)
    elif isinstance(value, tuple):
        yield from (value[:place] + value[place + 1 :] for place in range(len(value)))
        for place, item in enumerate(value):
            yield from ((*value[:place], plainer, *value[place + 1 :]) for plainer in _plainer(item))


def _plainer_value(value: Value) -> Iterator[Value]:
    fields = {name: getattr(value, name) for name in type(value).model_fields}
    for name, field in type(value).model_fields.items():
        default = field.get_default(call_default_factory=True)
        usual = [] if default is PydanticUndefined or default == fields[name] else [default]
        for plainer in (*usual, *_plainer(fields[name])):
            try:
                yield type(value).model_validate({**fields, name: plainer})
            except ValidationError:
                continue  # it would say nothing that can be said
