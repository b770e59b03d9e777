"""The command `turnwise`, as people and scripts meet it: real processes, real files, a real terminal."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pexpect
import pytest

from turnwise import Conversation, Engine
from turnwise.testing.scripted import FunctionLlm, call, reply

from ...support.engine_scenarios import QUESTION, Gate, answers_after
from ...support.openai_server import OpenAiServer, fails, says

ROOT = Path(__file__).parent.parent.parent.parent
COMMAND = [sys.executable, "-m", "turnwise.hosts.terminal"]
DEMO_TOOLS = "turnwise.hosts.terminal.commands.demo:find_table,ask_user_question"
REQUEST = "A table for two tonight, somewhere Japanese"
LEFT_OUT = re.compile(r"TURNWISE_|.*_API_KEY$|NO_COLOR$|FORCE_COLOR$")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not LEFT_OUT.match(name)}
TILL = """
from turnwise import tool

@tool(approval=True)
def pay(amount: int) -> str:
    'Pay the bill.'
    return f"paid {amount}"
"""
ASKS_TWICE = """
from turnwise import Question, QuestionOption, UserQuestion, tool

NORTH, SOUTH = QuestionOption(label="North"), QuestionOption(label="South")

@tool(exclusive=True, acts=["question"])
def ask_twice(go: str) -> Question:
    'Go.'
    questions = [UserQuestion(question=f"Where {way}?", options=(NORTH, SOUTH)) for way in ("from", "to")]
    return Question(tuple(questions))
"""
SECONDS = 50
"""How long a process may take; the first thing that one with a model does is to import litellm."""


def run(
    *arguments: str | Path, cwd: Path, lines: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with these lines on stdin."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        input="".join(f"{line}\n" for line in lines),
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


async def run_beside(
    *arguments: str | Path, cwd: Path, lines: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """`run`, while the loop of the test goes on."""
    return await asyncio.to_thread(lambda: run(*arguments, cwd=cwd, lines=lines, **environment))


@contextmanager
def terminal(*arguments: str | Path, cwd: Path, **environment: str) -> Iterator[pexpect.spawn]:
    """Run the command on a terminal of its own."""
    child = pexpect.spawn(
        COMMAND[0],
        [*COMMAND[1:], *map(str, arguments)],
        cwd=str(cwd),
        env={**ENVIRONMENT, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
        dimensions=(40, 100),
        encoding="utf-8",
        timeout=SECONDS,
    )
    try:
        yield child
    finally:
        child.close(force=True)


def at_prompt(child: pexpect.spawn) -> pexpect.spawn:
    """Wait until a line can be typed."""
    child.expect_exact("\x1b[0;36;1m> ")
    return child


def end_of(child: pexpect.spawn) -> int:
    """Wait for the process to end, and return its exit code."""
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus is not None
    return child.exitstatus


def id_in(output: str) -> str:
    """The id of the conversation that a chat tells of."""
    found = re.search(r"chat ([0-9a-f-]{36})", output)
    assert found is not None
    return found[1]


def assert_one_sentence(done: subprocess.CompletedProcess[str], sentence: str, code: int = 2) -> None:
    """Nothing but this was said, on stderr, on one line (case P33)."""
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


class TestTheDemo:
    """What a person sees first."""

    def test_it_runs_without_a_key_and_without_a_person(self, tmp_path: Path) -> None:
        """Text, two tool calls, a question answered by itself, the states, the events, the replay, what to do next."""
        done = run("demo", cwd=tmp_path)

        assert (done.returncode, done.stderr) == (0, "")
        for piece in (
            "> A table for two tonight",
            '✓ find_table(cuisine="Japanese", time="tonight", party=2)',
            '✓ check_weather(day="tonight")',
            "1. Kikunoi - 6:30 PM",
            "takes the first option: Kikunoi",
            "You chose Kikunoi.",
            "idle → llm_requesting → tool_executing → ",
            "7  ask_user_question_pending",
            "9 events replayed, no divergence.",
            "OPENAI_API_KEY=… ",
        ):
            assert piece in done.stdout
        assert "\x1b" not in done.stdout
        assert list(tmp_path.iterdir()) == []

    def test_at_a_terminal_the_person_answers(self, tmp_path: Path) -> None:
        """The question is a menu; the second option is chosen with the arrow keys, and kept where `--db` says."""
        with terminal("demo", "--db", "kept.db", cwd=tmp_path) as child:
            child.expect_exact("Which table would you like?")
            child.expect_exact("in your own words")
            child.send("\x1b[B\r")
            child.expect_exact("You chose Nobu.")
            child.expect_exact("no divergence")

            assert end_of(child) == 0
        assert len(run("list", "--db", "kept.db", cwd=tmp_path).stdout.splitlines()) == 1

    def test_what_it_suggests_next_has_its_options(self, tmp_path: Path) -> None:
        """The chats are under the same rules, with the same to see; each command is one line."""
        done = run("demo", "--preset", "talk", "--thoughts", cwd=tmp_path)

        suggested = re.findall(r"^    (?:OPENAI_API_KEY=… )?turnwise (chat .*)$", done.stdout, re.MULTILINE)
        assert len(suggested) == 3
        assert all(command.endswith(" --preset talk --thoughts") for command in suggested)
        assert run(*suggested[0].split(), cwd=tmp_path).returncode == 0

    def test_the_example_of_a_host_program_runs(self, tmp_path: Path) -> None:
        """The smallest host program books a table with the rehearsal model."""
        example = [sys.executable, str(ROOT / "examples" / "dinner.py")]

        done = subprocess.run(example, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)

        assert (done.returncode, done.stderr) == (0, "")
        assert "Kikunoi, Japanese, 2 at 6:30 PM" in done.stdout


class TestChatThroughAPipe:
    """Lines in, plain text out: for scripts."""

    def test_a_line_is_a_message_or_an_answer_or_a_command(self, tmp_path: Path) -> None:
        """A number chooses an option; commands tell of the conversation; there are no escape codes; exit 0."""
        lines = (
            REQUEST,
            "2",
            "/state",
            "/events",
            "/nothing",
            "/state now",
            "/usr is full",
            "/retry",
            "/quit",
            "unsaid",
        )

        done = run("chat", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=lines)

        assert (done.returncode, done.stderr) == (0, "")
        assert "? [Table] Which table would you like?\n  1. Kikunoi - 6:30 PM" in done.stdout
        assert "You chose Nobu." in done.stdout
        assert "idle, after 1 turn and 8 events" in done.stdout
        assert "8  llm_response" in done.stdout
        assert "There is no such command" in done.stdout
        assert "/state takes nothing behind it." in done.stdout
        assert "You said: “/usr is full”" in done.stdout
        assert "There is no failed turn to try again." in done.stdout
        assert "unsaid" not in done.stdout
        assert "\x1b" not in done.stdout

    def test_a_tool_that_needs_leave_is_asked_for(self, tmp_path: Path) -> None:
        """P36: by a question; a number, a label, yes or no, and any other words tell why it may not run."""
        (tmp_path / "till.py").write_text(TILL)
        allow, deny = ("2", "Allow", "y", "Yes"), ("1", "deny", "n", "NO", "too much")

        done = run(
            *("chat", "--tools", "till:pay"),
            cwd=tmp_path,
            lines=[line for answer in (*allow, *deny) for line in ("Pay the bill of 5", answer)],
        )

        assert (done.returncode, done.stderr) == (0, "")
        assert '? [Approval] May pay run with {"amount": 5}?' in done.stdout
        assert re.findall(r"^  (✓|✗) pay(.*)$", done.stdout, re.MULTILINE) == [
            *[("✓", "(amount=5)")] * len(allow),
            *[("✗", " denied")] * len(deny),
        ]
        assert re.findall("Denied by the user.*", done.stdout) == [
            *["Denied by the user"] * (len(deny) - 1),
            "Denied by the user: too much",
        ]
        assert "  pay denied: Denied by the user: too much" in run("show", newest(tmp_path), cwd=tmp_path).stdout

    def test_a_command_answers_no_question(self, tmp_path: Path) -> None:
        """P15: where an answer is expected it is carried out or refused, and the question is put again; the answers
        that there are to other questions stay. A path is an answer like any other."""
        (tmp_path / "twice.py").write_text(ASKS_TWICE)
        lines = ("Go", "north", "/state", "/retry", "/state now", "/usr", "Go", "/quit", "unsaid")

        done = run("chat", "--tools", "twice:ask_twice", cwd=tmp_path, lines=lines)

        assert (done.returncode, done.stderr) == (0, "")
        assert "awaiting_user_response, after 1 turn and " in done.stdout
        assert "There is no failed turn to try again." in done.stdout
        assert "/state takes nothing behind it." in done.stdout
        assert done.stdout.count("? Where from?") == 2
        assert done.stdout.count("? Where to?") == 4
        assert '"Where from?": "North", "Where to?": "/usr"' in done.stdout
        assert "The question stays open." in done.stdout
        assert "unsaid" not in done.stdout

    def test_a_question_waits_for_the_next_process(self, tmp_path: Path) -> None:
        """P19: where the lines end at a question it stays open, and who comes back is asked first; a label answers."""
        first = run("chat", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=[REQUEST])
        second = run("chat", "--resume", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=["kikunoi"])

        assert "The question stays open." in first.stdout
        assert id_in(second.stdout) == id_in(first.stdout)
        assert "You chose Kikunoi." in second.stdout
        assert (first.returncode, second.returncode) == (0, 0)

    def test_tools_that_are_not_there_any_more_are_named(self, tmp_path: Path) -> None:
        """A log keeps no tools: a line says which of those that were used are missing; no line where all are there."""
        run("chat", "--tools", DEMO_TOOLS, cwd=tmp_path, lines=[REQUEST, "1"])

        without = run("chat", "--resume", cwd=tmp_path)
        beside = run("chat", "--resume", "--tools", DEMO_TOOLS, cwd=tmp_path)

        assert "used are missing now: find_table. Name them with --tools." in without.stdout
        assert "missing" not in beside.stdout

    def test_the_way_back_works_without_this_environment(self, tmp_path: Path) -> None:
        """It names what the environment or the command line said, and not what the directory says by itself."""
        (tmp_path / "turnwise.toml").write_text(
            'tools = ["turnwise.hosts.terminal.commands.demo:find_table"]\n', encoding="utf-8"
        )

        done = run("chat", cwd=tmp_path, TURNWISE_DB="other.db")
        back = re.search(r"turnwise (chat .*)", done.stdout)

        assert back is not None
        assert back[1].split()[2:] == ["--db", "other.db"]
        assert run(*back[1].split(), cwd=tmp_path).returncode == 0

    def test_the_way_back_keeps_what_is_seen_and_heard(self, tmp_path: Path) -> None:
        """Thoughts that were asked for are shown to who comes back, too."""
        done = run("chat", "--thoughts", cwd=tmp_path)

        assert re.search(r"turnwise chat [0-9a-f-]{36} --thoughts$", done.stdout, re.MULTILINE)

    async def test_a_turn_that_fails_can_be_tried_again(self, tmp_path: Path) -> None:
        """P11, P33: its sentence is shown, /retry goes on, and a chat that ends in a failure exits with 1."""
        async with OpenAiServer([fails(401), says("Back ", "again."), fails(401)]) as server:
            done = await run_beside(
                *("chat", "--model", "openai/test", "--tools", ""),
                cwd=tmp_path,
                lines=["hello", "/retry", "and now?"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )

        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.count("refused the key") == 2
        assert done.stdout.index("/retry tries again") < done.stdout.index("Back again.")

    async def test_what_was_said_can_be_condensed(self, tmp_path: Path) -> None:
        """/compact says what it does, in a line however often it is tried; what goes wrong is one sentence, and the
        summary is among the events. A second one has nothing to condense."""
        async with OpenAiServer([says("Well met."), fails(500), says("They met."), says("Again.")]) as server:
            done = await run_beside(
                *("chat", "--model", "openai/test", "--tools", ""),
                cwd=tmp_path,
                lines=["hello", "/compact", "/compact", "/events", "and now?"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )

        first, _, second = done.stdout.partition("There is nothing to condense yet.")
        assert (done.returncode, done.stderr) == (0, "")
        assert first.count("Condensing what was said so far.") == 2
        assert first.count("Condensed; the log keeps everything.") == 1
        assert "history_compacted          They met." in second
        assert second.endswith("Again.\n")

    async def test_what_a_model_says_never_commands_the_terminal(self, tmp_path: Path) -> None:
        """Escape codes in an answer are left out; what the model thinks is shown on request."""
        answer = says("\x1b[31mred\x1b[0m ", "\x1b]0;title\x07plain", thinking="Hm, colours.")
        async with OpenAiServer([answer]) as server:
            done = await run_beside(
                *("chat", "--model", "openai/test", "--thoughts"),
                cwd=tmp_path,
                lines=["hello"],
                OPENAI_API_BASE=server.url,
                OPENAI_API_KEY="test",
            )

        assert done.stdout.endswith("Hm, colours.\nred plain\n")

    def test_settings_come_from_the_directory(self, tmp_path: Path) -> None:
        """turnwise.toml names the database and a tool of the directory; the environment goes before it."""
        (tmp_path / "turnwise.toml").write_text('db = "unused.db"\ntools = ["mine:greet"]\n', encoding="utf-8")
        tool = 'def greet(name: str) -> str:\n    """Greet somebody."""\n    return f"Good day, {name}."\n'
        (tmp_path / "mine.py").write_text(tool, encoding="utf-8")

        done = run("chat", cwd=tmp_path, lines=["Greet Anna"], TURNWISE_DB="used.db")

        assert '✓ greet(name="Anna")' in done.stdout
        assert "Good day, Anna." in done.stdout
        assert {path.name for path in tmp_path.glob("*.db")} == {"used.db"}


class TestWhatCannotBeDone:
    """P33: one sentence on stderr, exit code 2, no traceback."""

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["list", "--db", "missing.db"], "There is no database to read: missing.db."),
            (["list", "--db", "."], ". is a folder, not a database."),
            (["replay", "--all", "--db", "text.db"], "text.db is not a SQLite database."),
            (["list", "--db", "other.db"], "other.db is the database of another program."),
            (["list", "--db", "oracle://host/db"], "oracle is not supported"),
            (["chat", "--preset", "nonsense"], "There is no preset called nonsense. Known: assistant, reply_flow,"),
            (["chat", "--tools", "nonsense"], "There is no built-in tool called nonsense."),
            (["chat", "--tools", "nonsense:tool"], "There is no module called nonsense"),
            (["chat", "--tools", "broken:tool"], "The module broken cannot be imported: no good."),
            (["chat", "--tools", "mine:nothing"], "There is no nothing in mine."),
            (["chat", "--tools", "mine:untyped"], "The parameter x of untyped has no type."),
            (["demo", "--tools", "mine:number"], "mine:number is not a function"),
            (["chat", "--tools", "a b:c"], "a b:c does not name a tool"),
        ],
    )
    def test_it_is_one_sentence(self, arguments: list[str], sentence: str, tmp_path: Path) -> None:
        """Databases that are none, and tools and presets that do not exist."""
        (tmp_path / "text.db").write_text("Dear diary, " * 100, encoding="utf-8")
        (tmp_path / "broken.py").write_text("raise RuntimeError('no good')", encoding="utf-8")
        (tmp_path / "mine.py").write_text("number = 4\ndef untyped(x): ...\n", encoding="utf-8")
        with closing(sqlite3.connect(tmp_path / "other.db")) as other:
            other.execute("CREATE TABLE notes (text)")

        done = run(*arguments, cwd=tmp_path)

        assert_one_sentence(done, sentence)

    @pytest.mark.parametrize(
        ("written", "sentence"),
        [
            ("model = ", "turnwise.toml cannot be read"),
            ("modell = 'rehearsal'", "The setting modell is not valid"),
            ("tools = 3", "The setting tools is not valid"),
        ],
    )
    def test_a_wrong_setting_is_one_sentence(self, written: str, sentence: str, tmp_path: Path) -> None:
        """A turnwise.toml that cannot be read, or that says something unknown."""
        (tmp_path / "turnwise.toml").write_text(written, encoding="utf-8")

        done = run("list", cwd=tmp_path)

        assert_one_sentence(done, sentence)

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["chat", "--model", "nonsense"], "The model 'nonsense' is not known"),
            (["demo", "--model", "openai/gpt-4.1-mini"], "set OPENAI_API_KEY."),
        ],
    )
    def test_a_model_that_cannot_be_asked_is_one_sentence(
        self, arguments: list[str], sentence: str, tmp_path: Path
    ) -> None:
        """An unknown model, and a provider without a key; no database is left behind."""
        done = run(*arguments, cwd=tmp_path)

        assert_one_sentence(done, sentence)
        assert list(tmp_path.iterdir()) == []

    def test_a_missing_extra_is_one_sentence(self, tmp_path: Path) -> None:
        """Without what the extra `terminal` installs, the command says how to get it."""
        program = "import sys; sys.modules['questionary'] = None; from turnwise.hosts.terminal import main; main()"

        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)

        assert_one_sentence(done, 'pip install "turnwise[terminal]"')

    def test_a_full_disk_under_the_output_is_one_sentence(self, tmp_path: Path) -> None:
        """What cannot be written is said once, and not again when Python ends."""
        with Path("/dev/full").open("w", encoding="utf-8") as full:
            done = subprocess.run([*COMMAND, "diagram"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)

        assert (done.returncode, done.stderr) == (2, "The system does not allow it: No space left on device.\n")

    def test_nobody_reads_the_output(self, tmp_path: Path) -> None:
        """`turnwise diagram | head -1` ends quietly when head has gone."""
        reading, writing = os.pipe()
        os.close(reading)

        with os.fdopen(writing, "w") as pipe:
            done = subprocess.run([*COMMAND, "diagram"], stdout=pipe, stderr=subprocess.PIPE, text=True, cwd=tmp_path)

        assert (done.returncode, done.stderr) == (1, "")


@pytest.fixture
async def asking(database: Path) -> AsyncIterator[Conversation]:
    """A conversation that waits for an answer, in an engine that stays open."""
    llm = FunctionLlm(lambda request: call("ask_user_question", questions=[QUESTION]))
    async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
        conversation = await engine.create(system="You book tables.")
        await conversation.send("A table\x1b[2J")
        yield conversation


class TestReading:
    """P42: looking at conversations works while another process has them going, and changes nothing."""

    async def test_list_show_and_replay_beside_an_open_engine(self, asking: Conversation, database: Path) -> None:
        """Each conversation with its state, what was said (made harmless), what happened, and a clean replay."""
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

    async def test_an_export_is_a_line_for_each_step(self, asking: Conversation, database: Path) -> None:
        """JSON lines: the name of the format, the conversation, its steps in order, and how many there were."""
        done = await run_beside("export", asking.id, "--db", f"sqlite:///{database}", cwd=database.parent)

        header, head, *steps, last = map(json.loads, done.stdout.splitlines())
        assert header["format"] == "turnwise-log"
        assert (head["conversation"], head["seq"], last["conversations"]) == (asking.id, 4, 1)
        assert [step["seq"] for step in steps] == [1, 2, 3, 4]

    async def test_a_second_engine_is_refused(self, asking: Conversation, database: Path) -> None:
        """P42: `chat` and `demo` write, so they wait for nobody: one sentence, exit 2."""
        chat = await run_beside("chat", "--db", database, cwd=database.parent)
        demo = await run_beside("demo", "--db", database, cwd=database.parent)

        for done in (chat, demo):
            assert_one_sentence(done, "is already open in another engine; close that one first.")

    async def test_an_unknown_conversation_is_one_sentence(self, asking: Conversation, database: Path) -> None:
        """`show`, `replay` and `export` of an id that nothing has."""
        for command in ("show", "replay", "export"):
            done = await run_beside(command, "nonsense", "--db", database, cwd=database.parent)

            assert_one_sentence(done, "There is no conversation with the id nonsense.")

    async def test_a_turn_that_died_with_its_process_goes_on(self, database: Path) -> None:
        """P27, P42: busy while its engine lives, interrupted afterwards, until a program opens it again."""
        gate = Gate()
        model = FunctionLlm(answers_after(gate, "never"), name="rehearsal")
        async with Engine.open(database, model=model) as engine:
            conversation = await engine.create()
            await conversation.send("Hello", wait=False)
            await gate.arrived.wait()
            alive = await run_beside("list", "--db", database, cwd=database.parent)
        dead = run("list", "--db", database, cwd=database.parent)
        chat = run("chat", conversation.id, "--db", database, cwd=database.parent)

        assert alive.stdout.split()[1] == "llm_requesting"
        assert dead.stdout.split()[1] == "interrupted"
        assert (chat.returncode, chat.stderr) == (0, "")
        assert "rehears" in chat.stdout

    async def test_a_divergence_is_told_and_exits_with_1(self, database: Path) -> None:
        """Where, which event, what was expected and what came instead; the others are replayed all the same."""
        async with Engine.open(database, model=FunctionLlm(lambda _: reply("Yes."))) as engine:
            sound, spoilt = await engine.create(), await engine.create()
            await sound.send("Hello")
            await spoilt.send("Hello")
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("UPDATE events SET payload = replace(payload, 'Hello', 'Hullo') WHERE conversation = 2")

        done = run("replay", "--all", "--db", database, cwd=database.parent)

        assert (done.returncode, done.stderr) == (1, "")
        assert f"{sound.id}  3 events replayed, no divergence.\n" in done.stdout
        assert f"{spoilt.id}  1 event replayed, then a divergence at seq 2.\n" in done.stdout
        assert '"text":"Hullo"' in done.stdout
        assert re.findall(r"^  (reason|expected|actual) ", done.stdout, re.MULTILINE) == [
            "reason",
            "expected",
            "actual",
        ]

    def test_a_database_of_the_future_is_one_sentence(self, tmp_path: Path) -> None:
        """What a newer turnwise has written is left alone."""
        with Engine.open_blocking(tmp_path / "future.db") as engine:
            engine.create()
        with closing(sqlite3.connect(tmp_path / "future.db", isolation_level=None)) as other:
            other.execute("UPDATE alembic_version SET version_num = '9999'")

        done = run("list", "--db", "future.db", cwd=tmp_path)

        assert_one_sentence(done, "future.db was written by a newer turnwise")

    def test_the_diagram_is_the_table_in_mermaid(self, tmp_path: Path) -> None:
        """It needs no database."""
        done = run("diagram", cwd=tmp_path)

        assert "\nflowchart LR\n" in done.stdout
        assert "\n    start(( )) -->|Opened| start_Idle([Idle])" in done.stdout

    @pytest.mark.parametrize(
        ("arguments", "unused"),
        [
            (["--help"], {"litellm", "sqlalchemy", "questionary"}),
            (["list", "--db", "there.db"], {"litellm", "questionary"}),
        ],
    )
    def test_it_starts_fast(self, arguments: list[str], unused: set[str], tmp_path: Path) -> None:
        """Help needs neither a model nor a store nor menus, and a list needs no model."""
        with Engine.open_blocking(tmp_path / "there.db") as engine:
            engine.create()
        command = [sys.executable, "-X", "importtime", *COMMAND[1:], *arguments]

        done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS)

        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert done.returncode == 0
        assert imported & {"typer", "litellm", "sqlalchemy", "questionary"} & unused == set()


SLOW_TOOLS = '''
import asyncio

async def wait_long(place: str) -> str:
    """Wait for a long time."""
    await asyncio.sleep(600)
    return "over"

async def refuse_to_stop(place: str) -> str:
    """Refuse to stop, stubbornly."""
    for _ in range(2):
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
    return "stopped"
'''


@pytest.fixture
def slow_tools(tmp_path: Path) -> str:
    """Tools that take longer than anybody waits, as `--tools` names them."""
    (tmp_path / "slow.py").write_text(SLOW_TOOLS, encoding="utf-8")
    return "slow:wait_long,slow:refuse_to_stop"


@pytest.mark.filterwarnings("ignore:.*forkpty.*:DeprecationWarning")
class TestAtATerminal:
    """Keys and what they do."""

    def test_ctrl_c_cancels_the_turn_and_the_conversation_goes_on(self, slow_tools: str, tmp_path: Path) -> None:
        """P6: the tool is stopped, one line says so, the next message is answered; Ctrl-D leaves."""
        with terminal("chat", "--tools", slow_tools, cwd=tmp_path) as child:
            at_prompt(child).sendline("Wait in Rome")
            child.expect_exact('wait_long(place="Rome")')
            child.sendintr()
            child.expect_exact("Cancelled; the conversation goes on.")
            at_prompt(child).sendline("Hello")
            child.expect_exact("You said: “Hello”")
            at_prompt(child).sendeof()

            assert end_of(child) == 0
        assert "7 events replayed, no divergence." in run("replay", "--all", cwd=tmp_path).stdout

    def test_a_second_ctrl_c_leaves(self, slow_tools: str, tmp_path: Path) -> None:
        """While a tool that does not stop is waited for, and right after a cancel at the empty prompt."""
        with terminal("chat", "--tools", slow_tools, cwd=tmp_path) as child:
            at_prompt(child).sendline("Wait in Rome")
            child.expect_exact("wait_long(")
            child.sendintr()
            child.expect_exact("Cancelled; the conversation goes on.")
            at_prompt(child).sendintr()
            after_a_cancel = end_of(child)
        with terminal("chat", "--tools", slow_tools, cwd=tmp_path) as child:
            at_prompt(child).sendline("Stubbornly refuse to stop in Rome")
            child.expect_exact("refuse_to_stop(")
            child.sendintr()
            child.expect_exact("stopping")
            child.sendintr()
            child.expect_exact("You left in the middle of a turn")
            child.expect_exact("To come back to this conversation: ")
            while_cancelling = end_of(child)

        assert (after_a_cancel, while_cancelling) == (0, 130)

    def test_at_the_prompt_ctrl_c_empties_the_line_and_twice_it_leaves(self, tmp_path: Path) -> None:
        """A text that is typed is dropped; on an empty line the first one warns. A pasted text keeps its lines."""
        with terminal("chat", "--tools", "", cwd=tmp_path) as child:
            at_prompt(child).send("never said")
            child.expect_exact("never said")
            child.sendintr()
            child.send("\x1b[200~one\ntwo\x1b[201~\r")
            child.expect("You said: “one\r\ntwo”")
            at_prompt(child).sendintr()
            child.expect_exact("Press Ctrl-C again to leave")
            child.sendintr()

            assert end_of(child) == 0
        assert "never said" not in run("export", newest(tmp_path), cwd=tmp_path).stdout

    def test_ctrl_c_at_a_question_declines(self, tmp_path: Path) -> None:
        """P17, P38: the turn ends cancelled, and the conversation goes on."""
        with terminal("chat", "--tools", DEMO_TOOLS, cwd=tmp_path) as child:
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.sendintr()
            child.expect_exact("Cancelled; the conversation goes on.")
            at_prompt(child).sendeof()

            assert end_of(child) == 0
        assert "idle" in run("list", cwd=tmp_path).stdout

    def test_ctrl_d_at_a_question_leaves_it_open(self, tmp_path: Path) -> None:
        """P19: who leaves in the middle of a question finds it again."""
        with terminal("chat", "--tools", DEMO_TOOLS, cwd=tmp_path) as child:
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.sendeof()
            child.expect_exact("The question stays open.")

            assert end_of(child) == 0
        assert "awaiting_user_response" in run("list", cwd=tmp_path).stdout

    def test_ctrl_c_at_an_approval_cancels_the_turn_and_twice_leaves(self, tmp_path: Path) -> None:
        """P36, P38: as anywhere else; the tool does not run."""
        (tmp_path / "till.py").write_text(TILL)
        with terminal("chat", "--tools", "till:pay", cwd=tmp_path) as child:
            at_prompt(child).sendline("Pay the bill of 5")
            child.expect_exact("and say why")
            child.sendintr()
            child.expect_exact("✗ pay cancelled")
            child.expect_exact("Cancelled; the conversation goes on.")
            at_prompt(child).sendintr()

            assert end_of(child) == 0
        assert run("list", cwd=tmp_path).stdout.split()[1] == "idle"

    def test_at_an_approval_enter_denies_and_a_typed_yes_allows(self, tmp_path: Path) -> None:
        """P36: Enter alone allows nothing, letters are the beginning of an answer, and other words are a reason."""
        (tmp_path / "till.py").write_text(TILL)
        with terminal("chat", "--tools", "till:pay", cwd=tmp_path) as child:
            for answer, shown in (("", "Denied by the user"), ("yes", "paid 5"), ("kjoy", "Denied by the user: kjoy")):
                at_prompt(child).sendline("Pay the bill of 5")
                child.expect_exact("and say why")
                child.sendline(answer)
                child.expect_exact(f": {shown}\r\n")
            at_prompt(child).sendeof()

            assert end_of(child) == 0

    def test_what_is_typed_in_a_menu_is_an_answer_or_a_command(self, tmp_path: Path) -> None:
        """P15: nothing that is typed or pasted is thrown away, and no option is taken by it; commands are obeyed, and
        the question stays."""
        with terminal("chat", "--tools", DEMO_TOOLS, cwd=tmp_path) as child:
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.sendline("/state")
            child.expect_exact("awaiting_user_response, after 1 turn and ")
            child.expect_exact("in your own words")
            child.sendline("a quiet one")
            child.expect_exact("You chose a quiet one.")
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.send("\x1b[200~the pasted one\x1b[201~")
            child.expect_exact("Your answer:")
            child.send("\r")
            child.expect_exact("You chose the pasted one.")
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.sendline("/quit")
            child.expect_exact("The question stays open.")

            assert end_of(child) == 0
        assert "awaiting_user_response" in run("list", cwd=tmp_path).stdout

    def test_where_several_may_be_chosen_typing_adds_to_what_is_marked(self, tmp_path: Path) -> None:
        """P15: every letter begins words of one's own, and the mark that was set before them counts."""
        (tmp_path / "several.py").write_text(ASKS_TWICE.replace("(NORTH, SOUTH)", "(NORTH, SOUTH), multi_select=True"))
        with terminal("chat", "--tools", "several:ask_twice", cwd=tmp_path) as child:
            at_prompt(child).sendline("Go")
            child.expect_exact("in your own words")
            child.send(" ")
            child.sendline("a bit west")
            child.expect_exact("Where to?")
            child.expect_exact("in your own words")
            child.sendline("inland")
            child.expect_exact('"Where from?": ["North", "a bit west"], "Where to?": ["inland"]')
            at_prompt(child).sendeof()

            assert end_of(child) == 0

    def test_a_line_that_a_cancel_drops_is_spoken_of(self, slow_tools: str, tmp_path: Path) -> None:
        """Typed while a tool runs it waits to be said; Ctrl-C drops it, and says so."""
        with terminal("chat", "--tools", slow_tools, cwd=tmp_path) as child:
            at_prompt(child).sendline("Wait in Rome")
            child.expect_exact('wait_long(place="Rome")')
            child.sendline("and then?")
            child.sendintr()
            child.expect_exact("What you typed in the meantime was dropped.")
            child.expect_exact("Cancelled; the conversation goes on.")
            at_prompt(child).sendeof()

            assert end_of(child) == 0
        assert "and then?" not in run("export", newest(tmp_path), cwd=tmp_path).stdout

    def test_it_says_which_model_it_is(self, tmp_path: Path) -> None:
        """Before anything is said."""
        with terminal("chat", cwd=tmp_path) as child:
            shown = str(at_prompt(child).before)
            child.sendeof()

            assert end_of(child) == 0
        assert "The model is rehearsal." in shown

    def test_a_command_to_be_copied_stays_one_line(self, tmp_path: Path) -> None:
        """However narrow the terminal is: what is copied from two lines is two commands."""
        name = f"{'a-long-name-' * 8}.db"
        with terminal("chat", "--tools", DEMO_TOOLS, "--db", name, cwd=tmp_path) as child:
            at_prompt(child).sendline("/fork")
            copy = re.escape(f" --db {name} --tools {DEMO_TOOLS}")
            child.expect(rf"To come back to the copy: turnwise chat [0-9a-f-]{{36}}{copy}")
            at_prompt(child).sendeof()
            child.expect(rf"To come back to this conversation: turnwise chat [0-9a-f-]{{36}}{copy}")

            assert end_of(child) == 0

    def test_an_error_breaks_between_words(self, tmp_path: Path) -> None:
        """P33: one sentence, on as many lines as it needs."""
        with terminal("chat", "--preset", "nonsense", cwd=tmp_path) as child:
            child.expect(pexpect.EOF)
            shown = str(child.before).splitlines()

        assert len(shown) == 2
        assert max(map(len, shown)) <= 100
        assert " ".join(shown).endswith("explicit_response, talk, foreground, background, sub_agent.")

    def test_other_takes_words_of_ones_own(self, tmp_path: Path) -> None:
        """P15: free text arrives as it was typed."""
        with terminal("chat", "--tools", DEMO_TOOLS, cwd=tmp_path) as child:
            at_prompt(child).sendline(REQUEST)
            child.expect_exact("in your own words")
            child.send("\x1b[A\r")
            child.expect_exact("Your answer:")
            child.sendline('the "quiet" one, please')
            child.expect_exact('You chose the "quiet" one, please.')
            at_prompt(child).sendeof()

            assert end_of(child) == 0


def newest(folder: Path) -> str:
    """The id of the conversation that moved last."""
    return run("list", cwd=folder).stdout.split()[0]
