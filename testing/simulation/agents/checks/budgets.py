"""What must hold of what a tree of agents spends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from .....states.context import Context
from .....states.events import (
    DoubtResolved,
    PolicyChanged,
    RetryRequested,
    SubAgentFinished,
    ToolApproval,
    UserMessage,
    UserQuestionResponse,
)
from .....states.policy import Limits, Policy
from .....states.values.messages import Usage
from ...storage.disk import LogKey, Row
from ..tree import AgentLog
from ..vocabulary import USAGE
from .children import Spawned, all_spawned
from .tree_ending import TreeEnding

HUMAN_INPUT = (UserMessage, UserQuestionResponse, ToolApproval, DoubtResolved, RetryRequested)
"""The events from which the limits of a turn count anew."""

ROUNDING = 1e-9
"""The most by which sums of costs may differ."""

Below = Mapping[tuple[LogKey, int], Sequence[AgentLog]]
"""The sub-agents that each turn of each agent asked for."""


def budgets_are_kept(ending: TreeEnding) -> Iterator[str]:
    """A turn and all sub-agents below it spend no more than its limits allow, and one request of each agent. A turn
    whose policy changes is left out."""
    tree = ending.tree
    below: dict[tuple[LogKey, int], list[AgentLog]] = {}
    for spawned in all_spawned(tree):
        below.setdefault((spawned.parent.key, spawned.row.state.book.turn), []).extend(spawned.children(tree))
    for agent_id in tree.agents:
        agent = tree.logs_of(agent_id)[-1]
        for turn, limits, rows in _turns(agent.rows):
            children = list(_all_below(below, agent.key, turn))
            spent = _total([*_own_usage(rows), *(one for each in children for one in _own_usage(each.rows))])
            times = 1 + sum(isinstance(row.event, HUMAN_INPUT) for row in rows)
            yield from _faults(f"the turn {turn} of {agent_id}", spent, limits, times, 1 + len(children))


def shares_are_kept(ending: TreeEnding) -> Iterator[str]:
    """A sub-agent begins with the limits that its parent gave it, and those that were started together may spend no
    more together than their parent."""
    tree = ending.tree
    together: dict[tuple[LogKey, int], list[Spawned]] = {}
    for spawned in all_spawned(tree):
        given = spawned.effect.limits
        together.setdefault((spawned.parent.key, spawned.row.seq), []).append(spawned)
        if any(child.opened.policy.limits != given for child in spawned.children(tree)):
            yield f"the sub-agent {spawned.child_id} has other limits than {given}"
    for ((parent, _), seq), started in together.items():
        shares = [spawned.effect.limits for spawned in started]
        limits = _policy(started[0].parent.rows[: seq - 1]).limits
        if limits.tokens is not None and sum(share.tokens or 0 for share in shares) > limits.tokens:
            yield f"the sub-agents of {parent} at step {seq} may spend more than {limits.tokens} tokens"
        if limits.cost is not None and sum(share.cost or 0.0 for share in shares) > limits.cost + ROUNDING:
            yield f"the sub-agents of {parent} at step {seq} may spend more than {limits.cost}"


def _policy(rows: Iterable[Row]) -> Policy:
    """The policy that holds behind these steps."""
    context = Context()
    for row in rows:
        context = context.after(row.event)
    return context.policy


def _faults(name: str, spent: Usage, limits: Limits, times: int, agents: int) -> Iterator[str]:
    """What is spent beyond limits that counted anew so many `times`, by so many agents."""
    cost, request = spent.cost or 0.0, USAGE.cost or 0.0
    if limits.tokens is not None and spent.tokens > times * (limits.tokens + agents * USAGE.tokens):
        yield f"{name} spent {spent.tokens} tokens of {limits.tokens}, with {agents} agents"
    if limits.cost is not None and cost > times * (limits.cost + agents * request) + ROUNDING:
        yield f"{name} spent {cost} of {limits.cost}, with {agents} agents"


def _turns(rows: Sequence[Row]) -> Iterator[tuple[int, Limits, Sequence[Row]]]:
    """The turns of a log, each with its limits and with the steps behind the one that began it."""
    context, turns = Context().after(rows[0].event), dict[int, tuple[Limits, list[Row]]]()
    changed: set[int] = set()
    for before, row in pairwise(rows):
        context = context.after(row.event)
        turn = before.state.book.turn
        if isinstance(row.event, PolicyChanged):
            changed |= {turn, row.state.book.turn}
        turns.setdefault(row.state.book.turn, (context.policy.limits, []))
        if turn in turns:
            turns[turn][1].append(row)
    yield from ((turn, limits, steps) for turn, (limits, steps) in turns.items() if turn and turn not in changed)


def _all_below(below: Below, agent: LogKey, turn: int | None) -> Iterator[AgentLog]:
    """The sub-agents of a turn, or of all turns, and those below them."""
    for (parent, number), children in below.items():
        if parent == agent and turn in (None, number):
            for child in children:
                yield child
                yield from _all_below(below, child.key, None)


def _own_usage(rows: Iterable[Row]) -> Iterator[Usage]:
    """What these steps have cost, without what sub-agents report."""
    for row in rows:
        cost = getattr(row.event, "usage", None)
        if isinstance(cost, Usage) and not isinstance(row.event, SubAgentFinished):
            yield cost


def _total(usages: Iterable[Usage]) -> Usage:
    return sum(usages, start=Usage())
