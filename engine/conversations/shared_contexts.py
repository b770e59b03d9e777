"""Has conversations with equal rules share them.

A policy takes many times the memory of everything else that a resting conversation needs, and most conversations of an
engine have one of a few. Each of them reads or makes its own; here equal ones become one object.
"""

from __future__ import annotations

from sys import intern
from typing import TypeVar

from ...states.context import Context
from ...states.policy import Policy

KEPT = 16
"""How many policies, and how many contexts, are compared with a new one. Chosen so that the comparison takes some tens
of microseconds."""

_PLAIN = Context()

T = TypeVar("T")


class SharedContexts:
    """The contexts and policies that were used last."""

    def __init__(self) -> None:
        self._contexts: list[Context] = []
        self._policies: list[Policy] = []

    def shared(self, context: Context) -> Context:
        """Return an equal context, which shares what it can with those of other conversations."""
        rules = {"policy": self._shared_policy(context.policy), "system": intern(context.system)}
        # A copy shares pydantic's set of the given fields with the value that it was made of. Of a context nobody reads
        # that set, so one serves all of them.
        lean = _PLAIN.replace(**{**vars(context), **rules})
        return next((known for known in self._contexts if known == lean), None) or _kept(self._contexts, lean)

    def _shared_policy(self, policy: Policy) -> Policy:
        for known in self._policies:
            # Which fields were given decides which of them a change of the rules keeps.
            if known.model_fields_set == policy.model_fields_set and known == policy:
                return known
        return _kept(self._policies, policy)


def _kept(known: list[T], new: T) -> T:
    known.insert(0, new)
    del known[KEPT:]
    return new
