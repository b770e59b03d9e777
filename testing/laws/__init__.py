"""The laws: invariants that every conversation keeps, each as a function that raises where it does not hold.

A law looks at a `History`, that is, at the newest event and everything that is known from outside by then, and raises
`LawBroken` with a sentence. `check_laws` checks all of them along a trace. Law 15 is about the table of the machine,
and is checked by the tests of the table.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..history import History, histories
from ..law import Law, LawBroken
from ..observation import Observation
from ..report import tell
from .refusals import withholds_what_was_refused
from .rounds import (
    hands_on_answers_exactly,
    pairs_calls_with_results,
    runs_no_more_than_allowed,
    unpaired,
    waits_for_something,
)
from .settings import changes_settings_alone, keeps_tools_of_turns, stays_with_its_profile, wakes_by_its_schedule
from .steps import (
    changes_nothing_unless_taken,
    is_deterministic,
    is_replayed_by_its_log,
    is_taken_or_refused,
    takes_answers_by_their_effect,
)
from .sub_agents import loses_no_sub_agent, passes_questions_of_sub_agents_on, shares_limits_with_sub_agents
from .turns import (
    checks_what_is_delivered,
    delivers_no_blank_text,
    delivers_what_was_chosen,
    ends_each_turn_once,
    keeps_what_it_owes,
    keeps_within_limits,
    loses_no_message,
    names_limits_truly,
)
from .ways_out import can_be_left, can_be_stopped, stays_closed

__all__ = [
    "LAWS",
    "Law",
    "LawBroken",
    "can_be_left",
    "can_be_stopped",
    "changes_nothing_unless_taken",
    "changes_settings_alone",
    "check_laws",
    "check_newest",
    "checks_what_is_delivered",
    "delivers_no_blank_text",
    "delivers_what_was_chosen",
    "ends_each_turn_once",
    "hands_on_answers_exactly",
    "histories",
    "is_deterministic",
    "is_replayed_by_its_log",
    "is_taken_or_refused",
    "keeps_tools_of_turns",
    "keeps_what_it_owes",
    "keeps_within_limits",
    "loses_no_message",
    "loses_no_sub_agent",
    "names_limits_truly",
    "pairs_calls_with_results",
    "passes_questions_of_sub_agents_on",
    "runs_no_more_than_allowed",
    "shares_limits_with_sub_agents",
    "stays_closed",
    "stays_with_its_profile",
    "takes_answers_by_their_effect",
    "unpaired",
    "waits_for_something",
    "wakes_by_its_schedule",
    "withholds_what_was_refused",
]

LAWS: tuple[Law, ...] = (
    is_taken_or_refused,
    is_deterministic,
    changes_nothing_unless_taken,
    pairs_calls_with_results,
    takes_answers_by_their_effect,
    runs_no_more_than_allowed,
    waits_for_something,
    can_be_stopped,
    can_be_left,
    stays_closed,
    ends_each_turn_once,
    delivers_what_was_chosen,
    delivers_no_blank_text,
    checks_what_is_delivered,
    keeps_within_limits,
    names_limits_truly,
    shares_limits_with_sub_agents,
    loses_no_message,
    keeps_what_it_owes,
    loses_no_sub_agent,
    passes_questions_of_sub_agents_on,
    hands_on_answers_exactly,
    changes_settings_alone,
    keeps_tools_of_turns,
    wakes_by_its_schedule,
    stays_with_its_profile,
    withholds_what_was_refused,
)
"""All laws: those that have a number in its order, then the others."""


def check_laws(trace: Iterable[Observation], *laws: Law) -> None:
    """Check the laws given, or all, at each step of a trace. The trace begins with the first event of a conversation.

    Raises `LawBroken` at the first step at which a law does not hold, with a note that holds the trace as a program.
    """
    history = History()
    for history in histories(trace):
        check_newest(history, *laws)
    if not laws:
        check_newest(history, is_replayed_by_its_log)


def check_newest(history: History, *laws: Law) -> None:
    """Check the laws given, or all, at the newest step.

    Raises `LawBroken`, with a note that holds the trace as a program. What a law of your own raises gets that note too.
    """
    for law in laws or LAWS:
        try:
            law(history)
        except Exception as broken:
            tell(broken, history.observations, law)
            raise
