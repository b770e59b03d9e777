"""What must hold when a simulation is over: one function for each invariant, which yields a sentence for each breach.

How a simulation comes to its end does not belong here.
"""

from .calls import who_asks_again_is_told_the_same, who_called_is_told_the_truth, who_dispatched_is_told_the_truth
from .deliveries import deliveries_arrive_in_order
from .ending import Check, Ending
from .log import (
    at_most_once_holds,
    effects_are_carried_out,
    the_conversation_is_at_rest,
    the_log_is_whole,
    the_log_replays,
)
from .watches import (
    snapshots_show_what_is_stored,
    streamed_text_has_no_gap,
    streams_show_one_turn,
    watchers_see_everything,
)

CHECKS: tuple[Check, ...] = (
    the_log_is_whole,
    the_log_replays,
    effects_are_carried_out,
    at_most_once_holds,
    the_conversation_is_at_rest,
    who_dispatched_is_told_the_truth,
    who_called_is_told_the_truth,
    who_asks_again_is_told_the_same,
    snapshots_show_what_is_stored,
    watchers_see_everything,
    streamed_text_has_no_gap,
    streams_show_one_turn,
    deliveries_arrive_in_order,
)
"""All of them."""

__all__ = ["CHECKS", "Check", "Ending"]
