"""What is printed and logged: one line for each message, and nothing that commands a terminal."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable
from cProfile import Profile
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from turnwise import Redaction
from turnwise.effects import logs
from turnwise.effects.context import Redact, unchanged
from turnwise.effects.logs import performer_logger, redacting
from turnwise.effects.printable import printable, with_hidden_shown
from turnwise.effects.tools.tool import shown_arguments
from turnwise.states.values.messages import ToolCall

from ..support.cases import holds_for
from ..support.hidden_texts import HIDDEN, INNOCENT
from ..support.secrets import SECRETS, found_in_record

# --- What a reader cannot see is marked in texts that a person decides about.


def calls_of(function: Callable[[str], object], text: str) -> int:
    """How many calls of functions it takes to call this one with the text. What other tests left behind is cleared up
    before, because its finalizers would be counted as well."""
    profile = Profile()
    gc.collect()
    gc.disable()
    try:
        profile.runcall(function, text)
    finally:
        gc.enable()
    return sum(entry.callcount for entry in profile.getstats())


def call_with(arguments: str) -> ToolCall:
    """A call with these arguments, as the model wrote them."""
    return ToolCall(call_id="call_1_0", name="pay", raw_arguments=arguments)


class TestHiddenCharacters:
    """A text reads as what it is."""

    @holds_for(("text", "shown"), HIDDEN.items())
    def test_are_shown(self, text: str, shown: str) -> None:
        """What has no shape, only looks like a space, or lets a word read as another one is named."""
        assert with_hidden_shown(text) == shown

    @holds_for("text", INNOCENT)
    def test_are_none_in_innocent_texts(self, text: str) -> None:
        """Emoji, accents and joined letters stay legible, in all scripts."""
        assert with_hidden_shown(text) == text

    @pytest.mark.slow
    @holds_for("unit", ["a ", "東京", "при вет", "\u200b", "e\u0301", "p\u0430y", "👩\u200d👩", " "])
    def test_take_work_that_grows_with_the_text_alone(self, unit: str) -> None:
        """A text of four times the length takes four times the calls."""
        with_hidden_shown(unit)  # what is known of a character is kept

        assert calls_of(with_hidden_shown, unit * 4000) <= 4 * calls_of(with_hidden_shown, unit * 1000)


class TestArguments:
    """The arguments of a call that a person decides about."""

    def test_are_marked_json_on_one_line(self) -> None:
        """Escapes are resolved, so that none of them hides a character; JSON keeps blanks and line breaks in sight."""
        written = json.dumps({"to": "pay\u202epal", "note": "  two\nlines "})

        assert shown_arguments(call_with(written)) == '{"to": "pay⟨U+202E⟩pal", "note": "  two\\nlines "}'

    @pytest.mark.parametrize("written", ["[1, 2\u200b]", "pay 5\u200b", '{"a": NaN, "b": "\u200b"}'])
    def test_are_shown_as_they_are_if_they_are_no_object(self, written: str) -> None:
        """Nothing that the model wrote is left out because it is not what was expected."""
        assert shown_arguments(call_with(written)) == written.replace("\u200b", "⟨U+200B⟩")

    def test_stay_marked_on_a_terminal(self) -> None:
        """What a terminal would execute is marked before it is removed."""
        assert printable(shown_arguments(call_with('{"a": "\\u001b[2J\u202e"}'))) == '{"a": "\\u001b[2J⟨U+202E⟩"}'


# --- What performers log has no secrets while an effect of a conversation with redaction is carried out.


MAIL = SECRETS["email"]


def log_a_failure() -> None:
    """Log an error whose message, arguments and causes hold a secret."""
    logger = performer_logger("turnwise.tests")
    try:
        try:
            raise KeyError(MAIL)
        except KeyError as cause:
            raise ValueError(f"no {MAIL}") from cause
    except ValueError as error:
        logger.error("It failed for %s.", MAIL, exc_info=error)


def test_a_record_and_its_traceback_hold_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """J1: the traceback is there, without the secret."""
    with redacting(Redaction().redact):
        log_a_failure()

    (record,) = caplog.records
    assert not found_in_record(record)
    assert "It failed for [EMAIL]." in caplog.text
    assert "ValueError: no [EMAIL]" in caplog.text
    assert "Traceback" in caplog.text


def test_without_redaction_nothing_changes(caplog: pytest.LogCaptureFixture) -> None:
    """The record holds the exception itself, before, after, and where no redaction is asked for."""
    with redacting(Redaction().redact):
        pass
    log_a_failure()
    with redacting(unchanged):
        log_a_failure()

    assert all(record.exc_info and found_in_record(record) for record in caplog.records)


def test_every_performer_gets_its_logger_here() -> None:
    """So none can log a secret; only the rules themselves, which quote nothing, have a plain one."""
    effects = Path(logs.__file__).parent
    plain = {
        path.relative_to(effects).as_posix()
        for path in effects.rglob("*.py")
        if re.search(r"getLogger\(.turnwise", path.read_text(encoding="utf-8"))
    }

    assert plain <= {"redaction/redaction.py"}


class Numbers(BaseModel):
    """A model of an application."""

    numbers: list[int]


@pytest.mark.parametrize("redact", [unchanged, Redaction().redact])
def test_an_error_with_very_many_faults_is_logged_in_short(caplog: pytest.LogCaptureFixture, redact: Redact) -> None:
    """pydantic would write each of them into the traceback, which takes seconds."""
    logger = performer_logger("turnwise.tests")
    with redacting(redact):
        try:
            try:
                Numbers.model_validate({"numbers": ["x"] * 20_000})
            except ValidationError as cause:
                raise ValueError("no numbers") from cause
        except ValueError as error:
            logger.error("It failed.", exc_info=error)

    assert len(caplog.text) < 3_000
    assert "ValidationError: Input has 20,000 faults" in caplog.text
    assert "ValueError: no numbers" in caplog.text
    assert caplog.text.count("Traceback") == 2
