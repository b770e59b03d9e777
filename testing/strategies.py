"""Hypothesis strategies for policies, states, events, effects and whole traces.

Each function returns a strategy. The small and ordinary values come first, since Hypothesis shrinks a counterexample
towards them; beside them stand those that break programs. What is generated is decided in `generation/`; only what
concerns Hypothesis belongs here. The generators are written by hand: to derive the strategies from the types by
`st.from_type` would cost eight times as much.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..states.effects import EFFECTS, Effect
from ..states.events import (
    EVENTS,
    REQUESTS,
    Answer,
    Event,
    MessageWithdrawn,
    Opened,
    Report,
    Request,
    UserCancel,
    WakeUp,
)
from ..states.policy import Limits, Policy
from ..states.states import State
from ..states.step import LogEntry
from ..states.values.messages import ToolCall
from ..states.values.questions import Answers
from .generation import events as generated
from .generation import states as extremes
from .generation.chance import INSTANTS, NOON, TRICKY_TEXTS, Chance, changed, from_type
from .generation.events import event_in
from .generation.states import EXTREME, ROLES, a_state, context_for, numbered, some_calls
from .generation.states import any_answers as any_answer_map
from .history import History, Observation

__all__ = [
    "NOON",
    "answers_for",
    "any_answers",
    "branchings_for",
    "cancels_for",
    "changed",
    "contexts_for",
    "effects",
    "events",
    "events_for",
    "events_of",
    "late_answers_for",
    "near_misses_for",
    "numbered",
    "policies",
    "reports_for",
    "requests",
    "responses_for",
    "settings_for",
    "states",
    "texts",
    "tight_limits",
    "tool_calls",
    "traces",
    "wake_ups_for",
    "withdrawals_for",
]

P = ParamSpec("P")

T = TypeVar("T")


def strategy_of(generate: Callable[Concatenate[Chance, P], T]) -> Callable[P, SearchStrategy[T]]:
    """A function that returns a Hypothesis strategy, made of a generator that makes its choices by `Chance`."""

    @st.composite
    def drawn(draw: st.DrawFn, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return generate(Drawn(draw), *args, **kwargs)

    @wraps(generate)
    def strategy(*args: P.args, **kwargs: P.kwargs) -> SearchStrategy[T]:
        return drawn(*args, **kwargs)

    return strategy


PARTS = 100
"""Into how many parts a probability is divided."""


class Drawn(Chance):
    """Choices that Hypothesis draws."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1, which shrinks towards 0."""
        return self.draw(_drawn_numbers(count)) if count > 1 else 0

    def probably(self, probability: float) -> bool:
        """True with this probability; it shrinks towards False."""
        return self.below(PARTS) >= PARTS * (1.0 - probability)

    def text(self) -> str:
        """Any text that can be written as UTF-8."""
        return self.draw(texts())


@cache
def _drawn_numbers(count: int) -> SearchStrategy[int]:
    return st.integers(0, count - 1)


@cache
def texts() -> SearchStrategy[str]:
    """Any text that can be written as UTF-8."""
    return st.sampled_from(TRICKY_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@cache
def policies(**rules: SearchStrategy[Any]) -> SearchStrategy[Policy]:
    """Policies of every kind, with the rules given: 1 to 3 models, up to 4 tools at once, limits down to nothing."""
    return _policies(rules)


@st.composite
def _policies(draw: st.DrawFn, rules: Mapping[str, SearchStrategy[Any]]) -> Policy:
    return extremes.any_policy(Drawn(draw), **{name: draw(rule) for name, rule in rules.items()})


@cache
def tight_limits() -> SearchStrategy[Limits]:
    """Limits that a conversation soon meets."""
    return strategy_of(extremes.tight_limits)()


contexts_for: Final = strategy_of(context_for)


@cache
def states(*kinds: type[State]) -> SearchStrategy[State]:
    """States of these types, or of any."""
    return strategy_of(a_state)(*kinds)


@strategy_of
def effects(chance: Chance, *kinds: type[Effect]) -> Effect:
    """Effects of these types, or of any, whatever the step that they are part of."""
    return from_type(chance.pick(kinds or EFFECTS), chance)


E = TypeVar("E", bound=Event)


@cache
def events_of(kind: type[E]) -> SearchStrategy[E]:
    """Events of one type, whatever the state that they meet."""
    return _any_of((kind,))  # type: ignore[return-value]


@strategy_of
def _any_of(chance: Chance, kinds: tuple[type[Event], ...]) -> Event:
    return changed(generated.any_event(chance, EXTREME, chance.pick(kinds)), at=chance.pick(INSTANTS))


@cache
def events() -> SearchStrategy[Event]:
    """Events of every type, whatever the state that they meet."""
    return _any_of(EVENTS)


@cache
def requests() -> SearchStrategy[Request]:
    """Requests of every type, whatever the state that they meet."""
    return _any_of(REQUESTS)  # type: ignore[return-value]


@strategy_of
def events_for(chance: Chance, state: State) -> Event:
    """Any event, above all one that moves this state on."""
    return generated.event_in(chance, EXTREME, state)


@strategy_of
def answers_for(chance: Chance, state: State) -> Answer:
    """Answers that this state awaits. It must await some."""
    return generated.awaited_answer(chance, EXTREME, state)


@strategy_of
def late_answers_for(chance: Chance, state: State) -> Answer:
    """Answers that this state does not await."""
    return generated.late_answer(chance, EXTREME, state)


@strategy_of
def responses_for(chance: Chance, state: State) -> Request:
    """What this state waits for a person to do."""
    return generated.response_to(chance, EXTREME, state)


@strategy_of
def cancels_for(chance: Chance, state: State) -> UserCancel:
    """Cancels of the turn that this state is in, or of one that is over."""
    return generated.cancel_in(chance, EXTREME, state)


@strategy_of
def withdrawals_for(chance: Chance, state: State) -> MessageWithdrawn:
    """Withdrawals of messages that wait in this state, or of one that does not."""
    return generated.withdrawal_in(chance, EXTREME, state)


@strategy_of
def wake_ups_for(chance: Chance, state: State) -> WakeUp:
    """Wake-ups that this state waits for, or that are over."""
    return generated.wake_up_in(chance, EXTREME, state)


@strategy_of
def settings_for(chance: Chance, state: State) -> Request:
    """Changes of the tools, the details, the schedule or the profile of a conversation that is in this state."""
    return generated.settings_in(chance, EXTREME, state)


@strategy_of
def branchings_for(chance: Chance, state: State, log: Sequence[LogEntry]) -> Event:
    """Requests by which a conversation that is in this state, and has this log, goes to another branch."""
    return generated.with_messages(chance, generated.branching_in(chance, EXTREME, state), log)


@strategy_of
def reports_for(chance: Chance, state: State) -> Report:
    """Reports that a process resumes the conversation, or that a call was interrupted."""
    return generated.report_in(chance, EXTREME, state)


@strategy_of
def near_misses_for(chance: Chance, state: State) -> Request:
    """Requests that are almost what this state asks of a person."""
    return generated.near_miss(chance, EXTREME, state)


@cache
def tool_calls() -> SearchStrategy[tuple[ToolCall, ...]]:
    """The calls of one response."""
    return strategy_of(some_calls)(EXTREME)


@cache
def any_answers() -> SearchStrategy[Answers]:
    """Answers to whatever was asked, of any shape."""
    return strategy_of(any_answer_map)()


@st.composite
def traces(
    draw: st.DrawFn, rules: SearchStrategy[Policy] | None = None, *, max_size: int = 30
) -> tuple[Observation, ...]:
    """Conversations from their first event on, under the policies given or under any, up to `max_size` events long."""
    chance, history, now = Drawn(draw), History(), NOON
    policy = draw(policies() if rules is None else rules)
    history.take(Opened(event_id="opened", at=now, role=chance.pick(ROLES), policy=policy))
    sizes = (*range(max_size), *[max_size - 1] * max_size)
    for number in range(chance.pick(sizes)):
        now += timedelta(seconds=chance.pick((1.0, 0.0, 30.0, -1.0)))
        event = generated.with_messages(chance, event_in(chance, EXTREME, history.state), history.log)
        changes: dict[str, Any] = {"at": now}
        if isinstance(event, Request):
            changes["event_id"] = f"request-{number}"
        history.take(changed(event, **changes))
    return tuple(history.observations)


Schema = Mapping[str, Any]

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

_ANYTHING: SearchStrategy[Any] = st.none() | st.booleans() | st.integers(-1_000, 1_000) | _TEXTS


def values_of(schema: Schema | bool, root: Schema | None = None) -> SearchStrategy[Any]:
    """Values that fit this schema, a part of `root`.

    They are for the arguments of calls of real tools, and cover what tools use: types, bounds, enumerations,
    alternatives, references within the schema. What they do not know is left to the check of the tool, which filters
    the values.
    """
    root = schema if root is None and isinstance(schema, Mapping) else root or {}
    if isinstance(schema, bool) or not schema:
        return _ANYTHING
    if "$ref" in schema:
        return st.deferred(lambda: values_of(_part(root, schema["$ref"]), root))
    if "const" in schema or "enum" in schema:
        return st.sampled_from([schema["const"]] if "const" in schema else schema["enum"])
    composed = next((keyword for keyword in ("anyOf", "oneOf", "allOf") if keyword in schema), None)
    return _of_type(schema, root) if composed is None else _composed(composed, schema, root)


def _part(root: Schema, reference: str) -> Any:
    """The part of the schema to which a pointer refers; anything for a reference of another kind."""
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        found = found.get(key, True) if isinstance(found, Mapping) else True
    return found if reference.startswith("#/") else True


def _composed(keyword: str, schema: Schema, root: Schema) -> SearchStrategy[Any]:
    """Values of one of the alternatives, or of all parts together."""
    rest = {key: value for key, value in schema.items() if key != keyword}
    if keyword == "allOf":
        return values_of({**rest, **{key: value for part in schema[keyword] for key, value in part.items()}}, root)
    return st.one_of([values_of({**rest, **choice}, root) for choice in schema[keyword]])


def _of_type(schema: Schema, root: Schema) -> SearchStrategy[Any]:
    types = schema.get("type", "object" if "properties" in schema else None)
    kinds = types if isinstance(types, list) else [types]
    return st.one_of([_KINDS[kind](schema, root) if kind in _KINDS else _ANYTHING for kind in kinds])


_FORMATS: dict[str, SearchStrategy[str]] = {
    "date": st.dates().map(str),
    "date-time": st.datetimes(timezones=st.just(datetime.UTC)).map(lambda moment: moment.isoformat()),
    "time": st.times().map(str),
    "duration": st.integers(0, 10_000).map(lambda seconds: f"PT{seconds}S"),
    "uuid": st.uuids().map(str),
    "email": st.emails(),
    "ipv4": st.ip_addresses(v=4).map(str),
    "ipv6": st.ip_addresses(v=6).map(str),
    "uri": st.just("https://example.com/"),
}
"""Texts of the formats that pydantic writes into schemas."""


def _texts(schema: Schema, root: Schema) -> SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(schema["pattern"]).map(str).filter(str.isprintable)
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    least = schema.get("minLength", 0)
    most = min(schema.get("maxLength", least + 20), least + 20)
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=least, max_size=most)


def _integers(schema: Schema, root: Schema) -> SearchStrategy[int]:
    step = schema.get("multipleOf", 1)
    least, most = _bounds(schema)
    numbers = st.integers(None if least is None else -int(-least // step), None if most is None else int(most // step))
    return numbers.map(lambda number: int(number * step))


def _bounds(schema: Schema) -> tuple[float | None, float | None]:
    least = [schema[key] for key in ("minimum", "exclusiveMinimum") if _is_number(schema.get(key))]
    most = [schema[key] for key in ("maximum", "exclusiveMaximum") if _is_number(schema.get(key))]
    return max(least, default=None), min(most, default=None)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_NUMBERS = st.floats(-1e6, 1e6, allow_nan=False) | st.integers(-1_000, 1_000)


def _numbers(schema: Schema, root: Schema) -> SearchStrategy[float]:
    least, most = _bounds(schema)
    if "multipleOf" in schema or (least is None and most is None):
        return _integers(schema, root) if "multipleOf" in schema else _NUMBERS
    return st.floats(least, most, allow_nan=False, allow_infinity=False)


def _arrays(schema: Schema, root: Schema) -> SearchStrategy[list[Any]]:
    first = [values_of(part, root) for part in schema.get("prefixItems", ())]
    least = schema.get("minItems", 0)
    most = min(schema.get("maxItems", least + 3), least + 3)
    unique: Callable[[Any], str] | None = repr if schema.get("uniqueItems") else None
    items = schema.get("items", True)
    rest = st.lists(
        values_of(items, root) if items is not False else st.nothing(),
        min_size=max(least - len(first), 0),
        max_size=0 if items is False else max(most - len(first), 0),
        unique_by=unique,
    )
    return st.tuples(st.tuples(*first), rest).map(lambda parts: [*parts[0], *parts[1]])


def _objects(schema: Schema, root: Schema) -> SearchStrategy[dict[str, Any]]:
    properties = {name: values_of(part, root) for name, part in schema.get("properties", {}).items()}
    needed = [name for name in schema.get("required", ()) if name not in properties]
    required = {name: values for name, values in properties.items() if name in schema.get("required", ())}
    optional = {name: values for name, values in properties.items() if name not in required}
    return st.fixed_dictionaries({**required, **dict.fromkeys(needed, _ANYTHING)}, optional=optional)


_KINDS: dict[Any, Callable[[Schema, Schema], SearchStrategy[Any]]] = {
    "string": _texts,
    "integer": _integers,
    "number": _numbers,
    "boolean": lambda schema, root: st.booleans(),
    "null": lambda schema, root: st.none(),
    "array": _arrays,
    "object": _objects,
}
