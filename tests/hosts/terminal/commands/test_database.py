"""The commands that look into a database, also while a program has it open, and those that repair it: `turnwise list`,
also with `--tree`, `show`, `doctor` and `resolve`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import Conversation, Engine
from turnwise.hosts.terminal.commands.database import MAX_LEVELS, Branch, arranged, transcript_lines, tree_lines
from turnwise.persistence import Summary
from turnwise.persistence.sqlite.file import ALREADY_OPEN
from turnwise.states import Schedule
from turnwise.states.values.acts import Audience
from turnwise.states.values.messages import Message
from turnwise.testing import FunctionLlm

from ....support.engine_scenarios import Gate, answers_after
from ....support.terminal import (
    COMMAND,
    InProcessRun,
    assert_one_sentence,
    database_with,
    execute_sql,
    exported,
    run,
    run_beside,
)
from ....support.walks import Walk

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
IDS = ["a", "b", "c", "d", "e"]


def summary(id_: str, upper: str | None = None, role: str = "sub_agent") -> Summary:
    """A conversation in a list, below another one."""
    return Summary(id=id_, state="idle", busy=False, updated_at=AT, role=role, parent=upper)  # type: ignore[arg-type]


def drawn(*summaries: Summary, width: int | None = None) -> list[str]:
    """The lines up to the ids."""
    return [line.split("  idle")[0].rstrip() for line in tree_lines(summaries, False, {}, width)]


def leads_into_a_circle(uppers: Mapping[str, str | None], id_: str | None) -> bool:
    """Whether there is no end to the parents of this conversation."""
    for _ in uppers:
        id_ = uppers.get(id_ or "")
    return id_ in uppers


@pytest.mark.slow
async def test_an_interrupted_turn_is_listed_and_continues(database: Path) -> None:
    """P27, P42: its state is shown while its engine is open, "interrupted" afterwards; a chat continues it."""
    gate = Gate()
    model = FunctionLlm(answers_after(gate, "never"), name="rehearsal")
    async with Engine.open(database, model=model) as engine:
        conversation = await engine.create()
        await conversation.send("Hello", wait=False)
        await gate.arrived.wait()
        open_ = await run_beside("list", "--db", database, cwd=database.parent)
    closed = run("list", "--db", database, cwd=database.parent)
    chat = run("chat", conversation.id, "--db", database, cwd=database.parent)

    assert open_.stdout.split()[1] == "llm_requesting"
    assert closed.stdout.split()[1] == "interrupted"
    assert (chat.returncode, chat.stderr) == (0, "")
    assert "rehears" in chat.stdout


def test_an_imported_turn_has_failed(tmp_path: Path, in_process: InProcessRun) -> None:
    """It was under way when it was exported, and goes on only if somebody tries again. What was said can be read."""
    database_with(tmp_path, Walk("walk").say("hello"), name="old.db")
    lines = exported(in_process, "walk", "--db", "old.db").decode().splitlines()

    in_process("import", "-", lines=lines)

    assert in_process("list").stdout.split()[:2] == ["walk", "failed"]
    assert in_process("show", "walk").stdout.startswith("user:\nhello\n")


@pytest.mark.slow
async def test_a_part_of_the_list(database: Path) -> None:
    """Those of one owner, or the newest few."""
    async with Engine.open(database) as engine:
        first, second, third = [await engine.create(owner=owner) for owner in ("ann", "bob", "ann")]

    def listed(*options: str) -> list[str]:
        ran = run("list", *options, "--db", database, cwd=database.parent)
        assert (ran.returncode, ran.stderr) == (0, "")
        return [line.split()[0] for line in ran.stdout.splitlines()]

    assert listed("--owner", "ann") == [third.id, first.id]
    assert listed("--limit", "2") == [third.id, second.id]
    assert listed("--limit", str(10**30)) == [third.id, second.id, first.id]
    assert listed("--owner", "ann", "--limit", "1") == [third.id]


@pytest.mark.slow
async def test_an_owner_without_conversations(database: Path) -> None:
    """Says so, on stderr."""
    async with Engine.open(database) as engine:
        await engine.create(owner="ann")

    ran = run("list", "--owner", "eve", "--db", database, cwd=database.parent)

    assert (ran.returncode, ran.stdout) == (0, "")
    assert "of this owner" in ran.stderr


def test_the_states_take_as_much_room_as_they_need(tmp_path: Path, in_process: InProcessRun) -> None:
    """So titles are legible in a narrow terminal, and stand in one column."""
    database_with(tmp_path, Walk("a").turn("hello"), Walk("b").say("hello"), name="turnwise.db")

    idle, interrupted = sorted(in_process("list").stdout.splitlines())

    assert interrupted.startswith("b  interrupted  2") and idle.startswith("a  idle         2")


def test_the_states_stand_in_one_column(tmp_path: Path, in_process: InProcessRun) -> None:
    """Also behind the ids of sub-agents, which are longer than the others."""
    sub_agent = Walk("conversation/12", role="sub_agent", parent="conversation")
    database_with(tmp_path, Walk("conversation"), sub_agent, name="turnwise.db")

    lines = in_process("list").stdout.splitlines()

    assert {line.index("  idle  ") for line in lines} == {len("conversation/12")}


class TestTheTree:
    """How conversations are arranged."""

    def test_has_agents_below_those_that_they_belong_to(self) -> None:
        """Those side by side keep their order; lines connect them."""
        lines = drawn(
            summary("old"),
            summary("second", "root"),
            summary("below", "first"),
            summary("root"),
            summary("last", "second"),
            summary("first", "root"),
        )

        assert lines == ["old", "root", "├─ second", "│  └─ last", "└─ first", "   └─ below"]

    def test_has_background_agents_below_those_that_they_work_for(self) -> None:
        """What started a sub-agent comes before what it works for."""
        agent = summary("agent", role="background").replace(works_for="root")
        both = summary("both", "agent").replace(works_for="root")

        assert drawn(agent, both, summary("root")) == ["root", "└─ agent", "   └─ both"]

    def test_has_the_states_in_one_column(self) -> None:
        """Behind ids in full, with numbers of any usual length."""
        root, worker = "7b30c89a-99c8-43da-b6d7-acc514e66c44", "cecde3ba-90e0-4721-b954-32ff1ce04f02"
        children = [summary(f"{worker}/{number}", worker) for number in (4, 13, 1200)]

        lines = [*tree_lines([summary(root), summary(worker, root), *children], False, {}, None)]

        assert len(lines) == 5 and len({line.index("  idle (sub-agent)") for line in lines[1:]}) == 1

    def test_says_whose_an_agent_is_that_stands_alone(self) -> None:
        """Because the other conversation was deleted, or is not listed."""
        worker = summary("worker", role="background").replace(works_for="somebody")
        lines = [*tree_lines([worker, summary("child", "gone")], False, {"gone": "go"}, None)]

        assert lines[0].endswith("works for somebody") and lines[1].endswith("started by go")
        assert "idle (background)  " in lines[0] and "idle (sub-agent)  " in lines[1]

    @given(st.dictionaries(st.sampled_from(IDS), st.sampled_from([*IDS, "gone", None])))
    def test_shows_each_conversation_once(self, uppers: Mapping[str, str | None]) -> None:
        """Whatever the data say: circles, conversations below themselves, parents that are missing."""
        branches = arranged([summary(id_, upper) for id_, upper in uppers.items()])

        assert sorted(branch.summary.id for branch in branches) == sorted(uppers)
        path: list[str] = []
        for branch in branches:
            path = [*path[: branch.depth], branch.summary.id]
            if branch.depth:
                assert uppers[branch.summary.id] == path[-2]
            elif uppers[branch.summary.id] in uppers:
                assert leads_into_a_circle(uppers, branch.summary.id)

    def test_may_be_deep_and_wide(self) -> None:
        """Only the innermost levels are drawn, fewer on a narrow terminal."""
        count = 5000
        chain = [summary(str(number), str(number - 1)) for number in range(1, count)]
        star = [summary(f"star {number}", "0") for number in range(count)]

        lines = drawn(summary("0"), *chain, *star)

        assert len(lines) == 2 * count
        assert lines[MAX_LEVELS] == "│  " + "   " * (MAX_LEVELS - 2) + f"└─ {MAX_LEVELS}"
        assert lines[count - 1] == "…  " + "   " * (MAX_LEVELS - 1) + f"└─ {count - 1}"
        assert drawn(summary("0"), *chain[:3], width=20)[3] == "…  └─ 3"

    def test_a_branch_below_another_one_is_a_level_deeper(self) -> None:
        """The root has no lines."""
        root = Branch(summary("root"))

        assert (root.lines(), root.upper_id) == ("", None)
        assert root.below(summary("child", "root"), is_last=True) == Branch(summary("child", "root"), 1, (True,))


class TestTheCommand:
    """On a real database."""

    @pytest.fixture(autouse=True)
    def a_tree(self, tmp_path: Path) -> None:
        """Store a conversation, a background agent that wakes up, and a sub-agent of each."""
        schedule = {"schedule": Schedule(every=3600, task="Look."), "next_wake": AT + timedelta(hours=1)}
        database_with(
            tmp_path,
            Walk("annas-conversation").turn("A \x1b[31mtable\nfor\u202e two").turn("again"),
            Walk("background-agent", role="background", works_for="annas-conversation", **schedule),
            Walk("annas-conversation/7", role="sub_agent", parent="annas-conversation").turn("Read."),
            Walk("background-agent/3", role="sub_agent", parent="background-agent").say("Read."),
        )

    def test_shows_roles_states_and_wake_ups(self, in_process: InProcessRun) -> None:
        """A line for each conversation, without control characters."""
        lines = in_process("list", "--tree").stdout.splitlines()

        heads = [line.split("  20")[0].rstrip() for line in lines]
        assert [" ".join(head.split()) for head in heads] == [
            "annas-conversation idle",
            "├─ annas-conversation/7 closed (sub-agent)",
            "└─ background-agent idle (background)",
            "└─ background-agent/3 interrupted (sub-agent)",
        ]
        assert lines[0].endswith("A table for two")
        assert "  wakes 2026-06-01 " in lines[2]
        assert all(line.isprintable() for line in lines)

    def test_has_depths_as_json(self, in_process: InProcessRun) -> None:
        """In the order of the tree."""
        listed = json.loads(in_process("list", "--tree", "--json").stdout)["conversations"]

        assert [(one["id"], one["depth"], one["role"]) for one in listed] == [
            ("annas-conversation", 0, "foreground"),
            ("annas-conversation/7", 1, "sub_agent"),
            ("background-agent", 1, "background"),
            ("background-agent/3", 2, "sub_agent"),
        ]
        assert listed[2]["works_for"] == listed[1]["parent"] == "annas-conversation"
        assert listed[2]["wakes_at"] == "2026-06-01T13:00:00Z"

    def test_a_part_of_the_list_is_a_tree_too(self, in_process: InProcessRun) -> None:
        """Without the conversations that are not in it."""
        (line,) = in_process("list", "--tree", "--limit", "1").stdout.splitlines()

        assert line.startswith("annas-conversation  ")


class TestDoctor:
    """Examining and repairing a database."""

    def test_a_sound_database_is_one_line(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """It counts conversations and steps; the exit code is 0."""
        database_with(tmp_path, Walk("one").turn("tonight"), Walk("two").question())

        done = in_process("doctor")

        assert (done.returncode, done.stdout, done.stderr) == (
            0,
            "All is well: 2 conversations, 9 steps.\n",
            "",
        )

    def test_each_finding_is_a_line(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """With the conversation and the step, and below them the command that repairs. The exit code is 1."""
        path = database_with(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
        execute_sql(path, "UPDATE events SET payload = '{}' WHERE conversation = 1 AND seq = 4")
        execute_sql(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")

        done = in_process("doctor")

        assert done.returncode == 1
        assert done.stdout == (
            "one step 4 Step 4 cannot be read: it is damaged, or a newer turnwise wrote it.\n"
            "two step 5 The column waits does not agree with the state and the newest step.\n"
        )
        assert done.stderr == "1 of these can be repaired without guessing: turnwise doctor --fix\n"

    @pytest.mark.slow
    def test_the_command_that_repairs_names_the_database(self, tmp_path: Path) -> None:
        """It can be copied, and stands below the findings if stdout and stderr are one file."""
        path = database_with(tmp_path, Walk("one").turn("tonight"), name="other.db")
        execute_sql(path, "UPDATE conversations SET waits = 1 WHERE id = 'one'")

        command = [*COMMAND, "doctor", "--db", "other.db"]
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        finding, told = done.stdout.splitlines()
        assert finding.startswith("one step 5 ")
        assert told.endswith(": turnwise doctor --fix --db other.db")

    def test_fix_repairs_and_reports_each_repair(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """The exit code is 0 if everything could be repaired, else 1."""
        path = database_with(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
        execute_sql(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")
        execute_sql(path, "INSERT INTO outbox VALUES (1, 'voice', 99, 5, 0, NULL, 0)")
        repaired = in_process("doctor", "--fix")
        execute_sql(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")
        execute_sql(path, "DELETE FROM events WHERE conversation = 1 AND seq = 4")

        partly_repaired = in_process("doctor", "--fix")

        assert repaired.returncode == 0
        assert repaired.stdout.splitlines() == [
            "one step 5 A delivery waits for the effect 99, which step 5 did not ask for.  Repaired.",
            "two step 5 The column waits does not agree with the state and the newest step.  Repaired.",
            "All is well: 2 conversations, 10 steps.",
        ]
        assert partly_repaired.returncode == 1
        assert partly_repaired.stdout.splitlines() == [
            "two step 5 The column waits does not agree with the state and the newest step.  Repaired.",
            "one step 4 Step 4 is missing: the log is damaged.  Not repaired.",
        ]

    def test_a_file_that_cannot_be_opened_is_one_sentence(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """P33: a damaged file that SQLite does not open."""
        path = database_with(tmp_path, Walk("one").turn("tonight"))
        path.write_bytes(path.read_bytes()[:-9_000])

        assert_one_sentence(in_process("doctor"), "turnwise.db cannot be used now: it is damaged.")

    @pytest.mark.slow
    async def test_it_examines_while_an_engine_works(self, busy: Conversation, database: Path) -> None:
        """P42: so do `replay` and `export`. A command that writes does not wait for the lock, and is refused."""
        folder = database.parent
        examined, exported, replayed = [
            await run_beside(*command, "--db", database, cwd=folder)
            for command in (("doctor",), ("export", "--all"), ("replay", "--all"))
        ]
        (folder / "all.jsonl").write_text(exported.stdout, encoding="utf-8")
        refused = [
            await run_beside(*command, "--db", database, cwd=folder)
            for command in (("doctor", "--fix"), ("fork", busy.id), ("import", folder / "all.jsonl"))
        ]

        assert [done.returncode for done in (examined, exported, replayed)] == [0, 0, 0]
        assert examined.stdout == "All is well: 1 conversation, 2 steps.\n"
        assert json.loads(exported.stdout.splitlines()[1])["conversation"] == busy.id
        for done in refused:
            assert_one_sentence(done, ALREADY_OPEN)


class TestWithoutADoubt:
    """A conversation in which no call is in doubt."""

    def test_there_is_nothing_to_list(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """Without a verdict the command lists the calls in doubt, here none."""
        database_with(tmp_path, Walk("walk").turn("tonight"))

        done = in_process("resolve", "walk")

        assert (done.returncode, done.stdout, done.stderr) == (0, "No call is in doubt.\n", "")

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ([], "No call of this conversation is in doubt."),
            (["--call", "call_1_0"], "This call is not in doubt."),
        ],
    )
    def test_a_verdict_is_refused(
        self, tmp_path: Path, in_process: InProcessRun, options: list[str], sentence: str
    ) -> None:
        """A verdict on a call that is not in doubt changes nothing, and one sentence says why."""
        database_with(tmp_path, Walk("walk").turn("tonight"))

        done = in_process("resolve", "walk", "ran", *options)

        assert_one_sentence(done, sentence)
        assert in_process("replay", "walk").stdout == "walk  5 events replayed, no divergence.\n"


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
