"""Trees of agents in virtual time, and what the simulation knows of agents that were deleted."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from turnwise.states import Effect, Event, Opened, RequestLlm, SpawnSubAgent, UserMessage, begin, transition
from turnwise.states.context import Context
from turnwise.states.effects import SendToAgent
from turnwise.states.events import AgentMessage, CloseRequested
from turnwise.states.values.messages import Heard
from turnwise.testing.doubles import NOON

from .simulation import simulate_agents
from .simulation.__main__ import main
from .simulation.agents import Tree
from .simulation.agents_checks import (
    TreeCheck,
    TreeEnding,
    mail_arrives_once,
    no_sub_agent_is_orphaned,
    nothing_arrives_that_nobody_sent,
)
from .simulation.disk import Disk, Row
from .simulation.environment import EventTrace, RandomSource, VirtualLoop
from .simulation.users import Call, CallRecorder
from .simulation.world import PerformedEffects
from .support.effect_contexts import effect_context
from .support.fault_profile import LONG, portions
from .support.planted.agents import FAULTS, QUICK
from .support.planted.engines import Fault
from .support.simulations import START, failure, run

# --- A tree of agents in virtual time: no mail is lost or doubled, no sub-agent is left over, no budget is exceeded.
#
# One agent has a user, two work for it in the background, one of them on a schedule, and their models start
# sub-agents. These seeds are the same each time; `TURNWISE_SEED` names another first one. `make test-all` runs a
# sample, and `make faults` two thousand. That these simulations can fail is tested, too: they find each fault of
# support/planted/agents.py.


PORTION, PORTIONS = 100 if LONG else 8, portions(20)
OTHERS = 10 * PORTIONS if LONG else 2
"""How many seeds are simulated with two engines, and how many over a file."""

SAME = 20 if LONG else 2
"""How many seeds are repeated."""

SEEDS = [range(first, first + PORTION) for first in range(START, START + PORTIONS * PORTION, PORTION)]


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}")
def test_every_invariant_holds(seeds: range) -> None:
    """Mail, sub-agents, wake-ups and budgets of a tree, through cancels, deadlines, failing disks and crashes."""
    for seed in seeds:
        simulate_agents(seed)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", [{"engines": 2}, {"file": True}], ids=["two engines", "a file"])
def test_every_invariant_holds_elsewhere(options: dict[str, Any]) -> None:
    """The same holds where two engines drive the agents, and over turnwise's own store."""
    for seed in range(START, START + OTHERS):
        simulate_agents(seed, **options)


@pytest.mark.slow
@pytest.mark.faults
def test_a_stream_ends_where_a_sub_agent_asks_the_user() -> None:
    """In this seed Ada follows a turn up to such a question, which is where it stops first."""
    simulate_agents(30064, engines=2)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("seed", [1764, 5850])
def test_a_parent_that_closes_its_sub_agent_while_both_are_resumed(seed: int) -> None:
    """In these seeds the close comes before the sub-agent is resumed, so its deadline is started by this process."""
    simulate_agents(seed)


@pytest.mark.slow
@pytest.mark.faults
def test_a_parent_that_the_other_engine_deletes_before_its_sub_agent_is_created() -> None:
    """In this seed the engine that begins to start the sub-agent does not know yet that its parent is gone."""
    simulate_agents(810179, engines=2)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize(("seed", "engines"), [(700281, 1), (701003, 1), (3000326, 2)])
def test_a_user_writes_in_the_name_of_an_agent(seed: int, engines: int) -> None:
    """In these seeds Ada dispatches a message of her own whose origin is an agent, which did not send it."""
    simulate_agents(seed, engines=engines)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("seed", [5100372, 5201137, 5300056, 5301361])
def test_the_mail_of_an_agent_that_two_engines_drive_keeps_its_order(seed: int) -> None:
    """In these seeds one engine is about to post a message while the other one posts that of a later step."""
    simulate_agents(seed, engines=2)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", FAULTS if LONG else FAULTS[:QUICK], ids=lambda fault: fault.name)
def test_a_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed among the first fails on an engine with this fault."""
    assert failure(fault.plant(monkeypatch), range(100), simulation=simulate_agents) is not None


@pytest.mark.slow
@pytest.mark.faults
def test_a_seed_gives_the_same_log_and_the_same_trace_again() -> None:
    """In this process, whatever ran before, and in another one, in which sets have another order."""
    program = (
        "import hashlib; from tests.simulation import simulate_agents\n"
        f"reports = [simulate_agents(seed) for seed in range({START}, {START + SAME})]\n"
        "print(hashlib.sha256(repr(reports).encode()).hexdigest())"
    )
    once = [simulate_agents(seed) for seed in reversed(range(START, START + SAME))]

    there = run("-c", program, PYTHONHASHSEED="4711")

    assert there.stdout.strip() == hashlib.sha256(repr(once[::-1]).encode()).hexdigest()


@pytest.mark.slow
@pytest.mark.faults
def test_the_command_simulates_agents(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the option `--agents` it prints the trace of a tree of agents."""
    monkeypatch.setattr(sys, "argv", ["simulation", "--agents", "--seed", str(START)])

    status = main()

    *trace, last = capsys.readouterr().out.splitlines()
    assert status == 0
    assert tuple(trace) == simulate_agents(START).trace
    assert last.startswith(f"Seed {START} holds: ")


@pytest.mark.slow
@pytest.mark.faults
def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has the option, too."""
    failed = failure(FAULTS[0].plant(monkeypatch), range(100), simulation=simulate_agents)

    assert failed is not None
    assert str(failed).endswith(f"--seed {failed.seed} --agents")


# --- What the simulation of agents knows of agents that were deleted, and of others that have their ids since.
#
# Such a coincidence is rare in a simulation, so here the checks get logs that were written for them: each holds as it
# is, and does not if one thing in it is another one.


OPENED = Opened(event_id="opened", at=NOON)


@dataclass
class Process:
    """A process that lives."""

    name: str = "A1"
    is_dead: bool = False


class Agents:
    """Agents whose logs are written by hand: each event is put to the machine, and its row may ask for more effects."""

    def __init__(self) -> None:
        chance = RandomSource("agents")
        self.loop = VirtualLoop(chance, disorder=0.0)
        self.disk = Disk(chance, EventTrace(self.loop.time))
        self.tree = Tree(self.disk)
        self.add("stranger", OPENED)
        self.tree.stranger = "stranger"
        self.recorders: dict[str, CallRecorder] = {}

    def add(self, agent_id: str, event: Event, *effects: Effect) -> None:
        """Store the step of an event, with these effects besides its own."""
        rows = self.disk.rows.get(agent_id, [])
        context = Context()
        for row in rows:
            context = context.after(row.event)
        step = begin(event) if isinstance(event, Opened) else transition(rows[-1].state, event, context)
        row = Row(len(rows) + 1, event, (*step.effects, *effects), step.ended, step.state, "A1")
        self.disk.keep(agent_id, row)

    def begin(self, agent_id: str, text: str, *effects: Effect) -> None:
        """Create an agent that works on a task, and that asks for these effects."""
        self.add(agent_id, OPENED)
        self.add(agent_id, UserMessage(event_id="task", at=NOON, text=text), *effects)

    def mail(self, agent_id: str, origin: str, event_id: str, text: str = "Hi") -> None:
        """Have an agent take a message of another one."""
        self.add(agent_id, AgentMessage(event_id=event_id, at=NOON, origin=origin, text=text))

    def dispatch(self, agent_id: str, message: AgentMessage, *, is_new: bool = True) -> None:
        """Have a user dispatch a message to an agent: one of the user's own, or one that the user has read there."""
        recorder = self.recorders.setdefault(agent_id, CallRecorder(self.disk.trace))
        recorder.calls.append(Call("Ada", "dispatch", Process(), message))  # type: ignore[arg-type]
        if is_new:
            recorder.ids.add(message.event_id)

    def faults(self, check: TreeCheck) -> list[str]:
        """Return what a check finds."""
        ending = TreeEnding(self.tree, (), is_cut_short=False, was_set_back=False, recorders=self.recorders)
        return list(check(ending))


@pytest.fixture
def agents() -> Agents:
    """Return agents of which none is stored."""
    return Agents()


class TestReturnedMail:
    """A message that waits in the inbox of an agent when it is deleted is returned to its sender, and no other one."""

    @pytest.fixture(autouse=True)
    def deleted(self, agents: Agents) -> None:
        """The target is deleted while the message of `sender`, its third step, waits."""
        agents.begin("sender", "Write.")
        agents.begin("other", "Write.")
        agents.begin("target", "Work.")
        agents.mail("target", "sender", "sender/2")
        agents.disk.delete("target")

    def test_the_sender_may_be_told(self, agents: Agents) -> None:
        """The notice comes from the deleted agent, and names the step that took the message."""
        agents.mail("sender", "target", "target/3/returned")

        assert agents.faults(nothing_arrives_that_nobody_sent) == []

    @pytest.mark.parametrize(
        ("reader", "origin", "event_id"),
        [
            ("other", "target", "target/3/returned"),
            ("sender", "other", "target/3/returned"),
            ("sender", "target", "target/2/returned"),
            ("sender", "target", "target/3"),
        ],
    )
    def test_nothing_else_is_taken_for_it(self, agents: Agents, reader: str, origin: str, event_id: str) -> None:
        """Another reader, another origin, another step, or another message is a fault."""
        agents.mail(reader, origin, event_id)

        assert agents.faults(nothing_arrives_that_nobody_sent) == [
            f"{reader} got {event_id} from {origin}, which did not send it"
        ]

    def test_a_target_that_is_stored_returns_nothing(self, agents: Agents) -> None:
        """Its inbox is read in time."""
        agents.begin("kept", "Work.")
        agents.mail("kept", "sender", "sender/3")
        agents.mail("sender", "kept", "kept/3/returned")

        faults = agents.faults(nothing_arrives_that_nobody_sent)
        assert "sender got kept/3/returned from kept, which did not send it" in faults


class TestMessagesThatUsersDispatch:
    """A user dispatches a message in the name of an agent. It was sent by the user, and no other message was."""

    MESSAGE = AgentMessage(event_id="Ada-1", at=NOON, origin="other", text="Hi")

    @pytest.fixture(autouse=True)
    def dispatched(self, agents: Agents) -> None:
        """The user has dispatched the message to `reader`."""
        agents.begin("reader", "Read.")
        agents.begin("other", "Write.")
        agents.dispatch("reader", self.MESSAGE)

    def test_it_may_arrive(self, agents: Agents) -> None:
        """In the log of the agent that it was dispatched to."""
        agents.add("reader", self.MESSAGE)

        assert agents.faults(nothing_arrives_that_nobody_sent) == []

    @pytest.mark.parametrize(
        ("reader", "change"),
        [
            ("other", {"origin": "reader"}),
            ("other", {}),
            ("reader", {"event_id": "Ada-2"}),
            ("reader", {"event_id": "other/3"}),
            ("reader", {"origin": "reader"}),
            ("reader", {"text": "Hello"}),
            ("reader", {"silent": True}),
            ("reader", {"audience": "user"}),
        ],
    )
    def test_nothing_else_is_taken_for_it(self, agents: Agents, reader: str, change: dict[str, object]) -> None:
        """Another reader, another id, or other content is a fault."""
        message = self.MESSAGE.replace(**change)
        agents.add(reader, message)

        assert agents.faults(nothing_arrives_that_nobody_sent) == [
            f"{reader} got {message.event_id} from {message.origin}, which did not send it"
        ]

    def test_a_message_that_a_user_hands_over_once_more_is_not_the_users(self, agents: Agents) -> None:
        """Somebody has invented it, and the user has read it in the log."""
        invented = self.MESSAGE.replace(event_id="other/3")
        agents.add("reader", invented)
        agents.dispatch("reader", invented, is_new=False)

        assert agents.faults(nothing_arrives_that_nobody_sent) == [
            "reader got other/3 from other, which did not send it"
        ]


class TestMailOfSubAgentsThatWereStartedAnew:
    """Two sub-agents with one id send different messages under one key. Both arrive, the second under another id."""

    @pytest.fixture(autouse=True)
    def started_anew(self, agents: Agents) -> None:
        """The first message has arrived."""
        message = SendToAgent(effect_id=2, target="reader", said=Heard(seq=2))
        agents.begin("reader", "Read.")
        agents.begin("reader/3", "first", message)
        agents.disk.delete("reader/3")
        agents.begin("reader/3", "second", message)
        agents.mail("reader", "reader/3", "reader/3/2", "first")

    def test_both_arrive(self, agents: Agents) -> None:
        """Nothing is lost, and nothing comes from nowhere."""
        agents.mail("reader", "reader/3", "reader/3/2~2", "second")

        assert agents.faults(mail_arrives_once) == []
        assert agents.faults(nothing_arrives_that_nobody_sent) == []

    def test_the_first_is_not_taken_for_the_second(self, agents: Agents) -> None:
        """The second one is lost if only the first one has arrived."""
        assert agents.faults(mail_arrives_once) == ["the message reader/3/2 to reader is lost"]

    def test_each_arrives_once(self, agents: Agents) -> None:
        """Under whatever ids: nobody has sent a third one."""
        agents.mail("reader", "reader/3", "reader/3/2~2", "second")
        agents.mail("reader", "reader/3", "reader/3/2~3", "second")

        assert agents.faults(nothing_arrives_that_nobody_sent) == [
            "reader got reader/3/2~3 from reader/3, which did not send it"
        ]

    def test_a_message_that_neither_has_sent_is_a_fault(self, agents: Agents) -> None:
        """Its text is neither that of the first one nor that of the second."""
        agents.mail("reader", "reader/3", "reader/3/2~2", "third")

        assert any("'third', and not as 'second'" in fault for fault in agents.faults(mail_arrives_once))


class TestSubAgentsOfAgentsThatWereDeleted:
    """A sub-agent belongs to the parent that was stored when it was created."""

    @pytest.mark.slow
    def test_a_parent_with_the_same_id_is_another_one(self, agents: Agents) -> None:
        """The sub-agent is left over although an agent with the id of its parent is stored, which asks for one, too."""
        asks = SpawnSubAgent(effect_id=3, task=Heard(seq=2))
        agents.begin("parent", "Ask.", asks)
        agents.add("parent/3", OPENED.replace(role="sub_agent", parent="parent", depth=1))
        agents.add("parent/3", CloseRequested(event_id="close", at=NOON))
        assert agents.faults(no_sub_agent_is_orphaned) == []

        agents.disk.delete("parent")
        agents.begin("parent", "Ask.", asks)
        assert agents.faults(no_sub_agent_is_orphaned) == [
            "the sub-agent parent/3 is stored, and its parent was deleted"
        ]


def test_an_effect_is_begun_once_for_each_conversation(agents: Agents) -> None:
    """One process may begin an effect of a sub-agent that was deleted, and the one with the same id of the next."""
    performed = PerformedEffects(agents.disk, agents.disk.trace)

    async def perform() -> None:
        async def nothing() -> None:
            pass

        (effect,) = (one for one in agents.tree.rows("agent")[1].effects if isinstance(one, RequestLlm))
        await performed.record(Process(), effect, effect_context("agent"), nothing())  # type: ignore[arg-type]

    for _ in range(2):
        agents.begin("agent", "Work.")
        agents.loop.run(perform(), bound=10)
        assert agents.disk.trace.faults == []
        agents.disk.delete("agent")
    agents.loop.run(perform(), bound=10)

    assert agents.disk.trace.faults == ["request_llm:1 is begun twice by A1"]
