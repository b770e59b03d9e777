"""What performers log has no secrets while an effect of a conversation with redaction is carried out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from turnwise import Redaction
from turnwise.effects import logs
from turnwise.effects.context import Redact, unchanged
from turnwise.effects.logs import performer_logger, redacting

from ..support.secrets import SECRETS, found_in_record

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
