"""A function of an application that a model may call.

What a model reads of it is its name, its description and its arguments, which come from the function itself, unless
they are given. Everything else is declared: what may happen to a call if the process dies while it runs (`crash`),
whether a person must approve it (`approval`) and who (`approval_by`), whether it must run alone (`exclusive`), what
it may ask of the conversation (`acts`), how long it may take, and how much the model reads of its result. A function
that a model could not call is refused when it is declared, in one sentence, so that the mistake shows when the
program starts and not in a conversation.

The machine knows no tool by its name. A tool that returns an act asks for what only the machine can do, such as
waiting for the user's answer or speaking to the user, and it may return only acts of the kinds that it declares.

Methods are tools, too. A class body runs before its class exists, so a tool that is declared there is not bound to an
object yet. It becomes a tool that a model can call when it is taken from an object, as a method does: the first
parameter of a method receives the object that it is taken from.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType, MethodType
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

from ...states.errors import ConfigurationError
from ...states.policy import MIN_RESULT, Policy
from ...states.values.acts import ActKind
from ...states.values.messages import Approver, CrashContract, ToolCall, ToolResult
from ...states.values.value import encodable, json_object
from ..application_functions import innermost, is_coroutine_function
from ..context import Redact, unchanged
from ..logs import performer_logger
from ..printable import with_hidden_shown
from ..text import in_thread_if_long
from .arguments import Arguments, TypedArguments
from .callables import definition_of, docstring_of, name_of, read_docstring, signature_of
from .normalization import InvalidArguments, NothingToSay
from .schema_arguments import SchemaArguments

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

ErrorDetail = Literal["type", "message"]
"""What a model reads of an exception that a tool raises: its class, or its message as well."""

Receiver = Literal["instance", "class"]
"""What the first parameter of a method receives."""

Approval = bool | Callable[..., bool]
"""Whether each call needs approval, or a function of the arguments of a call that says so."""

_LOGGER = performer_logger("turnwise.tools")

_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
"""The names of tools that every provider accepts."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "crash": get_args(CrashContract),
    "approval_by": get_args(Approver),
    "errors": get_args(ErrorDetail),
}
"""What options may say whose wrong value would only be found when a call goes wrong."""

_EXCLUSIVE_ACTS: frozenset[ActKind] = frozenset({"question", "children", "transfer"})
"""Kinds of act that only an exclusive tool may declare."""

MAX_STORED = 1_000_000
"""The most characters that are stored of a result, where the engine sets no other limit: more than most models can
read."""


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
    spoken: str = ""
    receives: Receiver | None = None

    names: ClassVar[re.Pattern[str]] = _LEGAL_NAME
    """The names that such tools may have."""

    def __post_init__(self) -> None:
        for holds, sentence in self._conditions():
            if not holds:
                raise ConfigurationError(sentence)
        names = self.arguments.names if self.receives is None else (*_RECEIVER_NAMES, *self.arguments.names)
        _check_approval(self.approval, self.name, names)
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
        """Whether a person must approve a call with these arguments, JSON text. Never raises.

        A tool may leave that to a function of its arguments: small payments run, large ones wait. The function is
        asked when the call arrives, and its decision is stored on the call. If it fails, the call waits for a person.
        """
        if isinstance(self.approval, bool):
            return self.approval
        try:
            values = self.arguments.under(policy).values(arguments)
            decision: object = self.approval(**_taken(self.approval, values))
        except (InvalidArguments, NothingToSay):
            return True  # such a call does not run
        except KeyboardInterrupt:
            raise  # it is meant for the program, and comes while any function runs
        except BaseException as error:  # SystemExit or CancelledError of the function must not end the request
            _LOGGER.warning("The approval of %s failed, so a person must approve the call", self.name, exc_info=error)
            return True
        if isinstance(decision, bool):
            return decision
        kind = type(decision).__name__
        _LOGGER.warning(
            "The approval of %s returned %s, not a bool, so a person must approve the call", self.name, kind
        )
        if inspect.iscoroutine(decision):
            decision.close()
        return True

    def check_bound(self) -> None:
        """Raise ConfigurationError if this is a method that no object was given to."""
        if self.receives is not None:
            raise _unbound_method(self.function)

    def _conditions(self) -> Iterable[tuple[bool, str]]:
        kinds = get_args(ActKind)
        yield (
            self.names.fullmatch(self.name) is not None,
            f"{self.name} cannot be the name of a tool: it takes up to 64 letters, digits, _ and -, no digit first.",
        )
        for option, choices in _CHOICES.items():
            is_known = getattr(self, option) in choices
            yield is_known, f"The {option} of {self.name} must be one of {', '.join(choices)}."
        yield set(self.acts) <= set(kinds), f"The acts of {self.name} can only be a list of {', '.join(kinds)}."
        yield (
            self.approval is not False or self.approval_by == "user",
            f"{self.name} is approved by the {self.approval_by}, so its approval cannot be false.",
        )
        yield (
            not self.spoken or ("speech" in self.acts and self.spoken in self.arguments.names),
            f"{self.name} can say {self.spoken} only if that is a parameter, and if it declares the act speech.",
        )
        acts = ", ".join(sorted(_EXCLUSIVE_ACTS.intersection(self.acts)))
        yield self.exclusive or not acts, f"{self.name} declares {acts}, so it must be declared with exclusive=True."
        yield (
            (self.reconcile is not None) == (self.crash == "reconcile"),
            f'{self.name} needs both crash="reconcile" and reconcile=function, which is asked later, or neither.',
        )
        yield 0 < self.timeout < math.inf, f"The timeout of {self.name} must be a number of seconds above 0."
        yield (
            self.max_result is None or self.max_result >= MIN_RESULT,
            f"The max_result of {self.name} must be a number of characters, at least {MIN_RESULT}.",
        )

    def _copy_attributes_of_function(self) -> None:
        """Do what functools.wraps does, through the dictionary, since a frozen dataclass refuses attributes."""
        plain = definition_of(self.function)
        copied: dict[str, Any] = dict(getattr(plain, "__dict__", {}))
        copied.update((name, getattr(plain, name)) for name in functools.WRAPPER_ASSIGNMENTS if hasattr(plain, name))
        vars(self).update({**copied, "__wrapped__": self.function, **vars(self)})


AnyTool = Tool[..., Any]
"""Any tool, whatever it takes and returns."""


def _bound(function: Callable[..., Any], receiver: object) -> Callable[..., Any]:
    return MethodType(function, receiver) if _is_unbound_method(function) else function


class ToolOptions(TypedDict, total=False):
    """What can be declared of several tools at once. `tool` explains each of them."""

    crash: CrashContract
    approval: Approval
    approval_by: Approver
    exclusive: bool
    acts: Iterable[ActKind]
    timeout: float
    errors: ErrorDetail
    max_result: int | None


class Options(ToolOptions, total=False):
    """What can be declared of a tool. `tool` explains each of them."""

    name: str | None
    description: str | None
    parameters: Mapping[str, Any] | None
    reconcile: Callable[..., Any] | None
    spoken: str


@overload
def tool(function: Callable[P, R], /, **options: Unpack[Options]) -> Tool[P, R]: ...


@overload
def tool(**options: Unpack[Options]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: `@tool`, `@tool(crash="pure", timeout=5)`, or `tool(function, name="find")`.

    - `name`: the name that the model sees; the function's own by default.
    - `description`: what the model reads of the tool; by default the docstring, without its section of parameters.
    - `parameters`: a JSON schema of the arguments, in place of the types of the function. It goes to the model as it
      is, and the function gets what the model wrote, by name: no default of the schema is filled in.
    - `crash`: what may happen to a call that was running when the process died. `pure` and `idempotent` may run again,
      the latter under the same key; `reconcile` can be asked whether it ran; `at_most_once`, the default, never runs
      twice.
    - `reconcile`: the function that is asked whether a call ran. It takes the arguments of the call, as the tool does,
      and has the same timeout; the `key` of its `ToolContext` is the one under which the call ran. It returns
      `"did_not_run"`, `"ran"`, a `ToolResult` if it ran with this result, or `"unknown"`. If it returns `"unknown"` or
      fails, a person is asked.
    - `approval`: whether a person must approve each call; or a plain function that takes arguments of the call, by the
      names that they have in the tool, and returns true or false. It is asked once, when the call arrives, and must not
      wait for anything. If it fails, the call needs approval.
    - `approval_by`: who may approve a call. With `"user"`, the default, whoever uses the conversation; with
      `"operator"` only somebody who acts for the application, and not a user to whom a host has given no permission for
      it (`create_app(allow={"approvals"})`). Without an `approval` every call needs one then.
    - `exclusive`: no other call of the same response runs beside it.
    - `acts`: the acts that it may return: `"speech"` (`Speech`), `"work_complete"` (`WorkComplete`), `"mail"`
      (`AgentMail`), `"children"` (`SubAgents`), `"transfer"` (`Transfer`), `"question"` (`Question`). A tool that asks,
      spawns, hands over or speaks at once must be `exclusive`.
    - `spoken`: for a tool that speaks, the parameter whose text it says unchanged. Watchers are shown the text while
      the model writes it, as tokens of the kind speech.
    - `timeout`: seconds that a call may take; 60 by default.
    - `errors`: what the model reads of an exception other than `ToolError`: `"type"`, the default, its class;
      `"message"` the first line of its message, too, which may hold what is not meant for the model.
    - `max_result`: how many characters of a result a request shows at most; by default what the policy says. Of a
      longer result the model is shown the beginning and the end, and can read the rest with `read_result`.

    The function may be a coroutine function or a plain one, which then runs in a thread of its own; a bound method, an
    object that can be called, a cached function or a partial. Every parameter needs a type; `Annotated[…,
    Field(description=…)]` or the docstring describes it, a default makes it optional, and one of type `ToolContext` is
    filled by the engine. A method that is declared in its class becomes a tool when it is taken from an object.

    The model reads what the function returns: a text as it is, a `File` or a list with files as files, anything
    else as JSON. For an act, or a list of acts, it reads that they are carried out. `ToolError` tells it what went
    wrong.

    When the turn is cancelled or the engine closes, a coroutine is cancelled. It has a second to clean up; if it
    returns in that time, its result counts. A thread cannot be stopped: it is abandoned.

    Raises `ConfigurationError`, with the name of the function and the parameter, if a model could not call it.
    """
    if function is not None:
        return make_tool(function, names=_names_of_caller(1), **options)

    def decorate(function: Callable[..., Any]) -> AnyTool:
        return make_tool(function, names=_names_of_caller(1), **options)

    return decorate


def make_tool(given: Any, *, names: Mapping[str, object] | None = None, **options: Any) -> AnyTool:
    """Make a function a tool, as `tool` does. `names` are local names that annotations written as strings may use."""
    if isinstance(given, Tool):
        raise ConfigurationError(f"{given.name} is a tool already.")
    function, receives = _function_and_receiver(given)
    definition_of(function)
    reconcile, name, description, schema = (options.pop(key, None) for key in _OF_ONE_TOOL)
    name = name_of(function) if name is None else name
    arguments, docstring = _arguments(function, schema, names, receives)
    if "approval_by" in options:
        options.setdefault("approval", True)
    if reconcile is not None:
        timeout = options.get("timeout", 60.0)
        reconcile = make_tool(reconcile, names=names, name=name, parameters=schema, timeout=timeout)
    return Tool(
        name=name,
        description=encodable(docstring) if description is None else description,
        arguments=arguments,
        function=function,
        acts=tuple(options.pop("acts", ())),
        reconcile=reconcile,
        receives=receives,
        **options,
    )


_OF_ONE_TOOL = ("reconcile", "name", "description", "parameters")


def _function_and_receiver(given: Any) -> tuple[Any, Receiver | None]:
    """The function, and what its first parameter receives if it is a method whose class body is running now."""
    if isinstance(given, staticmethod):
        return given.__func__, None
    if isinstance(given, classmethod):
        return given.__func__, "class"
    method = innermost(given)
    if not _is_unbound_method(method) or next(iter(signature_of(given).parameters), "") not in _RECEIVER_NAMES:
        return given, None
    if _is_in_its_class_body(method):
        return given, "instance"
    raise _unbound_method(method)


def _arguments(
    function: Callable[..., Any],
    schema: Mapping[str, Any] | None,
    names: Mapping[str, object] | None,
    receives: Receiver | None,
) -> tuple[Arguments, str]:
    """The arguments that a model gives, and the description in the docstring."""
    called = function if receives is None else functools.partial(function, None)  # the receiver is not for the model
    if schema is not None:
        given = SchemaArguments(called, schema, names)
        return given, read_docstring(docstring_of(function), given.names).description
    typed = TypedArguments(called, names)
    return typed, typed.docstring.description


def tools_of(owner: object, /, **options: Unpack[ToolOptions]) -> list[AnyTool]:
    """Make each public method of an object a tool: `tools=[*tools_of(calendar, timeout=5), …]`.

    Public are the methods whose names do not begin with an underscore, inherited ones included, in the order in which
    they are written, those of base classes first; each tool has the name of its attribute. Properties are not read. The
    options are those of `tool` that several tools can share; a method that was declared with `@tool` keeps its own.

    Raises ConfigurationError for an object without such methods, and for a method that a model could not call.
    """
    if inspect.isclass(owner):
        raise ConfigurationError(f"tools_of takes an object, and {owner.__name__} is a class: make an instance of it.")
    names = _names_of_caller(1)
    taken = ((name, getattr(owner, name)) for name in _methods(type(owner)))
    tools = [one if isinstance(one, Tool) else make_tool(one, names=names, name=name, **options) for name, one in taken]
    if not tools:
        raise ConfigurationError(f"An object of the class {type(owner).__name__} has no public methods.")
    return tools


def _methods(kind: type[Any]) -> Iterator[str]:
    """Yield the names of the public methods of a class."""
    bases = [base for base in reversed(kind.__mro__) if base is not object]
    names = dict.fromkeys(name for base in bases for name in vars(base) if not name.startswith("_"))
    return (name for name in names if _is_method(inspect.getattr_static(kind, name)))


def _is_method(attribute: object) -> bool:
    if isinstance(attribute, staticmethod | classmethod):
        attribute = attribute.__func__
    is_cached = hasattr(attribute, "cache_info")
    return inspect.isfunction(attribute) or is_cached or isinstance(attribute, Tool | functools.partialmethod)


def _check_approval(approval: object, tool: str, names: Sequence[str]) -> None:
    """Raise ConfigurationError for what is neither a bool nor a plain function of parameters that have these names."""
    if isinstance(approval, bool):
        return
    if not callable(approval) or inspect.isclass(approval):
        raise ConfigurationError(f"The approval of {tool} must be true, false or a function of its arguments.")
    if is_coroutine_function(approval) or inspect.isgeneratorfunction(approval):
        raise ConfigurationError(f"The approval of {tool} must be a plain function: it decides at once.")
    known = set(names)
    for parameter in signature_of(approval).parameters.values():
        is_unnamed = parameter.kind is parameter.POSITIONAL_ONLY
        is_known = parameter.name in known and not is_unnamed
        is_optional = parameter.default is not parameter.empty or parameter.kind in _ANY_NUMBER
        if not is_known and not is_optional:
            raise ConfigurationError(
                f"The approval of {tool} needs {parameter.name}, which is not among the arguments of the tool."
            )


_ANY_NUMBER = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _taken(approval: Callable[..., bool], values: dict[str, object]) -> dict[str, object]:
    """Those of the arguments that the function takes."""
    parameters = inspect.signature(approval).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return values
    return {name: value for name, value in values.items() if name in parameters}


def shown_arguments(call: ToolCall) -> str:
    """Return the arguments of a call as JSON on one line, or as the model wrote them if that is no JSON object, with
    what is hidden in them marked. `Pure.`"""
    arguments = json_object(call.raw_arguments)
    written = call.raw_arguments if arguments is None else json.dumps(arguments, ensure_ascii=False)
    return with_hidden_shown(written)


_RECEIVER_NAMES = frozenset({"self", "cls"})
"""The names of the first parameter of a method."""


def _is_unbound_method(function: Any) -> bool:
    """Whether this is the function of a method, which was taken from a class and not from an object. `Pure.`"""
    if inspect.ismethod(function) or not inspect.isfunction(plain := inspect.unwrap(function)):
        return False
    owner = plain.__qualname__.rpartition(".")[0]
    is_in_class = bool(owner) and not owner.endswith("<locals>")
    return is_in_class and not _RECEIVER_NAMES.isdisjoint(plain.__code__.co_varnames[:1])


def _unbound_method(function: Any) -> ConfigurationError:
    """The error for the function of a method that is given without its object. `Pure.`"""
    owner, _, name = function.__qualname__.rpartition(".")
    kind = owner.rpartition(".")[2]
    return ConfigurationError(
        f"{kind}.{name} is a method that is not bound to an object: take it from an instance, as in {kind}(…).{name}."
    )


def _is_in_its_class_body(function: Any) -> bool:
    """Whether the body of the class to which the function belongs is running now."""
    owner = function.__qualname__.rpartition(".")[0]
    return any(frame.f_locals.get("__qualname__") == owner for frame in _frames() if _is_class_body(frame))


def _names_of_caller(depth: int) -> Mapping[str, object]:
    """The local names of the caller `depth` frames above: a tool that is made inside a function may use types that are
    defined there. In a class body these are the names of the functions around it, too."""
    frame: FrameType | None = sys._getframe(depth + 1)
    found: list[Mapping[str, object]] = []
    while frame is not None:
        found.append(frame.f_locals)
        frame = frame.f_back if _is_class_body(frame) else None
    return {name: value for names in reversed(found) for name, value in names.items()}


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_class_body(frame: FrameType) -> bool:
    return not frame.f_code.co_flags & inspect.CO_OPTIMIZED and "__qualname__" in frame.f_locals


async def cut_result(result: ToolResult, limit: int, redact: Redact = unchanged) -> ToolResult:
    """Return the result with a text of at most `limit` characters. Its files and acts stay. Secrets are replaced by
    `redact` before the text is cut, since half of a secret is not recognised as one."""
    text = result.text
    if len(text) <= limit:
        return result
    characters = 0 if redact is unchanged else 2 * limit
    return result.replace(text=await in_thread_if_long(characters, lambda: cut_text(text, limit, redact)))


def cut_text(text: str, limit: int, redact: Redact = unchanged) -> str:
    """Return the text, cut to its beginning and its end if it has more than `limit` characters.

    Twice as much as is kept at either end is redacted: a secret at the place of the cut is seen in full, and a text of
    any length costs no more than one of twice the limit.

    The beginning says what it is, and the end often holds the total or the error. A mark between them says how much
    is missing, so that the model does not take the rest for the whole. `Pure.`
    """
    if len(text) <= limit:
        return text
    room = limit - len(_mark(len(text), len(text)))
    if len(text) <= 2 * limit:
        text = redact(text)
        if len(text) <= limit:
            return text
        beginning, end = text, text
    else:
        beginning, end = redact(text[:limit]), redact(text[len(text) - limit :])
    beginning, end = beginning[: (room + 1) // 2], end[max(0, len(end) - room // 2) :]
    return f"{beginning}{_mark(len(text) - len(beginning) - len(end), len(text))}{end}"


def _mark(missing: int, characters: int) -> str:
    return f"\n[… {missing:,} of {characters:,} characters are left out here …]\n"
