"""Tab completion of commands."""

from __future__ import annotations

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from turnwise.hosts.terminal.chat.menus import CommandCompleter, CommandHelp

COMMANDS = {
    "/model": CommandHelp("change the model", "[NAME]", lambda: ("openai/gpt", "openai/o", "rehearsal")),
    "/mood": CommandHelp("show the mood"),
}


def completed(line: str) -> list[str]:
    """Return what the line can become."""
    completer = CommandCompleter(lambda: COMMANDS)
    found = completer.get_completions(Document(line), CompleteEvent())
    return [line[: len(line) + each.start_position] + each.text for each in found]


class TestCommands:
    """A line that begins with a slash."""

    def test_commands_are_offered_by_their_beginning(self) -> None:
        """All of them on an empty line."""
        assert completed("/mo") == ["/model", "/mood"]
        assert completed("/mode") == ["/model"]
        assert completed("") == ["/model", "/mood"]
        assert completed("/x") == []

    def test_arguments_are_offered_where_they_are_known(self) -> None:
        """Behind the command."""
        assert completed("/model open") == ["/model openai/gpt", "/model openai/o"]
        assert completed("/model ") == ["/model openai/gpt", "/model openai/o", "/model rehearsal"]
        assert completed("/mood x") == []
        assert completed("/x y") == []

    def test_a_message_is_left_alone(self) -> None:
        """Words of a message are not commands."""
        assert completed("what is /mo") == []
        assert completed("mo") == []

    def test_each_has_its_description(self) -> None:
        """Beside its name."""
        found = CommandCompleter(lambda: COMMANDS).get_completions(Document("/mood"), CompleteEvent())

        assert [each.display_meta_text for each in found] == ["show the mood"]
