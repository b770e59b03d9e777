"""What must hold of a tree of agents when a simulation is over: one function for each invariant.

What must hold of each conversation by itself does not belong here: see `simulation.checks`.
"""

from .mail import mail_arrives_once, mail_keeps_its_order, nothing_arrives_that_nobody_sent
from .tree_ending import TreeCheck, TreeEnding

TREE_CHECKS: tuple[TreeCheck, ...] = (
    mail_arrives_once,
    mail_keeps_its_order,
    nothing_arrives_that_nobody_sent,
)
"""All of them."""

__all__ = ["TREE_CHECKS", "TreeCheck", "TreeEnding"]
