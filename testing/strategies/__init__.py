"""Hypothesis strategies for policies, states, events, effects and whole traces.

Each function returns a strategy. The small and ordinary values come first, since Hypothesis shrinks a counterexample
towards them; beside them stand those that break programs. What is generated is decided in `generation/`; only what
concerns Hypothesis belongs here. The generators are written by hand: to derive the strategies from the types by
`st.from_type` would cost eight times as much.
"""

from ..generation.calls import numbered
from ..generation.values import NOON, changed
from .drawn import texts
from .events import (
    answers_for,
    any_answers,
    cancels_for,
    events,
    events_for,
    events_of,
    late_answers_for,
    near_misses_for,
    reports_for,
    requests,
    responses_for,
    settings_for,
    tool_calls,
    wake_ups_for,
    withdrawals_for,
)
from .policies import contexts_for, policies, tight_limits
from .states import effects, states
from .traces import traces

__all__ = [
    "NOON",
    "answers_for",
    "any_answers",
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
