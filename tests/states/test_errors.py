"""Refusals and errors: each has one sentence for people, and data for programs."""

from __future__ import annotations

from typing import get_args

import pytest

from turnwise.states import Refused, TurnwiseError, UnknownConversation
from turnwise.states.errors import CompactionFailed, EngineClosed, RefusalCode
from turnwise.states.values.value import MAX_QUOTED

from ..support.cases import holds_for


class TestSentences:
    """A sentence can be shown to people as it is."""

    @holds_for("code", get_args(RefusalCode))
    def test_every_refusal_has_one(self, code: RefusalCode) -> None:
        """It begins with a capital letter and ends with a full stop, or with what it is about."""
        sentence = Refused(code, "When?").sentence

        assert sentence[0].isupper()
        assert sentence.endswith((".", ": When?"))

    def test_what_a_refusal_is_about_is_named(self) -> None:
        """It is in the sentence for people, and an attribute for programs."""
        refused = Refused("missing_answer", "When?")

        assert refused.sentence == "An answer is missing: When?"
        assert (refused.code, refused.subject) == ("missing_answer", "When?")

    def test_a_refusal_need_not_be_about_anything(self) -> None:
        """Then the sentence has nothing in its place."""
        assert Refused("busy").subject == ""
        assert Refused("unknown_question").sentence == "This was not asked: "

    def test_a_long_text_is_not_repeated_in_full(self) -> None:
        """The sentence quotes at most `MAX_QUOTED` characters of it."""
        for error in (Refused("unknown_question", "x" * 1_000), UnknownConversation("x" * 1_000)):
            assert f"{'x' * (MAX_QUOTED - 1)}…" in error.sentence
            assert "x" * MAX_QUOTED not in error.sentence

    def test_an_unknown_conversation_is_named(self) -> None:
        """The sentence has the id that was asked for."""
        error = UnknownConversation("c-1")

        assert error.sentence == "There is no conversation with the id c-1."
        assert error.conversation_id == "c-1"

    def test_a_closed_engine(self) -> None:
        """The sentence is complete without further data."""
        assert EngineClosed().sentence == "The engine is closed."

    def test_an_error_that_nobody_caught_shows_its_sentence(self) -> None:
        """A log that writes the error shows its sentence."""
        for error in (TurnwiseError("No."), Refused("busy"), UnknownConversation("c-1"), EngineClosed()):
            assert str(error) == error.sentence

    def test_a_history_that_could_not_be_condensed_says_why(self) -> None:
        """In the sentence for people, and as an attribute for programs."""
        error = CompactionFailed("timeout", "It took too long.")

        assert (error.kind, error.sentence) == ("timeout", "It took too long.")

    @pytest.mark.parametrize(
        "error", [TurnwiseError("No \ud800."), UnknownConversation("\ud800"), Refused("closed", sentence="\ud800")]
    )
    def test_they_can_be_written_whatever_they_quote(self, error: TurnwiseError) -> None:
        """Half a character is replaced, so that a log or a response can hold the sentence."""
        assert "\ufffd" in error.sentence
        assert str(error) == error.sentence
