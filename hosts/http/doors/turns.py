"""What a client of another protocol says to a conversation, and what it hears: a request, and the turn that it begins
or continues.

A client sends a new message, the reply to what the turn waits for, or one of these once more. Handing the request over
and following the turn are two steps, so that a refusal can be answered with a status before a stream begins. Both can
be repeated under the same id: the turn is then shown as it went the first time.

Some protocols have nothing but texts. For them a turn is the text that it says: each text that the model writes, where
the rules of the conversation show it, and each text that is said by tool. The same text is not shown twice because it
is also delivered.

What a waiting turn asks of a person, and what the person does about it, is the same for every protocol. A client that
can show nothing but text shows the question as text (`prompt_of`), and the person replies in plain text. A protocol
whose replies can hold any JSON hands the reply over as data. Both are read to the same acts.
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import Field, ValidationError

from ....effects.files import File, GivenFile, prepare
from ....effects.printable import with_hidden_shown
from ....effects.tools.tool import shown_arguments
from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....engine.requests import make
from ....engine.turns import Turn, WaitsForAnswer, WaitsForApproval, WaitsForResolution
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
from ....states.errors import InvalidInput, RefusalCode, Refused, TurnwiseError, UnknownConversation, faults_of
from ....states.events import DoubtResolved, Request, Resolution, ToolApproval, UserMessage, UserQuestionResponse
from ....states.openai_files import AttachedFile
from ....states.policy import ModelSettings, Policy
from ....states.states import AnyState, AwaitingApproval, InDoubt
from ....states.values.output import OutputSchema
from ....states.values.questions import UserQuestion
from ..permissions import Act, Caller
from ..schemas import Body


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
    turn = await requested.store()
    requested.number = turn.number or None
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
    if said.files:
        raise InvalidInput("The conversation waits for a reply, which can have no files.")
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
        self.number: int | None = None
        """The number of the turn, once one has taken the request."""

    def note(self, update: Update) -> None:
        """Take note of an update of the turn."""
        if self.number is None and isinstance(update, MessageUpdate):
            self.number = update.turn

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
    files: Sequence[GivenFile] = ()
    output: OutputSchema | None = None
    """The form that the answer must have."""
    settings: ModelSettings | None = None
    """The parameters with which the model is asked in the turn of this message."""


def given_file(attached: AttachedFile) -> File:
    """Return a file of a message as the engine takes it. `Pure.`"""
    return File(attached.url, attached.name or None, attached.media_type or None)


class MessageTurn(RequestedTurn):
    """The turn that takes a message."""

    def __init__(self, conversation: Conversation, request_id: str, said: Said) -> None:
        super().__init__(conversation, request_id)
        self._said = said

    async def store(self) -> Turn:
        """Send the message."""
        return await self.conversation.send(**self._options, wait=False)

    def updates(self) -> AsyncGenerator[Update, None]:
        """Return an iterator over the updates since the message."""
        return self.conversation.stream(**self._options)

    @property
    def _options(self) -> dict[str, Any]:
        said = self._said
        return {
            "text": said.text,
            "files": said.files,
            "output": said.output,
            "settings": said.settings,
            "message_id": self.request_id,
        }


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
        files = tuple(one.reference for one in await prepare(said.files))
        make(UserMessage, event_id=message_id, at=engine.now(), text=said.text, files=files, when_busy=None)
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
            requested.note(update)
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


async def stop_abandoned(requested: RequestedTurn) -> None:
    """Stop a turn whose client has gone, for clients that have no other way to stop it. What the model has written
    stays, as after any cancel. A turn that waits for a person goes on waiting."""
    number = requested.number
    if number is not None and awaited_by(requested.conversation.state) is None:
        with suppress(TurnwiseError):
            await requested.conversation.cancel(turn=number)


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

    What a tool is to say may not be said in the end. So it is shown while it is written only to a client that
    `takes_back` an abandoned part, and if no text of the model is shown beside it.
    """

    def __init__(self, policy: Policy, *, live: bool, takes_back: bool = False) -> None:
        is_reply = policy.text in ("auto", "reply")
        is_shown_as_written = live and not policy.redact and not policy.marker
        self._is_live = is_shown_as_written and is_reply
        self._shows_speech = is_shown_as_written and takes_back and policy.text != "reply"
        self._parts = TextParts()
        self._shown: Counter[str] = Counter()

    def read(self, update: Update) -> Iterator[TextPiece]:
        """Yield what this update adds."""
        match update:
            case TokenUpdate(kind="text", fallback=False) if self._is_live:
                yield from self._parts.token(update)
            case TokenUpdate(kind="speech") if self._shows_speech:
                yield from self._parts.token(update)
            case MessageUpdate(role="assistant", text=text, fallback=False):
                self._shown[text] += 1
                yield from self._parts.full_text(text)
            case DeliveryUpdate(text=text) if self._shown[text]:
                self._shown[text] -= 1
            case DeliveryUpdate(text=text) if not self._parts.take_first(text):
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

    def take_first(self, text: str) -> bool:
        """Return whether the open part begins with this text, and goes on with another behind a blank line. What comes
        now is compared with the other."""
        shown, first = "".join(self._pieces), f"{text}{_BETWEEN_PARTS}"
        if not self._is_open or not shown.startswith(first):
            return False
        self._pieces = [shown.removeprefix(first)]
        return True

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


A = TypeVar("A", bound=Request)

Wanted: TypeAlias = Literal["answers", "approval", "resolution"]
"""What a turn waits for: answers to questions, the approval of a call, or word of whether a call ran."""


@dataclass(frozen=True)
class Awaited:
    """What a turn waits for, and the call that it is about."""

    wanted: Wanted
    call_id: str
    questions: tuple[UserQuestion, ...] = ()


def awaited_by(state: AnyState) -> Awaited | None:
    """Return what a conversation in this state waits for, None if it waits for nobody. `Pure.`"""
    if (asked := state.open_question) is not None:
        return Awaited("answers", asked.call_id, asked.questions)
    if isinstance(state, AwaitingApproval):
        return Awaited("approval", state.call.call_id)
    if isinstance(state, InDoubt):
        return Awaited("resolution", state.call.call_id)
    return None


class Stamp(NamedTuple):
    """The id and the moment of the request that is made of what a client sends."""

    event_id: str
    at: datetime

    def on(self, kind: type[A], **fields: object) -> A:
        """Return the request of this kind. Raises `InvalidInput`, which names the first invalid field. `Pure.`"""
        return make(kind, event_id=self.event_id, at=self.at, **fields)


_DECISIONS: Mapping[str, bool] = {"yes": True, "allow": True, "approve": True, "no": False, "deny": False}
_VERDICTS: Mapping[str, Resolution] = {"ran": "ran", "did not run": "did_not_run", "again": "again"}


def act_of(text: str, awaited: Awaited, stamp: Stamp) -> Act:
    """Return what a person does who replies with this text to what is awaited.

    To one question the whole text is the answer, to several each line is one. An option is chosen by its label or its
    number; anything else is an answer in the person's own words. Raises `Refused` for a text that decides nothing:
    `missing_answer` if there are fewer lines than questions, `awaiting_approval` and `in_doubt` if it is neither of the
    words that are asked for. `Pure.`
    """
    match awaited.wanted:
        case "answers":
            return stamp.on(UserQuestionResponse, call_id=awaited.call_id, answers=_answers(text, awaited.questions))
        case "approval":
            return stamp.on(ToolApproval, call_id=awaited.call_id, allowed=_decision(text))
        case "resolution":
            return stamp.on(DoubtResolved, call_id=awaited.call_id, verdict=_verdict(text))


def _answers(text: str, questions: tuple[UserQuestion, ...]) -> dict[str, str | list[str]]:
    lines = [text.strip()] if len(questions) == 1 else [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) != len(questions):
        sentence = f"{len(questions)} questions wait for an answer: answer each on a line of its own."
        raise Refused("missing_answer", questions[min(len(lines), len(questions) - 1)].question, sentence=sentence)
    return {question.question: _answer(line, question) for question, line in zip(questions, lines, strict=True)}


def _answer(text: str, question: UserQuestion) -> str | list[str]:
    if not question.multi_select:
        return _label(text, question) or text
    whole = _label(text, question)
    pieces = [piece.strip() for piece in re.split(r"[,;\n]", text) if piece.strip()]
    labels = [_label(piece, question) for piece in pieces]
    if whole is not None or not all(labels):
        return [whole or text]
    return list(dict.fromkeys(filter(None, labels)))


def _label(text: str, question: UserQuestion) -> str | None:
    """Return the label of the option that the text names, None if it names none."""
    labels = [option.label for option in question.options]
    named = [label for label in labels if label.casefold() == text.casefold()]
    if named:
        return text if text in labels else named[0]
    if re.fullmatch(r"[1-9]", text) and int(text) <= len(labels):
        return labels[int(text) - 1]
    return None


def _decision(text: str) -> bool:
    decision = _DECISIONS.get(_word(text))
    if decision is None:
        raise Refused("awaiting_approval", sentence='A tool waits for approval: answer "yes" or "no".')
    return decision


def _verdict(text: str) -> Resolution:
    verdict = _VERDICTS.get(_word(text).replace("_", " "))
    if verdict is None:
        raise Refused("in_doubt", sentence='A tool was interrupted: answer "ran", "did not run" or "again".')
    return verdict


def _word(text: str) -> str:
    return text.strip().rstrip(".!").casefold()


def prompt_of(turn: Turn) -> str | None:
    """Return what the turn asks of a person, None if it asks nothing. The prompt about a call names the call by its
    id, so that a late reply is not taken for another call. `Pure.`"""
    match turn:
        case WaitsForAnswer(questions=questions):
            return "\n\n".join(map(_question_text, questions))
        case WaitsForApproval(call=call):
            tool, arguments = with_hidden_shown(call.name), shown_arguments(call)
            if call.approval_by == "operator":
                return f"An operator decides whether the tool {tool} may run with {arguments}. [{call.call_id}]"
            return f'May the tool {tool} run with {arguments}? Answer "yes" or "no". [{call.call_id}]'
        case WaitsForResolution(call=call):
            tool, arguments = with_hidden_shown(call.name), shown_arguments(call)
            return (
                f"The tool {tool} was interrupted while it ran with {arguments}, and it is unknown whether it"
                f' finished. Answer "ran", "did not run" or "again". [{call.call_id}]'
            )
        case _:
            return None


def _question_text(question: UserQuestion) -> str:
    """Return a question with its options, each on a line with its number. `Pure.`"""
    return "\n".join(_lines(question))


def _lines(question: UserQuestion) -> Iterator[str]:
    yield question.question + (" (Several may be chosen.)" if question.multi_select else "")
    for number, option in enumerate(question.options, start=1):
        yield f"{number}. {option.label}" + (f": {option.description}" if option.description else "")


P = TypeVar("P", bound=Body)


class AnswersPayload(Body):
    """Answers by the text of their question, with notes."""

    answers: dict[str, str | list[str]]
    annotations: dict[str, dict[str, str]] = Field(default_factory=dict)


class ApprovalPayload(Body):
    """Whether the call may run, perhaps with other arguments, or why it may not."""

    approved: bool
    edited_args: Annotated[dict[str, Any] | None, Field(alias="editedArgs")] = None
    note: str | None = None


class VerdictPayload(Body):
    """Whether a call ran that was interrupted."""

    verdict: Resolution


def act_of_payload(payload: Any, awaited: Awaited, stamp: Stamp) -> Act:
    """Return what a person does who replies this to what is awaited. A text is read as in a chat. Raises `InvalidInput`
    and, as `act_of` does, `Refused`. `Pure.`"""
    if isinstance(payload, str):
        return act_of(payload, awaited, stamp)
    call_id = awaited.call_id
    match awaited.wanted:
        case "answers":
            given = _read(AnswersPayload, payload)
            return stamp.on(UserQuestionResponse, call_id=call_id, **dict(given))
        case "approval":
            decision = _read(ApprovalPayload, payload)
            note, arguments = decision.note or "", decision.edited_args
            return stamp.on(ToolApproval, call_id=call_id, allowed=decision.approved, note=note, arguments=arguments)
        case "resolution":
            return stamp.on(DoubtResolved, call_id=call_id, verdict=_read(VerdictPayload, payload).verdict)


def _read(kind: type[P], payload: Any) -> P:
    try:
        return kind.model_validate(payload)
    except ValidationError as error:
        fault = faults_of(error)[0]
        where = ".".join(("payload", *map(str, fault["loc"])))
        raise InvalidInput(f"{where}: {fault['msg']}.") from None
