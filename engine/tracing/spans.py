"""Spans of OpenTelemetry: how they begin and end, and what their attributes are called.

The names that begin with `gen_ai.` are those of OpenTelemetry's conventions for generative AI, and stand here as
strings: its package of constants declares them deprecated. Ours begin with `turnwise.`. None holds what was said.
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
    """Begins and ends spans. A tracer that breaks is told to the log; what is traced goes on."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, name: str, parent: Context, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL) -> Span:
        """A span below the one that `parent` holds, if it holds one. Whoever calls this must `end` it."""
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
        """A span that lasts as long as the block, and is the current one in it. It has failed if the block raises."""
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
    """Write something more down."""
    with _forgiving("written on"):
        span.set_attributes(dict(attributes))


def mark(span: Span, status: str, fault: str | None = None) -> None:
    """Write down how it ended. Only a failure, which has a `fault`, is an error: to cancel is somebody's will."""
    note(span, {STATUS: status} if fault is None else {STATUS: status, ERROR: fault})
    if fault is not None:
        with _forgiving("written on"):
            span.set_status(StatusCode.ERROR)


def left_behind(span: Span) -> Context:
    """Where what comes after the end of this span belongs: below it, though it takes nothing more."""
    ended: Span = INVALID_SPAN
    with _forgiving("told from others"):
        ended = NonRecordingSpan(span.get_span_context())
    return trace.set_span_in_context(ended, Context())


@contextmanager
def _forgiving(done: str) -> Iterator[None]:
    """What somebody's tracing raises is told to the log: it must not end what it only looks on."""
    try:
        yield
    except Exception:
        logger.warning("A span could not be %s.", done, exc_info=True)
