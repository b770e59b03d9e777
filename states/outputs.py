"""Which form the answer of a turn must have, and whether a response has it.

A message may name the form of its answer, and so may the profile of a turn and the conversation: the first of these
that does decides. A response is an attempt to give the answer if it calls no tool, or the one by which the answer is
given. Every other response is work on the way to it.
"""

from __future__ import annotations

from .context import Context
from .events import LlmResponse
from .policy import output_of
from .values.messages import Heard
from .values.output import OutputSchema
from .values.turn import TurnRecord


def schema_of_rules(context: Context, profile: str) -> OutputSchema | None:
    """The form of answers to messages that name none, in turns with this profile. `Pure.`"""
    return output_of(context.policy, profile) or context.output


def is_valid_output(event: LlmResponse) -> bool:
    """Whether the response holds a valid typed answer. `Pure.`"""
    return event.output is not None and event.output.is_valid


def has_other_calls(event: LlmResponse) -> bool:
    """Whether the response calls tools besides the one by which a typed answer is given. `Pure.`"""
    given = () if event.output is None else event.output.calls
    return len(event.tool_calls) > len(set(given))


def misses_output(turn: TurnRecord, event: LlmResponse, context: Context) -> bool:
    """Whether a typed answer is wanted, and the response is an attempt to give one that is not valid. `Pure.`"""
    is_attempt = not event.tool_calls or (event.output is not None and bool(event.output.calls))
    return is_attempt and context.wants_output(turn) and not is_valid_output(event)


def output_errors(event: LlmResponse, seq: int) -> Heard | None:
    """What is wrong with the typed answer that the response of this step gives; None if that is not known. `Pure.`"""
    is_known = event.output is not None and not event.output.is_valid
    return Heard(seq=seq, index=event.output_index) if is_known else None
