"""The users of a simulated conversation: what they do, in good faith and in bad, and what they are told and shown.

Each has a handle of its own, which may lie behind what happens. A user takes one action after the other, or several at
once, at good moments and at bad ones. Whatever a user does runs beside the rest: a user who sends something may do
something else before the reply is there, or never wait for it at all.

`ACTIONS` says what users do at any time, and how often; `RESPONSES` what they do about a state that waits for a
person.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from turnwise.persistence.errors import StorageFailed
from turnwise.states.branches import Branches
from turnwise.states.errors import (
    CompactionFailed,
    EngineClosed,
    InvalidInput,
    Refused,
    StoreError,
    UnknownConversation,
)
from turnwise.states.events import (
    ANSWERS,
    REQUESTS,
    Answer,
    CloseRequested,
    Event,
    Opened,
    Request,
    Resolution,
    ScheduleChanged,
    UserMessage,
)
from turnwise.states.policy import WhenBusy
from turnwise.states.states import (
    AwaitingApproval,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Busy,
    Failed,
    Idle,
    InDoubt,
    State,
)
from turnwise.states.step import Step
from turnwise.testing.generation.chance import CannotBeGenerated
from turnwise.testing.generation.events import answer as generated_answer
from turnwise.testing.generation.events import call_of, request
from turnwise.testing.generation.states import any_answer_to
from turnwise.testing.generation.vocabulary import Vocabulary

from .disk import Disk, Process
from .environment import PROCESS, EventTrace, RandomSource, VirtualClock
from .runs import EngineHost
from .world import SIMULATED, some_files

if TYPE_CHECKING:
    from turnwise.engine.conversation import Conversation
    from turnwise.engine.updates import Update


ANY_REQUEST: Sequence[type[Request]] = tuple(kind for kind in REQUESTS if kind not in (CloseRequested, Opened))
"""What a user may dispatch, whether it fits the state or not. Conversations go on to the end."""


class SimulatedUser:
    """Somebody who uses one conversation on one host. `begin` and `watch` start what runs beside the rest."""

    def __init__(
        self,
        name: str,
        chance: RandomSource,
        host: EngineHost,
        disk: Disk,
        clock: VirtualClock,
        recorder: CallRecorder,
        conversation_id: str = "",
        vocabulary: Vocabulary = SIMULATED,
        requests: Sequence[type[Request]] = ANY_REQUEST,
    ) -> None:
        self.name = name
        self.conversation_id = conversation_id
        self.vocabulary = vocabulary
        self.requests = requests
        """What this user may dispatch."""
        self.chance = chance
        self.host = host
        self.disk = disk
        self.recorder = recorder
        self.messages: list[str] = []
        """The ids of the messages that were sent."""
        self.watches: list[WatchRecord] = []
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []
        self._handle: Handle | None = None
        self._ids = 0

    @property
    def stored(self) -> State:
        """The state that the conversation rests in, as stored."""
        return self.disk.head(self.conversation_id)

    @property
    def is_done(self) -> bool:
        """Whether everything that this user did, apart from watching, has come to an end."""
        return all(task.done() for task in self._tasks)

    def begin(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do this beside everything else."""
        task = asyncio.ensure_future(doing)
        self._tasks.append(task)
        task.add_done_callback(self._report)
        return task

    def _report(self, task: asyncio.Task[None]) -> None:
        """Nothing that a user does may fail otherwise than by an error that is recorded."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.disk.trace.report_fault(f"{self.name} failed: {error!r}")

    def watch(self, handle: Handle, after: str | None) -> None:
        """Watch beside everything else, from now on or from the update `after` on."""
        record = WatchRecord(self.name, after, handle.process)
        self.watches.append(record)
        watching = record.watch(handle.conversation, self.disk, self.chance)
        self._watching.append(asyncio.ensure_future(self.call(handle, f"watch after {after}", watching)))

    async def call(
        self,
        handle: Handle,
        what: str,
        calling: Coroutine[Any, Any, Any],
        event: Event | None = None,
        request_id: str = "",
    ) -> None:
        """Make a call and record how it ends."""
        await self.recorder.record(Call(self.name, what, handle.process, event, request_id), calling)

    async def dispatch(self, handle: Handle, event: Event) -> None:
        """Hand over an event of one's own making."""
        request_id = event.event_id if isinstance(event, Request) else ""
        await self.call(handle, f"dispatch {event.type}", handle.conversation.dispatch(event), event, request_id)

    async def ask(
        self, handle: Handle, what: str, ask: Callable[[Conversation, str], Coroutine[Any, Any, Any]]
    ) -> None:
        """Ask for something under a new id."""
        asked = Asked(self.new_id(), what, ask)
        self.recorder.asked.append(asked)
        await self.ask_again(handle, asked)

    async def ask_again(self, handle: Handle, asked: Asked) -> None:
        """Ask for the same under the same id, by whatever handle."""
        asking = asked.ask(handle.conversation, asked.request_id)
        await self.call(handle, f"{asked.what} {asked.request_id}", asking, request_id=asked.request_id)

    def new_id(self) -> str:
        """The id of a new request."""
        self._ids += 1
        new_id = f"{self.name}-{self._ids}"
        self.recorder.ids.add(new_id)
        return new_id

    def sent_messages(self) -> list[str]:
        """The ids of the messages that are stored, whoever has sent them."""
        events = [row.event for row in self.disk.steps_of(self.conversation_id)]
        return [event.event_id for event in events if isinstance(event, UserMessage)]

    def new_request(self) -> dict[str, Any]:
        """The id of a new request, and when it is made."""
        return {"event_id": self.new_id(), "at": self._clock.now()}

    async def handle(self) -> Handle:
        """The handle, a new one if its engine was closed; most often after a look at the state.

        Raises `EngineClosed`.
        """
        process = self.host.process
        if self._handle is None or self._handle.process is not process:
            self._handle = Handle(await self.host.handle(self.conversation_id), process)
        if self.chance.probably(0.8):
            _ = self._handle.conversation.state
        return self._handle


@dataclass(frozen=True)
class Handle:
    """A handle on the conversation, and the process in which it works."""

    conversation: Conversation
    process: Process


Outcome = Literal["waits", "returned", "refused", "cancelled", "closed", "broken"]
"""How a call ended: `cancelled` by its caller; `closed` because its engine was, or because its process had died."""


@dataclass
class CallRecorder:
    """All calls of all users, in order."""

    trace: EventTrace
    calls: list[Call] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    """The ids of requests that users chose themselves."""
    asked: list[Asked] = field(default_factory=list)
    """The requests that were made by a method of a handle."""
    forged: list[Answer] = field(default_factory=list)
    """The answers that users handed in. A performer may have given an equal one at the same moment."""
    is_deleted: Callable[[], bool] = lambda: False
    """Whether the conversation was deleted."""

    @property
    def requests(self) -> list[Request]:
        """The requests that users made themselves."""
        return [call.event for call in self.calls if isinstance(call.event, Request)]

    def has_made(self, request: Request) -> bool:
        """Whether a user has made this very request, under an id of the user's own. One that a user has read in the log
        and handed over once more was made by somebody else."""
        return request.event_id in self.ids and request in self.requests

    async def record(self, call: Call, calling: Coroutine[Any, Any, Any]) -> None:
        """Make a call, and record what comes back, whatever it is."""
        self.calls.append(call)
        self.trace.record(call.who, call.what)
        try:
            call.result = await calling
            call.outcome = "returned"
        except BaseException as error:
            call.result = error
            call.outcome = self._outcome(call, error)
        if call.process.is_dead and call.outcome != "cancelled":
            call.outcome, call.result = "closed", None
        self.trace.record(call.who, f"{call.what}: {call.outcome}, {_short(call.result)}")
        if call.outcome == "broken":
            self.trace.report_fault(f"{call.who}, {call.what}: {type(call.result).__name__}: {call.result}")

    def _outcome(self, call: Call, error: BaseException) -> Outcome:
        is_misfit = isinstance(error, InvalidInput) and error.subject == "arguments"  # the tool refuses what was edited
        took_no_file = isinstance(error, StorageFailed) and call.what.startswith(("send ", "stream "))
        if is_misfit or took_no_file or isinstance(error, Refused | CompactionFailed):
            return "refused"
        if isinstance(error, asyncio.CancelledError):
            return "cancelled"
        is_gone = isinstance(error, UnknownConversation) and self.is_deleted()
        return "closed" if is_gone or isinstance(error, EngineClosed) else "broken"


def _short(result: object) -> str:
    status = getattr(result, "status", None)
    if status is not None:
        return f"turn {getattr(result, 'number', '')} {status}"
    if isinstance(result, Step):
        return "ignored" if result.ignored else f"step {result.state.book.seq}"
    return result.code if isinstance(result, Refused) else str(result)


@dataclass(eq=False)
class Call:
    """A call of a user, and what came back. `event` is what was handed over, if the user made the event; `request_id`
    is the id under which the user asked for something."""

    who: str
    what: str
    process: Process
    event: Event | None = None
    request_id: str = ""
    outcome: Outcome = "waits"
    result: Any = None

    @property
    def step(self) -> Step | None:
        """The step that was returned."""
        return self.result if isinstance(self.result, Step) else None


class Asked(NamedTuple):
    """A request as a user made it: `ask` makes it under an id, by any handle."""

    request_id: str
    what: str
    ask: Callable[[Conversation, str], Coroutine[Any, Any, Any]]


@dataclass(eq=False)
class WatchRecord:
    """The updates that were shown after the update `after`, or from the beginning of a watch."""

    who: str
    after: str | None
    process: Process
    updates: list[Update] = field(default_factory=list)

    @property
    def begin(self) -> tuple[int, int] | None:
        """The position behind which everything was shown; None if nothing was."""
        from turnwise.engine.updates import parse_id

        if self.after is not None:
            return parse_id(self.after)
        return self.updates[0].position if self.updates else None

    async def watch(self, handle: Conversation, disk: Disk, chance: RandomSource) -> None:
        """Watch to the end, now quickly, now slowly. What is shown must be stored by then."""
        async with aclosing(handle.updates(self.after)) as updates:
            async for update in updates:
                if self.process.is_dead:
                    return  # nobody sees what a dead process shows
                self.updates.append(update)
                if update.position is not None and update.position > (disk.head(handle.id).book.seq + 1, 0):
                    disk.trace.report_fault(f"the update {update.id} is shown before it is stored")
                if chance.probably(0.1):
                    await asyncio.sleep(chance.seconds())


Action: TypeAlias = Callable[[SimulatedUser, Handle], Awaitable[None]]
"""Something that a user does with a handle on the conversation."""


async def send(user: SimulatedUser, handle: Handle) -> None:
    """Send a new message."""
    message_id = user.new_id()
    user.messages.append(message_id)
    await _send(user, handle, message_id, f"{message_id} says hello")


async def _send(user: SimulatedUser, handle: Handle, message_id: str, text: str) -> None:
    when_busy: WhenBusy | None = user.vocabulary.when_busy(user.chance)
    files = some_files(user.chance)
    if user.chance.probably(0.2):
        stream = handle.conversation.stream(text, message_id=message_id, when_busy=when_busy, files=files)
        streaming = _collect(stream)
        await user.call(handle, f"stream {message_id}", streaming, request_id=message_id)
        return
    wait = user.chance.probably(0.7)
    sending = handle.conversation.send(text, message_id=message_id, when_busy=when_busy, files=files, wait=wait)
    what = f"send {message_id}" if wait else f"send {message_id} and go on"
    await user.call(handle, what, sending, request_id=message_id)


async def _collect(updates: AsyncIterator[Update]) -> list[Update]:
    return [update async for update in updates]


async def send_again(user: SimulatedUser, handle: Handle) -> None:
    """Send a message once more under its id, sometimes with another text."""
    if user.messages:
        message_id = user.chance.pick(user.messages)
        text = user.chance.pick(("hello", "hello", "more"))
        await _send(user, handle, message_id, f"{message_id} says {text}")


async def withdraw(user: SimulatedUser, handle: Handle) -> None:
    """Withdraw a message that may or may not wait."""
    message_id = user.chance.pick([*user.messages, "unknown"])
    await user.ask(handle, f"withdraw {message_id}", lambda it, id_: it.withdraw(message_id, request_id=id_))


async def answer_wrongly(user: SimulatedUser, handle: Handle) -> None:
    """Answer too little, too much, or what was not asked."""
    wrong: tuple[dict[str, Any], ...] = ({}, {"When?": ""}, {"When?": ["6:30 PM", "8:15 PM"]}, {"Who?": "me"})
    answers = user.chance.pick(wrong)
    await user.ask(handle, "answer wrongly", lambda it, id_: it.answer(answers, request_id=id_))


async def decline(user: SimulatedUser, handle: Handle) -> None:
    """Decline a question, whether or not one is asked."""
    asked = user.stored.open_question
    call_id = user.chance.pick((None, "call_0_0" if asked is None else asked.call_id))
    await user.ask(handle, "decline", lambda it, id_: it.decline(call_id, request_id=id_))


async def cancel(user: SimulatedUser, handle: Handle) -> None:
    """Cancel the turn."""
    turn = user.chance.pick((None, user.stored.book.turn))
    await user.ask(handle, "cancel", lambda it, id_: it.cancel(turn, request_id=id_))


async def retry(user: SimulatedUser, handle: Handle) -> None:
    """Try again what failed."""
    await user.ask(handle, "retry", lambda it, id_: it.retry(request_id=id_))


async def compact(user: SimulatedUser, handle: Handle) -> None:
    """Have the history condensed."""
    await user.ask(handle, "compact", lambda it, id_: it.compact(request_id=id_))


async def edit(user: SimulatedUser, handle: Handle) -> None:
    """Say something else in place of a message that somebody has sent, wherever it is by now."""
    message_id = user.chance.pick([*user.sent_messages(), "unknown"])
    await user.ask(
        handle, f"edit {message_id}", lambda it, id_: it.edit(message_id, f"{id_} says more", request_id=id_)
    )


async def regenerate(user: SimulatedUser, handle: Handle) -> None:
    """Have the newest turn answered again, or one that may not be the newest any more."""
    turn = user.chance.pick((None, None, user.stored.book.turn))
    await user.ask(handle, "regenerate", lambda it, id_: it.regenerate(turn, request_id=id_))


async def rewind(user: SimulatedUser, handle: Handle) -> None:
    """Go back to a turn, or in front of a message."""
    turns: list[int | str] = [*range(user.stored.book.turn + 2)]
    to = user.chance.pick([*turns, *user.sent_messages()])
    await user.ask(handle, f"rewind {to}", lambda it, id_: it.rewind(to, request_id=id_))


async def switch(user: SimulatedUser, handle: Handle) -> None:
    """Return to a branch that was left by now, or to what is none."""
    branches = Branches.of(row.entry for row in user.disk.steps_of(user.conversation_id))
    turns = user.stored.book.turn
    branch = user.chance.pick([*branches.left(turns) * 4, turns])
    await user.ask(handle, f"switch {branch}", lambda it, id_: it.switch(branch, request_id=id_))


async def change_policy(user: SimulatedUser, handle: Handle) -> None:
    """Change the rules."""
    policy = user.vocabulary.policy(user.chance)
    await user.ask(handle, "set_policy", lambda it, id_: it.set_policy(policy, request_id=id_))


async def change_title(user: SimulatedUser, handle: Handle) -> None:
    """Change the title."""
    title = user.chance.pick(("Dinner", "Lunch", ""))
    await user.ask(handle, "set_title", lambda it, id_: it.set_title(title, request_id=id_))


async def change_system(user: SimulatedUser, handle: Handle) -> None:
    """Change the system prompt."""
    system = user.chance.pick(("You book tables.", "You cook.", ""))
    await user.ask(handle, "set_system", lambda it, id_: it.set_system(system, request_id=id_))


async def ask_again(user: SimulatedUser, handle: Handle) -> None:
    """Make an earlier request once more under its id, also one of another user."""
    if user.recorder.asked:
        await user.ask_again(handle, user.chance.pick(user.recorder.asked))


async def request_anything(user: SimulatedUser, handle: Handle) -> None:
    """Dispatch a generated request of any type, which fits the state or does not."""
    kind = user.chance.pick(user.requests)
    state = user.stored if user.chance.probably(0.7) else None
    try:
        event: Request = request(user.chance, user.vocabulary, kind, **user.new_request(), state=state)
    except CannotBeGenerated as error:
        user.disk.trace.report_fault(f"a request cannot be generated: {error}")
        return
    if isinstance(event, ScheduleChanged):  # a conversation that goes on waking up would never come to rest
        event = event.model_copy(update={"schedule": None, "next_wake": None})
    await user.dispatch(handle, event)


async def repeat(user: SimulatedUser, handle: Handle) -> None:
    """Dispatch an earlier request once more, as it was or with other content under its id."""
    stored = [row.event for row in user.disk.steps_of(user.conversation_id)]
    earlier = [*user.recorder.requests, *(event for event in stored if isinstance(event, Request))]
    requests = [event for event in earlier if not isinstance(event, CloseRequested | Opened)]
    if requests:
        event: Any = user.chance.pick(requests)
        if user.chance.probably(0.3):
            event = user.chance.pick(requests).model_copy(update={"event_id": event.event_id, "at": event.at})
        await user.dispatch(handle, event)


async def forge(user: SimulatedUser, handle: Handle) -> None:
    """Hand in an answer that no performer gave, as a performer's or as a request."""
    forged = _forged(user)
    user.recorder.forged.append(forged)
    if user.chance.probably(0.3):
        await user.dispatch(handle, forged)
        return
    user.recorder.trace.record(user.name, f"forges {forged.type}:{forged.effect_id}")
    try:
        user.host.answer(user.conversation_id, forged)
    except EngineClosed:
        return  # there is no engine to take it


def _forged(user: SimulatedUser) -> Answer:
    """An answer once more, one to what is awaited, or one to nothing or of a type that does not fit."""
    chance, state = user.chance, user.stored
    given = [row.event for row in user.disk.steps_of(user.conversation_id) if isinstance(row.event, Answer)]
    awaited = state.awaited()
    match chance.below(4):
        case 0 if given:
            return chance.pick(given)
        case 1 if awaited:
            effect_id = chance.pick(sorted(awaited))
            kinds = awaited[effect_id]
        case _:
            effect_id = chance.number(-1, state.book.next_effect + 1)
            kinds = tuple(kind for kind in ANSWERS if kind not in awaited.get(effect_id, ()))
    at = user.new_request()["at"]
    return generated_answer(chance, user.vocabulary, chance.pick(kinds), effect_id, at, call_of(state, effect_id))


async def wait(user: SimulatedUser, handle: Handle) -> None:
    """Wait for the turn under way."""
    await user.call(handle, "wait", handle.conversation.wait())


async def watch(user: SimulatedUser, handle: Handle) -> None:
    """Watch from now on, or from where the last watch ended, and go on with other things."""
    seen = [update.id for record in user.watches for update in record.updates if update.id is not None]
    user.watch(handle, seen[-1] if seen and user.chance.probably(0.8) else None)


ACTIONS: dict[Action, int] = {
    send: 16,
    send_again: 2,
    withdraw: 2,
    answer_wrongly: 1,
    cancel: 4,
    decline: 1,
    retry: 1,
    change_policy: 2,
    change_title: 1,
    change_system: 1,
    ask_again: 8,
    compact: 1,
    edit: 3,
    regenerate: 3,
    rewind: 2,
    switch: 3,
    request_anything: 8,
    repeat: 2,
    forge: 4,
    watch: 1,
    wait: 1,
}
"""What users do at any time, with its weight; closing is apart, since nothing happens after it."""


async def use(user: SimulatedUser, actions: int, menu: Mapping[Action, int] = ACTIONS) -> None:
    """Take so many actions. Those of the `menu` are possible at any time."""
    for _ in range(actions):
        await asyncio.sleep(user.chance.seconds())
        task = user.begin(act(user, _choose(user, menu)))
        if user.chance.probably(0.4):
            await asyncio.wait([task], timeout=user.chance.seconds())
        if user.chance.probably(0.04):
            task.cancel()


def _choose(user: SimulatedUser, menu: Mapping[Action, int]) -> Action:
    """What moves the conversation on, or else what users may do at any time."""
    state = user.stored
    if user.chance.probably(0.6):
        if waits_for_person(state):
            return respond
        if isinstance(state, Failed) and user.chance.probably(0.5):
            return retry
        if isinstance(state, Idle | Failed):
            return send
    return close if user.chance.probably(CLOSING) else user.chance.weighted(menu)


async def act(user: SimulatedUser, action: Action) -> None:
    """Take an action, unless there is no engine, its process has died, or the conversation was deleted."""
    process = user.host.process
    PROCESS.set(process.name)
    try:
        handle = await user.handle()
    except EngineClosed:
        return
    except (StorageFailed, Refused):
        return  # the store takes nothing at the moment
    except StoreError:
        if process.is_dead:
            return
        raise
    except UnknownConversation:
        if user.recorder.is_deleted():
            return
        raise
    await action(user, handle)


async def end_wait(user: SimulatedUser) -> None:
    """Do what the conversation waits for a person to do, or cancel it."""
    response = RESPONSES.get(type(user.stored), cancel)
    await act(user, response if user.chance.probably(0.8) else cancel)


CLOSING = 0.005
"""How often a user closes the conversation for good."""


async def answer_question(user: SimulatedUser, handle: Handle) -> None:
    """Answer what is asked; sometimes give a wrong answer first."""
    if user.chance.probably(0.2):
        await answer_wrongly(user, handle)
    asked = handle.conversation.state.open_question
    if asked is not None:
        answers = {question.question: any_answer_to(user.chance, question) for question in asked.questions}
        call_id = user.chance.pick((None, asked.call_id))
        await user.ask(handle, "answer", lambda it, id_: it.answer(answers, call_id=call_id, request_id=id_))


async def approve(user: SimulatedUser, handle: Handle) -> None:
    """Allow the call that waits, or do not; sometimes with other arguments."""
    state = handle.conversation.state
    if isinstance(state, AwaitingApproval):
        call_id, allowed = state.call.call_id, user.chance.probably(0.7)
        arguments = user.chance.pick((None, None, {"path": "b"}))
        await user.ask(
            handle, "approve", lambda it, id_: it.approve(call_id, allowed, "as you like", arguments, request_id=id_)
        )


async def resolve(user: SimulatedUser, handle: Handle) -> None:
    """Say what became of a call that a crash interrupted."""
    state = handle.conversation.state
    if isinstance(state, InDoubt):
        verdicts: tuple[Resolution, ...] = ("ran", "did_not_run", "again")
        call_id, verdict = state.call.call_id, user.chance.pick(verdicts)
        await user.ask(handle, f"resolve {verdict}", lambda it, id_: it.resolve(call_id, verdict, request_id=id_))


RESPONSES: dict[type[State], Action] = {
    AwaitingUserResponse: answer_question,
    AwaitingSubAgents: answer_question,
    AwaitingApproval: approve,
    InDoubt: resolve,
}
"""What users do about a state that waits for them; they cancel any other."""


def waits_for_person(state: State) -> bool:
    """Whether only a person, or a deadline, moves this state on, or what a sub-agent asks. `Pure.`"""
    return isinstance(state, Busy) and (not state.works or state.open_question is not None)


async def respond(user: SimulatedUser, handle: Handle) -> None:
    """Do what the conversation waits for, if it waits for a person."""
    state = handle.conversation.state
    if waits_for_person(state):
        await RESPONSES.get(type(state), cancel)(user, handle)


async def close(user: SimulatedUser, handle: Handle) -> None:
    """Close the conversation for good."""
    await user.ask(handle, "close", lambda it, id_: it.close(request_id=id_))
