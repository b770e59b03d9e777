"""What people see who look into the machine: the steps of a log, and the requests to models that they asked for.

A log holds events and effects; states are computed again from them, and so is the way that a step took through the
table of the machine. A request to a model is written again, too, by the code that writes it when the model is asked.

A state is not stored, so computing one takes all steps before it. A client that follows a conversation reads its newest
step after each commit, and one that looks through it reads page after page: neither begins again each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..effects.model.performers.llm_request import RequestWriter
from ..effects.model.port import ModelRequest
from ..effects.model.request import CachedPrompt
from ..persistence.errors import Damaged
from ..states.context import Context
from ..states.effects import RequestLlm
from ..states.errors import InvalidInput, Refused
from ..states.events import Answer, LlmResponse, Opened
from ..states.grammar import Junction, Row
from ..states.machine import branches_for, entry_for
from ..states.states import AnyState, Idle
from ..states.step import LogEntry
from ..states.transcript import Transcript
from .json_forms import Moment, as_json
from .projection import ConversationProjection, ReadEntries
from .updates import ReplayedStep, StateView, replayed_steps, view_of


@dataclass(frozen=True, kw_only=True)
class StepView:
    """The step `seq` of a log: the `event` that came in at the moment `at`, the `effects` that it led to, and the
    `state` in which the conversation rested then.

    `event` and `effects` are JSON objects as an export has them, each with its `type`. `turn` is the newest turn after
    the step. `passed` are the names of the junctions of the table that the step went through, in order. `requests` are
    the ids of the effects that ask a model for the next answer.
    """

    seq: int
    at: Moment
    turn: int
    event: dict[str, Any]
    effects: tuple[dict[str, Any], ...]
    state: StateView
    passed: tuple[str, ...]
    requests: tuple[int, ...]

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON; the state as in an update `state_change`."""
        return as_json(self)


def _step_view(step: ReplayedStep, context: Context, transcript: Transcript) -> StepView:
    """Return what people see of a step; `context` and `transcript` are those after it. `Pure.`"""
    entry = step.entry
    return StepView(
        seq=entry.seq,
        at=entry.event.at,
        turn=entry.turn,
        event=entry.event.model_dump(mode="json", exclude_defaults=True),
        effects=tuple(effect.model_dump(mode="json", exclude_defaults=True) for effect in entry.effects),
        state=view_of(step.after, transcript, context.policy),
        passed=tuple(_passed(step)),
        requests=tuple(effect.effect_id for effect in entry.effects if isinstance(effect, RequestLlm)),
    )


def _passed(step: ReplayedStep) -> Iterator[str]:
    """Yield the names of the junctions that the step went through."""
    event = step.entry.event
    if isinstance(event, Opened):
        return
    row = entry_for(step.before, event, step.context)
    if isinstance(row, Row):
        targets = (row.to, *(branch.to for branch in branches_for(step.before, event, step.context)))
        yield from (target.name for target in targets if isinstance(target, Junction))


KEPT = 2
"""How many positions are kept: that of a client that follows the conversation, and that of one that looks back."""


class StepReader:
    """The steps of one log. The positions that were read last stay in memory as long as the conversation does."""

    __slots__ = ("_kept", "_read_entries")

    def __init__(self, read_entries: ReadEntries) -> None:
        self._read_entries = read_entries
        self._kept: tuple[_ReplayPosition, ...] = ()

    async def page(self, after: int, limit: int | None) -> tuple[StepView, ...]:
        """Return the steps that follow the step `after`, at most `limit` of them. Raises `StoreError`, in particular
        `Damaged`."""
        position = self._take(after)
        try:
            entries = await self._read_entries(position.seq, None if limit is None else after + limit)
        except BaseException:
            self._keep(position)
            raise
        views = await asyncio.to_thread(
            lambda: tuple(position.views(entries, after))
        )  # a position that fails is dropped
        self._keep(position)
        return views

    def _take(self, after: int) -> _ReplayPosition:
        """Return the last kept position that is not behind the step `after`, or the beginning. Nothing else uses it
        until it is kept again."""
        possible = [one for one in self._kept if one.seq <= after]
        position = max(possible, key=lambda one: one.seq, default=_ReplayPosition())
        self._kept = tuple(one for one in self._kept if one is not position)
        return position

    def _keep(self, position: _ReplayPosition) -> None:
        self._kept = (*self._kept, position)[-KEPT:]


class _ReplayPosition:
    """A step of a log, with the state after it, from which the following steps are computed. `views` moves it on."""

    def __init__(self) -> None:
        self.seq = 0
        self._state: AnyState = Idle()
        self._context = Context()
        self._transcript = Transcript()

    def views(self, entries: Iterable[LogEntry], after: int) -> Iterator[StepView]:
        """Move on over the entries that follow this position, and yield the steps that follow the step `after`.

        Raises `Damaged` at the first step that does not come out as it was stored: another version of the state machine
        wrote it. The position is not to be used again then.
        """
        try:
            for step in replayed_steps(entries, self._state, self._context):
                if step.after.book.seq != step.entry.seq or step.effects != step.entry.effects:
                    raise _diverging(step.entry.seq)
                self.seq, self._state, self._context = step.entry.seq, step.after, step.context.after(step.entry.event)
                self._transcript.add(step.entry)
                if self.seq > after:
                    yield _step_view(step, self._context, self._transcript)
        except Refused:
            raise _diverging(self.seq + 1) from None


def _diverging(seq: int) -> Damaged:
    return Damaged(seq, f"Step {seq} was made by another version of the state machine.")


@dataclass(frozen=True, kw_only=True)
class RequestView:
    """The `request` that the effect `effect_id` of the step `seq` asked for.

    `is_exact` says whether its digest is the one that was stored with the answer: False where the engine offers other
    tools now. None as long as there is no answer, and if an application's own performer has asked the model.
    With `has_fresh_context`, the request also had a note with the time and the place at its end, which is never stored.
    """

    seq: int
    effect_id: int
    request: ModelRequest
    is_exact: bool | None
    has_fresh_context: bool

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON, with those of the request beside them."""
        request = self.request
        return {
            "seq": self.seq,
            "effect_id": self.effect_id,
            "model": request.model,
            "messages": list(request.messages),
            "tools": list(request.tools),
            "tool_choice": request.tool_choice,
            "settings": request.settings.model_dump(mode="json", exclude_none=True),
            "is_exact": self.is_exact,
            "has_fresh_context": self.has_fresh_context,
        }


async def request_view(
    conversation_id: str, projection: ConversationProjection, read_entries: ReadEntries, seq: int, writer: RequestWriter
) -> RequestView:
    """Return the request that the step `seq` asked for, as `writer` writes it now. What was said is taken from memory
    for the newest step, and from the log for others; no step is computed again.

    Raises `InvalidInput` if there is no such step, or if it asked for none, and `StoreError`.
    """
    newest, context = projection.seq, projection.context
    entries = await read_entries(seq - 1, seq) if 0 < seq <= newest else ()
    if not entries:
        raise InvalidInput(f"This conversation has no step {seq}.")
    (entry,) = entries
    effect = next((effect for effect in entry.effects if isinstance(effect, RequestLlm)), None)
    if effect is None:
        raise InvalidInput(f"The step {seq} asked no model for an answer.")
    if seq == newest:
        transcript = await projection.transcript_at(seq)
    else:
        transcript, context = await asyncio.to_thread(_read, await read_entries(0, seq))
    stored = await _digest(read_entries, seq, effect)
    offer, prompt = writer.offer_for(effect, context, entry.turn, transcript), CachedPrompt(conversation_id)
    request, digest = writer.write(effect, context, entry.turn, transcript, offer, prompt)
    return RequestView(
        seq=seq,
        effect_id=effect.effect_id,
        request=request,
        is_exact=None if stored is None else stored == digest,
        has_fresh_context=context.policy.fresh_context and not effect.plain,
    )


def _read(entries: Iterable[LogEntry]) -> tuple[Transcript, Context]:
    """Return what was said in these entries, the first of a log, and the context after them."""
    transcript, context = Transcript(), Context()
    for entry in entries:
        transcript.add(entry)
        context = context.after(entry.event)
    return transcript, context


PAGE = 64
"""How many steps are read at once to find the answer to a request, which mostly is among the first of them."""


async def _digest(read_entries: ReadEntries, seq: int, effect: RequestLlm) -> str | None:
    """Return the digest that was stored with the answer to this effect of the step `seq`."""
    while entries := await read_entries(seq, seq + PAGE):
        for entry in entries:
            event = entry.event
            if isinstance(event, Answer) and event.effect_id == effect.effect_id:
                return (event.digest or None) if isinstance(event, LlmResponse) else None
        seq = entries[-1].seq
    return None
