"""The loop: how one conversation moves.

    event -> transition           pure, by the rows of `states.table`; may refuse, or find that nothing is to be done
          -> log.append           one transaction: the event, the effects, the new state, the outbox
          -> publish              watchers see only what is durable
          -> dispatcher.dispatch  model requests, tools, timers, deliveries; never before the commit
          -> answers              come back as events, by the same door

Because of this order nothing is lost in a crash. If the append fails, memory and store both stay as they were.

What only some conversations need (updates, redaction, observers of requests) is not begun where nobody needs it.

Another loop, in this process or in another one, may drive the same conversation over the same store. The log decides
between them: an append to a log that has moved on is a conflict. The loop then follows the steps that it missed, shows
them to its watchers, and puts its event to the machine again.

Where several processes share a store, the one that has the custody of the conversation carries out its effects, whoever
has stored the step, and the others only store and show; see `custody.py`.

What an earlier process left in the middle is reported to the machine, as `recovery.py` says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, NoReturn
from weakref import ref

from ..effects.channels.port import SpeechPiece
from ..effects.clock import Clock
from ..effects.context import UNAWAITED, EffectContext, EffectLinks, History, LiveKind, SuspendedCalls
from ..effects.dispatcher import Sender
from ..persistence.codec import next_timer
from ..persistence.errors import CustodyLost, StorageFailed, StoreConflict
from ..persistence.ports import Files, LiveShown, Log
from ..persistence.records import StoredEntry
from ..states.effects import AwaitedEffect, ControlEffect, Effect, OutgoingEffect
from ..states.errors import InvalidInput, Refused, StoreError, TurnwiseError, UnknownConversation
from ..states.events import (
    Answer,
    CallRestricted,
    Event,
    Request,
    Resumed,
    ToolApproval,
)
from ..states.machine import transition
from ..states.policy import Policy
from ..states.states import (
    AnyState,
    Closed,
    Failed,
    Idle,
    State,
    pending,
)
from ..states.step import LogEntry, Step
from .choices import Choices
from .declarations import Declarations
from .files import ConversationFiles, Takes
from .inspection import StepReader
from .mailbox import Mailbox, SenderVariables, Work
from .outbox import outgoing_of
from .ports import Custodian, Dispatcher, LoopOwner, Observer, PickUpObserver, RequestObserver
from .projection import ConversationProjection
from .recovery import effects_in_flight, known_effects, reports
from .redactor import EventRedactor
from .requests import NOTHING_FILLED, Filled, HandledRequest, Outcome, RecentRequests
from .updates import LiveUpdate, TokenUpdate, live_update, repeated_step
from .waiting import Follower, TurnWaiters
from .watching import Feed, TreeFeed

logger: logging.Logger = logging.getLogger("turnwise.loop")

_BROKEN = "Something broke inside the program that runs this conversation; ask for the conversation again."

_UNCERTAIN = 64
"""How many events are remembered whose append has failed. One of them may stand in the log all the same; it is found at
the next conflict, so a few would do."""

_KEPT_LINKS = 256
"""How many links of steps are kept before those that are not needed are looked for: a turn rarely has as many steps."""


class Loop:
    """Drives one conversation. Everything that happens to it goes through `request` and `answer`.

    `projection` is the conversation as stored, `feed` what watchers see of it, `turns` what callers wait for, `steps`
    what people look back at, `recent_requests` what was handled, `files` what was attached. `follower` looks at the
    store while a caller waits here for what another loop does. `links` are those of the steps that asked for what is in
    flight. `sends`: something went out, to a channel or to another agent.
    """

    __slots__ = (
        "__weakref__",
        "_announced",
        "_failure",
        "_history",
        "_interest",
        "_is_closing",
        "_is_restricted",
        "_links",
        "_log",
        "_mailbox",
        "_newest",
        "_senders",
        "_services",
        "_suspended",
        "_uncertain",
        "conversation_id",
        "feed",
        "files",
        "follower",
        "projection",
        "recent_requests",
        "sends",
        "steps",
        "turns",
    )

    def __init__(
        self,
        conversation_id: str,
        projection: ConversationProjection,
        log: Log,
        history: History,
        services: LoopServices,
        links: EffectLinks,
        newest: Sequence[StoredEntry] = (),
    ) -> None:
        self.conversation_id: str = conversation_id
        self.projection: ConversationProjection = projection
        self.feed: Feed = Feed(services.kept_updates)
        self.follower: Follower = Follower(
            self.catch_up, services.clock, projection, looks=services.show_others is None
        )
        self.turns: TurnWaiters = TurnWaiters(projection, self.follower)
        self.steps: StepReader = StepReader(projection.read_entries)
        self._log = log
        self._history = history
        self._services = services
        self._links = links
        self._newest = newest
        """The newest steps, as far as they were read and nothing was begun here since."""
        self._suspended = SuspendedCalls()
        self.files: ConversationFiles = ConversationFiles(
            conversation_id, services.files, projection, services.redactor
        )
        self._senders = SenderVariables(projection.state.book.turn, copy_context())
        self._mailbox = Mailbox(self._take)
        self.recent_requests: RecentRequests = RecentRequests(log, self._variants)
        self._uncertain: tuple[Event, ...] = ()
        """The events whose append was reported as failed, since the newest step."""
        self._failure: TurnwiseError | None = None
        self._is_closing = False
        self._is_restricted = False
        """Whether the calls that were open when this loop began are under the declarations of this engine."""
        self._interest: Callable[[], Interest | None] = _nobody
        self._announced = 0
        """The newest step of others that was heard of and not followed."""
        self.sends: bool = False
        if isinstance(projection.state, Closed):
            self.feed.end_updates()

    @property
    def state(self) -> AnyState:
        """Where the conversation rests, as stored."""
        return self.projection.state

    @property
    def takes(self) -> Takes:
        """Says which files a model can be shown."""
        return self._services.takes

    @property
    def _policy(self) -> Policy:
        return self.projection.context.policy

    @property
    def has_ended(self) -> bool:
        """Whether the loop has failed or is being closed."""
        return self._failure is not None or self._is_closing

    @property
    def is_followed(self) -> bool:
        """Whether somebody watches the conversation, or waits for it."""
        return self.feed.is_watched or self.follower.is_waited_for

    @property
    def is_of_interest(self) -> bool:
        """Whether somebody looks at the conversation, so that what other processes store is to be followed at once."""
        return self._interest() is not None or self.is_followed

    def interest(self) -> Interest | None:
        """Return an interest in the conversation, for as long as whoever looks at it keeps that; None where loops are
        not told what other processes store. To be asked for before the loop is refreshed."""
        if self._services.show_others is None:
            return None
        interest = self._interest() or Interest()
        self._interest = ref(interest)
        return interest

    def note_announced(self, seq: int) -> None:
        """Others have stored this step, which is followed when somebody asks for the conversation next."""
        self._announced = max(self._announced, seq)

    @property
    def is_behind(self) -> bool:
        """Whether others have stored steps that were heard of and not followed."""
        return self._announced > self.projection.seq

    def now(self) -> datetime:
        """Return the current time, by the clock of the engine."""
        return self._services.clock.now()

    def check_may_write(self) -> None:
        """Raise `Refused` with `read_only` if the engine was opened for reading only."""
        if self._services.read_only:
            raise Refused("read_only")

    # --- from outside

    async def request(self, event: Event, filled: Filled = NOTHING_FILLED) -> Outcome:
        """Have an event handled, after all that came before it. `filled` are the fields that its caller left out.

        A request that was handled before is not handled again. Raises `Refused`, `InvalidInput` and `StoreError`."""
        self.check_may_write()
        if not self._services.request_observers:
            return await self._mailbox.request(event, filled)
        with self._services.observed(self.conversation_id, event):
            return await self._mailbox.request(event, filled)

    def answer(self, answer: Event) -> None:
        """Have the answer to an effect handled, after all that came before it."""
        self._mailbox.post(answer)

    async def catch_up(self) -> None:
        """Follow the steps that others have stored, after all that came before. Raises what `request` raises."""
        await self.between_events(self._follow_others)

    async def between_events(self, work: Work) -> None:
        """Do this after all that came before; nothing else happens to the conversation meanwhile, so it must not ask
        for anything here. Raises what it raises, and what `request` raises."""
        await self._mailbox.request(work)

    # --- one event

    async def _take(self, event: Event | Work, filled: Filled, variables: Variables) -> Outcome:
        """Handle one event, without the secrets in it, or do what is to be done between two events. Raises `Refused`,
        `InvalidInput`, and a `StoreError` if the step could not be stored.

        An answer or a report that cannot be taken, for a reason that will not pass, would leave the turn waiting for
        ever. So the loop fails then, and everybody who waits for the conversation gets the reason.
        """
        if self._failure is not None:
            if callable(event) or isinstance(event, Request):
                raise self._failure
            return self._ignored()
        self._senders.current = variables
        try:
            if callable(event):
                await event()
                return self._ignored()
            if not self._is_restricted or self._services.tree.is_watched:
                await self._prepare()
            if (policy := self.projection.context.policy).redact:
                event = await self._services.redactor.redacted(event, policy)
            if isinstance(event, Request):
                return await self._take_request(event, filled)
            return Outcome(await self._step(event))
        except Exception as error:
            self._fail_after(error, event)
            raise

    async def _prepare(self) -> None:
        """Before a conversation that was read goes on, put its open calls under the declarations of this engine."""
        await self._prepare_tree()
        if not self._is_restricted:
            for report in await self._restrictions():
                await self._step(report)
            self._is_restricted = True

    async def _prepare_tree(self) -> None:
        """Before the next step, have those who watch all conversations know what came before it."""
        tree = self._services.tree
        if tree.is_watched:
            await tree.prepare(self.conversation_id, self.projection)

    async def _restrictions(self, *, taken_over: bool = False) -> Sequence[CallRestricted]:
        declarations, now = self._services.declarations, self._services.clock.now()
        return await declarations.restrictions(self.state, self.effect_context(), now, taken_over=taken_over)

    def _fail_after(self, error: Exception, event: Event | Work) -> None:
        """Fail for good if `error` is a reason that will not pass. Otherwise a request only fails itself."""
        if isinstance(error, Refused | StorageFailed | CustodyLost):
            return
        if isinstance(error, StoreError | UnknownConversation):
            self._fail(error)
        elif not isinstance(event, Request):
            self._fail(error if isinstance(error, TurnwiseError) else StoreError(_BROKEN))

    def _variants(self, request: Request, handled: Request) -> Iterator[tuple[Request, Request]]:
        """Yield the forms in which the two are compared; the stored one may be without its secrets."""
        return self._services.redactor.variants(request, handled, self._policy)

    def _ignored(self, handled: HandledRequest | None = None) -> Outcome:
        """Return the outcome of an event by which nothing happens now; `handled` is the request that was handled
        before."""
        return Outcome(Step(self.state, ignored=True), handled)

    async def _take_request(self, request: Request, filled: Filled) -> Outcome:
        """Handle a request. One that was handled before is ignored, even if the machine would refuse it now. If the
        conversation was deleted meanwhile, the log says so, and not whether it took the request."""
        if handled := self.recent_requests.find_remembered(request, filled):
            return self._ignored(handled)
        try:
            step = await self._put(request, filled)
        except CustodyLost:  # the log takes it now, like that of any process without custody
            return await self._take_request(request, filled)
        except (Refused, InvalidInput, StoreConflict):
            if handled := await self.recent_requests.find(request, filled):
                return self._ignored(handled)
            raise
        if step.ignored:
            handled = await self.recent_requests.find(request, filled)
            return self._ignored(handled or self.recent_requests.note_no_op(request, filled))
        return Outcome(step, self.recent_requests.just_noted(request))

    async def _put(self, request: Request, filled: Filled) -> Step:
        """Put a request to the machine. Where other processes share the store, one that is refused, or does nothing, is
        put again behind what they have stored: its caller may have seen that there."""
        await self._adopt_choices(request, filled)
        try:
            step = await self._step(request)
        except (Refused, InvalidInput):
            if not await self._was_behind():
                raise
            return await self._step(request)
        return await self._step(request) if step.ignored and await self._was_behind() else step

    async def _was_behind(self) -> bool:
        """Follow what other processes have stored. Returns whether there was anything."""
        return self._services.show_others is not None and bool(await self._catch_up())

    async def _adopt_choices(self, request: Request, filled: Filled) -> None:
        """Before it begins to work, the conversation changes to the models and profiles of its engine, where it follows
        these."""
        services, projection = self._services, self.projection
        change = services.choices.change_before(request, projection.state, projection.context, services.clock)
        if change is not None and not await self.recent_requests.find(request, filled):
            await self._step(change)

    async def _step(self, event: Event) -> Step:
        """Put an event to the machine, as often as others have moved the conversation in the meantime."""
        projection = self.projection
        while True:
            step = transition(projection.state, event, projection.context)
            if step.ignored:
                _log_ignored(event, step.state)
                self._suspended.follow(step.state)
                return step
            outgoing = outgoing_of(step.effects, self._services.senders)
            self.sends = self.sends or bool(outgoing)
            try:
                if isinstance(event, ToolApproval):
                    self._services.declarations.check_arguments(event, projection.state, projection.context)
                await self._log.append(event, step, outgoing)
            except (StorageFailed, asyncio.CancelledError) as error:
                self._uncertain = (*self._uncertain, event)[-_UNCERTAIN:]
                _raise_append_failure(error)
            except (InvalidInput, StoreConflict) as error:  # others may have answered the call, or moved on
                if not await self._has_moved(error):
                    raise
            else:
                self._follow(LogEntry.of(event, step), step, self._log.chain, is_own=True)
                return step

    async def _has_moved(self, error: InvalidInput | StoreConflict) -> bool:
        """Follow what others have stored, because a step could not be. Returns whether there was anything. If the
        custody is lost, answers are not to be stored any more."""
        if not isinstance(error, CustodyLost):
            return bool(await self._catch_up())
        assert self._services.custody is not None, "only a custody can be lost"
        await self._services.custody.lose(self.conversation_id)
        return False

    async def _follow_others(self) -> None:
        await self._catch_up()

    async def _catch_up(self) -> Sequence[StoredEntry]:
        """Follow the steps that others have stored, and return them."""
        await self._prepare_tree()
        entries = await self._log.catch_up()
        for entry in entries:
            step = repeated_step(entry, self.state, self.projection.context)
            # An append that was reported as failed may have been stored: then nobody else carries it out.
            self._follow(entry, step, entry.chain, is_own=entry.event in self._uncertain)
        if self._log.seq != self.projection.seq:
            raise StoreError("The log has steps that were not followed here; ask for the conversation again.")
        self._announced = 0
        return entries

    def _follow(self, entry: LogEntry, step: Step, link: bytes, *, is_own: bool) -> None:
        """Show a step that was stored with this link, and dispatch its effects if they are carried out here: by whoever
        stored it, or, where several processes share the store, by the one that has the custody. Of any other step only
        the control effects are dispatched, because what they stop may run here."""
        state = step.state
        self._uncertain, self._newest = (), ()
        self._senders.follow(entry.event, state)
        self.recent_requests.note(entry)
        before = self.projection.state
        self._note_link(before, state, link)
        custody = self._services.custody
        by_others = None if is_own else entry
        is_mine = is_own if custody is None else custody.note_step(self.conversation_id, by_others)
        if is_mine:
            for observer in self._services.observers:
                observer.stepped(self.conversation_id, before, entry.event, step)
        self._publish(entry, state)
        self._dispatch(step.effects if is_mine else [one for one in step.effects if isinstance(one, ControlEffect)])
        self._suspended.follow(state)
        self.follower.note(() if is_mine and not self._mailbox.drops_answers else step.effects)
        if type(entry.event) is Resumed:
            self.feed.streamed.begin_again([one.effect_id for one in step.effects if isinstance(one, AwaitedEffect)])
            if is_mine:
                self._report_left()  # another loop may have begun more since the report was made, and have left it
        if type(state) is Closed:
            self.feed.end_updates()
            self.projection.release()
        if not self.has_ended:
            self._services.owner.moved(self.conversation_id)

    def _note_link(self, before: AnyState, state: AnyState, link: bytes) -> None:
        """Note the link of a step that asks for new effects. What was asked for before the turn is not needed any more,
        and of a very long turn only what is still in flight is."""
        if type(before) is Idle or type(before) is Failed:
            self._links = EffectLinks()
        elif len(self._links) >= _KEPT_LINKS:
            self._links = self._links.since(min(known_effects(before), default=before.book.next_effect))
        if state.book.next_effect > before.book.next_effect:
            self._links.note(before.book.next_effect, link)

    def _publish(self, entry: LogEntry, state: AnyState) -> None:
        """Move the projection on, and show the step to those who watch or wait."""
        tree, projection = self._services.tree, self.projection
        is_tree_watched = tree.is_watched and tree.concerns(projection.context.owner)
        updates = projection.advance(entry, state, is_watched=is_tree_watched or self.feed.is_watched)
        self.feed.follow(updates, state)
        if is_tree_watched:
            tree.follow(self.conversation_id, projection.context.owner, updates, entry.seq)
        self.turns.notify(entry)

    def _dispatch(self, effects: Sequence[Effect], context: Callable[[], EffectContext] | None = None) -> None:
        """Hand the effects of a committed step to the dispatcher; only what goes out if answers are dropped. `context`
        is that of the newest step unless it is given."""
        if self._is_closing or self._mailbox.drops_answers:
            effects = [effect for effect in effects if isinstance(effect, OutgoingEffect)]
        try:
            dispatcher = self._services.dispatcher
            for variables, part in self._senders.divided(effects):
                variables.run(dispatch_in_order, part, dispatcher, self.conversation_id, context or self.effect_context)
        except (Exception, asyncio.CancelledError):
            # The step is stored. Its effects are asked for again when the conversation is taken over. Nothing here
            # waits, so a CancelledError is the dispatcher's own, and would leave the event in the mailbox.
            logger.exception("The dispatcher failed.")
            self._fail(StoreError(_BROKEN))

    def effect_context(self) -> EffectContext:
        """Return what the performer of an effect of the newest step may look at."""
        state, context = self.projection.state, self.projection.context
        return EffectContext(
            self.conversation_id,
            state.book.seq,
            state.book.turn,
            context,
            self._history,
            self._show_progress,
            self._log,
            self._services.redactor.redact_of(context.policy),
            self._suspended,
            self._links,
            longest_wait=state.agreed_wait(context.policy),
            files=self.files,
        )

    def _effect_context_at(self, seq: int) -> EffectContext:
        """Return the same for an effect of an earlier step."""
        return replace(self.effect_context(), seq=seq)

    def _show_progress(self, effect_id: int, kind: LiveKind, data: dict[str, Any]) -> None:
        if not self._is_shown(effect_id, kind):
            return
        shown = self._services.redactor.shown(kind, data, self._policy)
        update = live_update(kind, shown, effect_id, self.state)
        self._show(update)
        tell_speech = self._services.tell_speech
        if tell_speech is not None and isinstance(update, TokenUpdate) and update.kind == "speech":
            tell_speech(SpeechPiece(update.text, self.conversation_id, update.turn, update.request))
        if (show_others := self._services.show_others) is not None:
            place = 0
            if isinstance(update, TokenUpdate):
                text, place = self.feed.streamed.to_pass_on(update)
                shown = {**shown, "text": text}
            show_others(LiveShown(self.conversation_id, effect_id, kind, shown, place))

    def show_live(self, effect_id: int, kind: LiveKind, data: Mapping[str, Any], place: int) -> None:
        """Show a live update of another process, unless its effect has ended. Of a token that stands at this `place` in
        its text, what is new is shown. Raises `InvalidInput`."""
        if not self._is_shown(effect_id, kind):
            return
        update = live_update(kind, data, effect_id, self.state)
        if isinstance(update, TokenUpdate):
            update = replace(update, text=self.feed.streamed.new_part(update, place))
        if not isinstance(update, TokenUpdate) or update.text:
            self._show(update)

    def _is_shown(self, effect_id: int, kind: LiveKind) -> bool:
        return kind in UNAWAITED or effect_id in pending(self.state)

    def _show(self, update: LiveUpdate) -> None:
        if isinstance(update, TokenUpdate):
            update = self.feed.streamed.replacing(update)
        self.feed.publish(update)
        self._services.tree.show(self.conversation_id, self.projection.context.owner, (update,))

    def _fail(self, why: TurnwiseError) -> None:
        if not self.has_ended:
            self._failure = why
            self._services.owner.failed(self.conversation_id, why)

    # --- from beginning to end

    async def take_over(self) -> None:
        """Report what another process, or `halt`, left in the middle, so that the conversation goes on here: under the
        declarations of this engine where they are stricter. Nothing is reported if the custody was lost meanwhile."""
        custody = self._services.custody
        if custody is not None and not custody.drives(self.conversation_id):
            return
        self._mailbox.take_answers()
        restrictions = await self._restrictions(taken_over=True)
        self._is_restricted = True
        for report in restrictions:
            self._mailbox.post(report)
        self._report_left(restrictions)

    def _report_left(self, restrictions: Sequence[CallRestricted] = ()) -> None:
        """Report what was left. The order of the reports follows from the state behind the `restrictions`, which are on
        their way."""
        left, holds_call, state = self.follower.take_over(), bool(self._suspended), self.state
        for restriction in restrictions:
            state = transition(state, restriction, self.projection.context).state
        for report in reports(state, self._services.clock.now(), left, holds_call=holds_call):
            self._mailbox.post(report)

    # --- where several processes share the store

    def rests(self, until: datetime) -> bool:
        """Whether nothing is under way here that another process would have to report, no timer of the conversation is
        due before `until`, and nothing waits to be handled."""
        due = next_timer(self.state)
        return self._mailbox.is_empty and not self.state.ends_with_process and (due is None or due > until)

    async def catch_up_to(self, seq: int) -> None:
        """Follow the steps up to this one, which others have stored, and those that were heard of. Only between two
        events."""
        if self.projection.seq < seq or self.is_behind:
            self._newest = (*self._newest, *await self._catch_up())

    async def begin(self, after: int, note_begun: Callable[[], None]) -> None:
        """Carry out what is in flight that steps behind the step `after` have asked for, and nobody has begun.
        `note_begun` is called when everything is read: from there on the effects of each step are carried out. Only
        between two events. Raises `StoreError`; nothing has begun then."""
        if not after and not self._is_restricted:
            await self._prepare()
        asked = await effects_in_flight(self.state, self._newest, self.projection.read_entries, after)
        self._newest = ()
        note_begun()
        for observer in self._services.pick_up_observers:
            observer.picked_up(self.conversation_id, self.state)
        for seq, effects in asked:
            self.follower.begin(effects)
            self._dispatch(effects, partial(self._effect_context_at, seq))

    async def stop(self, *, answers: bool) -> None:
        """Stop what is carried out here for the conversation, and what is sent. What finishes all the same is stored,
        and what was said is tried once on every channel, unless `answers` is false. Callers go on waiting.

        To be called when `Custodian.drives` is false already, so that nothing else begins. Call `let_go` behind
        it."""
        with dispatcher_failures_logged():
            await self._services.dispatcher.stop(self.conversation_id, answers=answers)
        suspended, self._suspended = self._suspended, SuspendedCalls()
        await suspended.stop_all()
        if answers:
            await self._mailbox.handled()
        with dispatcher_failures_logged():
            await self._services.dispatcher.release(self.conversation_id, deliver=answers)

    def lose(self) -> None:
        """Another process has the custody now: drop the answers of what runs here, until `let_go`."""
        self._mailbox.drop_answers()

    def let_go(self) -> None:
        """Nothing is carried out here any more: whoever waits here for the conversation has the store looked at."""
        self._mailbox.take_answers()
        self.follower.halt()
        self.follower.note(())
        for observer in self._services.pick_up_observers:
            observer.let_go(self.conversation_id)

    async def halt(self) -> None:
        """Stop what is under way, and begin nothing else until `take_over`. Callers go on waiting."""
        self._mailbox.drop_answers()
        self.follower.halt()
        with dispatcher_failures_logged():  # the conversation is taken over or closed all the same
            await self._services.dispatcher.stop(self.conversation_id, answers=False)

    async def handled(self) -> None:
        """Return when all that has happened so far is stored, or the store takes nothing."""
        await self._mailbox.handled()

    async def sent(self) -> None:
        """Return when all that was said so far has been tried on every channel."""
        await self._services.dispatcher.wait_until_tried(self.conversation_id)

    async def shut_down(self, why: TurnwiseError, *, answers: bool = True, deliver: bool = True) -> None:
        """Stop driving. What is under way is told to stop; what finishes all the same is stored, unless `answers` is
        false, and what was said is delivered, unless `deliver` is false. Everything else is dropped as in a crash.

        Whoever waits, or asks for something later, gets `why`.
        """
        self._mailbox.shut(why)
        self.recent_requests.end(why)
        self._is_closing = True
        with dispatcher_failures_logged():  # the callers that wait must be told all the same
            await self._services.dispatcher.stop(self.conversation_id, answers=answers)
        await self._suspended.stop_all()
        await self._mailbox.finish(answers=answers)
        self.turns.fail_all(why)
        self.feed.end_updates()
        with dispatcher_failures_logged():  # the callers that wait must be told all the same
            await self._services.dispatcher.release(self.conversation_id, deliver=deliver)


class Interest:
    """Has a conversation follow at once what other processes store, for as long as somebody keeps this."""

    __slots__ = ("__weakref__",)


def _nobody() -> None:
    """The interest in a conversation that nobody looks at."""


@dataclass(frozen=True, kw_only=True)
class LoopServices:
    """What every loop of an engine works with.

    `dispatcher` starts the effects of its steps, and `senders` say whom those must reach that go out. `choices` changes
    a conversation at rest to the models and profiles of its engine. `owner` is told what becomes of the loop, and
    `observers` see its steps. `kept_updates` are kept for those who watch a conversation, and `tree` shows the updates
    of all conversations. `declarations` are those of the tools that the engine has now. `files` returns the files of
    the store, and `takes` says which of them a model can be shown. `custody` says which
    conversations are carried out here, where several processes share a store. `read_only` has requests refused.
    `show_others` passes live updates on to the other processes that share the store; where there is one, loops are told
    what those store, and do not look for it. `tell_speech` is told what tools are to say while a model of this process
    writes it, where a channel wants to know.
    """

    dispatcher: Dispatcher
    senders: Mapping[type[Effect], Sender]
    clock: Clock
    choices: Choices
    owner: LoopOwner
    observers: Sequence[Observer]
    kept_updates: int
    redactor: EventRedactor
    tree: TreeFeed
    declarations: Declarations
    files: Callable[[], Files]
    takes: Takes
    custody: Custodian | None = None
    read_only: bool = False
    show_others: Callable[[LiveShown], None] | None = None
    tell_speech: Callable[[SpeechPiece], None] | None = None

    request_observers: tuple[RequestObserver, ...] = field(init=False)
    """The observers that see requests."""

    pick_up_observers: tuple[PickUpObserver, ...] = field(init=False)
    """The observers that hear which conversations this process looks after."""

    def __post_init__(self) -> None:
        """Find the observers that see more than steps, once: to ask an object for a protocol takes 50 µs. Cached
        properties would make all fields slow to read."""
        see_requests = tuple(one for one in self.observers if isinstance(one, RequestObserver))
        see_pick_ups = tuple(one for one in self.observers if isinstance(one, PickUpObserver))
        object.__setattr__(self, "request_observers", see_requests)
        object.__setattr__(self, "pick_up_observers", see_pick_ups)

    @contextmanager
    def observed(self, conversation_id: str, event: Event) -> Iterator[None]:
        """Return a context that lasts while somebody waits for this request. The observers see it, and its error."""
        with ExitStack() as contexts:
            for observer in self.request_observers:
                contexts.enter_context(observer.asked(conversation_id, event))
            yield


def _raise_append_failure(error: StorageFailed | asyncio.CancelledError) -> NoReturn:
    """Raise the error by which an append failed, from within its `except` clause.

    A driver that cancels its own work, as at a lost connection, raises `CancelledError` although nobody has cancelled
    the task that waits for it. That is a failure of the storage: the event would be lost in the mailbox otherwise.
    """
    task = asyncio.current_task()
    if not isinstance(error, asyncio.CancelledError) or (task is not None and task.cancelling()):
        raise error
    raise StorageFailed("The store has cancelled the append.") from error


def dispatch_in_order(
    effects: Sequence[Effect], dispatcher: Dispatcher, conversation_id: str, context: Callable[[], EffectContext]
) -> None:
    """Start and stop effects in the order of their step. A step may start an effect and stop it at once: a process has
    ended while a sub-agent was being stopped, and the next one takes both over. Raises what the dispatcher raises."""
    begin = 0
    for end, effect in enumerate(effects):
        if isinstance(effect, ControlEffect):
            if begin < end:
                dispatcher.dispatch(tuple(effects[begin:end]), context())
            dispatcher.abort(conversation_id, effect.effect_id)
            begin = end + 1
    if begin < len(effects):
        dispatcher.dispatch(tuple(effects[begin:]), context())


@contextmanager
def dispatcher_failures_logged() -> Iterator[None]:
    """Log an error that a dispatcher raises in this context, and go on behind it."""
    try:
        yield
    except Exception:
        logger.exception("The dispatcher failed.")


def _log_ignored(event: Event, state: State) -> None:
    """Log that the conversation, which rests in `state`, has nothing to do about this event."""
    if isinstance(event, Answer) and event.effect_id in pending(state):
        # Nobody else will answer the effect, so this is a fault of whoever carries it out.
        logger.warning("The answer %s is not one that %s waits for.", event.type, state.type)
    else:
        logger.debug("Nothing to do about %s in %s", event.type, state.type)
