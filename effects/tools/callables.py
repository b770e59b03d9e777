"""What a tool may be made of, and where its name, its docstring and its parameters are found.

Applications hand over more than plain functions: bound methods, partials, cached functions, objects that can be
called. Each of them leads to one definition, the function whose text somebody wrote.

A model reads the description of a parameter beside its type, and the description of the tool without the section in
which the parameters stand. Docstrings are read in the styles of Google, NumPy and Sphinx. One of any other kind is
the description as it is: nothing in a docstring can keep a function from being a tool.

A model gives arguments by name, as JSON, so every parameter needs a name and a type. A function that a model could
not call is refused when it is made a tool, not when it is called.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

from ...states.errors import ConfigurationError
from ..application_functions import innermost
from .context import ToolContext

NOT_CALLABLE = "A tool must be made of a function, a method or an object that can be called."


def definition_of(function: object) -> Any:
    """The function that has the types of the parameters. Raises ConfigurationError if nothing here can be called as a
    tool: a class, a generator function, or a dict, which needs a function that does the work."""
    called = innermost(function)
    if isinstance(called, Mapping):
        raise ConfigurationError(
            "A tool cannot be made of a dict, which does no work: give its schema with a function, "
            "as in tool(function, name=…, parameters=schema)."
        )
    if inspect.isclass(called):
        raise ConfigurationError(f"{called.__name__} is a class: give one of its methods, or an instance to call.")
    if not callable(called):
        raise ConfigurationError(NOT_CALLABLE)
    definition = _written(called)
    _check_callable_by_name(called, definition)
    return definition


def name_of(function: object) -> str:
    """The name that a tool made of this gets: that of the function, or of the class of an object. `Pure.`"""
    called = innermost(function)
    name = getattr(called, "__name__", None)
    return name if isinstance(name, str) else type(called).__name__


def docstring_of(function: object) -> str:
    """The docstring of the function; of an object that is called, that of its `__call__` or else of its class.
    `Pure.`"""
    called = innermost(function)
    if inspect.isroutine(called) or hasattr(called, "__wrapped__"):
        found = [inspect.getdoc(called)]
    else:  # not by `getdoc`, which finds that of any function
        found = [
            source.__doc__ and inspect.cleandoc(source.__doc__) for source in (type(called).__call__, type(called))
        ]
    return next((text for text in found if isinstance(text, str) and text.strip()), "")


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The parameters, without those that a partial or an object has already given. Raises ConfigurationError if Python
    cannot tell them, as for some functions that are written in C."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"The parameters of {name_of(function)} are not known to Python.") from error


def _module_names_of(definition: object) -> dict[str, Any]:
    """The names of the module in which the function was written. `Pure.`"""
    names = getattr(inspect.unwrap(definition), "__globals__", {})  # type: ignore[arg-type]
    return names if isinstance(names, dict) else {}


def _written(called: Any) -> Any:
    """The function or method behind a cached function, or behind an object that is called."""
    if inspect.isroutine(called):
        return called
    if hasattr(called, "__wrapped__"):
        return inspect.unwrap(called)
    return called.__call__


def _check_callable_by_name(called: Any, definition: Any) -> None:
    name, is_cached = name_of(called), hasattr(called, "cache_info")
    plain = inspect.unwrap(called) if is_cached else definition
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise ConfigurationError(f"The function {name} is a generator, but a tool returns one result.")
    if is_cached and inspect.iscoroutinefunction(plain):
        raise ConfigurationError(
            f"The function {name} caches coroutines, each of which can be awaited only once: cache what it awaits."
        )
    if hasattr(called, "dispatch") and hasattr(called, "registry"):
        raise ConfigurationError(
            f"The function {name} is chosen by the type of an argument that is given by position, "
            "but a model gives arguments by name."
        )


_GOOGLE = re.compile(r"(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters):[ \t]*")
_NUMPY = re.compile(r"(?:Other )?(?:Parameters|Params|Arguments)[ \t]*")
_UNDERLINE = re.compile(r"-{3,}[ \t]*")
_SPHINX = re.compile(r"(?::|@)(?:param|parameter|arg|argument|key|keyword|kwarg|type)\b[^:]*:")
_HEADINGS = {"google": ["Args:"], "numpy": ["Parameters", "----------"]}
"""How the section begins for the parser, which knows fewer headings."""


@dataclass(frozen=True)
class Docstring:
    """The description of a function, and those of its parameters by their names."""

    description: str
    parameters: dict[str, str] = field(default_factory=dict)


def read_docstring(text: str, names: Collection[str]) -> Docstring:
    """Read a docstring, without its indentation, of a function whose parameters have these names.

    A section of parameters is taken out of the description if it describes at least one of them. `Pure.`
    """
    lines = text.splitlines()
    found: dict[str, str] = {}
    left: list[str] = []
    for style, section in _sections(lines):
        described = _described(style, section) if style else {}
        if described.keys() & set(names):
            found.update(described)
        else:
            left += section
    if not found:
        return Docstring(text)
    prose = re.sub(r"\n{3,}", "\n\n", "\n".join(left)).strip()
    return Docstring(prose, {name: found[name] for name in names if name in found})


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The lines in pieces: each section of parameters with the name of its style, and what lies between with none."""
    at = 0
    while at < len(lines):
        style = _style_of(lines, at)
        end = at + 1 if not style else _end_of(style, lines, at)
        yield style, lines[at:end]
        at = end


def _style_of(lines: list[str], at: int) -> str:
    line = lines[at]
    if _GOOGLE.fullmatch(line):
        return "google"
    if _NUMPY.fullmatch(line) and at + 1 < len(lines) and _UNDERLINE.fullmatch(lines[at + 1]):
        return "numpy"
    if _SPHINX.match(line):
        return "epydoc" if line.startswith("@") else "sphinx"
    return ""


def _end_of(style: str, lines: list[str], at: int) -> int:
    """The index of the first line after the section that begins at `at`."""
    if style == "numpy":
        headers = (i for i in range(at + 2, len(lines) - 1) if lines[i].strip() and _UNDERLINE.fullmatch(lines[i + 1]))
        return next(headers, len(lines))
    if style == "google":
        outside = (i for i in range(at + 1, len(lines)) if lines[i].strip() and not lines[i][0].isspace())
    else:
        outside = (i for i in range(at + 1, len(lines)) if not _belongs_to_field(lines[i]))
    return next(outside, len(lines))


def _belongs_to_field(line: str) -> bool:
    """Whether the line continues a field of Sphinx, or is the next one that is about a parameter."""
    return line[:1].isspace() or _SPHINX.match(line) is not None


def _described(style: str, section: list[str]) -> dict[str, str]:
    """The parameters that a section describes. Empty if the parser cannot read it."""
    from docstring_parser import DocstringStyle, parse  # only for docstrings with such a section

    styles = {
        "google": DocstringStyle.GOOGLE,
        "numpy": DocstringStyle.NUMPYDOC,
        "sphinx": DocstringStyle.REST,
        "epydoc": DocstringStyle.EPYDOC,
    }
    heading = _HEADINGS.get(style, [])
    try:
        parsed = parse("\n".join(["", *heading, *section[len(heading) :]]), styles[style])
        pairs = [(name, " ".join((p.description or "").split())) for p in parsed.params for name in _names(p.arg_name)]
    except Exception:
        return {}
    return {name: description for name, description in pairs if description}


def _names(written: str) -> list[str]:
    """The names in `x, y`; `**options` is `options`."""
    return [name.strip().lstrip("*\\") for name in written.split(",")]


_UNNAMED = {
    inspect.Parameter.POSITIONAL_ONLY: "can only be given by position, but a model gives arguments by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values, but a model needs to be told which",
    inspect.Parameter.VAR_KEYWORD: "takes any name, but a model needs to be told which",
}


@dataclass(frozen=True)
class Parameter:
    """A parameter with its resolved type, and its default or `inspect.Parameter.empty`."""

    name: str
    annotation: Any
    default: Any

    @property
    def is_context(self) -> bool:
        """Whether the engine fills it, not the model."""
        return is_context(self.annotation)


def is_context(annotation: object) -> bool:
    """Whether this is the type of a parameter that the engine fills, not the model. `Pure.`"""
    return ToolContext in (annotation, *get_args(annotation))


def parameters_of(function: Callable[..., Any], names: Mapping[str, object]) -> tuple[Parameter, ...]:
    """The parameters, in order, without those that a partial has already filled.

    `names` are names that are visible where the function is defined, besides those of its module; annotations that are
    strings may use them. Raises ConfigurationError, naming function and parameter, for one that a model could not fill.
    """
    definition = definition_of(function)
    return tuple(_parameter(function, definition, declared, names) for declared in declared_parameters(function))


def declared_parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """The parameters as they are written, without those that a partial has already filled. Raises
    ConfigurationError."""
    filled = function.keywords if isinstance(function, functools.partial) else {}
    declared = signature_of(function).parameters.values()
    return tuple(parameter for parameter in declared if parameter.name not in filled)


def resolved(annotation: object, definition: object, names: Mapping[str, object]) -> Any:
    """The type that an annotation means in the module of `definition`, where `names` are known besides. Raises whatever
    an annotation raises that means nothing."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    known = _module_names_of(definition)
    return get_type_hints(holder, globalns=known, localns=dict(names), include_extras=True)["it"]


def _parameter(
    function: object, definition: object, declared: inspect.Parameter, names: Mapping[str, object]
) -> Parameter:
    about = f"The parameter {declared.name} of {name_of(function)}"
    if declared.kind in _UNNAMED:
        raise ConfigurationError(f"{about} {_UNNAMED[declared.kind]}.")
    if declared.annotation is inspect.Parameter.empty:
        raise ConfigurationError(f"{about} has no type.")
    try:
        annotation = resolved(declared.annotation, definition, names)
    except Exception as error:
        raise ConfigurationError(f"{about} has a type that is not known when the program runs.") from error
    return Parameter(declared.name, annotation, declared.default)
