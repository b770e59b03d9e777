"""A conversation that Hypothesis drives, in which anything may happen in any order, and every law must hold.

People and other agents speak, answer, cancel and change their minds at bad moments. Models, tools and timers answer
what is in flight, and also answer twice, too late, or what nobody asked. The process dies and comes back. After each
event every law is checked. Run it as a test:

    TestConversation = ConversationMachine.TestCase

Subclass it to try your own rules (`policies`), your own tools, which are executed (`tools`), or calls alone (`calls`),
your own invariants (`laws`), or a conversation that is run elsewhere (`observe`).

A failure is shown as a program; one of `teardown` is, too. It is also saved, for `replay_trace`, in the folder that
`fixtures` or the environment variable `TURNWISE_FIXTURES` names.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, get_args

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.strategies import DataObject, SearchStrategy

from ..states.effects import TOOL_RUNS, ExecuteTool, ReconcileTool, ResumeTool
from ..states.events import (
    AgentMessage,
    Answer,
    AskUserQuestionPending,
    CloseRequested,
    CompactionRequested,
    Event,
    LlmResponse,
    Opened,
    PolicyChanged,
    Request,
    Resumed,
    RetryRequested,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    UserMessage,
)
from ..states.policy import Policy
from ..states.roles import Role
from ..states.states import AnyState, AwaitingSubAgents, Busy, Failed, Idle
from ..states.transcript import Transcript
from ..states.values.messages import Said, ToolCall
from ..states.values.round import RoundCall
from . import strategies
from .doubles import ManualClock
from .fixture import AnyPath, Failures
from .generation.events import person_request
from .history import History, Observation, observe
from .laws import LAWS, Law, is_deterministic, is_replayed_by_its_log, is_taken_or_refused
from .shrinking import Known, tell
from .strategies import NOON, changed, events_of, numbered, values_of

if TYPE_CHECKING:
    from ..effects.context import EffectContext, SuspendedCalls
    from ..effects.tools.registry import ToolRegistry
    from ..effects.tools.tool import AnyTool

AnyTools: TypeAlias = "Iterable[AnyTool | Callable[..., Any] | str]"
"""Tools as `Engine.open(tools=…)` takes them: tools, functions, names of built-in tools."""


def _rules() -> SearchStrategy[Policy]:
    """Policies of every kind. The default comes first, so that a failure that needs no other one shrinks to it."""
    return st.sampled_from([st.just(Policy()), *[strategies.policies()] * 9]).flatmap(lambda chosen: chosen)


_ANY_CALLS = strategies.tool_calls()

LONG_ENOUGH = 40
"""Events before the host changes the rules or closes the conversation, after which not much can happen."""


class ConversationMachine(RuleBasedStateMachine):
    """One conversation, and everything that can happen to it."""

    policies: SearchStrategy[Policy] = _rules()
    """The policies that the conversation opens with or changes to."""

    tools: AnyTools = ()
    """The application's own tools. The model calls them, and their calls are really executed. Set it in `__init__` if
    each conversation needs tools of its own."""

    calls: SearchStrategy[tuple[ToolCall, ...]] | None = None
    """The calls that a response of the model may hold. Their ids are made unique. With None these are calls of `tools`,
    and without tools calls of every kind."""

    laws: tuple[Law, ...] = LAWS
    """What is checked after each event."""

    fixtures: AnyPath | None = None
    """The folder in which a failure is saved. With None the environment variable `TURNWISE_FIXTURES` names it."""

    _failures: ClassVar[dict[type[ConversationMachine], Failures]] = defaultdict(Failures)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "teardown" in vars(cls):
            cls.teardown = _told_as_law(cls, vars(cls)["teardown"])  # type: ignore[assignment, method-assign]
        cls.TestCase.settings = conversation_settings()

    def __init__(self) -> None:
        super().__init__()
        self.has_failed: bool = False
        self.history: History = History()
        self.now: datetime = NOON
        self.answers: list[Answer] = []

    @property
    def state(self) -> AnyState:
        """The state of the conversation."""
        return self.history.state

    def observe(self, event: Event) -> Observation:
        """Put this event to the machine, and return the observation. Override it for a conversation that is run
        elsewhere."""
        return observe(self.state, event, self.history.context)

    def happen(self, event: Event) -> None:
        """Put this event to the machine, a second after the last, and check the laws."""
        self.now += timedelta(seconds=1)
        changes: dict[str, object] = {"at": self.now}
        if isinstance(event, Request):
            changes["event_id"] = f"request-{len(self.history.observations)}"
        event = changed(event, **changes)
        if isinstance(event, Answer):
            self.answers.append(event)
        self.take(event)

    def take(self, event: Event) -> None:
        """Put exactly this event to the machine, and check the laws. Raises `LawBroken`, and what `observe` raises."""
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
        """Add the trace to the exception by which a law fails, and save it if there is a folder for that."""
        try:
            yield
        except Exception as broken:
            if self.has_failed:
                raise
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
        """Choose an answer that is awaited."""
        answer: Answer = data.draw(strategies.answers_for(self.state))
        if isinstance(answer, LlmResponse):
            return self._with_calls(answer, data)
        return self._runs.replace(answer, self.history, self.now)

    def _with_calls(self, answer: LlmResponse, data: DataObject) -> LlmResponse:
        """The response with calls that the machine draws. A typed answer that is given by the text has none, and one
        that is given by calls keeps these in front of them; it is none if the tools are the application's own."""
        output = answer.output
        if output is not None and not output.calls:
            return changed(answer, tool_calls=())
        if self.tools or self.calls is not None:
            output = None
        given = () if output is None else tuple(answer.tool_calls[place] for place in output.calls)
        calls = numbered((*given, *data.draw(self._calls)), prefix=f"call-{answer.effect_id}")
        placed = output and changed(output, calls=tuple(range(len(given))))
        return changed(answer, tool_calls=calls, output=placed)

    @cached_property
    def _runs(self) -> ToolRuns:
        return ToolRuns(self.tools)

    @cached_property
    def _calls(self) -> SearchStrategy[tuple[ToolCall, ...]]:
        if self.calls is not None:
            return self.calls
        return calls_of(self.tools) if self.tools else _ANY_CALLS

    def is_long(self) -> bool:
        """Whether enough has happened for the host to act."""
        return len(self.history.observations) >= LONG_ENOUGH

    @initialize(data=st.data(), role=st.sampled_from(get_args(Role)))
    def the_conversation_opens(self, data: DataObject, role: Role) -> None:
        """The first event of every log."""
        self.happen(Opened(event_id="opened", at=self.now, role=role, policy=data.draw(self.policies)))

    @precondition(lambda self: self.state.awaited())
    @rule(data=st.data(), times=st.integers(1, 6))
    def awaited_effects_are_answered(self, data: DataObject, times: int) -> None:
        """A model, a tool or a timer answers; then whatever is awaited next, several times."""
        for _ in range(times):
            if self.state.awaited():
                self.happen(self.choose_answer(data))

    @precondition(lambda self: isinstance(self.state, Idle | Failed))
    @rule(request=st.one_of(events_of(UserMessage), events_of(RetryRequested)))
    def a_person_wants_something(self, request: Request) -> None:
        """A new message, or another attempt at what failed."""
        self.happen(request)

    @precondition(lambda self: person_request(self.state) is not None)
    @rule(data=st.data())
    def a_person_answers(self, data: DataObject) -> None:
        """A person answers every question, decides about a call, or says whether a call has run."""
        self.happen(data.draw(strategies.responses_for(self.state)))

    @precondition(lambda self: isinstance(self.state, AwaitingSubAgents))
    @rule(data=st.data())
    def a_sub_agent_asks(self, data: DataObject) -> None:
        """A sub-agent asks the user, or no longer asks."""
        self.happen(data.draw(strategies.reports_for(self.state)))

    @precondition(lambda self: isinstance(self.state, Busy))
    @rule(data=st.data())
    def a_person_cancels(self, data: DataObject) -> None:
        """A person cancels this turn, or by a late click the one before."""
        self.happen(data.draw(strategies.cancels_for(self.state)))

    @precondition(lambda self: self.state.book.turn > 0)
    @rule(data=st.data())
    def a_person_goes_to_another_branch(self, data: DataObject) -> None:
        """A turn is hidden, its message edited or answered again, or a branch that was left returns."""
        self.happen(data.draw(strategies.branchings_for(self.state, self.history.log)))

    @precondition(lambda self: isinstance(self.state, Busy))
    @rule(message=events_of(UserMessage))
    def a_person_speaks_meanwhile(self, message: UserMessage) -> None:
        """The message is refused, waits or steers."""
        self.happen(message)

    @rule(message=events_of(AgentMessage))
    def another_agent_writes(self, message: AgentMessage) -> None:
        """A message for this agent or its user; it waits, begins a turn or is silent."""
        self.happen(message)

    @rule(data=st.data())
    def a_moment_of_the_schedule_comes(self, data: DataObject) -> None:
        """A wake-up that the conversation waits for, or one that is over; it begins a turn, waits or changes
        nothing."""
        self.happen(data.draw(strategies.wake_ups_for(self.state)))

    @precondition(lambda self: isinstance(self.state, Busy))
    @rule()
    def the_process_dies(self) -> None:
        """Another process takes the conversation over, and reports every tool that was running."""
        running = [effect.call.call_id for effect in self.history.in_flight.values() if isinstance(effect, TOOL_RUNS)]
        waiting = list(self.history.effects.suspended)
        self._runs.forget()
        self.happen(Resumed(at=self.now, open=tuple(self.history.in_flight)))
        for call_id in (*running, *waiting):
            self.happen(ToolInterrupted(at=self.now, call_id=call_id))

    @precondition(lambda self: isinstance(self.state, Idle | Failed))
    @rule()
    def the_history_is_to_be_condensed(self) -> None:
        """Somebody asks for it although the window is not full."""
        self.happen(CompactionRequested(event_id="condense", at=self.now))

    @precondition(lambda self: bool(getattr(self.state, "inbox", None)))
    @rule(data=st.data())
    def a_person_withdraws_a_message(self, data: DataObject) -> None:
        """A message that waits."""
        self.happen(data.draw(strategies.withdrawals_for(self.state)))

    @rule(data=st.data())
    def something_untimely_happens(self, data: DataObject) -> None:
        """An answer comes again, too late or with the wrong type, or a request or report does not fit the state."""
        requests = strategies.requests().filter(lambda request: not isinstance(request, CloseRequested))
        late = strategies.late_answers_for(self.state)
        again = st.sampled_from(self.answers) if self.answers else late
        others = strategies.near_misses_for(self.state) | strategies.reports_for(self.state)
        self.happen(data.draw(st.one_of(again, late, requests, others)))

    @precondition(lambda self: isinstance(self.state, Idle | Failed) and self.is_long())
    @rule(data=st.data())
    def the_host_changes_the_rules(self, data: DataObject) -> None:
        """From here on another policy holds."""
        self.happen(PolicyChanged(event_id="policy", at=self.now, policy=data.draw(self.policies)))

    @rule(data=st.data())
    def the_host_changes_settings(self, data: DataObject) -> None:
        """The tools of later turns, the details, the schedule or the profile are replaced, also during a turn."""
        self.happen(data.draw(strategies.settings_for(self.state)))

    @precondition(lambda self: self.is_long())
    @rule()
    def the_host_closes(self) -> None:
        """The conversation is closed for good."""
        self.happen(CloseRequested(event_id="close", at=self.now))

    def teardown(self) -> None:
        """Law 2 for the whole log: replayed, it leads to the same end."""
        self._runs.close()
        if is_deterministic in self.laws and not self.has_failed:
            self._hold(is_replayed_by_its_log)


def _told_as_law(kind: type[ConversationMachine], teardown: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return the teardown of this class of machines, which shows and saves the conversation that fails it, as a law
    does."""

    @wraps(teardown)
    def law(history: History) -> None:
        machine = kind()
        for observation in history.observations:
            machine.history.add(observation)
        teardown(machine)

    @wraps(teardown)
    def told(machine: ConversationMachine) -> None:
        with machine._told(law, machine.history.observations):
            teardown(machine)

    return told


def conversation_settings(**changes: Any) -> settings:
    """Return settings for a test of generated conversations, with these changes: for `run_state_machine_as_test`, and
    as a decorator. A `ConversationMachine.TestCase` has them.

    They are those of the profile that is loaded, without its deadline, because a step may wait for the disk. A failing
    test ends within seconds: the kit makes the conversation shorter by itself, event by event, so the phases are left
    out in which Hypothesis does, which takes minutes and hundreds of megabytes. A profile that chooses phases keeps
    them.
    """
    phases = settings().phases
    if tuple(phases) == tuple(Phase):
        changes = {"phases": [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)], **changes}
    return settings(**{"deadline": None, "suppress_health_check": list(HealthCheck), **changes})


ConversationMachine.TestCase.settings = conversation_settings()

T = TypeVar("T")

CONVERSATION = "conversation"
"""The id of the conversation, as tools see it."""


class ToolRuns:
    """Answers effects by running these tools, where the effect is about a call of one of them. Close it in the end: a
    call may still wait for a person, in an event loop that is kept for it.

    There is no engine, but the tools run as in one: with the arguments that the model wrote or a person edited, in
    their time, and whatever they do becomes one answer. What they know of the conversation is what a test's `History`
    knows.
    """

    def __init__(self, tools: AnyTools) -> None:
        listed = tools if isinstance(tools, Collection) else list(tools)
        self._registry = registry_of(listed) if listed else None
        self._runner: asyncio.Runner | None = None
        self._suspended: SuspendedCalls | None = None

    def replace(self, answer: Answer, history: History, at: datetime) -> Answer:
        """The answer, or what the tool really does if the answer stands for that. The tool runs now, until it ends or
        asks a person; a call that asks and waits goes on when it is resumed.

        Call it where no event loop runs: it brings its own.
        """
        effect = history.in_flight.get(answer.effect_id)
        stands_for_tool = isinstance(answer, ToolComplete | AskUserQuestionPending | ToolReconciled)
        if not stands_for_tool or not isinstance(effect, ExecuteTool | ResumeTool | ReconcileTool):
            return answer
        if self._registry is None or self._registry.find(effect.call.name) is None:
            return answer
        return self._run(_perform(self._registry, effect, self._context_in(history), at))

    def forget(self) -> None:
        """Stop the calls that wait for a person, as if the process had died."""
        if self._suspended:
            self._run(self._suspended.stop_all())
        self._suspended = None

    def close(self) -> None:
        """Stop the calls that wait."""
        self.forget()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(work)
        finally:
            if not self._suspended:
                self._runner.close()
                self._runner = None

    def _context_in(self, history: History) -> EffectContext:
        from ..effects.context import EffectContext, SuspendedCalls

        if self._suspended is None:
            self._suspended = SuspendedCalls()
        return EffectContext(
            conversation_id=CONVERSATION,
            seq=len(history.log),
            turn=history.state.book.turn,
            context=history.context,
            history=_Said(history),
            progress=lambda effect_id, kind, data: None,
            receipts=_NoReceipts(),
            suspended=self._suspended,
        )


async def _perform(
    tools: ToolRegistry, effect: ExecuteTool | ResumeTool | ReconcileTool, context: EffectContext, at: datetime
) -> Answer:
    from ..effects.tools.performers import ReconciliationPerformer, ResumptionPerformer, ToolPerformer

    clock = ManualClock(at)
    if isinstance(effect, ReconcileTool):
        return await ReconciliationPerformer(tools, clock)(effect, context)
    if isinstance(effect, ResumeTool):
        return await ResumptionPerformer(clock)(effect, context)
    return await ToolPerformer(tools, clock)(effect, context)


class _Said:
    """What was said, as performers read it."""

    def __init__(self, history: History) -> None:
        self._history = history

    async def call(self, call: RoundCall, up_to: int) -> ToolCall:
        """Return the call with its arguments."""
        return self._history.said.call(call.call_id)

    async def transcript(self, up_to: int) -> Transcript:
        """Return what was said."""
        return self._history.said

    async def words(self, said: Said) -> str:
        """Return the text that `said` stands for."""
        return self._history.said.words(said)

    async def origin(self, said: Said) -> str:
        """Return the agent that wrote this."""
        return self._history.said.origin(said)


class _NoReceipts:
    """An outbox in which nothing is recorded: tools deliver nothing."""

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Record nothing."""

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Record nothing."""

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Record nothing."""


def call_of(tool: AnyTool | Callable[..., Any] | str, /, **arguments: Any) -> ToolCall:
    """The call of this tool with these arguments, as an engine records it when a model makes it. Arguments that do not
    fit give a call with a `fault`. Raises ConfigurationError for a function that cannot be a tool.

    A call is what the engine stores of it: checked by the tool, with the declarations of the tool. So a test that uses
    these calls meets the approvals, the faults and the order of rounds that conversations will meet.
    """
    registry = registry_of([tool])
    (known,) = tools_in(registry)
    return _recorded(registry, known.name, json.dumps(arguments))


def _recorded(registry: ToolRegistry, name: str, arguments: str) -> ToolCall:
    from ..effects.model.port import ModelCall

    (call,) = registry.resolve_calls(0, [ModelCall("", name, arguments)])
    return call


def calls_of(tools: AnyTools, *, most: int = 3) -> SearchStrategy[tuple[ToolCall, ...]]:
    """Up to `most` calls of these tools, as one response of a model holds them. Most have arguments that fit, which are
    made from the schemas of the tools; some have others."""
    registry = registry_of(tools)
    each = [_calls_of(registry, tool) for tool in tools_in(registry)]
    return st.lists(st.one_of(each), max_size=most).map(tuple) if each else st.just(())


def _calls_of(registry: ToolRegistry, tool: AnyTool) -> SearchStrategy[ToolCall]:
    fitting = values_of(tool.parameters).map(json.dumps).filter(lambda text: _fits(tool, text))
    unfit = st.sampled_from(["{}", "null", '{"unknown": 1}'])
    texts = st.integers(0, 9).flatmap(lambda number: unfit if number == 9 else fitting)
    return texts.map(lambda text: _recorded(registry, tool.name, text))


def _fits(tool: AnyTool, text: str) -> bool:
    from ..effects.tools.normalization import InvalidArguments

    try:
        tool.arguments.check(text)
    except InvalidArguments:
        return False
    return True


def registry_of(tools: AnyTools) -> ToolRegistry:
    """These tools, as an engine holds them. Raises ConfigurationError."""
    from ..effects.tools.registry import ToolRegistry

    return ToolRegistry(tools)


def tools_in(registry: ToolRegistry) -> list[AnyTool]:
    """The tools of a registry, in the order in which they are offered."""
    found = (registry.find(definition["function"]["name"]) for definition in registry.definitions())
    return [tool for tool in found if tool is not None]
