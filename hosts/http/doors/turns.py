"""What a client of another protocol says to a conversation, and what it hears: a request, and the turn that it begins
or continues.

A client sends a new message, the reply to what the turn waits for, or one of these once more. Handing the request over
and following the turn are two steps, so that a refusal can be answered with a status before a stream begins. Both can
be repeated under the same id: the turn is then shown as it went the first time.

Some protocols have nothing but texts. For them a turn is the text that it says: each text that the model writes, where
the rules of the conversation show it, and each text that is said by tool. The same text is not shown twice because it
is also delivered.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....engine.requests import make
from ....engine.turns import Turn
from ....engine.updates import (
    DeliveryUpdate,
    MessageUpdate,
    SnapshotUpdate,
    StateChangeUpdate,
    StateView,
    TokenUpdate,
    TurnEndedUpdate,
    Update,
)
from ....states.errors import InvalidInput, RefusalCode, Refused, UnknownConversation
from ....states.events import Request, UserMessage
from ....states.policy import Policy
from ..permissions import Act, Caller
from .turns_text import Awaited, Stamp, Wanted, act_of, awaited_by, prompt_of


async def request_turn(
    caller: Caller, conversation: Conversation, said: Said, request_id: str | None = None, shown: str | None = None
) -> RequestedTurn:
    """Hand a message of the caller to its conversation, and return the turn that it begins or continues.

    If the turn waits for a person, the text is the reply. `shown` is the assistant's message that the user has seen
    last; a reply that was meant for something else, because it was sent late or twice, is refused. With a `request_id`
    the message is taken once, however often it is sent. Raises what `Conversation.send` and `answer` raise.
    """
    awaited = awaited_by(conversation.state)
    chosen_id = str(uuid.uuid4()) if request_id is None else request_id
    if awaited is not None and request_id is not None:
        earlier = await _earlier(caller, conversation, said, request_id)
        if earlier is not None:
            return await stored(earlier)
    if awaited is None:
        return await _sent(caller, conversation, said, chosen_id)
    _check_meant(awaited, shown)
    return await stored(ActTurn(caller, conversation, _reply(said, awaited, Stamp(chosen_id, conversation.now()))))


async def stored(requested: RequestedTurn) -> RequestedTurn:
    """Hand a request over, and return it."""
    await requested.store()
    return requested


async def _sent(caller: Caller, conversation: Conversation, said: Said, request_id: str) -> RequestedTurn:
    """Send a message; or, if its id is that of a reply, hand in that reply again."""
    try:
        return await stored(MessageTurn(conversation, request_id, said))
    except Refused as refused:
        earlier = await _earlier(caller, conversation, said, request_id) if refused.code == "event_id_reused" else None
        if not isinstance(earlier, ActTurn):
            raise
    return await stored(earlier)


async def _earlier(caller: Caller, conversation: Conversation, said: Said, request_id: str) -> RequestedTurn | None:
    """Return what was stored under this id as it is asked for now, None if nothing was. The engine compares the two."""
    earlier = await earlier_request(conversation, request_id)
    if earlier is None:
        return None
    if earlier.awaited is None or earlier.is_message:
        return MessageTurn(conversation, request_id, said)
    return ActTurn(caller, conversation, _reply(said, earlier.awaited, Stamp(request_id, conversation.now())))


@dataclass(frozen=True)
class _EarlierRequest:
    """A request that was stored before, and what the conversation waited for then."""

    is_message: bool
    awaited: Awaited | None


async def earlier_request(conversation: Conversation, request_id: str) -> _EarlierRequest | None:
    """Return the request that was stored under this id, None if none was. Raises `StoreError`."""
    seq = await conversation.step_of(request_id)
    if seq is None or seq == 1:  # the first step is that of the creation, before which nothing was waited for
        return None
    before, step = await conversation.steps(seq - 2, 2)
    return _EarlierRequest(step.event["type"] == "user_message", _awaited_in(before.state))


async def began_waiting(conversation: Conversation) -> int | None:
    """Return the number of the step since which the conversation waits for what it waits for now, None if it waits for
    nobody. Raises `StoreError`."""
    began, now = None, None
    for step in reversed(await conversation.steps()):
        awaited = _awaited_in(step.state)
        if awaited is None or awaited != (now or awaited):
            break
        began, now = step.seq, awaited
    return began


def _awaited_in(state: StateView) -> Awaited | None:
    wanted: dict[str, Wanted] = {"awaiting_approval": "approval", "in_doubt": "resolution"}
    kind = "answers" if state.questions else wanted.get(state.type)
    return None if kind is None or state.call_id is None else Awaited(kind, state.call_id, state.questions)


def _reply(said: Said, awaited: Awaited, stamp: Stamp) -> Act:
    if said.images:
        raise InvalidInput("The conversation waits for a reply, which can have no images.")
    return act_of(said.text, awaited, stamp)


def _check_meant(awaited: Awaited, shown: str | None) -> None:
    """Raise `Refused` if the user has last seen something else. What concerns a call must have been seen; whoever
    answers a question may have been told of it in another way."""
    match awaited.wanted:
        case "answers":
            if shown is not None and not any(one.question in shown for one in awaited.questions):
                raise Refused("wrong_state", sentence="Another question waits than the one that was last shown.")
        case "approval" | "resolution":
            if shown is None or f"[{awaited.call_id}]" not in shown:
                code: RefusalCode = "awaiting_approval" if awaited.wanted == "approval" else "in_doubt"
                raise Refused(code, sentence="A reply in plain text must follow the message that asks for it.")


class RequestedTurn(ABC):
    """A request under an id, and the turn that it belongs to. Call `store` first."""

    def __init__(self, conversation: Conversation, request_id: str) -> None:
        self.conversation = conversation
        self.request_id = request_id

    @abstractmethod
    async def store(self) -> Turn:
        """Hand the request to the conversation, and return the turn as of the moment when it is stored. Raises
        `InvalidInput`, `Refused` and `StoreError`."""

    @abstractmethod
    def updates(self) -> AsyncGenerator[Update, None]:
        """Return an iterator over the updates of the turn, from the request on until the turn ends or waits for a
        person."""

    async def turn(self) -> Turn:
        """Wait until the turn ends or waits for a person for the first time after the request, and return it."""
        return await self.conversation.turn_after(self.request_id)


@dataclass(frozen=True)
class Said:
    """A message of the user."""

    text: str
    images: Sequence[str] = ()


class MessageTurn(RequestedTurn):
    """The turn that takes a message."""

    def __init__(self, conversation: Conversation, request_id: str, said: Said) -> None:
        super().__init__(conversation, request_id)
        self._said = said

    async def store(self) -> Turn:
        """Send the message."""
        said = self._said
        return await self.conversation.send(said.text, images=said.images, message_id=self.request_id, wait=False)

    def updates(self) -> AsyncGenerator[Update, None]:
        """Return an iterator over the updates since the message."""
        return self.conversation.stream(self._said.text, images=self._said.images, message_id=self.request_id)


class ActTurn(RequestedTurn):
    """The turn that goes on after what a person did about it."""

    def __init__(self, caller: Caller, conversation: Conversation, act: Act) -> None:
        super().__init__(conversation, act.event_id)
        self._caller = caller
        self._act = act

    @property
    def call_id(self) -> str | None:
        """The call that the act is about."""
        return self._act.call_id

    async def store(self) -> Turn:
        """Answer, decline, approve or resolve."""
        return await self._caller.submit(self.conversation, self._act)

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Yield the updates since the act. Where some cannot be shown, none are; the turn is waited for all the
        same."""
        seq = await _seq_of_request(self.conversation, self.request_id)
        async with aclosing(self.conversation.updates(after=f"{seq}.0")) as updates:
            async for update in updates:
                if isinstance(update, SnapshotUpdate):
                    break
                yield update
                if _stops(update):
                    return
        await self.turn()


async def _seq_of_request(conversation: Conversation, request_id: str) -> int | None:
    """Return the number of the step that took the request with this id, None if there is none."""
    for entry in reversed(await conversation.events()):
        if isinstance(entry.event, Request) and entry.event.event_id == request_id:
            return entry.seq
    return None


def _stops(update: Update) -> bool:
    """Whether the turn ends with this update, or waits for a person."""
    if isinstance(update, StateChangeUpdate):
        return update.state.waits_for_person
    return isinstance(update, TurnEndedUpdate)


async def opened(
    engine: Engine,
    caller: Caller,
    conversation_id: str,
    said: Said,
    message_id: str,
    *,
    messages: list[dict[str, Any]],
    model: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Conversation:
    """Return the caller's conversation with this id; if there is none, a new one that begins with these messages, for
    what is `said` next under `message_id`. Raises what `Caller.create` raises, `InvalidInput` for a message that no
    conversation takes, before one is created for it, and `UnknownConversation` for the id of somebody else."""
    try:
        return await caller.open(engine, conversation_id)
    except UnknownConversation:
        make(UserMessage, event_id=message_id, at=engine.now(), text=said.text, images=said.images, when_busy=None)
    try:
        return await caller.create(
            engine,
            conversation_id=caller.new_id(conversation_id),
            model=model,
            messages=messages,
            metadata=metadata,
        )
    except Refused as refused:
        if refused.code != "event_id_reused":
            raise
    return await caller.open(engine, conversation_id)  # somebody has created it meanwhile, with other arguments


_BETWEEN_PARTS = "\n\n"


async def spoken_turn(
    requested: RequestedTurn, *, live: bool, prompts: bool = True
) -> AsyncGenerator[str | Turn, None]:
    """Yield what is said in the turn, in pieces that joined make one text; and at last the turn, as it ended or waits
    for a person. With `prompts`, what it asks a person is said as well. With `live`, a text comes while it is written.
    """
    texts = SaidTexts(requested.conversation.policy, live=live)
    joined = _Joined()
    async with aclosing(requested.updates()) as updates:
        async for update in updates:
            for piece in texts.read(update):
                yield joined.text_of(piece)
    for piece in texts.close():
        yield joined.text_of(piece)
    turn = await requested.turn()
    missing = turn.deliveries if joined.is_empty else ()  # the updates of the turn could not be shown
    prompt = prompt_of(turn) if prompts else None
    for text in (*missing, *([] if prompt is None else [prompt])):
        for piece in texts.full_text(text):
            yield joined.text_of(piece)
    yield turn


class _Joined:
    """Puts a blank line between parts."""

    def __init__(self) -> None:
        self._number = 0

    @property
    def is_empty(self) -> bool:
        return not self._number

    def text_of(self, piece: TextPiece) -> str:
        begins = piece.number != self._number
        text = _BETWEEN_PARTS + piece.text if begins and self._number else piece.text
        self._number = piece.number
        return text


class SaidTexts:
    """Reads the updates of a turn, and yields what the assistant says, in parts.

    With `live`, a text is shown while it is written. A conversation whose rules remove something from what a model
    wrote (secrets, marked lines) shows it only afterwards, without that. Of text that the rules keep from the user, or
    that is for the user only if nothing is said by tool, nothing is shown but what was delivered.
    """

    def __init__(self, policy: Policy, *, live: bool) -> None:
        is_reply = policy.text in ("auto", "reply")
        self._is_live = live and is_reply and not policy.redact and not policy.marker
        self._parts = TextParts()
        self._shown: Counter[str] = Counter()

    def read(self, update: Update) -> Iterator[TextPiece]:
        """Yield what this update adds."""
        match update:
            case TokenUpdate(kind="text", fallback=False) if self._is_live:
                yield from self._parts.token(update)
            case MessageUpdate(role="assistant", text=text, fallback=False):
                self._shown[text] += 1
                yield from self._parts.full_text(text)
            case DeliveryUpdate(text=text) if self._shown[text]:
                self._shown[text] -= 1
            case DeliveryUpdate(text=text):
                yield from self._parts.full_text(text)
            case _:
                pass

    def close(self) -> Iterator[TextPiece]:
        """End a text that was not finished, as the turn has stopped."""
        yield from self._parts.close()

    def full_text(self, text: str) -> Iterator[TextPiece]:
        """Yield a text that the door adds, as a part of its own."""
        yield from self._parts.close()
        yield from self._parts.full_text(text)


@dataclass(frozen=True)
class TextPiece:
    """A piece of the part with this `number`, counted from 1. With `ends` it is the last one of its part, and may be
    empty; an `abandoned` part is no longer what was said."""

    number: int
    text: str = ""
    ends: bool = False
    abandoned: bool = False


class TextParts:
    """Makes parts of texts that arrive in pieces, and then complete: the tokens of a model, and then its message. At
    most one part is open.

    A model that fails in the middle of its answer writes it again. What a client was sent cannot be taken back, so the
    beginning that is not part of any answer ends as an abandoned part, and the answer is a part of its own.
    """

    def __init__(self) -> None:
        self._number = 0
        self._key: tuple[int, int, int] | None = None
        self._pieces: list[str] = []
        self._is_open = False

    def token(self, token: TokenUpdate) -> Iterator[TextPiece]:
        """Yield what is new in this token. Blank space alone begins no part."""
        key = (token.turn, token.request, token.attempt)
        shown = "".join(self._pieces) if token.from_start and key == self._key else ""
        if key != self._key or not token.text.startswith(shown):
            yield from self.close()
            self._key, shown = key, ""
        text = token.text[len(shown) :]
        self._pieces.append(text)
        if self._is_open:
            yield TextPiece(self._number, text)
        elif text.strip():
            yield from self._open("".join(self._pieces))

    def full_text(self, text: str) -> Iterator[TextPiece]:
        """Yield what is still missing of this text, which ends its part; all of it if its tokens were not shown."""
        shown = "".join(self._pieces)
        if self._is_open and (text.startswith(shown) or shown.strip() == text.strip()):
            yield TextPiece(self._number, text[len(shown) :], ends=True)
            self._forget()
        else:
            yield from self.close()
            yield from self._open(text)
            yield TextPiece(self._number, ends=True)
            self._forget()

    def close(self) -> Iterator[TextPiece]:
        """End the open part, if there is one, as abandoned."""
        if self._is_open:
            yield TextPiece(self._number, ends=True, abandoned=True)
        self._forget()

    def _open(self, text: str) -> Iterator[TextPiece]:
        self._number += 1
        self._is_open = True
        yield TextPiece(self._number, text)

    def _forget(self) -> None:
        self._key, self._is_open = None, False
        self._pieces.clear()
