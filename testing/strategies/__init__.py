"""Made-up policies, states and events, for tests that try thousands of conversations nobody thought of.

Each function gives a Hypothesis strategy. The small and the ordinary come first, since a counterexample shrinks
towards them: one model, no limits, a text that says "a". Beside them stand the extremes that break programs: a limit
of one, no time at all, the last moment of the calendar, half a page of quotes and line breaks.

The strategies are written by hand. Hypothesis could derive them from the types, at eight times the cost.
"""

from .calls import any_answers, numbered, questions, tool_calls
from .effects import effects
from .events import events, events_of, requests
from .fitting import (
    answers_for,
    cancels_for,
    events_for,
    late_answers_for,
    near_misses_for,
    reports_for,
    responses_for,
    withdrawals_for,
)
from .policies import contexts_for, limits, policies, tight_limits
from .states import states
from .traces import traces
from .values import NOON, TRICKY, changed, instants, seconds, texts, usages, words

__all__ = [
    "NOON",
    "TRICKY",
    "answers_for",
    "any_answers",
    "cancels_for",
    "changed",
    "contexts_for",
    "effects",
    "events",
    "events_for",
    "events_of",
    "instants",
    "late_answers_for",
    "limits",
    "near_misses_for",
    "numbered",
    "policies",
    "questions",
    "reports_for",
    "requests",
    "responses_for",
    "seconds",
    "states",
    "texts",
    "tight_limits",
    "tool_calls",
    "traces",
    "usages",
    "withdrawals_for",
    "words",
]
