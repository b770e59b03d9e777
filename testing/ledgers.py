"""Ledgers: what is known of effects, messages, speech, spending and sub-agents from events and effects alone.

Each ledger is given every step, in order, and looks at no state, so that what a state says of itself can be compared
with it. The comparison belongs in `laws/`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any

from ..states.context import Context
from ..states.effects import (
    TOOL_RUNS,
    AnswerSubAgent,
    AwaitedEffect,
    CancelSubAgent,
    ControlEffect,
    DeliverToUser,
    Effect,
    ExecuteTool,
    OutgoingEffect,
    PersistMessage,
    PersistToolResults,
    ReconcileTool,
    RecordedEffect,
    RequestLlm,
    ResumeTool,
    SettledCall,
    SpawnSubAgent,
    StartTimer,
    SwitchBranch,
    WithholdContent,
)
from ..states.events import (
    BRANCHING,
    AgentMessage,
    Answer,
    AskUserQuestionPending,
    CallRestricted,
    DeadlineReached,
    DoubtResolved,
    EffectFailed,
    Event,
    LlmFailed,
    LlmResponse,
    Report,
    Resumed,
    RetryDue,
    SubAgentAsked,
    SubAgentFinished,
    ToolApproval,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    WakeUp,
)
from ..states.states import Closed, State
from ..states.step import Step
from ..states.values.acts import Speech
from ..states.values.messages import REPEATABLE, CrashContract, Heard, Joined, Message, Outcomes, ToolResult, Usage
from ..states.values.round import RoundCall
from ..states.values.turn import TurnEnded, Waiting

ANSWERED = 0
"""Stands for the id of an effect that was answered, and so cannot be used again."""


class EffectLedger:
    """The effects in flight by id, and what is known of all effects so far.

    An effect is in flight that was asked for, and not answered, stopped or lost.
    """

    def __init__(self) -> None:
        self.in_flight: dict[int, AwaitedEffect] = {}
        self.stopping: set[int] = set()
        """The effects in flight that were told to stop and have not acknowledged it."""
        self.suspended: dict[str, ExecuteTool | ResumeTool] = {}
        """Calls that have asked a person and wait, with the effect by which they asked."""
        self.interrupted: dict[int, ExecuteTool | ResumeTool] = {}
        """What a crash interrupted, by the effect as which the call was first started; the contract of the tool decides
        whether the call runs again."""
        self.started: set[int] = set()
        """The ids of all effects so far."""
        self.began: dict[int, datetime] = {}
        """When each of them was started first."""
        self.waits_from: dict[int, datetime] = {}
        """From when each of them waits: since it was started, or since a resume by a clock that was set back."""
        self.answered: AwaitedEffect | None = None
        """The effect that the newest event answered."""
        self.faults: list[str] = []
        """What was asked for and makes no sense."""
        self._executed: set[str] = set()
        """The calls that were started and must not be started again."""
        self.begun_unasked: set[int] = set()
        """The effects of calls that had begun when it became known that a person must allow them."""
        self._unapproved: set[str] = set()
        """The calls that nobody approved, and that a person must approve before they run again."""
        self._lost: set[int] = set()
        """What was lost with a dead process, until it is asked for again."""

    def add(self, event: Event, step: Step) -> None:
        """Add a step."""
        self.answered = None
        if isinstance(event, Answer):
            self._end(event)
        elif isinstance(event, Report):
            self._report(event)
        elif isinstance(event, DoubtResolved) and event.verdict == "again":
            self._executed.discard(event.call_id)
        for effect in step.effects:
            self._start(effect, event)
        if step.ended is not None:
            self._forget_stopping()
        self.faults += [f"the effect {each} was lost with its process" for each in self._lost & self.in_flight.keys()]
        self._lost.clear()

    def _end(self, answer: Answer) -> None:
        ended = self.answered = self.in_flight.pop(answer.effect_id, None)
        self.stopping.discard(answer.effect_id)
        if isinstance(ended, TOOL_RUNS) and isinstance(answer, AskUserQuestionPending) and answer.suspends:
            self.suspended[ended.call.call_id] = ended
        if isinstance(ended, ResumeTool) and isinstance(answer, ToolReconciled):
            self.interrupted[ended.first_id] = ended
        if isinstance(ended, ResumeTool | ReconcileTool) and isinstance(answer, ToolReconciled):
            self._wait_for_approval(ended.call, "pure", "reconcile")
        if isinstance(answer, DeadlineReached):
            self._forget_stopping()

    def _forget_stopping(self) -> None:
        """Drop the effects that had their time to stop: nobody waits for them any longer."""
        for effect_id in self.stopping:
            del self.in_flight[effect_id]
        self.stopping.clear()

    def _report(self, report: Report) -> None:
        if isinstance(report, Resumed):
            if report.imported:
                self.suspended.clear()  # they wait in the processes of another store
            left = report.open or self.in_flight
            self._lost = {each for each in left if not isinstance(self.in_flight.get(each), (NoneType, *TOOL_RUNS))}
        elif isinstance(report, CallRestricted):
            self._restrict(report)
        elif isinstance(report, ToolInterrupted):
            self._interrupt(report)

    def _restrict(self, report: CallRestricted) -> None:
        """Know the effects of a call by its stricter declarations, which the next effects of it have."""
        known: tuple[dict[Any, Any], ...] = (self.in_flight, self.interrupted, self.suspended)
        for effects in known:
            for key, effect in effects.items():
                if isinstance(effect, (*TOOL_RUNS, ReconcileTool)) and effect.call.call_id == report.call_id:
                    if report.approval and not effect.call.approval:
                        self._unapproved.add(report.call_id)
                        self.begun_unasked.add(effect.effect_id)
                    approval, by = report.approval, report.approval_by
                    call = effect.call.restricted(report.crash, approval=approval, approval_by=by)
                    effects[key] = effect.model_copy(update={"call": call})

    def _interrupt(self, report: ToolInterrupted) -> None:
        call_id = report.call_id
        for effect_id, effect in list(self.in_flight.items()):
            if isinstance(effect, TOOL_RUNS) and effect.call.call_id == call_id:
                self._wait_for_approval(effect.call, "pure")
                self.interrupted[effect.first_id] = effect
                del self.in_flight[effect_id]
                self.stopping.discard(effect_id)
                return
        if (waiting := self.suspended.pop(call_id, None)) is not None:
            self._wait_for_approval(waiting.call, "pure")
            self.interrupted[waiting.first_id] = waiting.model_copy(update={"effect_id": ANSWERED})
            return
        self.faults.append(f"the call {call_id} does not run, and its interruption was taken")

    def _wait_for_approval(self, call: RoundCall, *crash: CrashContract) -> None:
        """A call of such a contract that must be approved now runs again as another effect, if a person allows it."""
        if call.call_id in self._unapproved and call.crash in crash:
            self._executed.discard(call.call_id)

    def _start(self, effect: Effect, event: Event) -> None:
        if isinstance(effect, ControlEffect):
            self._stop(effect, event)
        elif isinstance(effect, AwaitedEffect):
            self._fly(effect, event)
        elif isinstance(effect, OutgoingEffect | RecordedEffect):
            self._give_id(effect.effect_id)

    def _fly(self, effect: AwaitedEffect, event: Event) -> None:
        effect_id = effect.effect_id
        if effect_id in self._lost:
            self._lost.discard(effect_id)
            if not _is_same(effect, self.in_flight[effect_id]):
                self.faults.append(f"the effect {effect_id} is not asked for again as it was")
        elif isinstance(effect, ExecuteTool) and effect.first_id in self.interrupted:
            self._run_again(effect, event)
        else:
            self._give_id(effect_id)
            self._begin(effect)
        self.began.setdefault(effect_id, event.at)
        self.waits_from[effect_id] = min(event.at, self.waits_from.get(effect_id, event.at))
        self.in_flight[effect_id] = effect

    def _give_id(self, effect_id: int) -> None:
        if effect_id in self.started:
            self.faults.append(f"the id {effect_id} was given to two effects")
        self.started.add(effect_id)

    def _begin(self, effect: Effect) -> None:
        if isinstance(effect, ResumeTool):
            self._resume(effect)
        elif isinstance(effect, ExecuteTool):
            if effect.call.call_id in self._executed:
                self.faults.append(f"the call {effect.call.call_id} was started twice")
            self._executed.add(effect.call.call_id)
        elif isinstance(effect, ReconcileTool):
            asked = self.interrupted.get(effect.started_as)
            if asked is None or asked.call != effect.call or effect.call.crash != "reconcile":
                self.faults.append(f"a tool is asked about the effect {effect.started_as}, which no crash interrupted")

    def _resume(self, effect: ResumeTool) -> None:
        if effect.reply == "cancelled":
            self.stopping.add(effect.effect_id)
        waiting = self.suspended.pop(effect.call.call_id, None)
        if waiting is None or (waiting.call, waiting.first_id) != (effect.call, effect.started_as):
            self.faults.append(f"the call {effect.call.call_id} is resumed, and does not wait")
        elif waiting.effect_id in self.begun_unasked:
            self.begun_unasked.add(effect.effect_id)

    def _run_again(self, effect: ExecuteTool, event: Event) -> None:
        before = self.interrupted.pop(effect.first_id)
        if effect.effect_id != before.effect_id:
            self._give_id(effect.effect_id)
        harmless = isinstance(event, ToolInterrupted) and before.call.crash in REPEATABLE
        did_not_run = isinstance(event, ToolReconciled) and event.verdict == "did_not_run"
        has_asked = isinstance(before, ResumeTool) or before.effect_id == ANSWERED
        is_same = effect.call == before.call if has_asked else effect == before
        if not is_same or not (harmless or did_not_run):
            self.faults.append(f"the call {before.call.call_id} runs again, though it may have run")

    def _stop(self, effect: ControlEffect, event: Event) -> None:
        stopped = self.in_flight.get(effect.effect_id)
        if isinstance(event, Resumed) and effect.effect_id in self.stopping:
            return  # the process may have died before it was told to
        if stopped is None or effect.effect_id in self.stopping:
            self.faults.append(f"the effect {effect.effect_id} is told to stop, and is not in flight")
            return
        if isinstance(effect, CancelSubAgent) != isinstance(stopped, SpawnSubAgent):
            self.faults.append(f"the effect {effect.effect_id} is stopped as something that it is not")
        if stopped.ACKNOWLEDGES is not None and not isinstance(event, DeadlineReached):
            self.stopping.add(effect.effect_id)
        else:
            del self.in_flight[effect.effect_id]


def _is_same(again: Effect, before: Effect) -> bool:
    """Whether this is the same effect, apart from the moment that a model request tells, and from one that is waited
    for and comes earlier, since a clock that ran ahead has set it."""
    same_time = {"at": getattr(before, "at", None)} if hasattr(before, "at") else {}
    due, was_due = getattr(again, "due", None), getattr(before, "due", None)
    if due is not None and was_due is not None and due < was_due:
        same_time["due"] = was_due
    return again.model_copy(update=same_time) == before


class MessageLedger:
    """The messages of people and other agents that were taken.

    A message entered the transcript, was withdrawn, or waits.
    """

    def __init__(self) -> None:
        self.taken: dict[int, UserMessage | AgentMessage | WakeUp] = {}
        """By the step that took them."""
        self.entered: Counter[int] = Counter()
        """How often each entered the transcript, by that step."""
        self.entering_now: list[int] = []
        """The messages that enter the transcript with the newest step."""
        self.again: Counter[int] = Counter()
        """How often each was to be answered again, in another branch, by the step that took it."""
        self.withdrawn: Counter[str] = Counter()
        """How often each was withdrawn, by its id."""

    def add(self, event: Event, step: Step) -> None:
        """Add a step."""
        is_taken = not isinstance(event, WakeUp) or not self._has_wake_up()
        if isinstance(event, UserMessage | AgentMessage | WakeUp) and is_taken:
            self.taken[step.state.book.seq] = event
        self.withdrawn.update(step.withdrawn)
        self.again.update(one.seq for one in answered_again(step))
        said = [effect.said for effect in step.effects if isinstance(effect, PersistMessage)]
        self.entering_now = [one.seq for one in said if isinstance(one, Heard) and one.seq in self.taken]
        self.entered.update(self.entering_now)

    def _has_wake_up(self) -> bool:
        """Whether a wake-up waits, which stands for those that come after it."""
        return any(
            isinstance(message, WakeUp) and not self.entered[seq] and not self.withdrawn[message.event_id]
            for seq, message in self.taken.items()
        )


def answered_again(step: Step) -> tuple[Waiting, ...]:
    """The messages of hidden turns that are answered again since this step. `Pure.`"""
    return tuple(one for effect in step.effects if isinstance(effect, SwitchBranch) for one in effect.to.again)


class BranchLedger:
    """The turns of the branch under way, and of the branches that end with each turn, oldest first; and what was said
    in each turn, apart from the messages of agents, which may go along to another branch."""

    def __init__(self) -> None:
        self.path: tuple[int, ...] = ()
        self.paths: dict[int, tuple[int, ...]] = {0: ()}
        self.said: defaultdict[int, list[Message]] = defaultdict(list)

    def add(self, step: Step, brought: Sequence[Message]) -> None:
        """Add a step, with the messages that it brought."""
        for effect in step.effects:
            if isinstance(effect, SwitchBranch):
                path = self.paths[effect.to.turn]
                self.path = path[:-1] if effect.to.before else path
        if (turn := step.state.book.turn) not in self.paths:
            self.path = self.paths[turn] = (*self.path, turn)
        for message in brought:
            if message.audience is None:
                self.said[message.turn].append(message)


class SpeechLedger:
    """What each turn said, delivered and was to relay, by its number."""

    def __init__(self) -> None:
        self.turns: defaultdict[int, TurnSpeech] = defaultdict(TurnSpeech)
        self.said_now: list[Spoken] = []
        """The speeches that the newest step accepted, in the order of its result."""
        self._places: dict[str, tuple[int, int]] = {}
        """Of each call of the newest round, the step of its response and its place in it."""
        self.owed: dict[Heard, datetime] = {}
        """The messages for the user that are still to be passed on, each with the moment at which a turn took it up."""
        self.given_up: list[Heard] = []
        """Those that are no longer to be passed on since the newest step, although they were not."""
        self._turn = 0

    def add(self, event: Event, step: Step, effects: EffectLedger, messages: MessageLedger, context: Context) -> None:
        """Add a step, after it was added to `effects` and `messages`; `context` is the context after it."""
        seq = step.state.book.seq
        if isinstance(event, LlmResponse):
            self._places = {call.call_id: (seq, place) for place, call in enumerate(event.tool_calls)}
        self.said_now = list(self._accepted(event, step, effects))
        turn = self.turns[self._turn]
        if isinstance(event, LlmResponse):
            turn.speaks = event.speaks
        turn.spoken = sorted((*turn.spoken, *self.said_now))
        for effect in step.effects:
            if isinstance(effect, DeliverToUser):
                self.turns[effect.turn].delivered.append(effect)
        self.given_up = []
        if step.ended is not None:
            self._end(step.ended, step.state, context)
        if step.state.book.turn > self._turn:
            self._begin(event.at, step, messages, context)
        if isinstance(step.state, Closed):
            self._give_up(list(self.owed))

    def _accepted(self, event: Event, step: Step, effects: EffectLedger) -> Iterator[Spoken]:
        """The speeches of a result that the machine accepted unchanged."""
        result = event.result if isinstance(event, ToolComplete | ToolReconciled) else None
        call_id = getattr(getattr(effects.answered, "call", None), "call_id", "")
        message = Heard(seq=step.state.book.seq)
        settled = [one for effect in step.effects if isinstance(effect, PersistToolResults) for one in effect.results]
        if result is not None and any(
            one.call_id == call_id and one.said == message and not one.error for one in settled
        ):
            for index, speech in _speeches(result):
                yield Spoken((*self._places[call_id], index), message.seq, index, speech.when == "now")

    def _end(self, ended: TurnEnded, state: State, context: Context) -> None:
        """A turn that completed has passed on what it was to, and so has one that stayed incomplete and delivered words
        of its agent. Otherwise only that is done which was delivered unchanged."""
        delivered = self.turns[ended.turn].delivered
        speaks = any(isinstance(one.said, Heard) and not one.relayed for one in delivered)
        is_done = ended.status == "completed" or (ended.status == "incomplete" and speaks)
        passed_on = [one.said for one in delivered if one.relayed]
        self.owed = {said: since for said, since in self.owed.items() if not (is_done or said in passed_on)}

    def _begin(self, at: datetime, step: Step, messages: MessageLedger, context: Context) -> None:
        """A turn is to relay what is owed and has not lapsed, and the messages for the user that begin it."""
        deadline = context.policy.relay_deadline
        self.owed = {said: min(since, at) for said, since in self.owed.items()}
        if deadline is not None:
            self._give_up([said for said, since in self.owed.items() if (at - since).total_seconds() > deadline])
        self._turn = step.state.book.turn
        if context.role == "foreground":
            known = {one.seq for one in answered_again(step)}
            entering = [seq for seq in messages.entering_now if seq not in known]
            mine = [Heard(seq=seq) for seq in entering if _is_for_user(messages.taken[seq])]
            self.owed |= dict.fromkeys(mine, at)
        self.turns[self._turn].relay = list(self.owed)

    def _give_up(self, owed: list[Heard]) -> None:
        self.given_up += owed
        self.owed = {said: since for said, since in self.owed.items() if said not in owed}


def _speeches(result: ToolResult) -> Iterator[tuple[int, Speech]]:
    """The speeches of a result, each with the index of its text."""
    index = 1
    for act in result.acts:
        if isinstance(act, Speech):
            yield index, act
        index += len(act.texts)


def _is_for_user(message: object) -> bool:
    return isinstance(message, AgentMessage) and message.audience == "user" and not message.silent


@dataclass(frozen=True, order=True)
class Spoken:
    """A speech that was accepted: where its call was made, where its text stands, and whether it is for now."""

    place: tuple[int, int, int]
    seq: int
    index: int
    now: bool

    @property
    def said(self) -> Heard:
        """Where its text stands."""
        return Heard(seq=self.seq, index=self.index)


@dataclass
class TurnSpeech:
    """The speeches of one turn in the order of their calls, its deliveries, and what it is to relay."""

    spoken: list[Spoken] = field(default_factory=list)
    delivered: list[DeliverToUser] = field(default_factory=list)
    relay: list[Heard] = field(default_factory=list)
    speaks: bool = False
    """Whether the newest request offered a tool that speaks."""


HUMAN = (UserQuestionResponse, ToolApproval, DoubtResolved, UserCancel)
"""What a person does within a turn. A cancel counts where the turn goes on: where it declines a question."""


class SpendingLedger:
    """What the turn has used up, and what each turn has cost. `sends_again` says that a model request of the newest
    step was sent before.

    Its limits count what a turn has used up since a person last acted, its cost is all that it has used up. The limits
    of a sub-agent are its share of its parent's, so they count from its beginning.
    """

    def __init__(self) -> None:
        self.spent: Spent = Spent(since=datetime.min.replace(tzinfo=UTC))
        self.at_end: Spent = self.spent
        """What the turn had used up that ended last."""
        self.costs: dict[int, Usage] = {}
        self.turn: int | None = None
        """The number of the turn under way."""
        self.sends_again: bool = False
        self._turns = 0
        self._user_messages: set[int] = set()
        """The steps that took messages of people."""
        self._counted: set[int] = set()
        """The tools that were started; one that runs again after a crash counts once."""
        self._waits: set[int] = set()
        """The timers that limit a wait for a person."""
        self._waits_since: datetime | None = None
        """Since when a person has been waited for, who must act before the turn goes on."""
        self.children: int = 0
        """How many sub-agents the turn has started."""
        self._shares: dict[int, Usage] = {}
        """What each sub-agent may use up."""
        self._asking: set[int] = set()
        """The sub-agents whose questions wait for a person."""
        self._asked_since = datetime.min.replace(tzinfo=UTC)
        """Since when there has been one."""

    def add(self, event: Event, step: Step, effects: EffectLedger, context: Context) -> None:
        """Add a step, after it was added to `effects`."""
        if isinstance(event, UserMessage):
            self._user_messages.add(step.state.book.seq)
        if step.effects or not isinstance(event, BRANCHING):  # one that stops nothing tells what was paid already
            self._pay(event)
        self._pay_for_lost(event, step)
        self._note_questions(event, step, effects)
        if context.has_one_task:
            self._leave_out_wait(event)
        else:
            self._hear(event)
        if isinstance(event, DeadlineReached) and event.effect_id in self._waits:
            self._leave_out(effects.began[event.effect_id], event.at)
        self._begin(event, step)
        if isinstance(event, Resumed):
            self.spent.since = min(self.spent.since, event.at)
        failed = isinstance(event, LlmFailed | EffectFailed) and isinstance(effects.answered, RequestLlm)
        self.sends_again = step.ended is None and (failed or isinstance(event, RetryDue | Resumed))
        for effect in step.effects:
            self._start(effect, event, step, effects, context)
        self._note_wait(event, effects)

    def _pay(self, event: Event) -> None:
        usage = getattr(event, "usage", None)
        if usage is not None and self.turn is not None:
            self.costs[self.turn] = self.costs.get(self.turn, Usage()) + usage
            self.spent.usage += usage

    def _pay_for_lost(self, event: Event, step: Step) -> None:
        """Sub-agents that are given up at their deadline count with their shares."""
        if isinstance(event, DeadlineReached):
            stopped = [effect.effect_id for effect in step.effects if isinstance(effect, CancelSubAgent)]
            self.spent.usage = sum((self._shares[effect_id] for effect_id in stopped), self.spent.usage)

    def _hear(self, event: Event) -> None:
        if isinstance(event, HUMAN):
            self.spent = Spent(since=event.at)
            self._asked_since = event.at

    def _leave_out(self, since: datetime, until: datetime) -> None:
        """A wait for a person does not count."""
        self.spent.since = _later(self.spent.since, until - since)

    def _leave_out_wait(self, event: Event) -> None:
        waited = isinstance(event, UserQuestionResponse | ToolApproval | UserCancel)
        if waited and self._waits_since is not None:
            self._leave_out(self._waits_since, event.at)

    def _note_wait(self, event: Event, effects: EffectLedger) -> None:
        """While only a person can go on, nothing is in flight but the timer that limits the wait."""
        if self.turn is None or not effects.in_flight.keys() <= self._waits:
            self._waits_since = None
        elif self._waits_since is None or isinstance(event, (*HUMAN, DeadlineReached)):
            self._waits_since = event.at

    def _note_questions(self, event: Event, step: Step, effects: EffectLedger) -> None:
        """Sub-agents that ask, are answered, no longer ask or have ended. A wait for the answers does not count."""
        before = set(self._asking)
        if isinstance(event, SubAgentAsked):
            self._asking.discard(event.effect_id)
            if event.questions is not None:
                self._asking.add(event.effect_id)
        elif isinstance(effects.answered, SpawnSubAgent) and isinstance(event, Answer):
            self._asking.discard(event.effect_id)
        answered = {effect.child for effect in step.effects if isinstance(effect, AnswerSubAgent)}
        self._asking -= answered
        if not any(isinstance(effect, SpawnSubAgent) for effect in effects.in_flight.values()):
            self._asking.clear()
        if self._asking and not before:
            self._asked_since = event.at
        elif before and not self._asking:
            self._leave_out(self._asked_since, event.at)

    def _begin(self, event: Event, step: Step) -> None:
        """A turn may have ended, and in the same step the next one may have begun."""
        if step.ended is not None:
            self.turn, self.at_end = None, self.spent
        if step.state.book.turn > self._turns:
            self._turns = self.turn = step.state.book.turn
            self.spent, self.children = Spent(since=event.at), 0

    def _start(self, effect: Effect, event: Event, step: Step, effects: EffectLedger, context: Context) -> None:
        match effect:
            case PersistMessage(said=Heard(seq=seq)) if seq in self._user_messages and not context.has_one_task:
                self.spent = Spent(since=event.at)
            case SpawnSubAgent(effect_id=effect_id, limits=limits) if effect_id not in self._shares:
                self.children += 1
                self._shares[effect_id] = Usage(input_tokens=limits.tokens or 0, cost=limits.cost)
            case RequestLlm():
                self.spent.requests += not self.sends_again
                if not self.sends_again:
                    self.spent.since = min(self.spent.since, event.at)
            case ExecuteTool(first_id=first_id) if first_id not in self._counted:
                self._counted.add(first_id)
                self.spent.tool_calls += 1
            case StartTimer(effect_id=effect_id, wakes="deadline_reached"):
                spawns = any(isinstance(other, SpawnSubAgent) for other in step.effects)
                if not (spawns or effects.stopping or isinstance(event, Resumed)):
                    self._waits.add(effect_id)
            case _:
                pass


def _later(at: datetime, by: timedelta) -> datetime:
    try:
        return at + max(by, timedelta(0))
    except OverflowError:
        return datetime.max.replace(tzinfo=at.tzinfo)


@dataclass
class Spent:
    """What a turn has used up since a person last acted."""

    since: datetime
    requests: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)


class SubAgentLedger:
    """The sub-agents of a conversation, by the effects that started them.

    It knows their outcomes and questions, and the results that the outcomes became part of.
    """

    def __init__(self) -> None:
        self.children: dict[int, ChildOf] = {}
        self.reported: Counter[Heard] = Counter()
        """How often each outcome became part of a result."""
        self.results: dict[str, SettledCall] = {}
        """The results of the calls that started sub-agents."""
        self.asked: dict[int, Asked] = {}
        """The newest question of each sub-agent that asks, in the order in which they began to."""
        self.faults: list[str] = []
        """What was answered although nothing was asked."""

    def add(self, event: Event, step: Step, effects: EffectLedger) -> None:
        """Add a step, after it was added to `effects`."""
        if isinstance(effects.answered, SpawnSubAgent):
            self._end(event, step)
        elif isinstance(event, SubAgentAsked):
            self._ask(event)
        for effect in step.effects:
            if isinstance(effect, SpawnSubAgent) and effect.effect_id not in self.children:
                self.children[effect.effect_id] = ChildOf(self._spawning(event, step, effects))
            elif isinstance(effect, AnswerSubAgent):
                self._answer(effect)
            elif isinstance(effect, PersistToolResults):
                self._settle(effect)

    def of(self, call_id: str) -> dict[int, ChildOf]:
        """The sub-agents that a call started, in the order of their tasks. `Pure.`"""
        return {effect_id: child for effect_id, child in self.children.items() if child.call_id == call_id}

    def _end(self, event: Event, step: Step) -> None:
        assert isinstance(event, Answer)
        child = self.children[event.effect_id]
        child.status = event.status if isinstance(event, SubAgentFinished) else "failed"
        child.outcome, child.text = Heard(seq=step.state.book.seq), event.texts[0]
        self.asked.pop(event.effect_id, None)

    def _ask(self, report: SubAgentAsked) -> None:
        self.asked.pop(report.effect_id, None)
        if report.questions is not None:
            self.asked[report.effect_id] = Asked(report.call_id, settled=False)

    def _answer(self, effect: AnswerSubAgent) -> None:
        asked = self.asked.get(effect.child)
        if asked is None or asked.settled or asked.call_id != effect.call_id:
            self.faults.append(f"the sub-agent {effect.child} gets an answer, and has asked nothing")
        else:
            asked.settled = True

    def _spawning(self, event: Event, step: Step, effects: EffectLedger) -> str:
        assert isinstance(event, ToolComplete), "only a tool's result starts sub-agents"
        return str(getattr(getattr(effects.answered, "call", None), "call_id", ""))

    def _settle(self, effect: PersistToolResults) -> None:
        parents = {child.call_id for child in self.children.values()}
        for result in effect.results:
            if result.call_id in parents:
                self.results[result.call_id] = result
                self.asked.clear()
            if isinstance(result.said, Joined | Outcomes):
                self.reported.update(part for part in result.said.parts if isinstance(part, Heard))


@dataclass
class ChildOf:
    """A sub-agent: the call that started it, and, once it has ended, how, where its outcome stands, and the outcome."""

    call_id: str
    status: str = "cancelled"
    outcome: Heard | None = None
    text: str = ""


@dataclass
class Asked:
    """A question of a sub-agent: the call that asks, and whether it has its answer."""

    call_id: str
    settled: bool


class OutputLedger:
    """The attempts of models to give typed answers that were not valid, by turn, since a message last said which form
    the answer must have."""

    def __init__(self) -> None:
        self.failures: Counter[int] = Counter()
        self.wanted_now: bool = False
        """Whether the newest event is the response to a request for a typed answer."""
        self.fails_now: bool = False
        self.turn: int = 0
        """The turn of that response."""
        self._wanted: tuple[int, int | None] = (0, None)

    def add(self, event: Event, step: Step, effects: EffectLedger) -> None:
        """Add a step."""
        asked, self.wanted_now, self.fails_now = effects.answered, False, False
        if step.ended is not None and step.ended.status == "cancelled":
            return  # whatever a model answers that was told to stop, it is no attempt
        if isinstance(asked, RequestLlm) and isinstance(event, LlmResponse) and asked.output is not None:
            turn = self.turn = step.state.book.turn if step.ended is None else step.ended.turn
            if (turn, asked.output.seq) != self._wanted:
                self._wanted = turn, asked.output.seq
                self.failures[turn] = 0
            self.wanted_now = True
            self.fails_now = _tries_in_vain(event)
            self.failures[turn] += self.fails_now


def _tries_in_vain(event: LlmResponse) -> bool:
    if event.output is None:
        return not event.tool_calls
    return bool(event.output.errors) and (not event.tool_calls or bool(event.output.calls))


class RefusalLedger:
    """The turns in which what people said was refused, each with the step of the newest answer before: what was said
    since then is what was refused."""

    def __init__(self) -> None:
        self.refused: dict[int, int] = {}
        self._answered = 0

    def add(self, event: Event, step: Step) -> None:
        """Add a step."""
        if isinstance(event, LlmResponse):
            self._answered = step.state.book.seq
        for effect in step.effects:
            if isinstance(effect, WithholdContent) and effect.suspect == "words" and step.ended is not None:
                self.refused[step.ended.turn] = self._answered
