"""Arranges conversations as a tree: sub-agents and background agents below the conversations that they belong to.

What a database says of agents may be incomplete or wrong: a parent may have been deleted or belong to somebody else,
and an import may name conversations in a circle. Every conversation is shown once all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....persistence.summaries import Summary

MAX_LEVELS = 6
"""How many levels are drawn in front of a conversation at most. Deeper ones begin with an ellipsis."""


class Branch(NamedTuple):
    """A conversation in the tree, `depth` levels below its root. `is_last` says for the innermost of these levels
    whether no other conversation follows on it."""

    summary: Summary
    depth: int = 0
    is_last: tuple[bool, ...] = ()

    @property
    def upper_id(self) -> str | None:
        """The id of the conversation that it belongs to, if it is not shown below that one."""
        return belongs_to(self.summary) if self.depth == 0 else None

    def below(self, summary: Summary, *, is_last: bool) -> Branch:
        """Return the place of a conversation below this one. `Pure.`"""
        return Branch(summary, self.depth + 1, (*self.is_last, is_last)[-MAX_LEVELS:])

    def lines(self, levels: int = MAX_LEVELS) -> str:
        """Return the lines that connect the conversation to its root, on the innermost `levels`, at least 1. `Pure.`"""
        if self.depth == 0:
            return ""
        *outer, last = self.is_last[-levels:]
        drawn = "".join("   " if each else "│  " for each in outer)
        return f"{'…  ' if self.depth > levels else ''}{drawn}{'└─ ' if last else '├─ '}"


def arranged(summaries: Sequence[Summary]) -> tuple[Branch, ...]:
    """Return each of these conversations once, in the order in which a tree shows them. Those that stand side by side
    keep their order. `Pure.`"""
    known = {summary.id for summary in summaries}
    lower: dict[str | None, list[Summary]] = {}
    for summary in summaries:
        upper = belongs_to(summary)
        lower.setdefault(upper if upper in known else None, []).append(summary)
    found: dict[str, Branch] = {}
    for root in (*lower.get(None, ()), *summaries):  # conversations in a circle are below no root
        waiting = [Branch(root)]
        while waiting:
            branch = waiting.pop()
            if branch.summary.id not in found:
                found[branch.summary.id] = branch
                next_ones = [each for each in lower.get(branch.summary.id, ()) if each.id not in found]
                waiting += [branch.below(each, is_last=each is next_ones[-1]) for each in reversed(next_ones)]
    return tuple(found.values())


def belongs_to(summary: Summary) -> str | None:
    """Return the id of the conversation that started this sub-agent, or that this background agent works for; None if
    it names none. `Pure.`"""
    return summary.parent or summary.works_for
