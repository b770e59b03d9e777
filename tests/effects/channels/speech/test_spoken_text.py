"""S20: markup is removed from a text that is to be spoken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.channels.speech import CODE, make_speakable

from ....support.cases import holds_for


@holds_for(
    ("text", "spoken"),
    [
        ("**bold**, *it*, __strong__, _em_, ~~old~~ and `code`", "bold, it, strong, em, old and code"),
        ("# Dinner #\n\nTonight.", "Dinner.\nTonight."),
        ("- one\n* two\n+ three!\n- [x] four\n1. five", "one.\ntwo.\nthree!\nfour.\n1. five."),
        ("> quoted\n>> twice", "quoted\ntwice"),
        ("Look:\n\n```python\nprint('*')\n```\nDone.", f"Look:\n{CODE}\nDone."),
        ("~~~\n```\nstill code\n~~~\nout", f"{CODE}\nout"),
        ("```\nnever ended", CODE),
        ('See [the page](https://example.com/a_(b)?q=1 "title").', "See the page."),
        ("![a cat](cat.png) and [text][ref]\n\n[ref]: https://example.com", "a cat and text"),
        (
            "Go to https://www.example.com/a/b?c=d#e, or <https://example.org>.",
            "Go to example.com, or example.org.",
        ),
        ("| a | b |\n|---|:-:|\n| 1 | **2** |", "a, b.\n1, 2."),
        ("one\n\n---\n***\n\ntwo", "one\ntwo"),
        ("<b>bold</b><br/>AT&amp;T<!-- no -->", "boldAT&T"),
        (r"\*stars\* and \_lines\_", "*stars* and _lines_"),
        (
            "snake_case, 2 * 3 * 4, a < b > c, C# & 5*3, $5, 50%",
            "snake_case, 2 * 3 * 4, a < b > c, C# & 5*3, $5, 50%",
        ),
        ("\x1b[31mred\x1b[0m\x07", "red"),
        ("---\n\n***", ""),
        ("", ""),
    ],
)
def test_only_the_words_are_left(text: str, spoken: str) -> None:
    """Emphasis, headings, lists, quotes, code, links, URLs, tables, rules and HTML; anything else stays."""
    assert make_speakable(text) == spoken


def test_the_application_chooses_the_text_for_code() -> None:
    """In the language of its users."""
    assert make_speakable("```\nx\n```", code="Siehe Bildschirm.") == "Siehe Bildschirm."


@given(st.text(alphabet=st.sampled_from("ab *_`~#->[]()!|\\<>&;:/.1\n"), max_size=60))
def test_words_are_never_lost_outside_of_markup(text: str) -> None:
    """Any text beside a line of plain words leaves that line unchanged."""
    spoken = make_speakable(f"Plain words.\n\n{text}")

    assert spoken.startswith("Plain words.")


@holds_for("piece", ["*a ", "_a", "[a](", "![]", "<a", "<!--", "|", "- ", "> ", "`", " ", "&a", "\\*", "[](a(b"])
def test_the_time_is_proportional_to_the_length(piece: str) -> None:
    """Hostile repetitions of any mark end; with quadratic time this would take minutes."""
    make_speakable(piece * 20_000)
