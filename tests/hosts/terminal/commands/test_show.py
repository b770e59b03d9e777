"""`turnwise show`, and other commands that read a database which a program has open."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise import Conversation
from turnwise.hosts.terminal.commands.database import transcript_lines
from turnwise.states.values.acts import Audience
from turnwise.states.values.messages import Message

from ....support.terminal import (
    assert_one_sentence,
    run_beside,
)


@pytest.mark.slow
class TestReading:
    """P42: reading works while another process has the database open."""

    async def test_list_show_and_replay_beside_an_open_engine(self, asking: Conversation, database: Path) -> None:
        """The list has its state, the transcript no control characters, and the replay no divergence."""
        listed = await run_beside("list", "--db", database, cwd=database.parent)
        said = await run_beside("show", asking.id, "--db", database, cwd=database.parent)
        happened = await run_beside("show", asking.id, "--events", "--db", database, cwd=database.parent)
        replayed = await run_beside("replay", "--all", "--db", database, cwd=database.parent)

        assert listed.stdout.split()[:2] == [asking.id, "awaiting_user_response"]
        assert said.stdout.startswith("user:\nA table\nassistant:\nask_user_question(")
        assert "4  ask_user_question_pending  When?\n" in happened.stdout
        assert replayed.stdout == f"{asking.id}  4 events replayed, no divergence.\n"
        assert {done.returncode for done in (listed, said, happened, replayed)} == {0}
        assert {done.stderr for done in (listed, said, happened, replayed)} == {""}

    async def test_an_unknown_conversation_is_one_sentence(self, asking: Conversation, database: Path) -> None:
        """For `show`, `replay` and `export`."""
        for command in ("show", "replay", "export"):
            done = await run_beside(command, "nonsense", "--db", database, cwd=database.parent)

            assert_one_sentence(done, "There is no conversation with the id nonsense.")


@pytest.mark.parametrize(("audience", "heading"), [("user", "b1, for the user:"), ("agent", "b1, for this agent:")])
def test_a_message_of_another_agent_has_its_name_above_it(audience: Audience, heading: str) -> None:
    """And says for whom it is."""
    message = Message(role="user", text="Three files.", origin="b1", audience=audience)

    assert list(transcript_lines((message,))) == [heading, "Three files."]
