"""Holds the runs of AG-UI: a run is one request to a conversation, and the events of the turn that it begins or
continues.

The events are made of the updates of the turn. What a turn waits for is an interrupt, which a later run resumes. A call
can wait more than once: for approval, and later for answers to questions of its tool. So the id of an interrupt is that
of the call together with the step at which the wait began.

A client cannot be told to remove one message. It can be told which messages there are, all of them; so the messages
that it holds are kept as the events of the run have built them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ag_ui.core import (
    AssistantMessage,
    AudioPart,
    BaseEvent,
    ContentPart,
    CustomEvent,
    DataSource,
    DeveloperMessage,
    DocumentPart,
    FunctionCall,
    ImagePart,
    Interrupt,
    Message,
    MessagesSnapshotEvent,
    ReasoningEndEvent,
    ReasoningMessage,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    SystemMessage,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UrlSource,
    UserMessage,
    VideoPart,
)
from ag_ui.core import ToolCall as AguiToolCall
from ag_ui.core.version import PROTOCOL_VERSION

from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....engine.turns import CancelledTurn, FailedTurn, Turn, WaitsForAnswer, WaitsForApproval, WaitsForResolution
from ....engine.updates import StateChangeUpdate, ThoughtUpdate, TokenUpdate, ToolProgressUpdate, ToolUpdate, Update
from ....states.errors import InvalidInput, TurnwiseError
from ....states.events import ToolApproval, UserCancel
from ....states.openai_files import AttachedFile, attached_at, part_of
from ....states.policy import Policy
from ....states.values.messages import ToolCall
from ....states.values.questions import UserQuestion
from ..permissions import Act, Caller
from ..problems import HttpError, http_problem, problem_of
from ..streams import data_line
from .turns import (
    ActTurn,
    ApprovalPayload,
    Awaited,
    MessageTurn,
    RequestedTurn,
    Said,
    SaidTexts,
    Stamp,
    TextParts,
    TextPiece,
    VerdictPayload,
    act_of_payload,
    awaited_by,
    began_waiting,
    earlier_request,
    given_file,
    opened,
    prompt_of,
    stop_abandoned,
    stored,
)

logger: logging.Logger = logging.getLogger("turnwise.http")


class AgentRun:
    """One request of a client."""

    def __init__(self, run: RunAgentInput, engine: Engine, caller: Caller) -> None:
        self._run = run
        self._engine = engine
        self._caller = caller
        self._requested: RequestedTurn | None = None

    async def events(self) -> AsyncIterator[bytes]:
        """Yield its events as Server-Sent Events. Whatever is wrong with it ends it with a RUN_ERROR."""
        async with aclosing(self._events()) as events:
            async for event in events:
                yield data_line(event.model_dump(by_alias=True)) + b"\n"

    async def abandon(self) -> None:
        """The client has gone: stop the turn, if the client wants that."""
        given = self._run.forwarded_props
        own = given.get("turnwise") if isinstance(given, dict) else None
        if self._requested is not None and isinstance(own, dict) and own.get("stopOnDisconnect") is True:
            await stop_abandoned(self._requested)

    async def _events(self) -> AsyncGenerator[BaseEvent, None]:
        run = self._run
        yield RunStartedEvent(
            thread_id=run.thread_id,
            run_id=run.run_id,
            protocol_version=PROTOCOL_VERSION,
            parent_run_id=run.parent_run_id,
        )
        try:
            self._requested = await _requested(run, self._engine, self._caller)
            async with aclosing(_Run(run, self._requested).events()) as events:
                async for event in events:
                    yield event
        except _RunRefused as refused:
            yield RunErrorEvent(message=refused.sentence, code=refused.code)
        except (TurnwiseError, HttpError) as error:
            problem = problem_of(error)
            yield RunErrorEvent(message=problem.detail, code=problem.code)
        except Exception:
            logger.exception("A run of an AG-UI client failed.")
            problem = http_problem("internal_error")
            yield RunErrorEvent(message=problem.detail, code=problem.code)


async def _requested(run: RunAgentInput, engine: Engine, caller: Caller) -> RequestedTurn:
    """Hand the message, or the answer to an interrupt, to the conversation of the thread."""
    check_supported(run)
    if run.resume:
        return await _resumed_turn(caller, await caller.open(engine, run.thread_id), run.resume)
    message_id, said = _message_to_answer(run)
    conversation = await opened(engine, caller, run.thread_id, said, message_id, messages=_history_before(run))
    return await stored(MessageTurn(conversation, message_id, said))


@dataclass(frozen=True)
class _Run:
    """A run that has begun."""

    run: RunAgentInput
    requested: RequestedTurn

    @property
    def conversation(self) -> Conversation:
        return self.requested.conversation

    async def events(self) -> AsyncGenerator[BaseEvent, None]:
        """Yield the state, then what happens in the turn, then how the run ends."""
        is_act = isinstance(self.requested, ActTurn)
        known_call = self.requested.call_id if isinstance(self.requested, ActTurn) else None
        state = self._state()
        shown = _ShownMessages(self.run.messages)
        policy = self.conversation.policy
        translated = _RunEvents(self.requested.request_id, policy, shown, known_call, has_state=state is not None)
        if state is not None:
            yield StateSnapshotEvent(snapshot=state)
        async with aclosing(self.requested.updates()) as updates:
            async for update in updates:
                self.requested.note(update)
                for event in translated.read(update):
                    yield event
        turn = await self.requested.turn()
        for event in (*translated.close(), *self._asked(turn, translated)):
            yield event
        yield self._end(turn, translated.waiting_since, usage=None if is_act else _usage(turn))

    def _state(self) -> Any:
        """The agent's state as the client has it, with what is known of the conversation under `turnwise`; None if it
        is no object."""
        given = {} if self.run.state is None else self.run.state
        if not isinstance(given, dict):
            return None
        state = self.conversation.state
        shown = {"conversation": self.run.thread_id, "state": {"type": state.type, "data": {"turn": state.book.turn}}}
        return {**given, "turnwise": shown}

    def _asked(self, turn: Turn, translated: _RunEvents) -> Iterator[BaseEvent]:
        """Show the call that waits for a person: an interrupt names a call that was shown."""
        if isinstance(turn, WaitsForApproval | WaitsForResolution):
            yield from translated.call(turn.call)

    def _end(self, turn: Turn, waiting_since: int | None, usage: list[TokenUsage] | None) -> BaseEvent:
        if isinstance(turn, FailedTurn):
            return RunErrorEvent(message=turn.failure, code="turn_failed", usage=usage)
        interrupt = _interrupt_of(turn, waiting_since or 0)
        outcome: Any = RunFinishedSuccessOutcome()
        if interrupt is not None:
            outcome = RunFinishedInterruptOutcome(interrupts=[interrupt])
        elif isinstance(turn, CancelledTurn):
            outcome = RunFinishedCancelledOutcome()
        return RunFinishedEvent(
            thread_id=self.run.thread_id, run_id=self.run.run_id, result=turn.data, outcome=outcome, usage=usage
        )


def _usage(turn: Turn) -> list[TokenUsage]:
    """What the turn has used. A run that resumes one reports nothing, as its own part is not known."""
    used = turn.usage
    return [
        TokenUsage(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            total_tokens=used.tokens,
            reasoning_tokens=used.reasoning_tokens,
            cached_input_tokens=used.cached_tokens,
        )
    ]


_STATE_PATH = "/turnwise/state"
"""Where the state of the conversation stands in the state of the agent."""

_TOOL_PROGRESS = "turnwise.tool_progress"
"""The name of the custom event that has what a running tool reports."""


class _RunEvents:
    """Translates the updates of one turn, in order.

    Ids of messages begin with `prefix`, so that the events of a repeated run have the same ids. `known_call` is a call
    that an earlier run has shown. `has_state` says whether the agent's state is an object, which holds that of the
    conversation. `shown` are the messages that the client holds: one that the model gave up is removed from them.
    """

    def __init__(
        self, prefix: str, policy: Policy, shown: _ShownMessages, known_call: str | None, *, has_state: bool
    ) -> None:
        self._prefix = prefix
        self._shown = shown
        self._texts = SaidTexts(policy, live=True, takes_back=True)
        self._thoughts = TextParts()
        self._calls = {known_call}
        self._has_state = has_state
        self._begun: set[str] = set()
        self.waiting_since: int | None = None
        """The step at which the turn began to wait for a person, if it waits."""

    def read(self, update: Update) -> Iterator[BaseEvent]:
        """Yield the events of an update."""
        yield from map(self._shown.note, self._read(update))

    def _read(self, update: Update) -> Iterator[BaseEvent]:
        match update:
            case TokenUpdate(kind="thinking"):
                yield from self._thought(self._thoughts.token(update))
            case ThoughtUpdate():
                yield from self._thought(self._thoughts.full_text(update.text))
            case ToolUpdate():
                yield from self._tool(update)
            case ToolProgressUpdate():
                yield CustomEvent(name=_TOOL_PROGRESS, value=update.data)
            case StateChangeUpdate():
                yield from self._state(update)
            case _:
                yield from self._said(self._texts.read(update))

    def close(self) -> Iterator[BaseEvent]:
        """End what is open, as the turn has stopped."""
        yield from self._thought(self._thoughts.close())
        yield from self._said(self._texts.close())

    def call(self, call: ToolCall) -> Iterator[BaseEvent]:
        """Show a call, unless it was shown."""
        yield from self._call(call.call_id, call.name, call.raw_arguments)

    # --- each kind

    def _said(self, pieces: Iterator[TextPiece]) -> Iterator[BaseEvent]:
        for piece in pieces:
            message_id = f"{self._prefix}-text-{piece.number}"
            if self._begins(message_id):
                yield TextMessageStartEvent(message_id=message_id, role="assistant")
            if piece.text:
                yield TextMessageContentEvent(message_id=message_id, delta=piece.text)
            if piece.ends:
                yield TextMessageEndEvent(message_id=message_id)
            if piece.abandoned:
                yield self._shown.without(message_id)

    def _thought(self, pieces: Iterator[TextPiece]) -> Iterator[BaseEvent]:
        for piece in pieces:
            message_id = f"{self._prefix}-thought-{piece.number}"
            if self._begins(message_id):
                yield ReasoningStartEvent(message_id=message_id)
                yield ReasoningMessageStartEvent(message_id=message_id, role="reasoning")
            if piece.text:
                yield ReasoningMessageContentEvent(message_id=message_id, delta=piece.text)
            if piece.ends:
                yield ReasoningMessageEndEvent(message_id=message_id)
                yield ReasoningEndEvent(message_id=message_id)
            if piece.abandoned:
                yield self._shown.without(message_id)

    def _begins(self, message_id: str) -> bool:
        begins = message_id not in self._begun
        self._begun.add(message_id)
        return begins

    def _tool(self, update: ToolUpdate) -> Iterator[BaseEvent]:
        arguments = update.raw_arguments
        if arguments is None:
            arguments = json.dumps(update.arguments, ensure_ascii=False)
        yield from self._call(update.call_id, update.name, arguments)
        if update.status != "running":
            content = update.result if update.error is None else update.error
            yield ToolCallResultEvent(
                message_id=f"{update.call_id}-result", tool_call_id=update.call_id, content=content or "", role="tool"
            )

    def _call(self, call_id: str, name: str, arguments: str) -> Iterator[BaseEvent]:
        if call_id in self._calls:
            return
        self._calls.add(call_id)
        yield ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name)
        yield ToolCallArgsEvent(tool_call_id=call_id, delta=arguments)
        yield ToolCallEndEvent(tool_call_id=call_id)

    def _state(self, update: StateChangeUpdate) -> Iterator[BaseEvent]:
        self.waiting_since = update.position[0] if update.state.waits_for_person else None
        if self._has_state:
            change: Any = {"op": "replace", "path": _STATE_PATH, "value": update.state.data}
            yield StateDeltaEvent(delta=[change])


def _interrupt_id(call_id: str, seq: int) -> str:
    """Return the id of the interrupt of a call that began to wait at the step `seq`. `Pure.`"""
    return f"{call_id}.{seq}"


def _interrupt_of(turn: Turn, seq: int) -> Interrupt | None:
    """Return what a turn waits for since the step `seq`, None if it waits for nobody. `Pure.`"""
    match turn:
        case WaitsForAnswer(questions=questions):
            reason, schema = "input_required", _answers_schema(questions)
        case WaitsForApproval():
            reason, schema = "tool_call", ApprovalPayload.model_json_schema()
        case WaitsForResolution():
            reason, schema = "turnwise:in_doubt", VerdictPayload.model_json_schema()
        case _:
            return None
    return Interrupt(
        id=_interrupt_id(turn.call_id, seq),
        reason=reason,
        message=prompt_of(turn),
        tool_call_id=turn.call_id,
        response_schema=schema,
        metadata={"turnwise": turn.data},
    )


def _answers_schema(questions: tuple[UserQuestion, ...]) -> dict[str, Any]:
    properties = {question.question: _answer_schema(question) for question in questions}
    answers = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "object", "properties": {"answers": answers}, "required": ["answers"]}


def _answer_schema(question: UserQuestion) -> dict[str, Any]:
    """Any text is an answer; the options are examples of one."""
    text: dict[str, Any] = {"type": "string", "minLength": 1}
    if question.options:
        text["examples"] = [option.label for option in question.options]
    return {"type": "array", "items": text, "minItems": 1} if question.multi_select else text


async def _resumed_turn(caller: Caller, conversation: Conversation, entries: list[ResumeEntry]) -> RequestedTurn:
    """Hand the answer to an interrupt to its conversation, and return the turn that goes on. The same answer may come
    again. Raises `_RunRefused` if this interrupt is not open, `InvalidInput` and `Refused`."""
    if len(entries) != 1:
        raise _RunRefused("unknown_interrupt", "One interrupt is open at a time: resume that one.")
    (entry,) = entries
    request_id = _request_id(entry)
    earlier = await earlier_request(conversation, request_id)
    awaited = await _open(conversation, entry.interrupt_id) if earlier is None else earlier.awaited
    if awaited is None:
        raise _RunRefused("unknown_interrupt", "This interrupt is not open: it was answered, or never raised.")
    act = _act(entry, awaited, Stamp(request_id, conversation.now()))
    return await stored(ActTurn(caller, conversation, act))


def _request_id(entry: ResumeEntry) -> str:
    """The id under which an answer is stored: the same for the same answer to the same interrupt."""
    content = json.dumps([entry.interrupt_id, entry.status, entry.payload], sort_keys=True)
    return f"resume-{blake2b(content.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"


async def _open(conversation: Conversation, given_id: str) -> Awaited | None:
    """Return what the conversation waits for, None if that is not the interrupt with this id."""
    awaited = awaited_by(conversation.state)
    seq = await began_waiting(conversation)
    is_open = awaited is not None and seq is not None and given_id == _interrupt_id(awaited.call_id, seq)
    return awaited if is_open else None


def _act(entry: ResumeEntry, awaited: Awaited, stamp: Stamp) -> Act:
    """Return what the user does."""
    if entry.status == "cancelled":
        return _abandoned(awaited, stamp)
    return act_of_payload(entry.payload, awaited, stamp)


def _abandoned(awaited: Awaited, stamp: Stamp) -> Act:
    """Return what it means to resolve nothing: a question is declined, and a call that nobody allows does not run."""
    match awaited.wanted:
        case "answers":
            return stamp.on(UserCancel, call_id=awaited.call_id)
        case "approval":
            return stamp.on(ToolApproval, call_id=awaited.call_id, allowed=False)
        case "resolution":
            raise InvalidInput("Whether the call ran must be said: resolve the interrupt, or cancel the turn.")


class _RunRefused(Exception):
    """A run that cannot begin. `code` is for programs."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


def check_supported(run: RunAgentInput) -> None:
    """Raise `_RunRefused` for what would change the meaning of the run and cannot be carried out."""
    if run.tools:
        raise _RunRefused("unsupported_tools", "Tools of the client are not supported: the server runs its own.")
    if run.context:
        raise _RunRefused("unsupported_context", "Context is not supported: write what the agent has to know as text.")


def _message_to_answer(run: RunAgentInput) -> tuple[str, Said]:
    """Return the last message, with its id. Raises `_RunRefused` if it is not one of the user. `Pure.`"""
    last = run.messages[-1] if run.messages else None
    if not isinstance(last, UserMessage):
        raise _RunRefused("no_message", "The last message of a run must be one of the user, unless it resumes another.")
    parts = last.content if isinstance(last.content, list) else [TextPart(text=last.content)]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    files = tuple(given_file(_attached(part)) for part in parts if not isinstance(part, TextPart))
    return last.id, Said("\n\n".join(texts), files)


def _history_before(run: RunAgentInput) -> list[dict[str, Any]]:
    """Return the messages before the last one in OpenAI's chat format, as `Engine.create` takes them. Raises
    `_RunRefused` for parts that no model is sent. `Pure.`"""
    return [written for message in run.messages[:-1] for written in _written(message)]


def _written(message: Message) -> Iterator[dict[str, Any]]:
    match message:
        case SystemMessage() | DeveloperMessage():
            yield {"role": "system", "content": message.content}
        case UserMessage():
            yield {"role": "user", "content": _content(message.content)}
        case AssistantMessage():
            calls = [call.model_dump(include={"id", "type", "function"}) for call in message.tool_calls or ()]
            yield {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
        case ToolMessage():
            yield {"role": "tool", "tool_call_id": message.tool_call_id, "content": _content(message.content)}
        case _:
            pass  # what an agent thought, and what a client displays, was not said


def _content(content: str | Sequence[ContentPart]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else part_of(_attached(part))
        for part in content
    ]


def _attached(part: ImagePart | AudioPart | VideoPart | DocumentPart) -> AttachedFile:
    """The file of a part, whose bytes are in it, or whose address it names. A document has no name in this protocol;
    clients write it into the metadata."""
    given = part.metadata if isinstance(part.metadata, dict) else {}
    name = given.get("filename", given.get("name"))
    name = name if isinstance(name, str) else ""
    match part.source:
        case DataSource(value=data, mime_type=media_type):
            return attached_at(f"data:{media_type};base64,{data}", kind=part.type, name=name)
        case UrlSource(value=url, mime_type=media_type):
            return attached_at(url, media_type=media_type or "", kind=part.type, name=name)
        case _:
            raise _RunRefused("unsupported_content", "A file of a message is data or at a URL.")


@dataclass
class _Shown:
    """A message that arrives in pieces."""

    start: BaseEvent
    pieces: list[str] = field(default_factory=list)

    @property
    def message(self) -> Message:
        text = "".join(self.pieces)
        match self.start:
            case TextMessageStartEvent(message_id=message_id):
                return AssistantMessage(id=message_id, content=text)
            case ReasoningMessageStartEvent(message_id=message_id):
                return ReasoningMessage(id=message_id, content=text)
            case ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name):
                call = AguiToolCall(id=call_id, function=FunctionCall(name=name, arguments=text))
                return AssistantMessage(id=call_id, tool_calls=[call])
            case ToolCallResultEvent(message_id=message_id, tool_call_id=call_id, content=content):
                return ToolMessage(id=message_id, tool_call_id=call_id, content=content)
            case _:
                raise AssertionError("no other event begins a message")


class _ShownMessages:
    """The messages `before` the run, and those that its events have shown since."""

    def __init__(self, before: Sequence[Message]) -> None:
        self._before = before
        self._shown: dict[str, _Shown] = {}

    def note(self, event: BaseEvent) -> BaseEvent:
        """Note an event that is sent, and return it."""
        match event:
            case TextMessageStartEvent(message_id=message_id) | ReasoningMessageStartEvent(message_id=message_id):
                self._shown[message_id] = _Shown(event)
            case ToolCallStartEvent(tool_call_id=message_id) | ToolCallResultEvent(message_id=message_id):
                self._shown[message_id] = _Shown(event)
            case (
                TextMessageContentEvent(message_id=message_id, delta=text)
                | ReasoningMessageContentEvent(message_id=message_id, delta=text)
                | ToolCallArgsEvent(tool_call_id=message_id, delta=text)
            ):
                self._shown[message_id].pieces.append(text)
            case _:
                pass
        return event

    def without(self, message_id: str) -> MessagesSnapshotEvent:
        """Remove a message, and return the event that tells which there are."""
        del self._shown[message_id]
        return MessagesSnapshotEvent(messages=[*self._before, *(shown.message for shown in self._shown.values())])
