"""A conversation that Hypothesis drives: people and the world do what they like, in any order, and the laws must hold.

People and other agents speak, answer, cancel and change their minds at bad moments. The world answers what is in
flight, and also answers twice, too late, or what nobody asked; the process dies and comes back. After each event every
law is checked. Run it as a test:

    TestConversation = ConversationMachine.TestCase

Subclass it to try your own rules (`policies`), your own tools (`calls`), your own promises (`laws`), or a conversation
that lives elsewhere (`observe`).

A failure is shown as a program. It is also saved, for `replay_trace`, in the folder that `fixtures` or the environment
variable `TURNWISE_FIXTURES` names.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import ClassVar, get_args

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.strategies import DataObject, SearchStrategy

from ..states.effects import ExecuteTool
from ..states.events import (
    AgentMessage,
    Answer,
    CloseRequested,
    CompactionRequested,
    Event,
    LlmResponse,
    Opened,
    PolicyChanged,
    Request,
    Resumed,
    RetryRequested,
    ToolInterrupted,
    UserMessage,
)
from ..states.policy.policy import Policy
from ..states.policy.roles import Role
from ..states.states import AwaitingPerson, Busy, Failed, Idle, InDoubt, State
from ..states.values.messages import ToolCall
from . import strategies
from .fixture import AnyPath, Failures
from .history import History, Observation, observe
from .laws import LAWS, Law, is_deterministic, is_replayed_by_its_log, is_taken_or_refused
from .program import Known
from .report import tell
from .strategies import NOON, changed, events_of, numbered

LONG_ENOUGH = 40
"""Events before the host takes a hand in it: after a close nothing much can happen."""


def _rules() -> SearchStrategy[Policy]:
    """Rules of every kind. The plain ones stand first, so that a failure that needs no others shrinks to them."""
    return st.sampled_from([st.just(Policy()), *[strategies.policies()] * 9]).flatmap(lambda chosen: chosen)


class ConversationMachine(RuleBasedStateMachine):
    """One conversation, and everybody who can do something to it."""

    policies: SearchStrategy[Policy] = _rules()
    """The rules that the conversation opens with or changes to."""

    calls: SearchStrategy[tuple[ToolCall, ...]] = strategies.tool_calls()
    """The calls that a response of the model may hold. Their ids are made unique."""

    laws: tuple[Law, ...] = LAWS
    """What is checked after each event."""

    fixtures: AnyPath | None = None
    """The folder in which a failure is saved; None leaves that to the environment variable `TURNWISE_FIXTURES`."""

    _failures: ClassVar[dict[type[ConversationMachine], Failures]] = defaultdict(Failures)

    def __init__(self) -> None:
        super().__init__()
        self.has_failed = False
        self.history = History()
        self.now: datetime = NOON
        self.answers: list[Answer] = []

    @property
    def state(self) -> State:
        """Where the conversation rests."""
        return self.history.state

    def observe(self, event: Event) -> Observation:
        """Let this event happen, and say what became of it. Override it to try a conversation that lives elsewhere."""
        return observe(self.state, event, self.history.context)

    def happen(self, event: Event) -> None:
        """Let this event happen, a second after the last, and check the laws."""
        self.now += timedelta(seconds=1)
        changes: dict[str, object] = {"at": self.now}
        if isinstance(event, Request):
            changes["event_id"] = f"request-{len(self.history.observations)}"
        event = changed(event, **changes)
        if isinstance(event, Answer):
            self.answers.append(event)
        self.take(event)

    def take(self, event: Event) -> None:
        """Let exactly this event happen, and check the laws. Raises `LawBroken`, and whatever `observe` raises."""
        before = tuple(self.history.observations)
        with self._told(is_taken_or_refused, (*before, event)):
            self.history.add(self.observe(event))
        for law in self.laws:
            self._hold(law)

    def _hold(self, law: Law) -> None:
        with self._told(law, self.history.observations):
            law(self.history)

    @contextmanager
    def _told(self, law: Law, trace: Sequence[Known]) -> Iterator[None]:
        """Tell by which trace a law was broken, and save that trace if somebody wants it."""
        try:
            yield
        except Exception as broken:
            self.has_failed = True
            repeatable = type(self).observe is ConversationMachine.observe
            self._save(tell(broken, trace, law, repeatable=repeatable), law, broken)
            raise

    def _save(self, trace: Sequence[Known], law: Law, broken: Exception) -> None:
        folder = self.fixtures or os.environ.get("TURNWISE_FIXTURES")
        if not folder:
            return
        try:
            path = self._failures[type(self)].save(trace, law, broken, folder)
            broken.add_note(f"Saved as {path}; replay_trace() tries it again.")
        except OSError as error:
            broken.add_note(f"It could not be saved in {folder}: {error.strerror}.")

    def choose_answer(self, data: DataObject) -> Answer:
        """An answer to something that is waited for."""
        answer: Answer = data.draw(strategies.answers_for(self.state))
        if isinstance(answer, LlmResponse):
            calls = numbered(data.draw(self.calls), prefix=f"call-{answer.effect_id}")
            return changed(answer, tool_calls=calls)
        return answer

    def is_long(self) -> bool:
        """Whether enough has happened for the host to take a hand in it."""
        return len(self.history.observations) >= LONG_ENOUGH

    @initialize(data=st.data(), role=st.sampled_from(get_args(Role)))
    def the_conversation_opens(self, data: DataObject, role: Role) -> None:
        """The first event of every log."""
        self.happen(Opened(event_id="opened", at=self.now, role=role, policy=data.draw(self.policies)))

    @precondition(lambda self: self.state.awaited())
    @rule(data=st.data(), times=st.integers(1, 6))
    def the_world_answers(self, data: DataObject, times: int) -> None:
        """The model, a tool or a timer that is waited for; then what is waited for next, several times."""
        for _ in range(times):
            if self.state.awaited():
                self.happen(self.choose_answer(data))

    @precondition(lambda self: isinstance(self.state, Idle | Failed))
    @rule(request=st.one_of(events_of(UserMessage), events_of(RetryRequested)))
    def a_person_wants_something(self, request: Request) -> None:
        """Something new, or what failed once more."""
        self.happen(request)

    @precondition(lambda self: isinstance(self.state, AwaitingPerson | InDoubt))
    @rule(data=st.data())
    def a_person_answers(self, data: DataObject) -> None:
        """All that was asked; or allows what waits for it, or does not; or says what became of a call."""
        assert isinstance(self.state, AwaitingPerson | InDoubt)
        self.happen(data.draw(strategies.responses_for(self.state)))

    @precondition(lambda self: isinstance(self.state, Busy))
    @rule(data=st.data())
    def a_person_cancels(self, data: DataObject) -> None:
        """This turn, or by a late click the one before."""
        self.happen(data.draw(strategies.cancels_for(self.state)))

    @precondition(lambda self: isinstance(self.state, Busy))
    @rule(message=events_of(UserMessage))
    def a_person_speaks_meanwhile(self, message: UserMessage) -> None:
        """It is refused, waits or steers."""
        self.happen(message)

    @rule(message=events_of(AgentMessage))
    def another_agent_writes(self, message: AgentMessage) -> None:
        """To this agent or for its user; it waits, wakes or is read in passing."""
        self.happen(message)

    @precondition(lambda self: isinstance(self.state, Busy))
    @rule()
    def the_process_dies(self) -> None:
        """Another one takes the conversation up, and reports every tool that was running."""
        tools = [effect for effect in self.history.in_flight.values() if isinstance(effect, ExecuteTool)]
        self.happen(Resumed(at=self.now, open=tuple(self.history.in_flight)))
        for effect in tools:
            self.happen(ToolInterrupted(at=self.now, call_id=effect.call.call_id))

    @precondition(lambda self: isinstance(self.state, Idle | Failed))
    @rule()
    def somebody_wants_it_condensed(self) -> None:
        """The history, although the window is not full."""
        self.happen(CompactionRequested(event_id="condense", at=self.now))

    @precondition(lambda self: bool(getattr(self.state, "inbox", None)))
    @rule(data=st.data())
    def a_person_takes_a_message_back(self, data: DataObject) -> None:
        """One that waits."""
        self.happen(data.draw(strategies.withdrawals_for(self.state)))

    @rule(data=st.data())
    def something_untimely_happens(self, data: DataObject) -> None:
        """An answer comes again or too late, or has the wrong type; or somebody wants or reports what does not fit."""
        requests = strategies.requests().filter(lambda request: not isinstance(request, CloseRequested))
        late = strategies.late_answers_for(self.state)
        again = st.sampled_from(self.answers) if self.answers else late
        others = strategies.near_misses_for(self.state) | strategies.reports_for(self.state)
        self.happen(data.draw(st.one_of(again, late, requests, others)))

    @precondition(lambda self: isinstance(self.state, Idle | Failed) and self.is_long())
    @rule(data=st.data())
    def the_host_changes_the_rules(self, data: DataObject) -> None:
        """From here on others hold."""
        self.happen(PolicyChanged(event_id="policy", at=self.now, policy=data.draw(self.policies)))

    @precondition(lambda self: self.is_long())
    @rule()
    def the_host_closes(self) -> None:
        """For good."""
        self.happen(CloseRequested(event_id="close", at=self.now))

    def teardown(self) -> None:
        """The log, told again, must lead to the same end: law 2, for the whole."""
        if is_deterministic in self.laws and not self.has_failed:
            self._hold(is_replayed_by_its_log)
