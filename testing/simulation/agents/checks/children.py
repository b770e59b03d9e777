"""What must hold of sub-agents and of those who wait for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .....states.dialogue import usage
from .....states.effects import CancelSubAgent, NotifyParent, SpawnSubAgent
from .....states.events import Answer, SubAgentFinished
from .....states.states import AwaitingSubAgents, Closed, Failed
from ...storage.disk import LogKey, Row
from ..tree import AgentLog, Tree
from .tree_ending import TreeEnding


@dataclass(frozen=True)
class Spawned:
    """A sub-agent that was asked for: by whom, by which effect of which step, and what its parent was answered."""

    parent: AgentLog
    row: Row
    effect: SpawnSubAgent
    answers: Sequence[Answer]

    @property
    def child_id(self) -> str:
        """The id of the sub-agent."""
        from .....effects.context import key_of

        return key_of(self.parent.agent_id, self.effect.effect_id, self.row.chain)

    def children(self, tree: Tree) -> Sequence[AgentLog]:
        """The logs of the sub-agent: several if it was deleted while its parent waited, and started anew."""
        return [log for log in tree.logs_of(self.child_id) if log.is_during(self.parent)]


def all_spawned(tree: Tree) -> Iterator[Spawned]:
    """The sub-agents that were asked for, each once, however often it was asked for again."""
    for parent in tree.all_logs():
        asked: dict[int, tuple[Row, SpawnSubAgent]] = {}
        for row in parent.rows:
            for effect in row.effects:
                if isinstance(effect, SpawnSubAgent):
                    asked.setdefault(effect.effect_id, (row, effect))
        answers = [row.event for row in parent.rows if isinstance(row.event, Answer)]
        for effect_id, (row, effect) in asked.items():
            yield Spawned(parent, row, effect, [one for one in answers if one.effect_id == effect_id])


def no_sub_agent_is_orphaned(ending: TreeEnding) -> Iterator[str]:
    """A sub-agent has a parent that asked for it once; at rest it has ended, however its parent has."""
    tree = ending.tree
    asked_for = {child.key: spawned.parent for spawned in all_spawned(tree) for child in spawned.children(tree)}
    for child_id in tree.children:
        parent = asked_for.get(tree.logs_of(child_id)[-1].key)
        if parent is None:
            yield f"the sub-agent {child_id} was created, and nobody asked for it"
        if not ending.is_cut_short and not isinstance(tree.state(child_id), Closed | Failed):
            yield f"the sub-agent {child_id} is left over in the state {tree.state(child_id).type}"
        if parent is not None and not parent.is_stored and not ending.is_cut_short:
            yield f"the sub-agent {child_id} is stored, and its parent was deleted"


def parents_have_each_outcome_once(ending: TreeEnding) -> Iterator[str]:
    """Whoever asked for a sub-agent is answered once, with what became of it; unless it has gone on without it."""
    tree = ending.tree
    for spawned in all_spawned(tree):
        if len(spawned.answers) > 1:
            yield f"the parent of {spawned.child_id} has {len(spawned.answers)} outcomes"
        elif spawned.answers:
            yield from _faults_of_outcome(tree, spawned, spawned.answers[0])
        elif not ending.is_cut_short and spawned.parent.is_stored and not _was_given_up(spawned):
            yield f"the parent of {spawned.child_id} has no outcome"


def _faults_of_outcome(tree: Tree, spawned: Spawned, answer: Answer) -> Iterator[str]:
    children = [child for child in spawned.children(tree) if child.is_stored]
    if not isinstance(answer, SubAgentFinished) or not children:
        return
    rows = children[-1].rows
    notes = [effect for row in rows for effect in row.effects if isinstance(effect, NotifyParent)]
    if not notes:
        return
    if answer.status != notes[-1].status:
        yield f"the parent of {spawned.child_id} was told {answer.status}, and it ended {notes[-1].status}"
    elif answer.status == "completed":
        said, spent = notes[-1].said, usage(row.entry for row in rows)
        text = "" if said is None else children[-1].transcript().words(said)
        if (answer.outcome, answer.usage) != (text, spent):
            yield f"the parent of {spawned.child_id} was told {answer.outcome!r} for {answer.usage}, not {text!r}"


def _was_given_up(spawned: Spawned) -> bool:
    """Whether the parent has told the sub-agent to stop, or has failed or closed while it waited."""
    later = spawned.parent.rows[spawned.row.seq - 1 :]
    ended = any(row.ended is not None and row.ended.turn == spawned.row.state.book.turn for row in later)
    stops = (one.effect_id for row in later for one in row.effects if isinstance(one, CancelSubAgent))
    return ended or spawned.effect.effect_id in stops


def outcomes_are_read_once(ending: TreeEnding) -> Iterator[str]:
    """The call that started sub-agents has one result, which holds the outcome of each of them, in their order."""
    together: dict[tuple[LogKey, str], list[Spawned]] = {}
    for spawned in all_spawned(ending.tree):
        if isinstance(spawned.row.state, AwaitingSubAgents):
            together.setdefault((spawned.parent.key, spawned.row.state.call.call_id), []).append(spawned)
    for (_, call_id), children in together.items():
        parent = children[0].parent
        results = [one.text for one in parent.transcript().messages if one.tool_call_id == call_id]
        name = f"the call {call_id} of {parent.agent_id}, which started {len(children)} sub-agents,"
        if len(results) > 1 or (not results and not ending.is_cut_short and parent.is_stored):
            yield f"{name} has {len(results)} results"
        for result in results:
            yield from (f"{name} has the result {result}" for _ in _differences(result, children))


def _differences(result: str, children: Sequence[Spawned]) -> Iterator[Spawned]:
    """The sub-agents of which the result says something else than their parent was told."""
    read = json.loads(result)["agents"]
    for place, spawned in enumerate(children):
        answer = spawned.answers[0] if spawned.answers else None
        if isinstance(answer, SubAgentFinished):
            told = {"status": answer.status, "result": answer.outcome}
            if place >= len(read) or read[place] != told:
                yield spawned
