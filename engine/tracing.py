"""Tracing: what conversations do, as spans of OpenTelemetry, for a host that opens its engine with `tracer_provider`.

    invoke_agent                   a turn, from the step that begins it to the step that ends it
      chat openai/gpt-4.1-mini     a model request: of the turn itself, or to condense, check or summarize it
      execute_tool find_table      a run of a tool
      deliver terminal             an attempt to hand over to a channel what was said to the user

No other module depends on it: `Tracing` wraps performers and attempts to deliver, and observes committed steps. It is
imported only if a host asks for it.

A turn outlives the tasks that work on it, and any task may work on a conversation, so no span takes the current span as
its parent: each looks up the span of its turn. Spans are not stored. A turn that another process left in the middle
goes on in a span of its own, which has the id of the conversation and the number of the turn; the deliveries that it
left begin a trace.

The names of attributes that begin with `gen_ai.` are those of OpenTelemetry's conventions for generative AI. They are
strings here, because OpenTelemetry's package of constants declares them deprecated. The others begin with `turnwise.`.
No attribute holds what was said.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, Span, SpanKind, StatusCode, Tracer

from ..effects.channels.delivery import attempt
from ..effects.channels.port import Channel, Delivery
from ..effects.context import EffectContext
from ..effects.dispatcher import Performer, with_abort_of
from ..effects.logs import without_secrets
from ..effects.model.performers.asking import ModelCaller, UnfinishedAnswer
from ..effects.model.port import LlmFailure, ModelAnswer, ModelRequest, Token
from ..states.effects import TOOL_RUNS, AwaitedEffect, Effect, ExecuteTool, ReconcileTool, ResumeTool, StartTimer
from ..states.errors import ConfigurationError
from ..states.events import Answer, EffectFailed, Event, Request, ToolComplete
from ..states.states import State
from ..states.step import Step
from ..states.values.messages import Usage
from ..states.values.turn import TurnEnded, TurnRecord

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

logger: logging.Logger = logging.getLogger("turnwise.tracing")

CONVERSATION = "gen_ai.conversation.id"

_OPERATION = "gen_ai.operation.name"

TURN = "turnwise.turn"

_RESUMED = "turnwise.resumed"

ENDED = 1024
"""How many ended turns are remembered, so that deliveries after the end of a turn find its span: more than an engine
ends while a channel is retried."""

_TOOL_CALL = "gen_ai.tool.call.id"

_TOOL_NAME = "gen_ai.tool.name"

_ASKED_FOR = contexts.create_key("turnwise-asked-for")
"""The key under which an OpenTelemetry context holds the attributes of the effect that asks a model."""

CHANNEL = "turnwise.channel"

_ORDINAL = "turnwise.ordinal"

KEY = "turnwise.key"


class Tracing:
    """Makes spans for the conversations of one engine. Raises `ConfigurationError` for an invalid provider."""

    def __init__(self, provider: TracerProvider) -> None:
        if isinstance(provider, type) or not callable(getattr(provider, "get_tracer", None)):
            raise ConfigurationError("A tracer provider is an object with the method `get_tracer`.")
        self._spans = Spans(provider.get_tracer("turnwise"))
        self._asked: dict[tuple[str, str], Context] = {}
        self._turns: dict[str, _Turn] = {}
        self._ended: OrderedDict[tuple[str, int], Context] = OrderedDict()

    # --- turns

    @contextmanager
    def asked(self, conversation_id: str, event: Event) -> Iterator[None]:
        """While this holds, somebody waits for a request to be handled. If it begins a turn, the span of the turn is a
        child of the caller's current span."""
        if not isinstance(event, Request):
            yield
            return
        key = conversation_id, event.event_id
        self._asked[key] = contexts.get_current()
        try:
            yield
        finally:
            self._asked.pop(key, None)

    def stepped(self, conversation_id: str, before: State, event: Event, step: Step) -> None:
        """A step was committed. Its effects have not started yet."""
        asked = self._asked.get((conversation_id, getattr(event, "event_id", "")), Context())
        if step.ended is not None:
            turn = self._under_way(conversation_id, step.ended.turn, before, asked)
            self._end(conversation_id, turn, step.ended)
        record = getattr(step.state, "turn", None)
        if isinstance(record, TurnRecord):
            self._turns[conversation_id] = self._under_way(conversation_id, record.number, before, asked)

    def picked_up(self, conversation_id: str, state: State) -> None:
        """The turn that another process has begun is carried out here."""
        record = getattr(state, "turn", None)
        if isinstance(record, TurnRecord):
            self._turns[conversation_id] = self._under_way(conversation_id, record.number, state, Context())

    def let_go(self, conversation_id: str) -> None:
        """A turn that waits for a person may go on in another process."""
        self.drop(conversation_id)

    def drop(self, conversation_id: str) -> None:
        """The conversation does not go on in this engine; its turn, if it is in one, is `interrupted`."""
        turn = self._turns.pop(conversation_id, None)
        if turn is not None:
            mark(turn.span, "interrupted")
            self._spans.end(turn.span)

    def close(self) -> None:
        """Drop all conversations."""
        for conversation_id in list(self._turns):
            self.drop(conversation_id)

    def _under_way(self, conversation_id: str, number: int, before: State, asked: Context) -> _Turn:
        turn = self._turns.get(conversation_id)
        if turn is not None and turn.number == number:
            return turn
        self.drop(conversation_id)  # another engine has ended it
        attributes: dict[str, Any] = {_OPERATION: "invoke_agent", CONVERSATION: conversation_id, TURN: number}
        if before.book.turn >= number:  # it began in an earlier process
            attributes, asked = {**attributes, _RESUMED: True}, Context()
        span = self._spans.begin("invoke_agent", asked, attributes)
        return _Turn(number, span, trace.set_span_in_context(span, asked))

    def _end(self, conversation_id: str, turn: _Turn, ended: TurnEnded) -> None:
        self._turns.pop(conversation_id, None)
        fault = ended.failure.kind if ended.status == "failed" and ended.failure is not None else None
        note(turn.span, _cost(ended.usage))
        mark(turn.span, ended.status, fault)
        self._spans.end(turn.span)
        self._ended[conversation_id, ended.turn] = _left_behind(turn.span)
        while len(self._ended) > ENDED:
            self._ended.popitem(last=False)

    def _context(self, conversation_id: str, number: int) -> Context:
        """Return the parent of the spans of a turn. What happens at rest begins a trace."""
        turn = self._turns.get(conversation_id)
        return turn.context if turn is not None and turn.number == number else Context()

    # --- performers and channels

    def performers(self, performers: Mapping[type[Effect], Performer]) -> dict[type[Effect], Performer]:
        """Return the performers, with those traced that run tools or may ask a model."""
        return {kind: self._performer(kind, perform) for kind, perform in performers.items()}

    def _performer(self, kind: type[Effect], perform: Performer) -> Performer:
        if kind in TOOL_RUNS or kind is ReconcileTool:
            return with_abort_of(perform, self._around_tool(perform))
        if issubclass(kind, AwaitedEffect) and kind is not StartTimer:
            return with_abort_of(perform, self._around_requests(perform))
        return perform

    def _around_tool(self, perform: Performer) -> Performer:
        async def traced(effect: ExecuteTool | ResumeTool | ReconcileTool, context: EffectContext) -> Answer | None:
            call = effect.call
            runs = isinstance(effect, TOOL_RUNS)
            name = f"{effect.type} {call.name}"
            attributes = {**_of(effect, context), _TOOL_NAME: call.name, _TOOL_CALL: call.call_id}
            attributes |= {_OPERATION: "execute_tool"} if runs else {}
            with self._spans.around(name, self._context(context.conversation_id, context.turn), attributes) as span:
                answer = await perform(effect, context)
                fault = _fault_of(answer)
                mark(span, "failed" if fault else "completed", fault)
                return answer

        return traced

    def _around_requests(self, perform: Performer) -> Performer:
        async def traced(effect: Any, context: EffectContext) -> Answer | None:
            turn = self._context(context.conversation_id, context.turn)
            token = contexts.attach(contexts.set_value(_ASKED_FOR, _of(effect, context), turn))
            try:
                return await perform(effect, context)
            finally:
                contexts.detach(token)

        return traced

    def asking(self, asking: ModelCaller) -> ModelCaller:
        """Return the caller of models with a span around each request."""
        return _TracedAsking(asking, self._spans)

    async def attempt(self, channel: Channel, delivery: Delivery) -> str | None:
        """Try a delivery once. Returns None if the channel has taken it, otherwise why not."""
        attributes = {
            CONVERSATION: delivery.conversation_id,
            TURN: delivery.turn,
            CHANNEL: channel.name,
            _ORDINAL: delivery.ordinal,
            KEY: delivery.key,
        }
        # The last delivery of a turn arrives after its end.
        ended = self._ended.get((delivery.conversation_id, delivery.turn))
        context = self._context(delivery.conversation_id, delivery.turn) if ended is None else ended
        with self._spans.around(f"deliver {channel.name}", context, attributes) as span:
            fault = await attempt(channel, delivery)
            mark(span, "failed" if fault else "completed", "delivery_failed" if fault else None)
            return fault


@dataclass(frozen=True)
class _Turn:
    """A turn that goes on."""

    number: int
    span: Span
    context: Context


Attributes = Mapping[str, Any]

_INPUT_TOKENS = "gen_ai.usage.input_tokens"

_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"


def _cost(usage: Usage) -> Attributes:
    """Return the tokens, if they are known."""
    return {_INPUT_TOKENS: usage.input_tokens, _OUTPUT_TOKENS: usage.output_tokens} if usage.tokens else {}


EFFECT = "turnwise.effect"


def _of(effect: Any, context: EffectContext) -> dict[str, Any]:
    """Return the attributes of every span for an effect."""
    return {
        CONVERSATION: context.conversation_id,
        TURN: context.turn,
        EFFECT: effect.type,
        KEY: context.key(effect.effect_id),
    }


def _fault_of(answer: Answer | None) -> str | None:
    """Return the kind of failure of a tool, if it has failed, without its words."""
    if isinstance(answer, EffectFailed):
        return answer.kind
    return "tool_error" if isinstance(answer, ToolComplete) and answer.result.error else None


_REQUEST_MODEL = "gen_ai.request.model"

_RESPONSE_MODEL = "gen_ai.response.model"

_FINISH_REASONS = "gen_ai.response.finish_reasons"


class _TracedAsking(ModelCaller):
    """Calls models with a span around each request."""

    def __init__(self, asking: ModelCaller, spans: Spans) -> None:
        self._asking = asking
        self._spans = spans

    def family_of(self, name: str) -> str:
        """The family of the model of this name."""
        return self._asking.family_of(name)

    def begin(self, request: ModelRequest, show: Callable[[Token], None]) -> UnfinishedAnswer:
        """Return the answer to this request, of which nothing has come."""
        return self._asking.begin(request, show)

    async def finish(self, answering: UnfinishedAnswer) -> ModelAnswer:
        """Return the whole answer of the model. Raises `LlmFailure`."""
        request = answering.request
        context = contexts.get_current()
        asked_for: Any = contexts.get_value(_ASKED_FOR) or {}
        attributes = {**asked_for, _OPERATION: "chat", _REQUEST_MODEL: request.model, **_provider_of(request.model)}
        with self._spans.around(f"chat {request.model}", context, attributes, SpanKind.CLIENT) as span:
            answer = await self._asking.finish(answering)
            answered = {_RESPONSE_MODEL: without_secrets(answer.model)} if answer.model else {}
            reasons = [without_secrets(answer.finish_reason)]
            note(span, {_FINISH_REASONS: reasons, **answered, **_cost(answer.usage)})
            mark(span, "completed")
            return answer


_PROVIDER = "gen_ai.provider.name"

PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""The names that the conventions have for providers, where litellm has others."""


def _provider_of(model: str) -> Attributes:
    """Return the provider, if the name of the model holds it, as litellm's names with a slash do."""
    prefix, slash, _ = model.partition("/")
    return {_PROVIDER: PROVIDERS.get(prefix, prefix)} if slash else {}


class Spans:
    """Begins and ends spans. An error of the tracer is logged, and what is traced goes on."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, name: str, parent: Context, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL) -> Span:
        """Return a span below the one in `parent`, if there is one. The caller must `end` it."""
        span: Span = INVALID_SPAN
        with _forgiving("begun"):
            span = self._tracer.start_span(name, parent, kind, dict(attributes))
        return span

    def end(self, span: Span) -> None:
        """End a span."""
        with _forgiving("ended"):
            span.end()

    @contextmanager
    def around(
        self, name: str, parent: Context, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL
    ) -> Iterator[Span]:
        """Yield a span that lasts as long as the block and is current in it. It has failed if the block raises."""
        span = self.begin(name, parent, attributes, kind)
        token = contexts.attach(trace.set_span_in_context(span, parent))
        try:
            yield span
        except asyncio.CancelledError:
            mark(span, "cancelled")
            raise
        except BaseException as error:
            mark(span, "failed", error.kind if isinstance(error, LlmFailure) else type(error).__qualname__)
            raise
        finally:
            contexts.detach(token)
            self.end(span)


@contextmanager
def _forgiving(done: str) -> Iterator[None]:
    """Log what a tracer raises, so that tracing never ends what it observes."""
    try:
        yield
    except Exception:
        logger.warning("A span could not be %s.", done, exc_info=True)


def note(span: Span, attributes: Attributes) -> None:
    """Add attributes."""
    with _forgiving("written on"):
        span.set_attributes(dict(attributes))


ERROR = "error.type"

STATUS = "turnwise.status"


def mark(span: Span, status: str, fault: str | None = None) -> None:
    """Record how the span has ended. Only a failure, which has a `fault`, is an error; a cancellation is not."""
    note(span, {STATUS: status} if fault is None else {STATUS: status, ERROR: fault})
    if fault is not None:
        with _forgiving("written on"):
            span.set_status(StatusCode.ERROR)


def _left_behind(span: Span) -> Context:
    """Return the parent of what follows after the end of this span: it belongs below the span, which is over."""
    ended: Span = INVALID_SPAN
    with _forgiving("told from others"):
        ended = NonRecordingSpan(span.get_span_context())
    return trace.set_span_in_context(ended, Context())
