"""Strategies for events: any, or such as fit a state."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from hypothesis.strategies import SearchStrategy

from ...states.events import EVENTS, REQUESTS, Answer, Event, MessageWithdrawn, Report, Request, UserCancel, WakeUp
from ...states.states import State
from ...states.values.messages import ToolCall
from ...states.values.questions import Answers
from ..generation import events as generated
from ..generation.calls import some_calls
from ..generation.chance import Chance
from ..generation.extremes import EXTREME
from ..generation.questions import any_answers as any_answer_map
from ..generation.values import INSTANTS, changed
from .drawn import strategy_of

E = TypeVar("E", bound=Event)


@strategy_of
def _any_of(chance: Chance, kinds: tuple[type[Event], ...]) -> Event:
    return changed(generated.any_event(chance, EXTREME, chance.pick(kinds)), at=chance.pick(INSTANTS))


@cache
def events_of(kind: type[E]) -> SearchStrategy[E]:
    """Events of one type, whatever the state that they meet."""
    return _any_of((kind,))  # type: ignore[return-value]


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
