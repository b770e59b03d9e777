"""The requests that a conversation has handled: a request that is sent again is not handled twice.

The log holds every one that was taken, and finds it by its id. The newest are remembered here as well, so that most
repeated requests are known without asking the store. A cancel that found nothing to stop is not in the log; it is
remembered here alone, so that its repetition does not stop a later turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..persistence.ports import Log
from ..persistence.summaries import json_identity
from ..states.errors import Refused
from ..states.events import Opened, PolicyChanged, Request
from ..states.policy import Policy
from ..states.step import LogEntry, Step

REMEMBERED = 64
"""How many requests are remembered: more than a client sends again at once when its connection comes back."""

REMEMBERED_AT_REST = 2
"""How many of them are remembered while nothing is under way: those that a client repeats whose connection broke."""

REMEMBERED_NO_OPS = 1024
"""How many cancels without effect are remembered: the log does not know them, so more than of other requests."""

Filled: TypeAlias = frozenset[str]
"""The fields of a request that its caller left out, and that were filled in for it. They do not count when a repeated
request is compared with the one that was handled."""

MODELS = "policy.models"
"""The models of a policy, where the engine filled them in."""

PROFILES = "policy.profiles"
"""The profiles of a policy, where the engine filled them in."""

RULES = "policy"
"""A policy that the engine filled in, apart from its models and profiles."""

_ANY_JSON = ("metadata", "arguments")
"""Fields of requests that hold any JSON. They are compared as JSON, too: to Python, 1 equals True."""

NOTHING_FILLED: Filled = frozenset()


@dataclass(frozen=True, slots=True)
class HandledRequest:
    """A request that was handled: the step that took it, and the turn that this step belongs to.

    `is_no_op`: there was nothing to do, so no step took it; `seq` and `turn` are 0.
    """

    request: Request
    seq: int = 0
    turn: int = 0
    is_no_op: bool = False


@dataclass(slots=True)
class Outcome:
    """What came of an event that was put to a conversation.

    `step` is the step that it led to; an ignored one if nothing happened now, in particular if the request was handled
    before. `handled` is the request, as it was handled the first time; None for other events.
    """

    step: Step
    handled: HandledRequest | None = None


Variants: TypeAlias = Callable[[Request, Request], Iterable[tuple[Request, Request]]]
"""Yields a request and the one that was handled under its id in every form in which they may be the same."""


class RecentRequests:
    """Knows the requests that one conversation has handled."""

    __slots__ = ("_log", "_no_ops", "_recent", "_variants")

    def __init__(self, log: Log, variants: Variants) -> None:
        self._log = log
        self._variants = variants
        self._recent: dict[str, HandledRequest] = {}
        self._no_ops: dict[str, HandledRequest] | None = None

    def note(self, entry: LogEntry) -> None:
        """Remember the event of a step that was stored, if it is a request."""
        if isinstance(entry.event, Request):
            turn = entry.turn if entry.ended is None else entry.ended.turn
            self._remember(HandledRequest(entry.event, entry.seq, turn), self._recent, REMEMBERED)

    def rest(self) -> None:
        """Nothing is under way: forget older requests, which the log knows."""
        if len(self._recent) > REMEMBERED_AT_REST:
            self._recent = dict(list(self._recent.items())[-REMEMBERED_AT_REST:])

    def note_no_op(self, request: Request, filled: Filled) -> HandledRequest:
        """Remember a request that had nothing to do, unless its caller gave it no id and so cannot repeat it."""
        handled = HandledRequest(request, is_no_op=True)
        if "event_id" not in filled:
            self._no_ops = {} if self._no_ops is None else self._no_ops
            self._remember(handled, self._no_ops, REMEMBERED_NO_OPS)
        return handled

    def just_noted(self, request: Request) -> HandledRequest:
        """Return this request, whose step was just noted."""
        return self._recent[request.event_id]

    def find_remembered(self, request: Request, filled: Filled) -> HandledRequest | None:
        """Return the request as it was handled before, if it is remembered. Raises `Refused` if another one was handled
        under its id."""
        if (handled := self._remembered(request.event_id)) is None:
            return None
        return self._same(request, filled, handled)

    async def find(self, request: Request, filled: Filled) -> HandledRequest | None:
        """Return the request as it was handled before, if it is remembered or in the log. Raises `Refused` if another
        one was handled under its id, and what `find_by_id` raises."""
        return self._same(request, filled, await self.find_by_id(request.event_id))

    async def find_by_id(self, event_id: str) -> HandledRequest | None:
        """Return the request that was handled under this id. Raises `StoreError`, and `UnknownConversation` if the
        conversation was deleted and the request is not remembered."""
        if event_id not in self._recent and (entry := await self._log.request(event_id)) is not None:
            self.note(entry)
        return self._remembered(event_id)

    def _remembered(self, event_id: str) -> HandledRequest | None:
        if (handled := self._recent.get(event_id)) is None and self._no_ops:
            return self._no_ops.get(event_id)
        return handled

    def _same(self, request: Request, filled: Filled, handled: HandledRequest | None) -> HandledRequest | None:
        if handled is not None:
            variants = self._variants(request, handled.request)
            if not any(_is_same(sent, filled, known) for sent, known in variants):
                raise Refused("event_id_reused")
        return handled

    def _remember(self, handled: HandledRequest, kept: dict[str, HandledRequest], most: int) -> None:
        kept[handled.request.event_id] = handled
        if len(kept) > most:
            del kept[next(iter(kept))]


def _is_same(request: Request, filled: Filled, handled: Request) -> bool:
    """Whether the caller that sent `request` asks for what `handled` asked for."""
    if type(request) is not type(handled):
        return False
    taken: dict[str, Any] = {name: getattr(handled, name) for name in {"at", *filled} - {"event_id", MODELS, PROFILES}}
    if isinstance(request, PolicyChanged | Opened) and isinstance(handled, PolicyChanged | Opened):
        if not _are_same_rules(request.policy, filled, handled.policy):
            return False
        taken["policy"] = handled.policy
    return request.model_copy(update=taken) == handled and all(
        json_identity(getattr(request, name, None)) == json_identity(getattr(handled, name, None)) for name in _ANY_JSON
    )


def _are_same_rules(policy: Policy, filled: Filled, handled: Policy) -> bool:
    """Whether the rules are those that were handled. Windows that are not given are filled in, by an engine that may
    know other ones by now, so windows do not count."""
    given = (handled if RULES in filled else policy).replace(
        models=handled.models if MODELS in filled else policy.models,
        profiles=handled.profiles if PROFILES in filled else policy.profiles,
    )
    return _without_windows(given) == _without_windows(handled)


def _without_windows(policy: Policy) -> Policy:
    profiles = tuple(
        profile if profile.model is None else profile.replace(model=profile.model.replace(window=None))
        for profile in policy.profiles
    )
    return policy.model_copy(
        update={"models": tuple(spec.replace(window=None) for spec in policy.models), "profiles": profiles}
    )
