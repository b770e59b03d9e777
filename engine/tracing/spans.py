"""Spans of OpenTelemetry: how they begin and end, and the names of their attributes.

The names that begin with `gen_ai.` are those of OpenTelemetry's conventions for generative AI. They are strings here,
because OpenTelemetry's package of constants declares them deprecated. The others begin with `turnwise.`. No attribute
holds what was said.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, Span, SpanKind, StatusCode, Tracer

from ...effects.model.port import LlmFailure

logger = logging.getLogger("turnwise.tracing")

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
ERROR = "error.type"

TURN = "turnwise.turn"
RESUMED = "turnwise.resumed"
STATUS = "turnwise.status"
EFFECT = "turnwise.effect"
CHANNEL = "turnwise.channel"
ORDINAL = "turnwise.ordinal"
KEY = "turnwise.key"

Attributes = Mapping[str, Any]


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


def note(span: Span, attributes: Attributes) -> None:
    """Add attributes."""
    with _forgiving("written on"):
        span.set_attributes(dict(attributes))


def mark(span: Span, status: str, fault: str | None = None) -> None:
    """Record how the span has ended. Only a failure, which has a `fault`, is an error; a cancellation is not."""
    note(span, {STATUS: status} if fault is None else {STATUS: status, ERROR: fault})
    if fault is not None:
        with _forgiving("written on"):
            span.set_status(StatusCode.ERROR)


def left_behind(span: Span) -> Context:
    """Return the parent of what follows after the end of this span: it belongs below the span, which is over."""
    ended: Span = INVALID_SPAN
    with _forgiving("told from others"):
        ended = NonRecordingSpan(span.get_span_context())
    return trace.set_span_in_context(ended, Context())


@contextmanager
def _forgiving(done: str) -> Iterator[None]:
    """Log what a tracer raises, so that tracing never ends what it observes."""
    try:
        yield
    except Exception:
        logger.warning("A span could not be %s.", done, exc_info=True)
