"""The names that `turnwise.persistence` exports are there, and importing the package imports no database."""

from __future__ import annotations

import subprocess
import sys

import pytest

from turnwise import persistence

from ..support.cases import holds_for


@holds_for("name", persistence.__all__)
def test_each_name_is_found(name: str) -> None:
    """Where it is defined, on first use."""
    assert getattr(persistence, name) is getattr(persistence, name)
    assert name in dir(persistence)


def test_any_other_name_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="attribute Nothing"):
        persistence.Nothing  # noqa: B018


@pytest.mark.slow
def test_writing_a_store_needs_no_sqlalchemy() -> None:
    """The port, the records and the errors are imported without it."""
    program = (
        "import sys; from turnwise.persistence import ConversationRecord, Store, StoreConflict, encode, read_record;"
        "assert not {'sqlalchemy', 'alembic'} & set(sys.modules)"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
