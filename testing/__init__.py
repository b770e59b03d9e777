"""What turnwise tests itself with, for the tests of programs that are built on it.

Doubles of the model answer what a test tells them to, and a clock moves when a test moves it. The property-testing kit
generates conversations and checks the laws of the machine. Names are resolved on first use: a test that needs only a
double does not load Hypothesis. Everything here uses public names of the rest of turnwise; tests of turnwise itself
belong in tests/.

    from hypothesis import given
    from turnwise.testing import check_laws, traces

    @given(traces())
    def test_the_laws_hold(trace): check_laws(trace)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .crashes import crash_at_every_boundary
    from .doubles import FunctionLlm, ManualClock, RecordingChannel, ScriptedLlm, call, calls, failure, reply, verdict
    from .fixture import TraceDiverged, load_trace, replay_trace, rerecord_trace, save_trace, trace_of
    from .history import History, Observation, Trace, observe
    from .laws import LAWS, LawBroken, check_laws, check_newest
    from .machine import ConversationMachine, call_of, calls_of, conversation_settings
    from .shrinking import as_program, event_of, shrink_trace
    from .strategies import effects, events, events_for, policies, states, traces

_HOMES = {
    "crashes": ("crash_at_every_boundary",),
    "doubles": (
        "call",
        "calls",
        "failure",
        "FunctionLlm",
        "ManualClock",
        "RecordingChannel",
        "reply",
        "ScriptedLlm",
        "verdict",
    ),
    "fixture": (
        "load_trace",
        "replay_trace",
        "rerecord_trace",
        "save_trace",
        "trace_of",
        "TraceDiverged",
    ),
    "history": (
        "History",
        "Observation",
        "observe",
        "Trace",
    ),
    "laws": (
        "check_laws",
        "check_newest",
        "LawBroken",
        "LAWS",
    ),
    "machine": (
        "call_of",
        "calls_of",
        "conversation_settings",
        "ConversationMachine",
    ),
    "shrinking": (
        "as_program",
        "event_of",
        "shrink_trace",
    ),
    "strategies": (
        "effects",
        "events",
        "events_for",
        "policies",
        "states",
        "traces",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "LAWS",
    "ConversationMachine",
    "FunctionLlm",
    "History",
    "LawBroken",
    "ManualClock",
    "Observation",
    "RecordingChannel",
    "ScriptedLlm",
    "Trace",
    "TraceDiverged",
    "as_program",
    "call",
    "call_of",
    "calls",
    "calls_of",
    "check_laws",
    "check_newest",
    "conversation_settings",
    "crash_at_every_boundary",
    "effects",
    "event_of",
    "events",
    "events_for",
    "failure",
    "load_trace",
    "observe",
    "policies",
    "replay_trace",
    "reply",
    "rerecord_trace",
    "save_trace",
    "shrink_trace",
    "states",
    "trace_of",
    "traces",
    "verdict",
]


if not TYPE_CHECKING:  # a type checker would take any name for a name of this package

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            home = import_module(f".{_HOME_OF[name]}", __name__)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "hypothesis":
                raise
            sentence = f'{name} needs the package hypothesis: pip install "turnwise[testing]".'
            raise ModuleNotFoundError(sentence, name=error.name) from None
        return getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)
