"""A function of an application that a model may call.

What a model reads of it is its name, its description and its arguments. Everything else is declared: what may happen to
a call if the process dies while it runs (`crash`), whether a person must approve it (`approval`) and who
(`approval_by`), whether it must run alone (`exclusive`), what it may ask of the conversation (`acts`), how long it may
take, and how much the model reads of its result.

The machine knows no tool by its name. A tool that returns an act asks for what only the machine can do, such as waiting
for the user's answer or speaking to the user, and it may return only acts of the kinds that it declares.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, ClassVar, Concatenate, Generic, Literal, ParamSpec, TypeVar, get_args, overload

from ...states.errors import ConfigurationError
from ...states.policy import Policy
from ...states.values.acts import ActKind
from ...states.values.messages import Approver, CrashContract
from ..application_functions import is_coroutine_function
from .approval import Approval, check_approval, needs_approval
from .arguments.arguments import Arguments
from .arguments.callables import definition_of
from .methods import RECEIVER_NAMES, Receiver, is_unbound_method, unbound_method
from .result_length import MIN_RESULT

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

ErrorDetail = Literal["type", "message"]
"""What a model reads of an exception that a tool raises: its class, or its message as well."""

_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
"""The names of tools that every provider accepts."""

EXCLUSIVE_ACTS: frozenset[ActKind] = frozenset({"question", "children", "transfer"})
"""Kinds of act that only an exclusive tool may declare."""


@dataclass(frozen=True, eq=False)
class Tool(Generic[P, R]):
    """A function that a model may call. It can still be called like the function that it was made of.

    A tool that is declared in the body of a class is bound to an object when it is taken from it, as methods are.
    `receives` says of one that is not bound yet what its first parameter receives.

    `timeout` is in seconds, `max_result` in characters. Raises ConfigurationError for declarations that contradict each
    other.
    """

    name: str
    description: str
    arguments: Arguments
    function: Callable[P, R]
    crash: CrashContract = "at_most_once"
    approval: Approval = False
    approval_by: Approver = "user"
    exclusive: bool = False
    acts: tuple[ActKind, ...] = ()
    timeout: float = 60.0
    reconcile: AnyTool | None = None
    errors: ErrorDetail = "type"
    max_result: int | None = None
    receives: Receiver | None = None

    names: ClassVar[re.Pattern[str]] = _LEGAL_NAME
    """The names that such tools may have."""

    def __post_init__(self) -> None:
        for holds, sentence in self._conditions():
            if not holds:
                raise ConfigurationError(sentence)
        names = self.arguments.names if self.receives is None else (*RECEIVER_NAMES, *self.arguments.names)
        check_approval(self.approval, self.name, names)
        self._copy_attributes_of_function()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Tool[P, R]: ...

    @overload
    def __get__(self: Tool[Concatenate[Any, Q], R], instance: object, owner: type | None = None) -> Tool[Q, R]: ...

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """The tool of this object, if it is a method; else the tool as it is."""
        receiver = owner if self.receives == "class" else instance
        if self.receives is None or receiver is None:
            return self
        approval = self.approval
        return replace(
            self,
            function=MethodType(self.function, receiver),
            reconcile=None if self.reconcile is None else self.reconcile.__get__(instance, owner),
            approval=approval if isinstance(approval, bool) else _bound(approval, receiver),
            receives=None,
        )

    @functools.cached_property
    def is_coroutine_function(self) -> bool:
        """Whether calling the function makes a coroutine."""
        return is_coroutine_function(self.function)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return self.arguments.schema

    def definition(self) -> dict[str, Any]:
        """The tool as it is offered to a model: a function tool of OpenAI's chat completions. `Pure.`"""
        described = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": described}

    def needs_approval(self, arguments: str, policy: Policy) -> bool:
        """Whether a person must approve a call with these arguments, JSON text. Never raises."""
        return needs_approval(self.name, self.approval, self.arguments, arguments, policy)

    def check_bound(self) -> None:
        """Raise ConfigurationError if this is a method that no object was given to."""
        if self.receives is not None:
            raise unbound_method(self.function)

    def _conditions(self) -> Iterable[tuple[bool, str]]:
        contracts, kinds = get_args(CrashContract), get_args(ActKind)
        yield (
            self._is_legal(self.name),
            f"{self.name} cannot be the name of a tool: it takes up to 64 letters, digits, _ and -, no digit first.",
        )
        yield isinstance(self.description, str), f"The description of {self.name} must be a text."
        yield self.crash in contracts, f"The crash contract of {self.name} must be one of {', '.join(contracts)}."
        yield set(self.acts) <= set(kinds), f"The acts of {self.name} can only be a list of {', '.join(kinds)}."
        yield isinstance(self.exclusive, bool), f"Whether {self.name} is exclusive must be true or false."
        approvers = get_args(Approver)
        yield self.approval_by in approvers, f"The approval_by of {self.name} must be one of {', '.join(approvers)}."
        yield (
            self.approval is not False or self.approval_by == "user",
            f"{self.name} is approved by the {self.approval_by}, so its approval cannot be false.",
        )
        acts = ", ".join(sorted(EXCLUSIVE_ACTS.intersection(self.acts)))
        yield self.exclusive or not acts, f"{self.name} declares {acts}, so it must be declared with exclusive=True."
        yield (
            (self.reconcile is not None) == (self.crash == "reconcile"),
            f'{self.name} needs both crash="reconcile" and reconcile=function, which is asked later, or neither.',
        )
        yield _is_timeout(self.timeout), f"The timeout of {self.name} must be a number of seconds above 0."
        details = get_args(ErrorDetail)
        yield self.errors in details, f"The errors of {self.name} must be one of {', '.join(details)}."
        yield (
            self.max_result is None or _is_length(self.max_result),
            f"The max_result of {self.name} must be a number of characters, at least {MIN_RESULT}.",
        )

    def _is_legal(self, name: object) -> bool:
        return isinstance(name, str) and self.names.fullmatch(name) is not None

    def _copy_attributes_of_function(self) -> None:
        """Do what functools.wraps does, through the dictionary, since a frozen dataclass refuses attributes."""
        plain = definition_of(self.function)
        copied: dict[str, Any] = dict(getattr(plain, "__dict__", {}))
        copied.update((name, getattr(plain, name)) for name in functools.WRAPPER_ASSIGNMENTS if hasattr(plain, name))
        vars(self).update({**copied, "__wrapped__": self.function, **vars(self)})


AnyTool = Tool[..., Any]
"""Any tool, whatever it takes and returns."""


def _bound(function: Callable[..., Any], receiver: object) -> Callable[..., Any]:
    return MethodType(function, receiver) if is_unbound_method(function) else function


def _is_timeout(seconds: object) -> bool:
    return isinstance(seconds, int | float) and 0 < seconds < math.inf


def _is_length(characters: object) -> bool:
    return isinstance(characters, int) and not isinstance(characters, bool) and characters >= MIN_RESULT
