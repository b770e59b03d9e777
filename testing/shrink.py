"""Makes a conversation that fails shorter, until nothing more can be left out of it.

Hypothesis shrinks the choices from which a conversation was generated, one at a time. So what can be removed only in
pairs stays, such as a message and its cancel. Here whole events are left out, several at once, and fields are set to
their defaults. After each change the rest must still fail. A conversation that was recorded, and not generated, is made
shorter in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..states.effects import Effect
from ..states.events import Answer, Event, LlmResponse, Request
from ..states.states import State
from ..states.values.value import Value, later
from .history import History, Observation, observe
from .program import Known, event_of

if TYPE_CHECKING:
    from .law import Law

MAX_EVENTS = 50_000
"""How many events are tried in search of a shorter trace: this takes some seconds."""

ID_FIELDS = ("event_id", "message_id", "call_id")
"""The fields of events that hold the id of a request or of a call."""

WORDS = ("a", "b")
"""Texts for where it does not matter what is said."""


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


# --- happening again


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


# --- less


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


def _saying(each: Known, event: Event) -> Known:
    return Observation(each.before, event, each.context, each.outcome) if isinstance(each, Observation) else event


def _plainer(value: Any) -> Iterator[Any]:
    """Values that are plainer by one thing: a field at its default, or a tuple without one of its items."""
    if isinstance(value, Value):
        yield from _plainer_value(value)
    elif isinstance(value, tuple):
        yield from (value[:place] + value[place + 1 :] for place in range(len(value)))
        for place, item in enumerate(value):
            yield from ((*value[:place], plainer, *value[place + 1 :]) for plainer in _plainer(item))


def _plainer_value(value: Value) -> Iterator[Value]:
    fields = {name: getattr(value, name) for name in type(value).model_fields}
    for name, field in type(value).model_fields.items():
        for plainer in (*_usual(name, field, fields[name]), *_plainer(fields[name])):
            try:
                yield type(value).model_validate({**fields, name: plainer})
            except ValidationError:
                continue  # the plainer value is not valid


def _usual(name: str, field: FieldInfo, said: Any) -> tuple[Any, ...]:
    """The plain values of a field that come before its value. Names and ids are left as they are: they refer to
    something."""
    default = field.get_default(call_default_factory=True)
    if default is not PydanticUndefined:
        return () if said == default else (default,)
    if not isinstance(said, str) or name in (*ID_FIELDS, "name"):
        return ()
    return WORDS[: WORDS.index(said)] if said in WORDS else WORDS


# --- short ids, round moments


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
    if isinstance(value, Value):
        fields = {name: _renamed(getattr(value, name), names, name) for name in type(value).model_fields}
        return value.model_copy(update=fields)
    if isinstance(value, tuple):
        return tuple(_renamed(item, names) for item in value)
    return names.get(value, value) if field in ID_FIELDS else value
