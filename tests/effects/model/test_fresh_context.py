"""The note with the time and the place: what it says, and where in a request it stands."""

from __future__ import annotations

import locale
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from turnwise import ModelRequest
from turnwise.effects.model.request import with_fresh_context, write_fresh_context
from turnwise.effects.model.written_messages import BETWEEN
from turnwise.effects.text import DAYS, MONTHS

from ...support.servers.openai_server import violations

NOTE = "Current context:\n• Time: …\n• Location: Unknown"
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
USER = {"role": "user", "content": "Hello"}
CALL = {"id": "call00001", "type": "function", "function": {"name": "search", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call00001", "content": "18 degrees"}
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}


class TestTheNote:
    """J6: "Current context:" and two bullets."""

    def test_it_is_what_the_specification_shows(self) -> None:
        """J6: to the byte."""
        at = datetime(2025, 9, 15, 17, 53, tzinfo=UTC)

        note = write_fresh_context(at, "San Francisco, CA, United States (America/Los_Angeles)")

        assert note == (
            "Current context:\n"
            "• Time: Monday, September 15, 2025 at 17:53 UTC\n"
            "• Location: San Francisco, CA, United States (America/Los_Angeles)"
        )

    def test_the_time_is_in_utc(self) -> None:
        """J6: whatever zone it was given in; the day is that of UTC, too."""
        at = datetime(2026, 1, 1, 1, 5, 59, 999_999, tzinfo=timezone(timedelta(hours=9)))

        assert "• Time: Wednesday, December 31, 2025 at 16:05 UTC\n" in write_fresh_context(at, "Unknown")

    def test_names_do_not_follow_the_locale(self) -> None:
        """J6: English names of all days and months, in a process with any locale."""
        before = locale.setlocale(locale.LC_TIME)
        for name in ("fi_FI.UTF-8", "de_DE.UTF-8", "C.UTF-8"):
            try:
                locale.setlocale(locale.LC_TIME, name)
            except locale.Error:
                continue
            note = write_fresh_context(datetime(2026, 3, 1, tzinfo=UTC), "Unknown")
            locale.setlocale(locale.LC_TIME, before)
            assert "Sunday, March 1, 2026 at 00:00 UTC" in note
        moments = [datetime(2024, month, 1, tzinfo=UTC) for month in range(1, 13)]
        assert [f"{one:%B}" for one in moments] == list(MONTHS)
        assert [f"{datetime(2024, 1, day, tzinfo=UTC):%A}" for day in range(1, 8)] == list(DAYS)

    @pytest.mark.parametrize("year", [1, 999, 9999])
    def test_any_moment_has_a_note(self, year: int) -> None:
        """A clock may be wrong by any amount."""
        assert f", {year} at" in write_fresh_context(datetime(year, 6, 1, tzinfo=UTC), "Unknown")


def noted(*messages: dict[str, Any], model: str = "openai/gpt") -> list[dict[str, Any]]:
    """The messages of a request with the note in it."""
    return list(with_fresh_context(ModelRequest(model, messages), NOTE).messages)


class TestItsPlace:
    """J6: exactly one, at the end, as text of the user's role."""

    def test_it_stands_in_front_of_the_users_text(self) -> None:
        """In the same message, since two messages of one role in a row are refused."""
        assert noted(USER) == [{"role": "user", "content": f"{NOTE}\n\nHello"}]

    def test_behind_results_it_is_a_message_of_its_own(self) -> None:
        """And what stands in front of it stays as it was, so that it is still cached."""
        assert noted(USER, CALLS, RESULT) == [USER, CALLS, RESULT, {"role": "user", "content": NOTE}]

    def test_behind_words_of_the_model_it_is_a_message_of_its_own(self) -> None:
        """Where a request ends with the model's text, for example after a reply that was only a thought."""
        said = {"role": "assistant", "content": "Let me see."}

        assert noted(USER, said) == [USER, said, {"role": "user", "content": NOTE}]

    @pytest.mark.parametrize("model", ["mistral/mistral-large", "openrouter/codestral"])
    def test_where_a_model_wants_to_speak_between_it_does(self, model: str) -> None:
        """Models of Mistral refuse a user's message directly behind a result."""
        assert noted(USER, CALLS, RESULT, model=model)[3:] == [
            {"role": "assistant", "content": BETWEEN},
            {"role": "user", "content": NOTE},
        ]
        assert noted(USER, model=model) == [{"role": "user", "content": f"{NOTE}\n\nHello"}]

    def test_beside_images_it_is_the_first_part(self) -> None:
        """The other parts keep their order."""
        parts = [IMAGE, {"type": "text", "text": "What is this?"}]

        assert noted({"role": "user", "content": parts}) == [
            {"role": "user", "content": [{"type": "text", "text": NOTE}, *parts]}
        ]

    @pytest.mark.parametrize("messages", [(), ({"role": "system", "content": "You are kind."},)])
    def test_a_request_without_dialogue_has_it_too(self, messages: tuple[dict[str, Any], ...]) -> None:
        """It is then the only message of a user."""
        assert noted(*messages) == [*messages, {"role": "user", "content": NOTE}]

    def test_the_request_is_not_changed(self) -> None:
        """Later requests share its messages, and the kept beginning never holds a note."""
        user = {"role": "user", "content": [IMAGE]}
        request = ModelRequest("m", (CALLS, RESULT, user), (TOOL,), conversation_id="c")

        changed = with_fresh_context(request, NOTE)

        assert user == {"role": "user", "content": [IMAGE]}
        assert (changed.tools, changed.conversation_id, changed.messages[:2]) == ((TOOL,), "c", (CALLS, RESULT))

    @pytest.mark.parametrize("messages", [(USER,), (USER, CALLS, RESULT), ()])
    @pytest.mark.parametrize("model", ["m", "mistral/m"])
    def test_no_provider_refuses_it(self, messages: tuple[dict[str, Any], ...], model: str) -> None:
        """Roles alternate, and each result follows its call."""
        assert violations({"model": model, "messages": noted(*messages, model=model), "tools": [TOOL]}) == []
