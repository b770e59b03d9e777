"""The commands that copy conversations: `turnwise export`, `fork` and `import`; with `--format openai` they write and
read messages for and from other programs.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from turnwise import Conversation, Engine, presets
from turnwise.hosts.terminal.commands.transfer import read_histories, write_one
from turnwise.states import InvalidInput, SpeechRules, UserCancel
from turnwise.testing import ScriptedLlm, call, reply

from ....support.terminal import (
    InProcessRun,
    assert_one_sentence,
    conversation_id_in,
    database_with,
    execute_sql,
    exported,
    run,
    run_beside,
)
from ....support.walks import Walk

GREETING = {"role": "assistant", "content": "Welcome!\u2028What may I book? 寿司"}
ASKED = {"role": "user", "content": "A table for two?"}
SYSTEM = {"role": "system", "content": "You book tables."}
DANGLING = {
    "role": "assistant",
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "find", "arguments": "{}"}}],
}


class Titled(BaseModel):
    """A typed answer."""

    title: str


KEY = "".join(("AK", "IAQ4Z7WNX2LPRT6VHC"))


@pytest.mark.slow
async def test_an_export_is_a_line_for_each_step(asking: Conversation, database: Path) -> None:
    """JSON lines: the format, the conversation, its steps in order, and the number of conversations."""
    done = await run_beside("export", asking.id, "--db", f"sqlite:///{database}", cwd=database.parent)

    header, head, *steps, last = map(json.loads, done.stdout.splitlines())
    assert header["format"] == "turnwise-log"
    assert (head["conversation"], head["seq"], last["conversations"]) == (asking.id, 4, 1)
    assert [step["seq"] for step in steps] == [1, 2, 3, 4]


def test_a_damaged_conversation_is_left_out(tmp_path: Path, in_process: InProcessRun) -> None:
    """The others are exported, and the file can be imported. The exit code is 1."""
    path = database_with(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
    execute_sql(path, "DELETE FROM events WHERE conversation = 1 AND seq = 3")

    everything = in_process("export", "--all")
    alone = in_process("export", "one")
    imported = in_process("import", "-", "--db", "new.db", lines=everything.stdout.splitlines())

    assert (everything.returncode, everything.stderr) == (
        1,
        "one is left out: Step 3 is missing: the log is damaged.\n",
    )
    assert_one_sentence(alone, "Step 3 is missing: the log is damaged.")
    assert imported.stdout == "two  5 steps imported\n"


class TestFork:
    """Copying a conversation, by the command and in a chat."""

    def test_it_prints_the_last_step_of_the_copy(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """The id of the copy comes first, for scripts. Lists and transcripts show the origin of a copy."""
        database_with(tmp_path, Walk("walk").turn("tonight").turn("tomorrow"))

        done = in_process("fork", "walk", "--at", "5")

        new_id = done.stdout.split()[0]
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{new_id}  forked from walk at step 5, idle\n"
        assert re.search(rf"^{new_id} .*  forked from walk at step 5$", in_process("list").stdout, re.MULTILINE)
        assert in_process("show", new_id).stdout.startswith("(forked from walk at step 5)\nuser:\ntonight\n")
        assert in_process("replay", new_id).stdout == f"{new_id}  5 events replayed, no divergence.\n"

    def test_between_two_turns(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """The line says that a message that waited there is not in the copy."""
        database_with(tmp_path, Walk("walk").say("tonight").say("tomorrow", "queue").reply("At eight."))

        done = in_process("fork", "walk", "--at", "4")

        copied = in_process("show", done.stdout.split()[0]).stdout
        assert done.stdout.endswith("forked from walk at step 4, idle, without 1 message that waited there\n")
        assert ("At eight." in copied, "tomorrow" in copied) == (True, False)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["walk", "--at", "0"], "counted from 1"),
            (["walk", "--at", "-1"], "counted from 1"),
            (["walk", "--at", "9"], "cannot be forked at step 9: its newest is 5"),
            (
                ["walk", "--at", "3"],
                "A copy up to step 3 would lose a turn or a message: fork the conversation at",
            ),
            (["walk", "--at", "9" * 5_000], "--at takes the number of a step, not 999"),
            (["walk", "--at", "last"], "--at takes the number of a step, not last."),
            (["nobody"], "There is no conversation with the id nobody."),
            (["walk", "--db", "missing.db"], "There is no database called missing.db."),
            (["walk", "--db", ":memory:"], "A database in memory ends with this command"),
        ],
    )
    def test_what_cannot_be_forked_is_one_sentence(
        self, arguments: list[str], sentence: str, tmp_path: Path, in_process: InProcessRun
    ) -> None:
        """P33: and neither a conversation nor a database is created."""
        database_with(tmp_path, Walk("walk").turn("tonight"))

        done = in_process("fork", *arguments)

        assert_one_sentence(done, sentence)
        assert len(in_process("list").stdout.splitlines()) == 1
        assert not (tmp_path / "missing.db").exists()

    @pytest.mark.slow
    def test_in_a_chat(self, tmp_path: Path) -> None:
        """The chat continues with the original; the copy can be resumed by its id."""
        done = run("chat", "--tools", "", cwd=tmp_path, lines=["hello", "/fork", "bye"])

        copied = conversation_id_in(done.stdout.split("Forked at step 3.")[1])
        again = run("show", copied, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert copied != conversation_id_in(done.stdout)
        assert "hello" in again.stdout
        assert "bye" not in again.stdout


@pytest.mark.slow
def test_there_and_back(tmp_path: Path) -> None:
    """A database that is exported and imported into an empty one is exported to the same bytes, whatever the terminal's
    encoding."""
    database_with(tmp_path, Walk("one").turn("say \x1b[31m寿司\u2028"), Walk("two"), Walk("three").turn("?"))
    new_id = run("fork", "one", cwd=tmp_path).stdout.split()[0]

    first = run("export", "--all", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    (tmp_path / "all.jsonl").write_text(first.stdout, encoding="utf-8", newline="")
    imported = run("import", "all.jsonl", "--db", "new.db", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    second = run("export", "--all", "--db", "new.db", cwd=tmp_path, PYTHONIOENCODING="latin-1")

    assert [done.stderr for done in (first, imported, second)] == ["", "", ""]
    assert first.stdout == second.stdout
    assert imported.stdout == (
        f"one  5 steps imported\ntwo  1 step imported\nthree  5 steps imported\n{new_id}  5 steps imported\n"
    )
    assert run("replay", "--all", "--db", "new.db", cwd=tmp_path).returncode == 0
    assert run("doctor", "--db", "new.db", cwd=tmp_path).returncode == 0


def test_what_was_under_way_is_closed(tmp_path: Path, in_process: InProcessRun) -> None:
    """Who imports it is told, and the log replays."""
    database_with(tmp_path, Walk("one").question(), Walk("two").turn("tonight"))
    lines = exported(in_process, "--all").decode().splitlines()

    done = in_process("import", "-", "--db", "new.db", lines=lines)

    assert done.stdout == "one  5 steps imported, what was under way in it is closed\ntwo  5 steps imported\n"
    assert in_process("replay", "--all", "--db", "new.db").returncode == 0
    assert in_process("doctor", "--db", "new.db").returncode == 0


def test_through_a_pipe(tmp_path: Path, in_process: InProcessRun) -> None:
    """`-` is stdin. A conversation that is there already does not change."""
    database_with(tmp_path, Walk("one").turn("tonight"), Walk("two"))
    lines = exported(in_process, "one").decode().splitlines()

    into_another = in_process("import", "-", "--db", "new.db", lines=lines)
    into_the_same = in_process("import", "-", lines=lines)

    assert into_another.stdout == "one  5 steps imported\n"
    assert into_the_same.stdout == "one  already there\n"
    assert exported(in_process, "one") == exported(in_process, "one", "--db", "new.db")


def test_an_export_without_conversations(tmp_path: Path, in_process: InProcessRun) -> None:
    """An empty database can be exported and imported."""
    database_with(tmp_path)
    lines = exported(in_process, "--all").decode().splitlines()

    done = in_process("import", "-", "--db", "new.db", lines=lines)

    assert (done.returncode, done.stdout) == (0, "There are no conversations in this export.\n")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], "Line 1 is missing: the export was cut off."),
        (["\x1b[2JDear diary"], "Line 1 does not begin an export of turnwise."),
        (['[{"role": "user", "content": "Hello"}]'], "with --format openai."),
        (['{"messages": []}'], "with --format openai."),
        (['{"format":"turnwise-log","version":2}'], "was written by a newer turnwise"),
        (['{"format":"turnwise-log","version":1}'], "Line 2 is missing: the export was cut off."),
        (['{"format":"turnwise-log","version":1}', "[" * 1_000_000], "Line 2 is not a line of an export."),
    ],
)
def test_a_file_that_is_no_export_is_one_sentence(
    lines: list[str], sentence: str, tmp_path: Path, in_process: InProcessRun
) -> None:
    """P33: and no database is created."""
    done = in_process("import", "-", lines=lines)

    assert_one_sentence(done, sentence)
    assert list(tmp_path.iterdir()) == []


def test_all_or_nothing(tmp_path: Path, in_process: InProcessRun) -> None:
    """Nothing is imported from a file that was changed, or with an id that another conversation has."""
    database_with(tmp_path, Walk("new"), Walk("taken").turn("tonight"), name="one.db")
    database_with(tmp_path, Walk("taken").turn("tomorrow"), name="two.db")
    lines = exported(in_process, "--all", "--db", "one.db").decode().splitlines()
    before = exported(in_process, "--all", "--db", "two.db")

    taken = in_process("import", "-", "--db", "two.db", lines=lines)
    lines[5] = lines[5].replace("tonight", "at noon")
    changed = in_process("import", "-", "--db", "two.db", lines=lines)

    assert_one_sentence(taken, "There is already another conversation with the id taken; nothing was imported.")
    assert_one_sentence(changed, "Line 6 is not what was exported: it was changed or damaged.")
    assert exported(in_process, "--all", "--db", "two.db") == before


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
            "one is left out: Step 3 is missing: the log is damaged.\nthree is left out: it has no answer.\n"
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

    def test_an_example_may_end_with_a_call_that_answers(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """A typed answer and what a tool says to the user are answers; neither is one that was refused."""

        async def store_all() -> None:
            calls = [call("final_result", title="A"), call("talk", text="Good day!"), reply("")]
            calls += [call("final_result", title=9)] * 3
            calls += [call("respond_to_user", text=" "), reply("")]
            model = ScriptedLlm(calls)
            async with Engine.open(tmp_path / "turnwise.db", model=model, tools=["talk", "respond_to_user"]) as engine:
                await (await engine.create(title="typed")).send("Hello", output=Titled)
                await (await engine.create(policy=presets.talk(), tools=["talk"])).send("Hello")
                await (await engine.create(title="refused")).send("Hello", output=Titled)
                said_nothing = presets.talk().replace(speech=SpeechRules())
                await (await engine.create(policy=said_nothing, tools=["respond_to_user"])).send("Hello")

        asyncio.run(store_all())

        done = in_process("export", "--all", "--format", "openai")

        last = [json.loads(line)["messages"][-1]["tool_calls"][0]["function"] for line in done.stdout.splitlines()]
        assert sorted(one["name"] for one in last) == ["final_result", "talk"]
        assert done.stderr.count("is left out: it has no answer.") == 2

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
