"""The requests of a host: made from what it hands over, refused in one sentence, and known when they are sent again.

A request that is sent again is not handled twice. The log holds every one that was taken, and finds it by its id. The
newest are remembered here as well, so that most repeated requests are known without asking the store. A cancel that
found nothing to stop is not in the log; it is remembered here alone, so that its repetition does not stop a later turn.
"""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from typing import Any, TypeAlias, TypeVar

from pydantic import ValidationError

from ..effects.text import is_encodable
from ..persistence.ports import Log
from ..persistence.summaries import LONGEST_ID, json_identity
from ..states.errors import InvalidInput, Refused, StoreError, TurnwiseError, faults_of, path_of
from ..states.events import Answer, Event, Opened, PolicyChanged, Request, UserMessage, exact
from ..states.policy import Policy
from ..states.step import LogEntry, Step
from ..states.values.acts import MARK, marks_of
from ..states.values.value import MAX_QUOTED, shortened

R = TypeVar("R", bound=Event)

ID = "event_id"
"""The field that hosts know as `message_id` if it is that of a message, and otherwise as `request_id`."""


def make(kind: type[R], **fields: object) -> R:
    """Return a request of this kind. Raises `InvalidInput`, which names the first invalid field."""
    known_id = "message_id" if issubclass(kind, UserMessage) else "request_id"
    if not isinstance(fields[ID], str):
        raise InvalidInput(f"{known_id}: Input should be a valid string.")
    try:
        return bounded(kind.model_validate(fields))
    except ValidationError as error:
        fault = faults_of(error)[0]
        path = [str(part) for part in path_of(fault, fields)]
        if path == [ID]:
            path = [known_id]
        where = ".".join(shortened(part, MAX_QUOTED) for part in path)
        raise InvalidInput(shortened(f"{where}: {fault['msg']}." if where else f"{fault['msg']}.")) from None


def checked(event: Event) -> Event:
    """Return an event that a host has made, as the log will hold it. Raises `InvalidInput`."""
    try:
        return bounded(exact(event))
    except ValueError:
        raise InvalidInput("This is not an event, or it does not hold what it declares.") from None


MAX_ATTEMPTS = 10
"""How often a request that says what was read of the conversation is made anew, if each time the conversation moves on
before it is handled."""

MAX_HISTORY = 50_000_000
"""The most characters of the beginning of a conversation with a given history as JSON. Chosen so that
its line in an export, of up to four bytes for a character, can be imported again."""

_MAX_REQUEST = 4_000_000
"""The most characters of a request as JSON: four texts of the greatest length."""


def bounded(request: R) -> R:
    """Return the request. Raises `InvalidInput` if it is too long as a whole."""
    if isinstance(request, Opened) and request.messages:
        if len(request.to_json()) > MAX_HISTORY:
            raise InvalidInput(f"The history is too long: it has more than {MAX_HISTORY:,} characters.")
        return request
    if isinstance(request, UserMessage) and len(request.text) <= _MAX_REQUEST // 8:
        return request  # the JSON of a text is at most six times as long, and the other fields are short
    if len(request.to_json()) > _MAX_REQUEST:
        raise InvalidInput("The request is too long.")
    return request


def checked_answer(answer: Answer) -> Answer:
    """Return what a dispatcher hands in, as the log will hold it. Raises `InvalidInput` for what is not an answer.

    An answer can be made without validation, so it is validated here, whoever made it, and nowhere behind this.
    """
    if not isinstance(answer, Answer):
        raise InvalidInput("What a dispatcher hands in is an answer to an effect.")
    try:
        return exact(answer)
    except ValueError as error:
        raise InvalidInput("The answer does not hold what it declares.") from error


def checked_policy(policy: Policy) -> Policy:
    """Return the policy as the log will hold it. A policy can be made without validation, so it is validated here.
    Raises `InvalidInput`."""
    if not isinstance(policy, Policy):
        raise InvalidInput("The rules of a conversation must be a Policy.")
    try:
        return Policy.model_validate_json(policy.model_dump_json(exclude_defaults=True, warnings="error"))
    except ValueError:
        raise InvalidInput("The rules of a conversation do not hold what they declare.") from None


def checked_metadata(given: Any, marks: Mapping[str, Any]) -> Any:
    """Return the metadata that an application gives a conversation with these marks of a host; the marks stay. Raises
    `InvalidInput` for other names that are reserved for hosts. What is no mapping is returned as it is."""
    if not isinstance(given, Mapping):
        return given
    if not marks_of(given).items() <= marks.items():
        raise InvalidInput(f"metadata: Names that begin with {MARK} are reserved.", "metadata")
    return {**given, **marks}


def checked_request_id(request_id: str) -> str:
    """Return an id that a request may have which no step of the log takes. Raises `InvalidInput`."""
    if not isinstance(request_id, str):
        raise InvalidInput("request_id: Input should be a valid string.")
    if not 0 < len(request_id) <= LONGEST_ID or not is_encodable(request_id):
        raise InvalidInput(f"request_id: Input should be a text of 1 to {LONGEST_ID} characters.")
    return request_id


NEW_ID = r"[A-Za-z0-9][A-Za-z0-9._:@~-]{0,99}"
"""The pattern of the ids that an application may choose. They can stand in a URL as they are, and hold no slash: that
is in the ids of sub-agents, which are longer than those of the conversations that start them."""

_OWNED_ID = rf"{NEW_ID}(?:~[a-z2-7]{{16}})?"
"""The pattern of the ids that an engine takes: those, and what `owned_id` makes of them."""


def checked_new_id(conversation_id: str) -> str:
    """Return an id that an application may choose for a new conversation. Raises `InvalidInput`."""
    if not isinstance(conversation_id, str):
        raise InvalidInput("The id of a conversation is a text.")
    if re.fullmatch(_OWNED_ID, conversation_id) is None:
        raise InvalidInput(
            "The id of a new conversation has 1 to 100 characters: letters, digits and . _ : @ ~ -, first a letter or a"
            " digit."
        )
    return conversation_id


def owned_id(owner: str, chosen: str) -> str:
    """Return the id under which the conversation is stored that this owner calls `chosen`, over HTTP with `owner=`.

    Ids are unique in a store. If two owners could take each other's, one would learn from a refusal which ids the other
    has, or keep the other from using them; so a mark of the owner follows the name: a digest of 80 bits. Nobody can
    choose an id that ends in the mark of another one. An id that has the mark already is returned as it is. `Pure.`
    """
    name, slash, number = chosen.partition("/")  # a number of sub-agents follows the id of their conversation
    return f"{name.removesuffix(_mark(owner))}{_mark(owner)}{slash}{number}"


def _mark(owner: str) -> str:
    digest = blake2b(owner.encode(errors="replace"), digest_size=10, person=b"turnwise owner").digest()
    return f"~{b32encode(digest).decode().lower()}"


def chosen_id(owner: str, stored: str) -> str:
    """Return what this owner calls the conversation that is stored under this id. `Pure.`"""
    name, slash, number = stored.partition("/")
    return f"{name.removesuffix(_mark(owner))}{slash}{number}"


def id_of_key(key: str) -> str:
    """Return the id of the request by which an effect with this idempotency key reaches another conversation: the key,
    or a digest of one that is longer than an id may be. `Pure.`"""
    return key if len(key) <= LONGEST_ID else blake2b(key.encode(), digest_size=16).hexdigest()


def ids_of_key(key: str) -> Iterator[str]:
    """Yield the ids for `id_of_key` and, without end, those that follow where the target has another request under it.
    That happens where a sub-agent was deleted while its parent waited, and was started anew under the same id. `Pure.`
    """
    yield id_of_key(key)
    for number in count(2):
        yield id_of_key(f"{key}~{number}")


Filled: TypeAlias = frozenset[str]
"""The fields of a request that its caller left out, and that were filled in for it. They do not count when a repeated
request is compared with the one that was handled."""

NOTHING_FILLED: Filled = frozenset()

RULES = "policy"
"""A policy that the engine filled in, apart from its models and profiles."""

MODELS = "policy.models"
"""The models of a policy, where the engine filled them in."""

PROFILES = "policy.profiles"
"""The profiles of a policy, where the engine filled them in."""


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


_Variants: TypeAlias = Callable[[Request, Request], Iterable[tuple[Request, Request]]]
"""Yields a request and the one that was handled under its id in every form in which they may be the same."""

REMEMBERED = 64
"""How many requests are remembered: more than a client sends again at once when its connection comes back."""

_REMEMBERED_AT_REST = 2
"""How many of them are remembered while nothing is under way: those that a client repeats whose connection broke."""

_REMEMBERED_NO_OPS = 1024
"""How many cancels without effect are remembered: the log does not know them, so more than of other requests."""


class RecentRequests:
    """Knows the requests that one conversation has handled."""

    __slots__ = ("_ended", "_log", "_no_ops", "_recent", "_variants")

    def __init__(self, log: Log, variants: _Variants) -> None:
        self._log = log
        self._variants = variants
        self._recent: dict[str, HandledRequest] = {}
        self._no_ops: dict[str, HandledRequest] | None = None
        self._ended: TurnwiseError | None = None

    def end(self, why: TurnwiseError) -> None:
        """The log may be closed from now on. Whoever asks for what only the log knows is told this then, and not what
        a closed store says."""
        self._ended = why

    def note(self, entry: LogEntry) -> None:
        """Remember the event of a step that was stored, if it is a request."""
        if isinstance(entry.event, Request):
            turn = entry.turn if entry.ended is None else entry.ended.turn
            self._remember(HandledRequest(entry.event, entry.seq, turn), self._recent, REMEMBERED)

    def forget_at_rest(self) -> None:
        """Nothing is under way: forget older requests, which the log knows."""
        if len(self._recent) > _REMEMBERED_AT_REST:
            self._recent = dict(list(self._recent.items())[-_REMEMBERED_AT_REST:])

    def note_no_op(self, request: Request, filled: Filled) -> HandledRequest:
        """Remember a request that had nothing to do, unless its caller gave it no id and so cannot repeat it."""
        handled = HandledRequest(request, is_no_op=True)
        if "event_id" not in filled:
            self._no_ops = {} if self._no_ops is None else self._no_ops
            self._remember(handled, self._no_ops, _REMEMBERED_NO_OPS)
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
        try:
            if event_id not in self._recent and (entry := await self._log.request(event_id)) is not None:
                self.note(entry)
        except StoreError:
            if self._ended is not None:
                raise self._ended from None
            raise
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


_ANY_JSON = ("metadata", "arguments")
"""Fields of requests that hold any JSON. They are compared as JSON, too: to Python, 1 equals True."""


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
