"""Reads what a docstring says of the parameters, in the styles of Google, NumPy and Sphinx.

A model reads the description of a parameter beside its type, and the description of the tool without the section in
which the parameters stand. A docstring of any other kind is the description as it is: nothing in a docstring can keep a
function from being a tool.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

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
