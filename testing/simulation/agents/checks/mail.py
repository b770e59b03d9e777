"""What must hold of the messages between agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from .....states.effects import SendToAgent
from .....states.events import AgentMessage
from .....states.states import Busy, Closed, Failed
from ...storage.disk import LogKey
from ..tree import AgentLog, Tree
from .tree_ending import TreeEnding


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
        from .....effects.context import key_of

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
    from .....effects.context import key_of

    for log in tree.all_logs():
        state = log.rows[-1].state
        if not log.is_stored and isinstance(state, Busy | Failed):
            for waiting, row in product(state.inbox, log.rows):  # a step may be stored shortly before it is deleted
                yield waiting.origin, log.agent_id, f"{key_of(log.agent_id, waiting.seq, row.chain)}/returned"


def _all_sent(tree: Tree) -> Iterator[_Sent]:
    for log in tree.all_logs():
        effects = [(one, row.chain) for row in log.rows for one in row.effects if isinstance(one, SendToAgent)]
        transcript = log.transcript() if effects else None
        for effect, chain in effects:
            assert transcript is not None
            yield _Sent(log, effect, transcript.words(effect.said), chain)


def _all_arrivals(tree: Tree) -> Iterator[tuple[_Sent, Sequence[_Arrival]]]:
    """Each message that was sent, and where it arrived. Senders with the same id may have sent several under one key:
    one that is another sender's is not taken for the arrival of this one."""
    by_key: dict[str, list[_Sent]] = {}
    for sent in _all_sent(tree):
        by_key.setdefault(sent.key, []).append(sent)
    for sent in (each for same in by_key.values() for each in same):
        others = {each.content for each in by_key[sent.key] if each.sender.key != sent.sender.key} - {sent.content}
        yield sent, [arrival for arrival in _arrivals(tree, sent) if arrival.content not in others]


def _arrivals(tree: Tree, sent: _Sent) -> Iterator[_Arrival]:
    for log in tree.logs_of(sent.effect.target):
        for row in log.rows:
            if isinstance(row.event, AgentMessage) and row.event.event_id in sent.ids:
                yield _Arrival(log.key, row.seq, row.event)
