"""What stands around the engines of a simulation: performers, channels and models, which work in good ways and in bad.

The performers carry out what a conversation asks for, also in the place of models. They take their time, answer at the
same moment as others, fail, return what is no answer, and do not always stop when they are told to. The channels fail,
hang, and report a failure for what has arrived. What they are given is generated: plain values, texts in several
scripts, and waits that end in virtual time.

An effect must be stored before it begins, by the very process that begins it, and no process begins it twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, get_args

from turnwise.states.effects import (
    EFFECTS,
    TOOL_RUNS,
    AwaitedEffect,
    CompactHistory,
    DeliverToUser,
    Effect,
    ExecuteTool,
    OutgoingEffect,
    RequestLlm,
    ResumeTool,
    StartTimer,
)
from turnwise.states.events import (
    Answer,
    AskUserQuestionPending,
    LlmResponse,
    ToolAborted,
    ToolComplete,
    ToolReconciled,
)
from turnwise.states.policy import Empty, Limits, ModelSpec, Policy, Repeats, Retry, SpeechRules
from turnwise.states.values.acts import ActKind
from turnwise.states.values.messages import CrashContract, Message, ToolCall
from turnwise.states.values.questions import QuestionOption, UserQuestion
from turnwise.testing.generation.chance import Chance
from turnwise.testing.generation.events import answer, weight_of
from turnwise.testing.generation.states import any_answer_to
from turnwise.testing.generation.vocabulary import (
    PLAIN,
    PLAIN_CHANGES,
    TOOLS,
    Change,
    Response,
    Vocabulary,
    a_policy,
    always,
    one_of,
    some_of,
)

from .disk import Delivered, Disk, LogKey, Process
from .environment import EventTrace, RandomSource, VirtualClock

if TYPE_CHECKING:
    from turnwise.effects.channels.port import Delivery
    from turnwise.effects.context import EffectContext
    from turnwise.effects.dispatcher import Performer
    from turnwise.effects.model.port import ModelAnswer, ModelRequest, Token
    from turnwise.engine.engine import Engine

    from .shared_store import Cluster

_OPTIONS = (QuestionOption(label="6:30 PM"), QuestionOption(label="8:15 PM"))

_WHEN = UserQuestion(question="When?", header="Time", options=_OPTIONS)

_WHAT = UserQuestion(question="What {x}, 何?", options=_OPTIONS, multi_select=True)

_DELETIONS = tuple(
    ToolCall(call_id="delete", name=f"delete_{crash}", exclusive=True, acts=("question",), crash=crash)
    for crash in get_args(CrashContract)
)
"""Calls of tools that ask before they act, with each crash contract."""


def some_files(chance: Chance) -> tuple[bytes, ...]:
    """Seldom the bytes of files, of which there are a few different ones."""
    return tuple(f"note {chance.below(3)}".encode() for _ in range(chance.pick((0, 0, 0, 0, 0, 1, 2))))


def _text(chance: Chance, plain: str) -> str:
    return chance.pick((plain, plain, "日本語 مرحبا 👩‍👩‍👧", 'He said "yes",\n{0} %s \\', " "))


T = TypeVar("T")


def _named(chance: Chance, names: Sequence[T], /) -> T | None:
    return chance.pick((None, None, *names))


def _acts(chance: Chance, declared: Sequence[ActKind]) -> Sequence[ActKind]:
    return [kind for kind in declared if chance.probably(0.9)]


_CHANGES: tuple[Change, ...] = (
    *PLAIN_CHANGES,
    some_of({"approval_deadline": 60.0}, {"approval_deadline": 2.0}),
    some_of({"sub_agent_deadline": 60.0}, {"sub_agent_deadline": 2.0}, {"sub_agent_deadline": None}),
    some_of({"cancel_deadline": 0.0}, {"cancel_deadline": 1.0}),
    some_of({"retry": Retry(base=0.0)}, {"retry": Retry(base=4.0, cap=60.0)}),
    some_of({"limits": Limits(cost=0.01)}, {"limits": Limits(seconds=3.0)}, {"limits": Limits(requests=1)}),
    some_of({"speech": SpeechRules(never_fail=True)}),
    some_of({"repeats": Repeats(window=3)}),
    some_of({"empty": Empty(in_a_row=2)}),
    some_of({}, {"relay": "prompt_only"}),
)


def simulated_policy(chance: Chance) -> Policy:
    """The policy of a simulated conversation, which leaves the models to the engine."""
    return a_policy(chance, _CHANGES, (0.0, 0.1, 0.35)).replace(models=Policy().models)


SIMULATED = replace(
    PLAIN,
    odd=lambda chance: chance.rarely(100),
    text=_text,
    named=_named,
    response=one_of(
        *[Response("Well.")] * 4,
        Response('He said "yes",\n{0} %s \\'),
        Response(" "),
        *[Response(calls=1.0)] * 14,
        Response("日本語 مرحبا 👩‍👩‍👧", calls=1.0),
        Response(thinking="Let me see."),
        Response("Well.", thinking="Let me see.", opaque=({"signature": "x", "parts": [1, None]},)),
        Response(),
        Response("Well.", finish_reason="length", calls=0.5),
    ),
    call_count=one_of(1, 1, 1, 2, 3, 4),
    tool=one_of(*TOOLS, *_DELETIONS),
    retry_after=one_of(None, None, None, 0.0, 3.0, 1_000.0),
    acts=_acts,
    questions=one_of((_WHEN,), (_WHAT,), (_WHEN, _WHAT)),
    policy=simulated_policy,
    when_busy=one_of(None, None, "refuse", "queue", "steer"),
    answer=any_answer_to,
)
"""What performers answer and users want."""

OpenEngine: TypeAlias = "Callable[..., Engine]"
"""Opens an engine: `Engine.open`, or a function that changes what is given to it."""

_BROKEN: tuple[tuple[type[Answer], dict[str, object]], ...] = (
    (LlmResponse, {"content": "\ud83d"}),
    (ToolComplete, {"result": "done"}),
    (AskUserQuestionPending, {"at": "now", "questions": ()}),
)
"""Answers that no log can hold: a type, and what is wrong with it."""


class World:
    """Carries out the effects of all processes. Once it is `calm` everything ends soon and well.

    Until then its answers are made of the vocabulary `SIMULATED`, or of another one that is given.
    """

    def __init__(
        self,
        chance: RandomSource,
        clock: VirtualClock,
        performed: PerformedEffects,
        vocabulary: Vocabulary = SIMULATED,
    ) -> None:
        self.chance = chance
        self.clock = clock
        self.performed = performed
        self.calm = False
        self._vocabulary = vocabulary

    def open_engine(
        self, process: Process, open_engine: OpenEngine, models: Sequence[ModelSpec], **options: Any
    ) -> Engine:
        """Open an engine in this process whose effects are carried out here. Deliveries are the engine's own affair if
        it has channels."""
        performers = dict(self.performers(process))
        if options.get("channels"):
            del performers[DeliverToUser]
        first, *others = map(UnusedLlm, models)
        return open_engine(model=first, fallback_models=others, performers=performers, **options)

    def performers(self, process: Process) -> Mapping[type[Effect], Performer]:
        """The performers of this process, one for each type of effect."""
        performers: dict[type[Effect], Performer] = {}
        for kind in EFFECTS:
            if issubclass(kind, AwaitedEffect):
                performers[kind] = partial(self._perform, process)
            elif issubclass(kind, OutgoingEffect):
                performers[kind] = self.send
        return performers

    # --- carrying out

    async def _perform(self, process: Process, effect: AwaitedEffect, context: EffectContext) -> Any:
        return await self.performed.record(process, effect, context, self.carry_out(effect, context))

    async def carry_out(self, effect: AwaitedEffect, context: EffectContext) -> Any:
        """Carry out an effect, well or badly. Returns its answer, or what is none."""
        if isinstance(effect, StartTimer):
            return await self._wake(effect, context)
        if isinstance(effect, ResumeTool) and (ended := await self._resume(effect, context)) is not None:
            return ended
        if isinstance(effect, RequestLlm | CompactHistory):
            await self.performed.note_shown(context)
        given = await self._work(effect, context)
        if isinstance(effect, TOOL_RUNS) and isinstance(given, AskUserQuestionPending) and given.suspends:
            context.suspended.hold(effect.first_id, WaitingCall(self.chance.seconds()))
        return given

    async def _resume(self, effect: ResumeTool, context: EffectContext) -> Answer | None:
        """Let a call go on that waits in this process. Returns an answer if it is to stop, or if it does not wait here:
        then its crash contract decides."""
        call, effect_id, at = context.suspended.release(effect.started_as), effect.effect_id, self.clock.now()
        if isinstance(call, WaitingCall):
            await call.go_on()
            return ToolAborted(effect_id=effect_id, at=at) if effect.reply == "cancelled" else None
        if effect.call.crash in ("at_most_once", "reconcile"):
            return ToolReconciled(effect_id=effect_id, at=at, verdict="unknown")
        if effect.reply == "cancelled":
            return ToolAborted(effect_id=effect_id, at=at)
        return ToolReconciled(effect_id=effect_id, at=at, verdict="did_not_run")

    async def _wake(self, effect: Any, context: EffectContext) -> Any:
        """A timer, which on a busy machine may wake late."""
        from turnwise.effects.clock import TimerPerformer

        due = await TimerPerformer(self.clock)(effect, context)
        if self.chance.probably(0.2):
            await self.take_time()
        return due

    async def _work(self, effect: AwaitedEffect, context: EffectContext) -> Any:
        """Work for a while, or for long, and give any answer that the effect can have, or none that counts."""
        if isinstance(effect, ExecuteTool) and not self.calm and self.chance.probably(0.2):
            await self.take_long()
        else:
            await self.take_time()
        if self.calm:
            return await self._with_stored_files(self._answer(effect, effect.answers[0]), context)
        await self._show_progress(effect, context)
        if self.chance.probably(0.04):
            return self._misbehave(effect)
        call = effect.call if isinstance(effect, TOOL_RUNS) else None
        kinds = [kind for kind in effect.answers if kind is not effect.ACKNOWLEDGES]
        given = self._answer(effect, self.chance.weighted({kind: weight_of(kind, call) for kind in kinds}))
        return await self._with_stored_files(given, context)

    async def _with_stored_files(self, given: Any, context: EffectContext) -> Any:
        """The answer, with files that are stored in place of those that were generated."""
        if not isinstance(given, ToolComplete):
            return given
        files = () if self.calm else some_files(self.chance)
        if not files and not given.result.files:
            return given
        return given.replace(result=given.result.replace(files=await context.files.keep(files)))

    async def _show_progress(self, effect: AwaitedEffect, context: EffectContext) -> None:
        if isinstance(effect, RequestLlm):
            for number in range(self.chance.pick((0, 0, 1, 5))):
                for kind in ("text", "speech"):
                    context.progress(effect.effect_id, "token", {"text": f"{number} ", "kind": kind})
                await self.take_time()
        elif isinstance(effect, ExecuteTool):
            told = {"call_id": effect.call.call_id, "text": "nearly there"}
            context.progress(effect.effect_id, "tool_progress", told)

    async def send(self, effect: Any, context: EffectContext) -> None:
        """Send what nobody awaits, or fail on it."""
        await self.take_time()
        if not self.calm and self.chance.probably(0.1):
            raise RuntimeError("the connection is lost")

    # --- good ways and bad ones

    async def take_time(self) -> None:
        """Take a while, or no time at all."""
        if not self.calm:
            await asyncio.sleep(self.chance.seconds())

    async def take_long(self) -> None:
        """Work longer than people wait, and sometimes do not stop when told to."""
        stubborn = self.chance.probably(0.3)
        end = asyncio.get_running_loop().time() + self.chance.pick((3.0, 10.0, 90.0))
        while (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    def _answer(self, effect: AwaitedEffect, kind: type[Answer]) -> Answer:
        call = effect.call if isinstance(effect, TOOL_RUNS) else None
        vocabulary = CALM if self.calm else self._vocabulary
        return answer(self.chance, vocabulary, kind, effect.effect_id, self.clock.now(), call)

    def _misbehave(self, effect: AwaitedEffect) -> Any:
        """Fail, or return what is no answer to this effect."""
        match self.chance.below(5):
            case 0:
                raise RuntimeError("something went wrong")
            case 1:
                raise self.chance.pick((SystemExit, _Interrupted))
            case 2:
                raise asyncio.CancelledError
            case 3:
                return self.chance.pick((None, "an answer", {"type": "tool_complete", "effect_id": effect.effect_id}))
            case _:
                kind, broken = self.chance.pick(_BROKEN)
                return self._answer(effect, kind).model_copy(update=broken)


CALM = replace(SIMULATED, response=always(Response("That is all.")), acts=lambda chance, declared: ())
"""What performers answer once everything is to come to its end."""


class _Interrupted(KeyboardInterrupt):
    """What a library raises for an interruption of its own. Ctrl-C itself would end the simulation."""


class OpensEngines(Protocol):
    """Opens the engines of a simulation, with models and with what carries out effects."""

    def open_engine(
        self, process: Process, open_engine: OpenEngine, models: Sequence[ModelSpec], **options: Any
    ) -> Engine:
        """Open an engine in this process, by this function, with these models and options."""
        ...


class WaitingCall:
    """A call that waits. It takes so many seconds to stop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._task = asyncio.ensure_future(asyncio.Event().wait())

    async def stop(self) -> None:
        """End the wait."""
        await asyncio.sleep(self._seconds)
        await self.go_on()

    async def go_on(self) -> None:
        """End the wait at once."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


Key: TypeAlias = tuple[str, LogKey, int]
"""An effect that a process carries out: the name of the process, the conversation, and the id of the effect."""


class PerformedEffects:
    """The effects that were begun by all processes, and those that are being carried out."""

    def __init__(self, disk: Disk, trace: EventTrace, cluster: Cluster | None = None, lease: float = 0.0) -> None:
        """With a `cluster` an effect may be begun by a process that has the custody of its conversation, once under
        each custody; also within half a `lease` after it has lost it."""
        self.trace = trace
        self.given: list[tuple[str, int, Answer]] = []
        """The answers that performers gave, with the process and the fence under which they began."""
        self.shown: list[tuple[LogKey, int, tuple[Message, ...]]] = []
        """What models were shown, with the step as of which they were."""
        self._cluster = cluster
        self._lease = lease
        self.begun: set[Key] = set()
        self.times_begun: Counter[tuple[LogKey, int]] = Counter()
        """How often each effect was begun, by its conversation and id."""
        self.busy: dict[Key, Effect] = {}
        """The effects that are being carried out."""
        self._disk = disk

    async def note_shown(self, context: EffectContext) -> None:
        """Note what a model is shown of a conversation, as of the step that asks it."""
        messages = tuple((await context.transcript()).messages)
        self.shown.append((self._disk.key_of(context.conversation_id), context.seq, messages))

    async def record(
        self, process: Process, effect: AwaitedEffect, context: EffectContext, carrying_out: Awaitable[Any]
    ) -> Any:
        """Carry out an effect in this process, and record when it begins and how it ends."""
        key = self._begin(process, effect, context)
        where = self._disk.name(context.conversation_id)
        fence = self._fence_of(context.conversation_id)
        try:
            given = await carrying_out
            if isinstance(given, Answer):
                self.given.append((process.name, fence, given))
            told = given.type if isinstance(given, Answer) else repr(given)
            self.trace.record("world", f"{where}answers {effect.type}:{effect.effect_id} with {told}")
            return given
        except BaseException as error:
            self.trace.record("world", f"{where}leaves {effect.type}:{effect.effect_id} by {type(error).__name__}")
            raise
        finally:
            self.busy.pop(key, None)

    def _fence_of(self, conversation_id: str) -> int:
        return 0 if self._cluster is None else self._cluster.fences.get(self._disk.key_of(conversation_id), 0)

    def _begin(self, process: Process, effect: AwaitedEffect, context: EffectContext) -> Key:
        fence = self._fence_of(context.conversation_id)
        name = f"{process.name}#{fence}" if fence else process.name
        key = (name, self._disk.key_of(context.conversation_id), effect.effect_id)
        if not process.is_dead:
            name = f"{process.name} {self._disk.name(context.conversation_id)}"
            self.trace.record("world", f"{name}begins {effect.type}:{effect.effect_id}")
            self._check(process, key, effect)
            self.begun.add(key)
            self.times_begun[key[1:]] += 1
        self.busy[key] = effect
        return key

    def _check(self, process: Process, key: Key, effect: AwaitedEffect) -> None:
        rows = self._disk.steps_of(key[1][0])
        if key in self.begun:
            self.trace.report_fault(f"{effect.type}:{effect.effect_id} is begun twice by {process.name}")
        if self._cluster is not None:
            if not isinstance(effect, StartTimer) and not self._cluster.may_perform(
                process.name, key[1], self._lease / 2
            ):
                self.trace.report_fault(f"{effect.type}:{effect.effect_id} is begun by {process.name} without custody")
        elif not any(row.writer == process.name and effect in row.effects for row in reversed(rows)):
            self.trace.report_fault(f"{effect.type}:{effect.effect_id} is begun, and {process.name} has not stored it")
        if isinstance(effect, RequestLlm):
            awaited = rows[-1].state.awaited()
            others = [other for (name, where, _), other in self.busy.items() if (name, where) == key[:2]]
            is_wanted = self._cluster is None or effect.effect_id in awaited  # it may have been answered meanwhile
            if is_wanted and any(isinstance(other, RequestLlm) and other.effect_id in awaited for other in others):
                self.trace.report_fault(f"two model requests are in flight, one of them {effect.effect_id}")


class SimulatedChannel:
    """A channel, the same for all processes of a simulation. Once it is `calm` it works.

    `settled` returns what was taken out of the outbox for good: none of it may be delivered again, unless its process
    `may_be_late` with it.
    """

    def __init__(
        self,
        name: str,
        chance: RandomSource,
        trace: EventTrace,
        settled: Callable[[], Collection[Delivered]],
        may_be_late: Callable[[Process, Delivered], bool] = lambda process, delivered: process.is_dead,
    ) -> None:
        self.name = name
        self.calm = False
        self.arrived: list[tuple[str, Delivered]] = []
        """What has reached people, in order, with the name of the process that delivered it."""
        self._chance = chance
        self._failing = chance.pick((0.1, 0.3, 0.9))
        self._trace = trace
        self._settled = settled
        self._may_be_late = may_be_late

    def of(self, process: Process) -> ChannelOfProcess:
        """This channel, as a process uses it."""
        return ChannelOfProcess(self, process)

    async def deliver(self, process: Process, delivery: Delivery) -> None:
        """Hand a delivery over, or not, or both."""
        from turnwise.effects.context import effect_of_key

        conversation_id, effect_id = effect_of_key(delivery.key)
        delivered = (conversation_id, self.name, effect_id)
        if delivered in self._settled() and not self._may_be_late(process, delivered):
            self._trace.report_fault(f"{effect_id} is delivered to {self.name} again, and its receipt is stored")
        if not self.calm:
            await self._work()
            if self._chance.probably(self._failing):
                raise ConnectionError("the channel is down")
        if process.is_dead:
            raise ConnectionError("the process is dead")
        self.arrived.append((process.name, delivered))
        self._trace.record(self.name, f"has {effect_id}")
        if not self.calm and self._chance.probably(0.1):
            raise ConnectionError("the connection broke after the last word")

    async def _work(self) -> None:
        """Take a while, or hang, and then perhaps not even stop when told to."""
        if not self._chance.probably(0.05):
            await asyncio.sleep(self._chance.seconds())
            return
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            if self._chance.probably(0.3):
                await asyncio.sleep(3)
            raise


class ChannelOfProcess:
    """A `Channel` in one process."""

    def __init__(self, channel: SimulatedChannel, process: Process) -> None:
        self.name = channel.name
        self._channel = channel
        self._process = process

    async def deliver(self, delivery: Delivery) -> None:
        """Hand a delivery over, or not, or both."""
        await self._channel.deliver(self._process, delivery)


class UnusedLlm:
    """A model that is never asked: the performers of the simulation answer in its place."""

    def __init__(self, spec: ModelSpec) -> None:
        self.name = spec.name
        self.window = spec.window

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Raises AssertionError."""
        raise AssertionError("a model was asked in a simulation")


MODEL_NAMES = ("first", "second")
"""The models of a simulation. A process may ask the first one alone by default."""


def simulated_models(chance: Chance) -> tuple[ModelSpec, ...]:
    """One model, or two; some take in no more than a few messages."""
    window = chance.pick((None, None, 400))
    return tuple(ModelSpec(name=name, window=window) for name in MODEL_NAMES[: chance.number(1, 2)])
