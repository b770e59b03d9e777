"""The updates of a step, and of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from ....states.context import Context
from ....states.effects import DeliverToUser, ExecuteTool, PersistToolResults
from ....states.events import EffectFailed, LlmResponse, MemoryRecalled
from ....states.policy import Policy
from ....states.replies import text_of_delivery, text_rule
from ....states.states import Compacting, Failed, MemoryRecalling, ProfileSelecting, State, Summarizing, Verifying
from ....states.step import LogEntry
from ....states.transcript import Transcript
from ....states.values.messages import Message
from ....states.values.turn import TurnRecord
from ..replayed_steps import replayed_steps
from ..turn import EndedTurn
from ..turn_builder import ended_turn
from .message_view import arguments_data, message_view
from .state_view import StateView, view_of
from .stored import (
    DeliveryUpdate,
    MessageUpdate,
    StateChangeUpdate,
    ThoughtUpdate,
    ToolStatus,
    ToolUpdate,
    TurnEndedUpdate,
)
from .update import Update
from .update_id import Position

_Shown: TypeAlias = Callable[[Position], Update]
"""An update that does not have its position yet."""


_GOES_ON_WITHOUT = (ProfileSelecting, MemoryRecalling, Verifying, Summarizing, Compacting)
"""The states in which a turn can do without what is being made."""


class StepUpdates:
    """Makes the updates of steps that follow each other. It makes the view of each state once, because the state after
    a step is the one before the next step. `ended` is the turn that ended in the newest step, or None."""

    __slots__ = ("_state", "_view", "_viewed_under", "ended")

    def __init__(self) -> None:
        self.ended: EndedTurn | None = None
        self._state: State | None = None
        self._viewed_under: Policy | None = None
        self._view: StateView | None = None

    def add(
        self, entry: LogEntry, before: State, after: State, transcript: Transcript, context: Context
    ) -> tuple[Update, ...]:
        """Return the updates of a step, in order: what was said and done, the new state, and whether a turn has ended.

        Adds the entry to `transcript`, which must hold all entries before it; `context` is that before the step.
        """
        policy = context.policy
        said = partial(_said, policy=policy, falls_back=_falls_back(entry, before, context))
        was = self._view_of(before, transcript, policy)
        messages = transcript.add(entry)
        self._state = None  # the entry may change the arguments of a call that the same state shows
        now = self._view_of(after, transcript, policy)
        shown_state = replace(now, left_out=left_out) if (left_out := _left_out(entry, before, after)) else now
        change: list[_Shown] = [partial(StateChangeUpdate, state=shown_state)] if shown_state != was else []
        if entry.ended is None:
            self.ended = None
            shown = [*said(messages), *_done(entry, messages, transcript, policy), *change]
        else:
            turn = entry.ended.turn
            self.ended = ended_turn(entry.ended, transcript, policy)
            end = partial(TurnEndedUpdate.of, turn=self.ended)
            shown = [*said(m for m in messages if m.turn <= turn)]
            shown += _done(entry, messages, transcript, policy)
            begun = list(said(m for m in messages if m.turn > turn))
            # If the next turn begins in the same step, the end of this one is shown before anything of the next.
            shown += [end, *begun, *change] if after.book.turn > turn else [*change, end]
        return tuple(make((entry.seq, n)) for n, make in enumerate(shown, start=1))

    def _view_of(self, state: State, transcript: Transcript, policy: Policy) -> StateView:
        if self._view is None or state is not self._state or policy is not self._viewed_under:
            self._state, self._viewed_under = state, policy
            self._view = view_of(state, transcript, policy)
        return self._view


def updates_of_log(entries: Iterable[LogEntry]) -> Iterator[Update]:
    """Yield all updates of a log. Raises `Refused` if the machine does not take an event that it took then. `Pure.`"""
    transcript, updates = Transcript(), StepUpdates()
    for entry, before, after, context, _ in replayed_steps(entries):
        yield from updates.add(entry, before, after, transcript, context)


def _left_out(entry: LogEntry, before: State, after: State) -> tuple[str, ...]:
    """What the turn goes on without after this step, in sentences for people. A call that failed shows its error."""
    if isinstance(entry.event, MemoryRecalled):
        return entry.event.left_out
    goes_on = isinstance(before, _GOES_ON_WITHOUT) and not isinstance(after, Failed)
    return (entry.event.sentence,) if isinstance(entry.event, EffectFailed) and goes_on else ()


def _falls_back(entry: LogEntry, before: State, context: Context) -> bool:
    """Whether the text of the model in this step reaches the user only if nothing is said by tool."""
    if isinstance(entry.event, LlmResponse):
        speaks = entry.event.speaks
    else:
        turn = getattr(before, "turn", None)
        speaks = isinstance(turn, TurnRecord) and turn.speaks
    return text_rule(context, speaks=speaks) == "fallback"


def _said(messages: Iterable[Message], *, policy: Policy, falls_back: bool) -> Iterator[_Shown]:
    for message in messages:
        if message.thinking:
            yield partial(ThoughtUpdate, text=message.thinking, turn=message.turn)
        is_thought = policy.text == "thought" and bool(message.turn)  # what was given was said to the user
        if message.role == "assistant" and is_thought and message.text.strip():
            yield partial(ThoughtUpdate, text=message.text, turn=message.turn)
        elif message.role in ("user", "assistant") and (message.text.strip() or message.images):
            yield partial(
                MessageUpdate,
                role=message.role,
                text=message_view(message, policy).text,
                turn=message.turn,
                message_id=message.message_id,
                origin=message.origin,
                images=message.images,
                fallback=falls_back and message.role == "assistant" and bool(message.turn),
            )


def _done(entry: LogEntry, messages: Iterable[Message], transcript: Transcript, policy: Policy) -> Iterator[_Shown]:
    results = {message.tool_call_id: message for message in messages}
    for effect in entry.effects:
        if isinstance(effect, PersistToolResults):
            for result in effect.results:
                yield partial(ToolUpdate, **_call(transcript, result.call_id), **_outcome(results[result.call_id]))
        elif isinstance(effect, ExecuteTool):
            call = _call(transcript, effect.call.call_id)
            yield partial(ToolUpdate, **call, status="running", turn=entry.turn)
        elif isinstance(effect, DeliverToUser):
            text = text_of_delivery(transcript.words(effect.said), policy, relayed=effect.relayed)
            yield partial(DeliveryUpdate, text=text, turn=effect.turn, ordinal=effect.ordinal, relayed=effect.relayed)


def _call(transcript: Transcript, call_id: str) -> dict[str, Any]:
    call = transcript.call(call_id)
    return {
        "call_id": call_id,
        "name": call.name,
        "speaks": "speech" in call.acts,
        **arguments_data(call),
    }


def _outcome(result: Message) -> dict[str, Any]:
    status: ToolStatus = result.stopped or ("failed" if result.error else "completed")
    return {"status": status, "turn": result.turn, "error" if result.error else "result": result.text}
