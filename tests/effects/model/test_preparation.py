"""What the rehearsal model answers before a turn: the choice of a profile, and the words of a search."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwise import ModelRequest
from turnwise.effects.model.port import Purpose
from turnwise.effects.model.rehearsal import RehearsalLlm, reply_to

INSTRUCTION = """Choose a profile.

The profiles:
- general
- cook: Cooking, recipes and shopping.
- guide: Travel, weather and places to see.

Answer with one JSON object."""


async def answer_to(purpose: Purpose, *messages: dict[str, Any]) -> Any:
    """Return the model's answer to a request with this purpose, read as JSON."""
    request = ModelRequest("rehearsal", messages, purpose=purpose)
    return json.loads((await RehearsalLlm(delay=0).complete(request, lambda token: None)).content)


@pytest.mark.parametrize(
    ("said", "profile"),
    [
        ("Which recipe uses rice?", "cook"),
        ("Will I need an umbrella in the places I see?", "guide"),
        ("Good morning", "general"),
        ("¿Qué tal?", "general"),
    ],
)
async def test_the_profile_with_the_most_words_in_common_is_chosen(said: str, profile: str) -> None:
    """J2: the first one if no word is in common."""
    messages = ({"role": "system", "content": INSTRUCTION}, {"role": "user", "content": said})

    assert await answer_to("route", *messages) == {"profile": profile}


async def test_a_choice_among_nothing_is_no_choice() -> None:
    """Whatever a request holds, the answer is JSON."""
    assert await answer_to("route", {"role": "user", "content": [{"type": "text", "text": "a"}]}) == {"profile": ""}


@pytest.mark.parametrize(
    ("said", "keywords"),
    [
        ("What was the name of the restaurant in Turku? The restaurant!", ["was", "name", "restaurant", "Turku"]),
        ("", []),
        (" ".join(f"word{number}" for number in range(20)), [f"word{number}" for number in range(8)]),
    ],
)
async def test_keywords_are_the_words_that_say_what_it_is_about(said: str, keywords: list[str]) -> None:
    """J4: each once, as it is written, eight at most, and none for a text without any."""
    found = await answer_to("enrich", {"role": "user", "content": said})

    assert {word.lower() for word in found["keywords"]} == {word.lower() for word in keywords}
    assert found["from"] is None and found["to"] is None


NOTE = "Current context:\n• Time: Monday, September 15, 2025 at 17:53 UTC\n• Location: Unknown"
RECALLED = (
    "You help.\n\nRelevant conversation history:\nThis is a record of what was said earlier.\n"
    "2025-09-14 12:00 UTC, assistant:\n  Noted.\n"
    "2025-09-14 11:59 UTC, user:\n  My sister lives\n  in Turku."
)


class TestTheReplyFlow:
    """J5, J6: requests with the time, the place and what was recalled."""

    def test_the_note_on_time_and_place_is_not_what_the_user_said(self) -> None:
        """In front of the text, as a part of its own, or as a message behind results."""
        said = reply_to([{"role": "user", "content": f"{NOTE}\n\nhello"}], ()).content
        parts = [{"type": "text", "text": NOTE}, {"type": "text", "text": "hello"}]

        assert said.endswith("You said: “hello” There is no tool I could use.")
        assert reply_to([{"role": "user", "content": parts}], ()).content == said

    def test_the_note_hides_no_result(self) -> None:
        """Results stand in front of it."""
        call = {"id": "call00000", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": "Look up the weather"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call00000", "content": "Rain."},
            {"role": "user", "content": NOTE},
        ]

        assert reply_to(messages, ()).content == "Up: Rain."

    def test_what_was_recalled_answers_a_question(self) -> None:
        """Nothing else is answered with it."""
        system = {"role": "system", "content": RECALLED}

        asked = reply_to([system, {"role": "user", "content": "Where does my sister live?"}], ()).content
        told = reply_to([system, {"role": "user", "content": "My sister moved."}], ()).content

        assert asked.endswith("You said earlier: “My sister lives in Turku.”")
        assert "earlier" not in told
