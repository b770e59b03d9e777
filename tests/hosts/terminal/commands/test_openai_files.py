"""`turnwise export --format openai` and `turnwise import --format openai`: messages for and from other programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwise.hosts.terminal.commands.transfer import read_histories, write_one
from turnwise.states import InvalidInput, UserCancel

from ....support.terminal import InProcessRun, assert_one_sentence, database_with, execute_sql
from ....support.walks import Walk

GREETING = {"role": "assistant", "content": "Welcome!\u2028What may I book? 寿司"}
ASKED = {"role": "user", "content": "A table for two?"}
SYSTEM = {"role": "system", "content": "You book tables."}
DANGLING = {
    "role": "assistant",
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "find", "arguments": "{}"}}],
}

KEY = "".join(("AK", "IAQ4Z7WNX2LPRT6VHC"))


class TestFiles:
    """What programs usually write is read."""

    @pytest.mark.parametrize(
        "text",
        [
            json.dumps([GREETING, ASKED]),
            "\ufeff" + json.dumps([GREETING, ASKED], indent=2, ensure_ascii=False),
            json.dumps({"messages": [GREETING, ASKED], "title": "Dinner"}),
            json.dumps([[GREETING, ASKED]]),
            write_one([GREETING, ASKED]),
            json.dumps({"messages": [GREETING, ASKED], "tools": []}, ensure_ascii=False),
            f"{json.dumps(GREETING, ensure_ascii=False)}\r\n{json.dumps(ASKED)}\r\n",
        ],
        ids=["list", "with a mark", "object", "list of lists", "written", "line", "lines of messages"],
    )
    def test_one_conversation(self, text: str) -> None:
        """A list of messages, an object with `messages`, or a message on each line."""
        assert read_histories(text.encode()) == ([GREETING, ASKED],)

    @pytest.mark.parametrize(
        "text",
        [
            f"{json.dumps({'messages': [GREETING]}, ensure_ascii=False)}\n\n{json.dumps({'messages': [ASKED]})}\n",
            f"{json.dumps([GREETING])}\n{json.dumps([ASKED])}",
            json.dumps([[GREETING], [ASKED]]),
            json.dumps([{"messages": [GREETING]}, {"messages": [ASKED]}]),
        ],
        ids=["lines of objects", "lines of lists", "list of lists", "list of objects"],
    )
    def test_several_conversations(self, text: str) -> None:
        """Each line, or each entry of a list, is a conversation."""
        assert read_histories(text.encode()) == ([GREETING], [ASKED])

    @pytest.mark.parametrize(
        "text", ["3", '"Hello"', '{"a": 1}', '{"messages": 3}', "[3]", "[[3]]", '[{"messages": [3]}]']
    )
    def test_other_json_is_refused(self, text: str) -> None:
        """One sentence says what is missing."""
        with pytest.raises(InvalidInput, match="no messages in OpenAI's chat format"):
            read_histories(text.encode())

    @pytest.mark.parametrize(
        ("data", "sentence"),
        [(b"\xff", "not UTF-8"), (b"[{}]\nnone\n", "Line 2 is not JSON"), (b"[" * 100_000, "Line 1 is not JSON")],
    )
    def test_what_is_no_json_is_refused(self, data: bytes, sentence: str) -> None:
        """The sentence names the line."""
        with pytest.raises(InvalidInput, match=sentence):
            read_histories(data)

    def test_an_empty_list_is_an_empty_conversation_and_an_empty_file_none(self) -> None:
        """Neither is an error."""
        assert read_histories(b"[]") == ([],)
        assert read_histories(b"\n") == ()


class TestCommands:
    """Conversations leave turnwise and come back."""

    def test_there_and_back(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """The messages of an imported conversation are those that were exported; nothing needs to be repaired."""
        database_with(tmp_path, Walk("one").turn("say \x1b[31m寿司\u2028"))

        first = in_process("export", "one", "--format", "openai")
        (tmp_path / "one.json").write_text(first.stdout, "utf-8")
        imported = in_process("import", "one.json", "--format", "openai", "--db", "new.db")
        new_id, rest = imported.stdout.split(maxsplit=1)
        second = in_process("export", new_id, "--format", "openai", "--db", "new.db")

        messages = json.loads(first.stdout)
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
        assert rest == "4 messages imported\n"
        assert second.stdout == first.stdout
        assert in_process("doctor", "--db", "new.db").returncode == 0
        assert in_process("replay", new_id, "--db", "new.db").returncode == 0

    def test_all_conversations_are_lines(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """A damaged one is left out, as from any export; each line becomes a conversation again."""
        path = database_with(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"), Walk("three").say())
        execute_sql(path, "DELETE FROM events WHERE conversation = 1 AND seq = 3")

        everything = in_process("export", "--all", "--format", "openai")
        imported = in_process(
            "import", "-", "--format", "openai", "--db", "new.db", lines=everything.stdout.splitlines()
        )

        assert everything.returncode == 1
        assert everything.stderr == (
            "one is left out: Step 3 is missing: the file is damaged.\nthree is left out: it has no answer.\n"
        )
        assert [len(json.loads(line)["messages"]) for line in everything.stdout.splitlines()] == [5]
        assert [line.split("  ")[1] for line in imported.stdout.splitlines()] == ["4 messages imported"]

    def test_a_line_is_an_example_for_fine_tuning(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """It ends with an answer, although the turn after it was cancelled, and describes the tools that are called, as
        far as they are known."""
        database_with(tmp_path, Walk("one").turn("tonight").say().request(UserCancel))

        done = in_process("export", "--all", "--format", "openai", "--tools", "ask_user_question")

        example = json.loads(done.stdout)
        assert example["messages"][-1]["role"] == "assistant"
        assert not example["messages"][-1].get("tool_calls")
        asked, called = (definition["function"] for definition in example["tools"])
        assert asked["name"] == "ask_user_question"
        assert "questions" in asked["parameters"]["properties"]
        assert called["name"] == example["messages"][2]["tool_calls"][0]["function"]["name"]

    def test_secrets_are_removed_under_a_preset_that_removes_them(
        self, tmp_path: Path, in_process: InProcessRun
    ) -> None:
        """J1: nothing of them is in the database."""
        messages = [
            {"role": "system", "content": f"The key is {KEY}."},
            {"role": "user", "content": "My card is 4111 1111 1111 1111."},
        ]
        (tmp_path / "chat.json").write_text(json.dumps(messages))

        done = in_process("import", "--format", "openai", "--preset", "reply-flow", "chat.json")

        assert (done.returncode, done.stderr) == (0, "")
        stored = b"".join(file.read_bytes() for file in tmp_path.glob("turnwise.db*"))
        assert b"My card is [" in stored
        assert b"4111 1111" not in stored and KEY.encode() not in stored

    def test_repairs_are_printed(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """Below the id of the new conversation; `chat` and `show` find it."""
        (tmp_path / "other.json").write_text(json.dumps([SYSTEM, GREETING, DANGLING]), "utf-8")

        imported = in_process("import", "other.json", "--format", "openai", "--preset", "talk")
        (first, repair) = imported.stdout.splitlines()
        shown = in_process("show", first.split()[0])
        events = in_process("show", first.split()[0], "--events")

        assert first.endswith("3 messages imported")
        assert repair == "  messages[2]: The call 'a' of 'find' has no result; one that says so was added."
        assert "  find returned: Error: there is no result." in shown.stdout
        assert ", begins with 3 messages" in events.stdout

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [("3", "The file has no messages in OpenAI's chat format."), ('[[{"role": "user"}], [3]]', None)],
    )
    def test_a_file_of_something_else_imports_nothing(
        self, tmp_path: Path, in_process: InProcessRun, text: str, sentence: str | None
    ) -> None:
        """One conversation that cannot be read is enough."""
        (tmp_path / "other.json").write_text(text, "utf-8")

        done = in_process("import", "other.json", "--format", "openai")

        assert_one_sentence(done, sentence or "The file has no messages in OpenAI's chat format.")
        assert not (tmp_path / "turnwise.db").exists()

    @pytest.mark.parametrize("command", [("export", "--all"), ("import", "x.json")])
    def test_an_unknown_format_is_refused(self, in_process: InProcessRun, command: tuple[str, ...]) -> None:
        """The sentence names the formats."""
        assert_one_sentence(in_process(*command, "--format", "yaml"), "The format is turnwise or openai.")
