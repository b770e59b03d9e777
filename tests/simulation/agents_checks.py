"""What must hold of a tree of agents when a simulation is over: one function for each invariant.

The functions look at what the tree spends, at sub-agents and those who wait for them, at the messages between agents,
and at scheduled wake-ups. What must hold of each conversation by itself does not belong here: see `simulation.checks`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise, product
from typing import TypeAlias

from turnwise.states.context import Context
from turnwise.states.dialogue import usage
from turnwise.states.effects import CancelSubAgent, NotifyParent, SendToAgent, SpawnSubAgent
from turnwise.states.events import (
    AgentMessage,
    Answer,
    DoubtResolved,
    PolicyChanged,
    RetryRequested,
    ScheduleChanged,
    SubAgentFinished,
    ToolApproval,
    UserMessage,
    UserQuestionResponse,
    WakeUp,
)
from turnwise.states.policy import Limits, Policy
from turnwise.states.states import AwaitingSubAgents, Busy, Closed, Failed
from turnwise.states.values.acts import Schedule
from turnwise.states.values.messages import Usage

from .agents import USAGE, AgentLog, Tree
from .disk import Delivered, LogKey, Row
from .users import CallRecorder

__all__ = ["TREE_CHECKS", "TreeCheck", "TreeEnding"]

HUMAN_INPUT = (UserMessage, UserQuestionResponse, ToolApproval, DoubtResolved, RetryRequested)
"""The events from which the limits of a turn count anew."""


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
            yield from _faults_of_budgets(f"the turn {turn} of {agent_id}", spent, limits, times, 1 + len(children))


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


Below = Mapping[tuple[LogKey, int], Sequence[AgentLog]]
"""The sub-agents that each turn of each agent asked for."""


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


ROUNDING = 1e-9
"""The most by which sums of costs may differ."""


def _faults_of_budgets(name: str, spent: Usage, limits: Limits, times: int, agents: int) -> Iterator[str]:
    """What is spent beyond limits that counted anew so many `times`, by so many agents."""
    cost, request = spent.cost or 0.0, USAGE.cost or 0.0
    if limits.tokens is not None and spent.tokens > times * (limits.tokens + agents * USAGE.tokens):
        yield f"{name} spent {spent.tokens} tokens of {limits.tokens}, with {agents} agents"
    if limits.cost is not None and cost > times * (limits.cost + agents * request) + ROUNDING:
        yield f"{name} spent {cost} of {limits.cost}, with {agents} agents"


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


def mail_arrives_once(ending: TreeEnding) -> Iterator[str]:
    """Every message that was sent is in the log of its target once, as it was sent; or its target is closed or gone,
    and its sender was told, unless it is closed or gone, too."""
    for sent, arrivals in _all_arrivals(ending.tree):
        if len({arrival.log for arrival in arrivals}) < len(arrivals):
            yield f"{sent.name} arrived {len(arrivals)} times"
        for arrival in arrivals:
            yield from _faults_of_arrival(ending, sent, arrival.message)
        if not arrivals:
            yield from _faults_of_absence(ending, sent)


def _all_arrivals(tree: Tree) -> Iterator[tuple[_Sent, Sequence[_Arrival]]]:
    """Each message that was sent, and where it arrived. Senders with the same id may have sent several under one key:
    one that is another sender's is not taken for the arrival of this one."""
    by_key: dict[str, list[_Sent]] = {}
    for sent in _all_sent(tree):
        by_key.setdefault(sent.key, []).append(sent)
    for sent in (each for same in by_key.values() for each in same):
        others = {each.content for each in by_key[sent.key] if each.sender.key != sent.sender.key} - {sent.content}
        yield sent, [arrival for arrival in _arrivals(tree, sent) if arrival.content not in others]


@dataclass(frozen=True)
class _Arrival:
    """A message in the log of its target."""

    log: LogKey
    seq: int
    message: AgentMessage

    @property
    def content(self) -> tuple[object, ...]:
        """What the target has received."""
        message = self.message
        return message.origin, message.text, message.audience, message.silent


@dataclass(frozen=True)
class _Sent:
    """A message that an agent sent. Sender and target may have been deleted and started anew, each with a log of its
    own."""

    sender: AgentLog
    effect: SendToAgent
    text: str
    chain: bytes
    """The link of the step that sent it."""

    @property
    def key(self) -> str:
        """The id under which the message arrives, unless a sender before this one has sent another one under it."""
        from turnwise.effects.context import key_of

        return key_of(self.sender.agent_id, self.effect.effect_id, self.chain)

    @property
    def ids(self) -> Sequence[str]:
        """All ids under which the message may arrive."""
        return [self.key, *(f"{self.key}~{number}" for number in range(2, self.sender.key[1] + 2))]

    @property
    def content(self) -> tuple[object, ...]:
        """What the target receives."""
        effect = self.effect
        return self.sender.agent_id, self.text, effect.audience, effect.silent

    @property
    def is_returned(self) -> bool:
        """Whether the sender was told that the message was not delivered."""
        return any(
            isinstance(row.event, AgentMessage) and row.event.event_id == f"{self.key}/returned"
            for row in self.sender.rows
        )

    @property
    def name(self) -> str:
        """What the message is called in a report."""
        return f"the message {self.key} to {self.effect.target}"


def _all_sent(tree: Tree) -> Iterator[_Sent]:
    for log in tree.all_logs():
        effects = [(one, row.chain) for row in log.rows for one in row.effects if isinstance(one, SendToAgent)]
        transcript = log.transcript() if effects else None
        for effect, chain in effects:
            assert transcript is not None
            yield _Sent(log, effect, transcript.words(effect.said), chain)


def _arrivals(tree: Tree, sent: _Sent) -> Iterator[_Arrival]:
    for log in tree.logs_of(sent.effect.target):
        for row in log.rows:
            if isinstance(row.event, AgentMessage) and row.event.event_id in sent.ids:
                yield _Arrival(log.key, row.seq, row.event)


def _faults_of_arrival(ending: TreeEnding, sent: _Sent, message: AgentMessage) -> Iterator[str]:
    effect = sent.effect
    if effect.returned:
        return  # a notice has words of its own
    if (message.origin, message.text) != (sent.sender.agent_id, sent.text):
        yield f"{sent.name} arrived from {message.origin} as {message.text!r}, and not as {sent.text!r}"
    if (message.audience, message.silent) != (effect.audience, effect.silent):
        yield f"{sent.name} arrived for another audience"
    if sent.is_returned:
        yield f"{sent.name} arrived, and was returned"
    if not ending.tree.is_reachable(sent.sender.agent_id, effect.target):
        yield f"{sent.name} arrived although its target belongs to another owner"


def _faults_of_absence(ending: TreeEnding, sent: _Sent) -> Iterator[str]:
    tree, target = ending.tree, sent.effect.target
    takes_mail = target in tree.agents and not isinstance(tree.state(target), Closed)
    is_sender_deleted = not sent.sender.is_stored
    is_sender_gone = is_sender_deleted or isinstance(sent.sender.rows[-1].state, Closed)
    if not is_sender_deleted and (sent.sender.agent_id, target, sent.effect.effect_id) in ending.outbox:
        if not ending.is_cut_short:
            yield f"{sent.name} is still to be handed over"
    elif sent.is_returned:
        if takes_mail:
            yield f"{sent.name} was returned although its target takes messages"
    elif not is_sender_deleted and (takes_mail or not is_sender_gone):
        yield f"{sent.name} is lost"


def mail_keeps_its_order(ending: TreeEnding) -> Iterator[str]:
    """What one agent sends to another arrives in the order in which it was sent."""
    newest: dict[tuple[LogKey, LogKey], int] = {}
    for sent, arrivals in _all_arrivals(ending.tree):
        for arrival in arrivals:
            pair = (sent.sender.key, arrival.log)
            if arrival.seq < newest.get(pair, 0):
                yield f"{sent.name} arrived before an earlier one"
            newest[pair] = arrival.seq


def nothing_arrives_that_nobody_sent(ending: TreeEnding) -> Iterator[str]:
    """A message of an agent was sent by it, to the agent that has it; a notice is about a message of its reader. A user
    may have dispatched a message in the name of an agent; then it is in the log as the user has made it."""
    tree = ending.tree
    sent = {(each.effect.target, each.sender.agent_id, id_) for each in _all_sent(tree) for id_ in each.ids}
    returned = {(each.sender.agent_id, each.effect.target, f"{each.key}/returned") for each in _all_sent(tree)}
    expected = sent | returned | set(_unread(tree))
    agents = set(tree.all_agents)
    for agent_id in (*tree.agents, tree.stranger):
        for row in tree.rows(agent_id):
            event = row.event
            if not isinstance(event, AgentMessage) or event.origin not in agents:
                continue
            by_user = agent_id in ending.recorders and ending.recorders[agent_id].has_made(event)
            if not by_user and (agent_id, event.origin, event.event_id) not in expected:
                yield f"{agent_id} got {event.event_id} from {event.origin}, which did not send it"


def _unread(tree: Tree) -> Iterator[tuple[str, str, str]]:
    """For each message that waited in the inbox of an agent when it was deleted: its sender, the agent that was
    deleted, and the id of the notice with which the message is returned."""
    from turnwise.effects.context import key_of

    for log in tree.all_logs():
        state = log.rows[-1].state
        if not log.is_stored and isinstance(state, Busy | Failed):
            for waiting, row in product(state.inbox, log.rows):  # a step may be stored shortly before it is deleted
                yield waiting.origin, log.agent_id, f"{key_of(log.agent_id, waiting.seq, row.chain)}/returned"


@dataclass(frozen=True)
class TreeEnding:
    """How a simulation of agents has ended.

    `outbox` is what was still to be handed over; `is_cut_short` says that the engines were closed before the agents
    came to rest, and `was_set_back` that the clock was set back at some time. `recorders` hold what users called, by
    the agent that they used; an agent without users has none.
    """

    tree: Tree
    outbox: Sequence[Delivered]
    is_cut_short: bool
    was_set_back: bool
    recorders: Mapping[str, CallRecorder]


TreeCheck: TypeAlias = Callable[[TreeEnding], Iterator[str]]
"""Yields a sentence for each place where an invariant of the tree does not hold."""


def wake_ups_fire_once(ending: TreeEnding) -> Iterator[str]:
    """Each wake-up that fires was the next one, is due, and names the first moment of the schedule that is still to
    come: however many were missed, they fire once. Nothing else moves the next wake-up but a change of the schedule."""
    tree = ending.tree
    for agent_id in tree.agents:
        rows = tree.rows(agent_id)
        context = Context().after(rows[0].event)
        for before, row in pairwise(rows):
            schedule, context = context.schedule, context.after(row.event)
            if isinstance(row.event, WakeUp):
                name = f"the wake-up of {agent_id} that was due at {row.event.due}"
                yield from (
                    f"{name} {fault}" for fault in _faults_of_wake_up(row.event, before, schedule, ending.was_set_back)
                )
            elif _is_moved(before, row):
                yield f"{agent_id} is to wake up at {row.state.book.wake} after {row.event.type}"


OF_ENGINE = "wake-"
"""How the ids of the wake-ups begin that an engine requests. Users request some, too, at any time."""


def _faults_of_wake_up(event: WakeUp, before: Row, schedule: Schedule | None, was_set_back: bool) -> Iterator[str]:
    """What is wrong with a wake-up by this schedule, behind this step. Between the look at the clock and the request
    the clock may have been set back."""
    if schedule is None or event.due != before.state.book.wake:
        yield f"fired, and the next one was due at {before.state.book.wake}"
        return
    is_early = event.at < event.due
    if not event.event_id.startswith(OF_ENGINE) or (is_early and was_set_back):
        return
    if is_early:
        yield f"fired at {event.at}"
    if event.next_wake is None or event.next_wake <= event.at or not _is_next(event, schedule):
        yield f"fired at {event.at}, and the next one is due at {event.next_wake}"


def _is_next(event: WakeUp, schedule: Schedule) -> bool:
    """Whether no moment of the schedule lies between the wake-up and the next one. Of cron expressions nothing is known
    here."""
    if schedule.every is None or event.next_wake is None:
        return True
    every = timedelta(seconds=schedule.every)
    return not (event.next_wake - event.due) % every and event.next_wake - every <= event.at


def _is_moved(before: Row, row: Row) -> bool:
    """Whether the next wake-up is another one after a step that has nothing to do with it."""
    ends = isinstance(row.state, Closed) and row.state.book.wake is None
    return row.state.book.wake != before.state.book.wake and not ends and not isinstance(row.event, ScheduleChanged)


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
        from turnwise.effects.context import key_of

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
