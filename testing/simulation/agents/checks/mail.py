"""What must hold of the messages between agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .....states.effects import SendToAgent
from .....states.events import AgentMessage
from .....states.states import Closed
from .tree_ending import TreeEnding


@dataclass(frozen=True)
class _Sent:
    """A message that an agent sent, the steps at which it arrived at its target, and whether it was returned."""

    sender: str
    effect: SendToAgent
    text: str
    arrivals: Sequence[tuple[int, AgentMessage]]
    is_returned: bool

    @property
    def name(self) -> str:
        """What the message is called in a report."""
        return f"the message {self.sender}/{self.effect.effect_id} to {self.effect.target}"


def mail_arrives_once(ending: TreeEnding) -> Iterator[str]:
    """Every message that was sent is in the log of its target once, as it was sent; or its target is closed or gone,
    and its sender was told, unless it is closed or gone, too."""
    for sent in _all_sent(ending):
        if len(sent.arrivals) > 1:
            yield f"{sent.name} arrived {len(sent.arrivals)} times"
        elif sent.arrivals:
            yield from _faults_of_arrival(ending, sent)
        else:
            yield from _faults_of_absence(ending, sent)


def _faults_of_arrival(ending: TreeEnding, sent: _Sent) -> Iterator[str]:
    effect, (_, message) = sent.effect, sent.arrivals[0]
    if effect.returned:
        return  # a notice has words of its own
    if (message.origin, message.text) != (sent.sender, sent.text):
        yield f"{sent.name} arrived from {message.origin} as {message.text!r}, and not as {sent.text!r}"
    if (message.audience, message.silent) != (effect.audience, effect.silent):
        yield f"{sent.name} arrived for another audience"
    if sent.is_returned:
        yield f"{sent.name} arrived, and was returned"
    if not ending.tree.is_reachable(sent.sender, effect.target):
        yield f"{sent.name} arrived although its target belongs to another owner"


def _faults_of_absence(ending: TreeEnding, sent: _Sent) -> Iterator[str]:
    tree, target = ending.tree, sent.effect.target
    takes_mail = target in tree.agents and not isinstance(tree.state(target), Closed)
    is_sender_gone = tree.is_deleted(sent.sender) or isinstance(tree.state(sent.sender), Closed)
    if (sent.sender, target, sent.effect.effect_id) in ending.outbox:
        if not ending.is_cut_short:
            yield f"{sent.name} is still to be handed over"
    elif sent.is_returned:
        if takes_mail:
            yield f"{sent.name} was returned although its target takes messages"
    elif not tree.is_deleted(sent.sender) and (takes_mail or not is_sender_gone):
        yield f"{sent.name} is lost"


def mail_keeps_its_order(ending: TreeEnding) -> Iterator[str]:
    """What one agent sends to another arrives in the order in which it was sent."""
    newest: dict[tuple[str, str], int] = {}
    for sent in _all_sent(ending):
        for seq, _ in sent.arrivals:
            pair = (sent.sender, sent.effect.target)
            if seq < newest.get(pair, 0):
                yield f"{sent.name} arrived before an earlier one"
            newest[pair] = seq


def nothing_arrives_that_nobody_sent(ending: TreeEnding) -> Iterator[str]:
    """A message of an agent was sent by it, to the agent that has it; a notice is about a message of its reader."""
    tree = ending.tree
    sent = {(each.effect.target, f"{each.sender}/{each.effect.effect_id}") for each in _all_sent(ending)}
    notices = {(each.sender, f"{each.sender}/{each.effect.effect_id}/returned") for each in _all_sent(ending)}
    agents = set(tree.all_agents)
    for agent_id in (*tree.agents, tree.stranger):
        for row in tree.rows(agent_id):
            event = row.event
            if not isinstance(event, AgentMessage) or event.origin not in agents:
                continue
            if (agent_id, event.event_id) not in sent | notices:
                yield f"{agent_id} got {event.event_id} from {event.origin}, which did not send it"


def _all_sent(ending: TreeEnding) -> Iterator[_Sent]:
    tree = ending.tree
    for sender in tree.all_agents:
        effects = [one for row in tree.rows(sender) for one in row.effects if isinstance(one, SendToAgent)]
        if not effects:
            continue
        transcript = tree.transcript(sender)
        own = {row.event.event_id for row in tree.rows(sender) if isinstance(row.event, AgentMessage)}
        for effect in effects:
            key = f"{sender}/{effect.effect_id}"
            rows = tree.rows(effect.target)
            arrivals = [(r.seq, r.event) for r in rows if isinstance(r.event, AgentMessage) and r.event.event_id == key]
            yield _Sent(sender, effect, transcript.words(effect.said), arrivals, f"{key}/returned" in own)
