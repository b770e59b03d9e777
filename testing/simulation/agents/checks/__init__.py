"""What must hold of a tree of agents when a simulation is over: one function for each invariant.

What must hold of each conversation by itself does not belong here: see `simulation.checks`.
"""

from .budgets import budgets_are_kept, shares_are_kept
from .children import no_sub_agent_is_orphaned, outcomes_are_read_once, parents_have_each_outcome_once
from .mail import mail_arrives_once, mail_keeps_its_order, nothing_arrives_that_nobody_sent
from .tree_ending import TreeCheck, TreeEnding
from .wake_ups import wake_ups_fire_once

TREE_CHECKS: tuple[TreeCheck, ...] = (
    mail_arrives_once,
    mail_keeps_its_order,
    nothing_arrives_that_nobody_sent,
    no_sub_agent_is_orphaned,
    parents_have_each_outcome_once,
    outcomes_are_read_once,
    budgets_are_kept,
    shares_are_kept,
    wake_ups_fire_once,
)
"""All of them."""

__all__ = ["TREE_CHECKS", "TreeCheck", "TreeEnding"]
