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
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode, Tracer

from ..effects.model.port import LlmFailure

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
        try:
            return self._tracer.start_span(name, parent, kind, dict(attributes))
        except Exception:
            logger.warning("A span could not be begun.", exc_info=True)
            return INVALID_SPAN

    def end(self, span: Span) -> None:
        """End a span."""
        try:
            span.end()
        except Exception:
            logger.warning("A span could not be ended.", exc_info=True)

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


def mark(span: Span, status: str, fault: str | None = None) -> None:
    """Write down how it ended. Only a failure, which has a `fault`, is an error: to cancel is somebody's will."""
    span.set_attribute(STATUS, status)
    if fault is not None:
        span.set_attribute(ERROR, fault)
        span.set_status(StatusCode.ERROR)
