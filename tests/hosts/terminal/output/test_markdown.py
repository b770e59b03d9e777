"""An answer on a terminal is rendered, and wrapped, while it streams."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from turnwise.effects.printable import printable
from turnwise.hosts.terminal.output.markdown import THEME, StreamedAnswer
from turnwise.hosts.terminal.output.writer import LineWrapper

from ....support.screens import FakeScreen

PLAN = """# The plan

First **look**, then *leap* — with `code`:

1. Look.
   Twice.
2. Leap:

   ```bash
   make leap
   ```

- a bullet
  - within it
- 漢字 and 🙂

```python
def leap(height: int) -> str:
    # [red]how high[/red]

    return f"{height} m"
```

| Name | Height |
|------|-------:|
| low  |      1 |
| high |     12 |

> Said once,
> quoted twice.

---

The end,
on two lines."""

RENDERED = """The plan

First look, then leap — with code:

 1 Look.
   Twice.
 2 Leap:
   make leap

 • a bullet
    • within it
 • 漢字 and 🙂

def leap(height: int) -> str:
    # [red]how high[/red]

    return f"{height} m"

 Name  Height
 ────────────
 low        1
 high      12

▌ Said once,
▌ quoted twice.

----------------------------------------

The end,
on two lines."""

MARKUP = st.lists(
    st.sampled_from(
        [
            *(
                "one ",
                "two",
                "漢字",
                "\n",
                "\n\n",
                "- ",
                "1. ",
                "2. ",
                "   ",
                "    ",
                "# ",
                "> ",
                "```",
                "```py",
                "~~~",
            ),
            *(
                "| a | b |",
                "|---|---|",
                "**",
                "*",
                "`",
                "[",
                "](http://x)",
                "![",
                "---",
                "===",
                "<b>",
                "&#x202e;",
                "\t",
            ),
            *("\\", "a" * 50, "\x1b[2J", "[ref]: http://y", "https://z ", "[red]"),
        ]
    ),
    max_size=40,
)


def streamed(pieces: Iterable[str], columns: int = 40, rows: int = 12, *, end: str = "finish") -> FakeScreen:
    """Return a terminal on which an answer was shown that arrived in these pieces."""
    output, screen = io.StringIO(), FakeScreen(columns, rows)
    console = Console(file=output, force_terminal=True, width=columns, height=rows, theme=THEME, highlight=False)
    answer = StreamedAnswer(console, columns)
    for piece in pieces:
        answer.feed(printable(piece))
    if end:
        getattr(answer, end)()
    screen.write(output.getvalue())
    return screen


def cut(text: str, size: int) -> list[str]:
    """Return the text in pieces of this size."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def _fence_lines(text: str) -> list[str]:
    """Return what stands behind fences, where the language is named: it is not shown."""
    return re.findall(r"(?:```|~~~)([^\n]*)", text)


PROSE = st.text(st.sampled_from("ab 漢\n"), max_size=60)


def wrapped(pieces: list[str], width: int) -> str:
    """Return how a text that arrives in these pieces is written."""
    wrapper = LineWrapper(width)
    return "".join([*(wrapper.feed(piece) for piece in pieces), wrapper.finish()])


class TestRendering:
    """Markdown as people read it."""

    @pytest.mark.slow
    @pytest.mark.parametrize("size", [1, 2, 3, 7, 40, 1000])
    def test_it_looks_the_same_however_it_arrives(self, size: int) -> None:
        """Headings, lists, code, tables and quotes, on a terminal that is lower than the answer: nothing is lost or
        doubled in what has scrolled away."""
        assert streamed(cut(PLAN, size)).text == RENDERED

    def test_what_is_unfinished_is_shown_already(self) -> None:
        """The text appears as it comes, not when its paragraph has ended."""
        assert streamed(["Some wo"], end="").text == "Some wo"
        assert streamed(["```\n", "let x"], end="").text == "let x"
        table = streamed(["| a | b |\n|--|--|\n| 1 | 2 |\n| x | y"], end="")
        assert table.text.split() == ["a", "b", "────", "1", "2", "x", "y"]

    def test_the_beginning_of_a_marker_changes_nothing_above_it(self) -> None:
        """A paragraph followed by `-` is no heading for a moment, and a fence that is being closed is no code."""
        assert streamed(["Here:\n-"], end="").text == "Here:"
        assert streamed(["```\nx\n``"], end="").text == "x"

    def test_a_code_block_that_never_ends_is_shown(self) -> None:
        """The answer was cut off within it."""
        assert streamed(["```py\nx = 1\ny = "]).text == "x = 1\ny ="

    def test_code_keeps_its_blank_lines_and_its_length(self) -> None:
        """A long line is left for the terminal to break, so that it is copied as one."""
        line = "x" * 90

        shown = streamed(cut(f"```\na\n\n\nb\n{line}\n```", 5), columns=40).text

        assert shown == f"a\n\n\nb\n{line[:40]}\n{line[40:80]}\n{line[80:]}"

    @pytest.mark.slow
    @pytest.mark.parametrize(("size", "length"), [(1, 10), (13, 60), (1_000, 300), (10_000, 300)])
    def test_coloured_code_is_the_code(self, size: int, length: int) -> None:
        """Blank lines at its beginning, and texts over many lines, included; also of code that is rendered in parts."""
        code = "\n\n" + "".join(f'x{number} = """a\n\n  b"""  # c\n' for number in range(length))

        shown = streamed(cut(f"```python\n{code}```\n\nDone.", size), columns=80).text

        assert shown == f"{code}\nDone."

    def test_links_and_images_show_where_they_lead(self) -> None:
        """An address is never hidden behind a text."""
        shown = streamed(["[my bank](http://evil.example) ![cat](http://x/c.png) <http://y>"], columns=100).text

        assert shown == "my bank (http://evil.example) !cat (http://x/c.png) <http://y>"

    def test_nothing_of_a_text_disappears(self) -> None:
        """HTML, definitions of links and the markup of other programs are text."""
        said = "<script>x</script>\n[a]: http://b\n[red]c[/red] &lt;d&gt; :smile:"

        assert streamed([said]).text == said.replace("&lt;d&gt;", "<d>")


class TestLongTexts:
    """The scrollback is right, whatever the size."""

    @pytest.mark.slow
    def test_a_block_higher_than_the_screen_is_complete_at_the_end(self) -> None:
        """While it streams its last lines are shown."""
        rows = [f"| {number} | row |" for number in range(40)]
        table = "\n".join(["| n | what |", "|--|--|", *rows])

        during, after = streamed(cut(table, 11), end=""), streamed(cut(table, 11))

        assert "39" in during.text and len(during.shown) == 12
        assert re.findall(r"^ *(\d+) +row", after.text, re.MULTILINE) == [str(number) for number in range(40)]
        assert after.text.count("what") == 1

    def test_a_huge_block_is_written_as_it_is(self) -> None:
        """Rendering it again and again would take for ever. What follows is rendered again."""
        words = " ".join(str(number) for number in range(5_000))

        shown = streamed(cut(f"{words}\n\nAnd **then**?", 400)).text

        assert shown.split()[:-2] == words.split()
        assert shown.endswith("\n\nAnd then?")

    def test_a_huge_line_without_spaces_is_complete(self) -> None:
        """As text and as code."""
        for before, after in (("", ""), ("```\n", "\n```")):
            shown = streamed(cut(f"{before}{'x' * 30_000}{after}", 977)).text

            assert shown.replace("\n", "") == "x" * 30_000

    def test_a_long_list_or_table_is_complete(self) -> None:
        """A part of a list begins with an item, and a part of a table with its head."""
        items = "\n".join(f"- item {number}:\n    - nested" for number in range(300))
        rows = "\n".join(f"| row {number} | {'x' * 20} |" for number in range(300))

        shown = streamed(cut(f"{items}\n\n| n | x |\n|--|--|\n{rows}", 500)).text

        assert re.findall(r"^ • item (\d+):\n    • nested$", shown, re.MULTILINE) == [str(n) for n in range(300)]
        assert re.findall(r"^ row (\d+)  +x+$", shown, re.MULTILINE) == [str(n) for n in range(300)]

    @given(MARKUP, st.integers(1, 9), st.sampled_from([60, 8]))
    def test_it_never_fails_and_no_word_is_lost(self, parts: list[str], size: int, columns: int) -> None:
        """Whatever is written, however it arrives, and however narrow the terminal is; no control character reaches
        it."""
        text = "".join(parts)

        shown = streamed(cut(text, size), columns=columns).text

        if columns < 60:
            return  # words are broken, and columns of a table are not shown
        for word, count in (("one", text.count("one")), ("two", text.count("two")), ("字", text.count("字"))):
            assert shown.count(word) >= count or word in "".join(_fence_lines(text))


class TestTakingBack:
    """An answer that begins again."""

    def test_all_of_it_is_erased_if_it_is_on_the_screen(self) -> None:
        """With the blocks that were complete."""
        output, screen = io.StringIO(), FakeScreen(40, 12)
        console = Console(file=output, force_terminal=True, width=40, height=12, theme=THEME)
        console.print("> hello")
        answer = StreamedAnswer(console, 40)
        for piece in cut("# One\n\n- two\n- three\n\nfo", 3):
            answer.feed(piece)

        taken_back = answer.discard()

        screen.write(output.getvalue())
        assert taken_back
        assert screen.text == "> hello"

    def test_what_has_left_the_screen_stays(self) -> None:
        """And the caller is told."""
        output = io.StringIO()
        console = Console(file=output, force_terminal=True, width=40, height=6, theme=THEME)
        answer = StreamedAnswer(console, 40)
        answer.feed("\n\n".join(f"paragraph {number}" for number in range(20)))

        assert not answer.discard()

    def test_nothing_was_shown_yet(self) -> None:
        """There is nothing to erase."""
        screen = streamed([], end="discard")

        assert screen.text == ""


class TestResizing:
    """The terminal becomes narrower while an answer streams, and breaks the lines that are on it again."""

    def test_what_is_drawn_again_replaces_all_rows_of_it(self) -> None:
        """The unfinished paragraph is shown once."""
        output = io.StringIO()
        console = Console(file=output, force_terminal=True, width=40, height=12, theme=THEME)
        answer = StreamedAnswer(console, 40)
        answer.feed("word " * 7 + "last")
        before = output.getvalue()
        console.width = 20
        answer.feed(" more")
        answer.finish()

        screen = FakeScreen(20, 12)
        screen.write(before)
        screen.write(output.getvalue()[len(before) :])
        assert screen.text.split() == [*["word"] * 7, "last", "more"]


class TestWrapping:
    """Lines break between words."""

    def test_a_word_that_does_not_fit_begins_a_line(self) -> None:
        """Also if the word arrives in two pieces."""
        assert wrapped(["one two th", "ree"], 10) == "one two\nthree"

    def test_indentation_and_line_ends_stay(self) -> None:
        """A list or a program keeps its layout."""
        assert wrapped(["- a\n  - b", "\n\n", "c"], 10) == "- a\n  - b\n\nc"

    @given(st.lists(PROSE, max_size=5), st.integers(4, 20))
    def test_no_word_is_lost_and_no_line_is_too_long(self, pieces: list[str], width: int) -> None:
        """The words keep their order, however the text is cut; only a single long word exceeds the width."""
        shown = wrapped(pieces, width)

        assert shown.split() == "".join(pieces).split()
        assert all(cell_len(line) <= width or len(line.split()) == 1 for line in shown.splitlines())
