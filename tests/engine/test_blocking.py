"""The blocking engine: each method of the asynchronous one, without `await`, and with the same types."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_type_hints

import pytest

from turnwise import Conversation, Engine
from turnwise.engine.blocking import BlockingConversation, BlockingEngine

from ..support.cases import holds_for

FOR_DISPATCHERS = {"answer", "now"}
"""What only code on the engine's own event loop calls."""


def offered(kind: type) -> set[str]:
    """Return the names of the public methods of an asynchronous class that are awaited or iterated."""
    return {
        name
        for name, member in inspect.getmembers(kind, inspect.isroutine)
        if not name.startswith("_") and _is_asynchronous(member)
    }


def _is_asynchronous(method: Any) -> bool:
    returned = str(inspect.signature(method).return_annotation)
    return inspect.iscoroutinefunction(method) or returned.startswith(("AsyncIterator", "AsyncGenerator"))


@pytest.mark.parametrize(("blocking", "asynchronous"), [(BlockingEngine, Engine), (BlockingConversation, Conversation)])
def test_it_has_every_method(blocking: type, asynchronous: type) -> None:
    """Whatever can be awaited can be called without an event loop."""
    assert offered(asynchronous) - FOR_DISPATCHERS <= set(dir(blocking))


@pytest.mark.slow
@holds_for("name", sorted(offered(Conversation)))
def test_a_method_keeps_its_parameters_and_its_docstring(name: str) -> None:
    """Help and completion show those of the asynchronous method."""
    with Engine.open_blocking("sqlite://") as engine:
        method = getattr(engine.create(), name)

    original = getattr(Conversation, name)
    assert inspect.signature(method) == inspect.signature(original)
    assert method.__doc__ == original.__doc__


def properties(kind: type) -> dict[str, object]:
    """Return the types of the public properties of a class."""
    members = inspect.getmembers(kind, lambda member: isinstance(member, property))
    return {
        name: get_type_hints(one.fget, include_extras=True)["return"]
        for name, one in members
        if not name.startswith("_")
    }


def test_its_properties_have_the_types_of_the_asynchronous_ones() -> None:
    """So type checkers narrow the state without an event loop, too."""
    shown = {name: get_args(one.__orig_class__) for name, one in vars(BlockingConversation).items() if is_shown(one)}

    assert properties(BlockingConversation) | {name: kind for name, (kind,) in shown.items()} == properties(
        Conversation
    )


def is_shown(member: object) -> bool:
    """Whether this is a property that is read in the thread of the engine."""
    return hasattr(member, "__orig_class__")
