"""What a docstring says of the parameters reaches the model, and nothing in a docstring keeps a function from being a
tool."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from turnwise import ToolContext, tool
from turnwise.effects.tools.callables import Docstring, read_docstring

from ...support.cases import holds_for

GOOGLE = """
Look for a table.

Ask for one day at a time.

Args:
    cuisine: What to eat,
        for example sushi.
    party (int, optional): How many come: two by default.
    day: Which day.

Returns:
    What was found.
"""

NUMPY = """
Look for a table.

Ask for one day at a time.

Parameters
----------
cuisine : str
    What to eat,
    for example sushi.
party, day : int, optional
    Who comes, and when.

Returns
-------
str
    What was found.
"""

SPHINX = """
Look for a table.

Ask for one day at a time.

:param cuisine: What to eat,
    for example sushi.
:type cuisine: str
:param int party: How many come.
:returns: What was found.
:raises ValueError: if there is none.
"""

EPYDOC = """
Look for a table.

@param cuisine: What to eat.
@type cuisine: str
@return: What was found.
"""

NAMES = ("cuisine", "party", "day")


class TestStyles:
    """The styles of Google, NumPy and Sphinx, and that of Epydoc, which is like the last."""

    def test_google(self) -> None:
        """Lines are joined, and the other sections stay in the description."""
        assert read_docstring(inspect.cleandoc(GOOGLE), NAMES) == Docstring(
            "Look for a table.\n\nAsk for one day at a time.\n\nReturns:\n    What was found.",
            {
                "cuisine": "What to eat, for example sushi.",
                "party": "How many come: two by default.",
                "day": "Which day.",
            },
        )

    def test_numpy(self) -> None:
        """Two parameters may share one description."""
        assert read_docstring(inspect.cleandoc(NUMPY), NAMES) == Docstring(
            "Look for a table.\n\nAsk for one day at a time.\n\nReturns\n-------\nstr\n    What was found.",
            {
                "cuisine": "What to eat, for example sushi.",
                "party": "Who comes, and when.",
                "day": "Who comes, and when.",
            },
        )

    def test_sphinx(self) -> None:
        """Types are left out, with the parameters."""
        assert read_docstring(inspect.cleandoc(SPHINX), NAMES) == Docstring(
            "Look for a table.\n\nAsk for one day at a time.\n\n:returns: What was found.\n"
            ":raises ValueError: if there is none.",
            {"cuisine": "What to eat, for example sushi.", "party": "How many come."},
        )

    def test_epydoc(self) -> None:
        """Its fields begin with @."""
        assert read_docstring(inspect.cleandoc(EPYDOC), NAMES) == Docstring(
            "Look for a table.\n\n@return: What was found.", {"cuisine": "What to eat."}
        )

    @pytest.mark.parametrize("heading", ["Args:", "Arguments:", "Parameters:", "Params:", "Keyword Args:"])
    def test_a_section_may_have_several_headings(self, heading: str) -> None:
        """As programs write them; an unknown section after it stays."""
        text = f"Look.\n\n{heading}\n  day: Which day.\n\nNote:\n  Not on Mondays."

        assert read_docstring(text, NAMES) == Docstring("Look.\n\nNote:\n  Not on Mondays.", {"day": "Which day."})


class TestOtherDocstrings:
    """A docstring that says nothing of the parameters is the description as it is."""

    @holds_for(
        "text",
        [
            "",
            "Look for a table.",
            "Args:",
            "Args:\n\nLook.",
            "Args:\n    something else: no parameter",
            "Parameters\n----------",
            "Parameters\n----------\nnothing of the kind",
            "Parameters of the search matter.",
            ":param:",
            ":param unknown: x",
            ":param",
            "@param",
            "Args:\n\tday\n   :\n",
            "Look.\n\nRaises:\n    ValueError: always",
        ],
    )
    def test_it_is_kept(self, text: str) -> None:
        """Also where it looks as if it had such a section."""
        assert read_docstring(text, NAMES) == Docstring(text)

    @given(
        st.lists(
            st.sampled_from(
                [
                    "Args:",
                    "Parameters",
                    "----------",
                    ":param day:",
                    "  day: x",
                    "day : int",
                    "    ",
                    "@param",
                    "\t",
                    "",
                ]
            )
            | st.text(max_size=8)
        )
    )
    def test_no_docstring_breaks_a_tool(self, lines: list[str]) -> None:
        """Whatever stands in it, and the descriptions are of parameters that exist."""

        def look(day: str) -> None: ...

        look.__doc__ = "\n".join(lines)
        made = tool(look)

        assert list(made.parameters["properties"]) == ["day"]
        assert set(made.parameters["properties"]["day"]) <= {"type", "description"}
        made.definition()["function"]["description"].encode()

    @pytest.mark.parametrize("docstring", [3, None, "half \ud83c"])
    def test_a_docstring_may_be_anything(self, docstring: Any) -> None:
        """Python does not check what is assigned to `__doc__`. Half a character is replaced."""

        def look() -> None: ...

        look.__doc__ = docstring

        assert tool(look).description in {"", "half \N{REPLACEMENT CHARACTER}"}

    @pytest.mark.slow
    def test_the_parser_is_loaded_for_such_sections_only(self) -> None:
        """A program whose docstrings are plain does not pay for it."""
        program = (
            "import sys\n"
            "from turnwise import tool\n"
            "@tool\n"
            "def look(day: str) -> None:\n"
            "    '''Look.\\n\\n    On one day.'''\n"
            "assert not {'docstring_parser', 'jsonschema_rs'} & sys.modules.keys()\n"
            "@tool\n"
            "def look(day: str) -> None:\n"
            "    '''Look.\\n\\n    Args:\\n        day: One day.'''\n"
            "assert 'docstring_parser' in sys.modules and 'jsonschema_rs' not in sys.modules\n"
        )

        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


class Party(BaseModel):
    """Who comes."""

    adults: int


class TestDescriptions:
    """The schema of a tool has the descriptions of its parameters."""

    def test_the_docstring_describes_the_parameters(self) -> None:
        """Rather than the class of a parameter. What stands in the annotation or the default counts more."""

        @tool
        def book(
            day: str,
            party: Party,
            time: Annotated[str, Field(description="by annotation")],
            place: str = Field("here", description="by default"),
            notes: Annotated[str | None, Field(alias="from")] = None,
            *,
            context: ToolContext,
        ) -> None:
            """Book a table.

            Args:
                day: by docstring
                party: by docstring
                time: by docstring
                place: by docstring
                notes: by docstring
                context: by docstring
            """

        assert book.description == "Book a table."
        properties = book.parameters["properties"]
        assert {name: schema["description"] for name, schema in properties.items()} == {
            "day": "by docstring",
            "party": "by docstring",
            "time": "by annotation",
            "place": "by default",
            "from": "by docstring",
        }

    def test_a_given_description_replaces_the_docstring(self) -> None:
        """Those of the parameters stay."""

        def book(day: str) -> None:
            """Book a table.

            :param day: which day
            """

        made = tool(book, description="Get a seat.")

        assert made.description == "Get a seat."
        assert made.parameters["properties"]["day"]["description"] == "which day"
