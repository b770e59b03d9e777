"""Laws of the events that change settings of a conversation: its tools, details, schedule and profile."""

from __future__ import annotations

from ...states.context import are_among
from ...states.effects import RequestLlm
from ...states.events import (
    DetailsChanged,
    EffectFailed,
    LlmFailed,
    Opened,
    ProfileTransferred,
    Resumed,
    ScheduleChanged,
    ToolsChanged,
)
from ...states.states import Closed, LlmRequesting, RetryWaiting
from ..history import History
from ..law import require

SETTINGS = (ToolsChanged, DetailsChanged, ScheduleChanged, ProfileTransferred)


def changes_settings_alone(history: History) -> None:
    """A change of a setting counts one step, and changes nothing else of the state but this setting."""
    newest = history.newest
    if newest.step is None or not isinstance(newest.event, SETTINGS):
        return
    book = newest.before.book.replace(seq=newest.before.book.seq + 1)
    if isinstance(newest.event, ScheduleChanged):
        book = book.replace(wake=newest.event.next_wake)
    if isinstance(newest.event, ProfileTransferred):
        book = book.replace(profile=newest.event.profile)
    require(newest.after == newest.before.replace(book=book), "a change of a setting changed the state", history)
    done = newest.effects or newest.step.ended or newest.step.withdrawn
    require(not done, "a change of a setting did something", history)


def keeps_tools_of_turns(history: History) -> None:
    """No event changes the tools of the newest turn, so a turn has the same tools from its beginning to its end."""
    newest = history.newest
    if newest.step is None or isinstance(newest.event, Opened):
        return
    turn = newest.before.book.turn
    before, after = newest.context.tools_in(turn), history.context.tools_in(turn)
    require(before == after, "the tools of the newest turn changed", history)
    had, has = newest.context.tools_in(turn + 1), history.context.tools_in(turn + 1)
    if not isinstance(newest.event, ToolsChanged):
        require(had == has, "the tools of the next turn changed without being asked to", history)
    elif newest.event.narrows:
        require(are_among(has, had), "a change that narrows brought in a tool", history)


def wakes_by_its_schedule(history: History) -> None:
    """Only a conversation with a schedule waits for a wake-up, and a closed one waits for none. At most one wake-up
    waits in the inbox."""
    wake, schedule = history.state.book.wake, history.context.schedule
    require(wake is None or schedule is not None, "a wake-up is awaited without a schedule", history)
    require(wake is None or not isinstance(history.state, Closed), "a closed conversation waits for a wake-up", history)
    waiting = [one for one in getattr(history.state, "inbox", ()) if one.scheduled]
    require(len(waiting) <= 1, "several wake-ups wait", history)


def stays_with_its_profile(history: History) -> None:
    """Once a conversation was handed over, each new model request has that profile. A request that is sent again is the
    same request, and keeps its own."""
    newest, profile = history.newest, history.state.book.profile
    if newest.step is None or not profile or isinstance(newest.before, RetryWaiting):
        return
    fails_over = isinstance(newest.before, LlmRequesting) and isinstance(newest.event, LlmFailed | EffectFailed)
    for effect in newest.effects:
        if isinstance(effect, RequestLlm) and not fails_over and not isinstance(newest.event, Resumed):
            require(effect.profile == profile, "a model is asked under another profile than it was handed to", history)
