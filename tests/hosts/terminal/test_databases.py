"""What people do with a stored database at the command line: replay it, copy it, carry it away, have it examined."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from turnwise import Conversation, Engine
from turnwise.hosts.terminal.commands.app import app
from turnwise.hosts.terminal.commands.junit import report_on
from turnwise.hosts.terminal.commands.replay import Replayed
from turnwise.hosts.terminal.output.error_messages import exit_code
from turnwise.persistence.sqlite.store import Store
from turnwise.states import Abort
from turnwise.testing.scripted import FunctionLlm

from ...support.engine_scenarios import Gate, answers_after
from ...support.walks import Walk
from .test_chat import COMMAND, LEFT_OUT, assert_one_sentence, id_in, run, run_beside


def stored(folder: Path, *walks: Walk, name: str = "turnwise.db") -> Path:
    """A database that holds these conversations."""

    async def store_all() -> None:
        store = await Store.open(folder / name)
        for walk in walks:
            await walk.into(store)
        await store.close()

    asyncio.run(store_all())
    return folder / name


def change(path: Path, sql: str) -> None:
    """Change what is stored, as no part of turnwise would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(sql)


def by_other_rules(name: str, seq: int) -> Walk:
    """A conversation in which another machine wanted something else at this step."""
    walk = Walk(name).turn("tonight")
    event, step = walk.steps[seq - 1]
    walk.steps[seq - 1] = event, replace(step, effects=(*step.effects, Abort(effect_id=7)))
    return walk


Typed = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """`run`, within this process: a new one for each of the many commands here would take a second."""
    for name in [name for name in os.environ if LEFT_OUT.match(name)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, lines: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(f"{x}\n" for x in lines).encode())))
        code = exit_code(lambda: app(list(arguments), prog_name="turnwise"))
        told = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, told.out, told.err)

    return run


@pytest.fixture
async def busy(database: Path) -> AsyncIterator[Conversation]:
    """A conversation in the middle of a turn, in an engine that stays open."""
    gate = Gate()
    async with Engine.open(database, model=FunctionLlm(answers_after(gate, "At last."))) as engine:
        conversation = await engine.create()
        await conversation.send("Hello", wait=False)
        await gate.arrived.wait()
        yield conversation


class TestReplay:
    """`turnwise replay`, for people and for continuous integration."""

    def test_each_divergence_is_a_block(self, tmp_path: Path, typed: Typed) -> None:
        """Reason, event, and what was expected and came instead: each effect and the state on a line of its own. At the
        newest step the stored state is shown in full, before it only its digest is known."""
        stored(tmp_path, Walk("sound").turn("tonight"), by_other_rules("early", 2), by_other_rules("late", 5))

        done = typed("replay", "--all")

        assert (done.returncode, done.stderr) == (1, "")
        early, late = (done.stdout.split(f"\n{name}  ")[-1].split("\nsound  ")[0] for name in ("early", "late"))
        assert "sound  5 events replayed, no divergence.\n" in done.stdout
        assert "1 event replayed, then a divergence at seq 2.\n  reason    Step 2 has other effects now.\n" in early
        assert '\n            effect  {"type":"abort","effect_id":7}\n            state   {"digest": "' in early
        assert re.findall(r"^ {12}state   (\{.{9})", late, re.MULTILINE)[:2] == ['{"type":"i', '{"type":"i']
        assert '\n  expected  effect  {"type":"persist_message"' in late

    def test_a_report_for_ci(self, tmp_path: Path) -> None:
        """A case for each conversation; one that came out differently has a failure with its sentence and the block."""
        stored(tmp_path, Walk("sound").turn("tonight"), by_other_rules("other", 2))

        done = run("replay", "--all", "--junit", "report.xml", cwd=tmp_path)

        root = ElementTree.parse(tmp_path / "report.xml").getroot()
        (suite,) = root
        cases = {case.get("name"): case for case in suite}
        (failure,) = cases["other"]
        assert done.returncode == 1
        assert (root.tag, suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuites", "testsuite", "2", "1")
        assert {case.get("classname") for case in suite} == {"turnwise.replay"}
        assert all(float(case.get("time", "")) >= 0 for case in suite)
        assert list(cases["sound"]) == []
        assert failure.get("message") == "Step 2 has other effects now."
        assert failure.text is not None
        assert failure.text in done.stdout

    def test_a_report_on_one(self, tmp_path: Path, typed: Typed) -> None:
        """All is well: no failure, exit 0."""
        stored(tmp_path, Walk("sound").turn("tonight"), by_other_rules("other", 2))

        done = typed("replay", "sound", "--junit", "report.xml")

        (suite,) = ElementTree.parse(tmp_path / "report.xml").getroot()
        assert done.returncode == 0
        assert (suite.get("tests"), suite.get("failures")) == ("1", "0")

    def test_a_database_without_conversations_says_so(self, tmp_path: Path, typed: Typed) -> None:
        """On the screen and in the report."""
        stored(tmp_path)

        done = typed("replay", "--all", "--junit", "report.xml")

        (suite,) = ElementTree.parse(tmp_path / "report.xml").getroot()
        assert (done.returncode, done.stdout) == (0, "There are no conversations to replay.\n")
        assert (suite.get("tests"), suite.findtext("system-out")) == ("0", "There are no conversations to replay.")

    def test_a_report_that_cannot_be_written_is_one_sentence(self, tmp_path: Path, typed: Typed) -> None:
        """P33: what came of the replay is shown all the same."""
        stored(tmp_path, Walk("sound").turn("tonight"))

        done = typed("replay", "--all", "--junit", "nowhere/report.xml")

        assert done.returncode == 2
        assert done.stdout == "sound  5 events replayed, no divergence.\n"
        assert done.stderr == "The report cannot be written to nowhere/report.xml: No such file or directory.\n"

    def test_the_report_is_xml_whatever_was_said(self) -> None:
        """Characters that XML cannot hold are replaced; its own marks are written so that they mean nothing."""
        text = "".join(map(chr, range(0x20))) + "<&>\"']]>\x7f\ud800\uffff\U0001f363"

        root = ElementTree.fromstring(report_on([Replayed(text, 0.5, told=text, fault=text)]))

        (suite,) = root
        ((failure,),) = suite
        assert failure.text is not None
        assert failure.text.endswith("<&>\"']]>\x7f\ufffd\ufffd\U0001f363")
        assert failure.get("message", "").endswith("<&>\"']]>\x7f\ufffd\ufffd\U0001f363")


class TestFork:
    """`turnwise fork`, and `/fork`."""

    def test_it_tells_where_it_landed(self, tmp_path: Path, typed: Typed) -> None:
        """The id of the copy comes first, for scripts; lists and transcripts tell where a copy comes from."""
        stored(tmp_path, Walk("walk").turn("tonight").turn("tomorrow"))

        done = typed("fork", "walk", "--at", "7")

        new_id = done.stdout.split()[0]
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{new_id}  forked from walk at step 5, idle\n"
        assert re.search(rf"^{new_id} .*  forked from walk at step 5$", typed("list").stdout, re.MULTILINE)
        assert typed("show", new_id).stdout.startswith("(forked from walk at step 5)\nuser:\ntonight\n")
        assert typed("replay", new_id).stdout == f"{new_id}  5 events replayed, no divergence.\n"

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["walk", "--at", "0"], "counted from 1"),
            (["walk", "--at", "-1"], "counted from 1"),
            (["walk", "--at", "9"], "cannot be forked at step 9: its newest is 5"),
            (["walk", "--at", "9" * 5_000], "is none."),
            (["walk", "--at", "last"], "A step has a number, and last is none."),
            (["nobody"], "There is no conversation with the id nobody."),
            (["walk", "--db", "missing.db"], "There is no database called missing.db."),
            (["walk", "--db", ":memory:"], "A database in memory is gone when this command ends"),
        ],
    )
    def test_what_cannot_be_forked_is_one_sentence(
        self, arguments: list[str], sentence: str, tmp_path: Path, typed: Typed
    ) -> None:
        """P33: and nothing is stored, nor is a database made."""
        stored(tmp_path, Walk("walk").turn("tonight"))

        done = typed("fork", *arguments)

        assert_one_sentence(done, sentence)
        assert len(typed("list").stdout.splitlines()) == 1
        assert not (tmp_path / "missing.db").exists()

    def test_in_a_chat(self, tmp_path: Path) -> None:
        """The chat goes on with the original; the copy can be gone on with by its id."""
        done = run("chat", "--tools", "", cwd=tmp_path, lines=["hello", "/fork", "bye"])

        copied = id_in(done.stdout.split("Forked at step 3.")[1])
        again = run("show", copied, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert copied != id_in(done.stdout)
        assert "hello" in again.stdout
        assert "bye" not in again.stdout


def export_in(typed: Typed, *arguments: str) -> bytes:
    """What an export writes, byte by byte."""
    done = typed("export", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.encode()


class TestExportAndImport:
    """`turnwise export` and `turnwise import`."""

    def test_there_and_back(self, tmp_path: Path) -> None:
        """A whole database in a file, and from it into an empty one: the same bytes again, whatever the terminal's
        encoding."""
        stored(tmp_path, Walk("one").turn("say \x1b[31m寿司\u2028"), Walk("two").question(), Walk("three").say("?"))
        new_id = run("fork", "one", cwd=tmp_path).stdout.split()[0]

        first = run("export", "--all", cwd=tmp_path, PYTHONIOENCODING="latin-1")
        (tmp_path / "all.jsonl").write_text(first.stdout, encoding="utf-8", newline="")
        imported = run("import", "all.jsonl", "--db", "new.db", cwd=tmp_path, PYTHONIOENCODING="latin-1")
        second = run("export", "--all", "--db", "new.db", cwd=tmp_path, PYTHONIOENCODING="latin-1")

        assert [done.stderr for done in (first, imported, second)] == ["", "", ""]
        assert first.stdout == second.stdout
        assert imported.stdout == (
            f"one  5 steps imported\ntwo  4 steps imported\nthree  2 steps imported\n{new_id}  5 steps imported\n"
        )
        assert run("replay", "--all", "--db", "new.db", cwd=tmp_path).returncode == 0
        assert run("doctor", "--db", "new.db", cwd=tmp_path).returncode == 0

    def test_through_a_pipe(self, tmp_path: Path, typed: Typed) -> None:
        """`-` is stdin; what is there already is left as it is."""
        stored(tmp_path, Walk("one").turn("tonight"), Walk("two"))
        lines = export_in(typed, "one").decode().splitlines()

        into_another = typed("import", "-", "--db", "new.db", lines=lines)
        into_the_same = typed("import", "-", lines=lines)

        assert into_another.stdout == "one  5 steps imported\n"
        assert into_the_same.stdout == "one  already there\n"
        assert export_in(typed, "one") == export_in(typed, "one", "--db", "new.db")

    def test_of_nothing_says_so(self, tmp_path: Path, typed: Typed) -> None:
        """An empty database can be exported too."""
        stored(tmp_path)
        lines = export_in(typed, "--all").decode().splitlines()

        done = typed("import", "-", "--db", "new.db", lines=lines)

        assert (done.returncode, done.stdout) == (0, "There are no conversations in this export.\n")

    def test_what_is_damaged_is_left_out(self, tmp_path: Path, typed: Typed) -> None:
        """The others are exported, and the file can be imported; exit 1 tells that something is missing."""
        path = stored(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
        change(path, "DELETE FROM events WHERE conversation = 1 AND seq = 3")

        everything = typed("export", "--all")
        alone = typed("export", "one")
        imported = typed("import", "-", "--db", "new.db", lines=everything.stdout.splitlines())

        assert (everything.returncode, everything.stderr) == (
            1,
            "one is left out: Step 3 is missing: the file is damaged.\n",
        )
        assert_one_sentence(alone, "Step 3 is missing: the file is damaged.")
        assert imported.stdout == "two  5 steps imported\n"

    @pytest.mark.parametrize(
        ("lines", "sentence"),
        [
            ([], "Line 1 is missing: the export was cut off."),
            (["\x1b[2JDear diary"], "Line 1 does not begin an export of turnwise."),
            (['{"format":"turnwise-log","version":2}'], "was written by a newer turnwise"),
            (['{"format":"turnwise-log","version":1}'], "Line 2 is missing: the export was cut off."),
            (['{"format":"turnwise-log","version":1}', "[" * 1_000_000], "Line 2 is not a line of an export."),
        ],
    )
    def test_what_is_no_export_is_one_sentence(
        self, lines: list[str], sentence: str, tmp_path: Path, typed: Typed
    ) -> None:
        """P33: and no database is made."""
        done = typed("import", "-", lines=lines)

        assert_one_sentence(done, sentence)
        assert list(tmp_path.iterdir()) == []

    def test_all_or_nothing(self, tmp_path: Path, typed: Typed) -> None:
        """Of a file that was changed, and of one with an id that another conversation has, nothing comes in."""
        stored(tmp_path, Walk("new"), Walk("taken").turn("tonight"), name="one.db")
        stored(tmp_path, Walk("taken").turn("tomorrow"), name="two.db")
        lines = export_in(typed, "--all", "--db", "one.db").decode().splitlines()
        before = export_in(typed, "--all", "--db", "two.db")

        taken = typed("import", "-", "--db", "two.db", lines=lines)
        lines[5] = lines[5].replace("tonight", "at noon")
        changed = typed("import", "-", "--db", "two.db", lines=lines)

        assert_one_sentence(taken, "There is already another conversation with the id taken; nothing was imported.")
        assert_one_sentence(changed, "Line 6 is not what was exported: it was changed or damaged.")
        assert export_in(typed, "--all", "--db", "two.db") == before

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["import", "missing.jsonl"], "missing.jsonl cannot be read: No such file or directory."),
            (["import", "."], ". cannot be read: Is a directory."),
            (["export", "--all"], "There is no database to read: turnwise.db."),
            (["doctor"], "There is no database to read: turnwise.db."),
            (["doctor", "--fix"], "There is no database called turnwise.db."),
            (["resolve", "nobody", "ran"], "There is no database called turnwise.db."),
        ],
    )
    def test_files_that_are_none(self, arguments: list[str], sentence: str, tmp_path: Path, typed: Typed) -> None:
        """P33: one sentence, and none is made."""
        done = typed(*arguments)

        assert_one_sentence(done, sentence)
        assert list(tmp_path.iterdir()) == []

    def test_an_interrupted_one_is_listed_as_such(self, tmp_path: Path, typed: Typed) -> None:
        """It comes in as it was, and can be read."""
        stored(tmp_path, Walk("walk").say("hello"), name="old.db")
        lines = export_in(typed, "walk", "--db", "old.db").decode().splitlines()

        typed("import", "-", lines=lines)

        assert typed("list").stdout.split()[:2] == ["walk", "interrupted"]
        assert typed("show", "walk").stdout == "user:\nhello\n"


class TestDoctor:
    """`turnwise doctor`."""

    def test_all_is_well_in_one_line(self, tmp_path: Path, typed: Typed) -> None:
        """Exit 0."""
        stored(tmp_path, Walk("one").turn("tonight"), Walk("two").question())

        done = typed("doctor")

        assert (done.returncode, done.stdout, done.stderr) == (
            0,
            "All is well: 2 conversations, 9 steps.\n",
            "",
        )

    def test_each_finding_is_a_line(self, tmp_path: Path, typed: Typed) -> None:
        """With the conversation and the step; exit 1; and how to mend what can be mended."""
        path = stored(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
        change(path, "UPDATE events SET payload = '{}' WHERE conversation = 1 AND seq = 4")
        change(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")

        done = typed("doctor")

        assert done.returncode == 1
        assert done.stdout == (
            "one step 4 Step 4 cannot be read: it is damaged, or a newer turnwise wrote it.\n"
            "two step 5 The column waits does not agree with the state and the newest step.\n"
        )
        assert done.stderr == "1 of these can be mended without guessing: turnwise doctor --fix\n"

    def test_the_way_to_mend_names_the_database(self, tmp_path: Path) -> None:
        """It can be typed as it is told, and is told below the findings, where both go to one file."""
        path = stored(tmp_path, Walk("one").turn("tonight"), name="other.db")
        change(path, "UPDATE conversations SET waits = 1 WHERE id = 'one'")

        command = [*COMMAND, "doctor", "--db", "other.db"]
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        finding, told = done.stdout.splitlines()
        assert finding.startswith("one step 5 ")
        assert told.endswith(": turnwise doctor --fix --db other.db")

    def test_fix_mends_and_says_what_it_did(self, tmp_path: Path, typed: Typed) -> None:
        """What cannot be mended is told too, and then the exit code is 1; once all is well it is 0."""
        path = stored(tmp_path, Walk("one").turn("tonight"), Walk("two").turn("tonight"))
        change(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")
        change(path, "INSERT INTO outbox VALUES (1, 'voice', 99, 5, 0, NULL)")
        mended = typed("doctor", "--fix")
        change(path, "UPDATE conversations SET waits = 1 WHERE id = 'two'")
        change(path, "DELETE FROM events WHERE conversation = 1 AND seq = 4")

        in_part = typed("doctor", "--fix")

        assert mended.returncode == 0
        assert mended.stdout.splitlines() == [
            "one step 5 A delivery waits for the effect 99, which is none of that step's.  Mended.",
            "two step 5 The column waits does not agree with the state and the newest step.  Mended.",
            "All is well: 2 conversations, 10 steps.",
        ]
        assert in_part.returncode == 1
        assert in_part.stdout.splitlines() == [
            "two step 5 The column waits does not agree with the state and the newest step.  Mended.",
            "one step 4 Step 4 is missing: the file is damaged.  Not mended.",
        ]

    def test_a_file_that_cannot_be_opened_is_one_sentence(self, tmp_path: Path, typed: Typed) -> None:
        """P33: there is nothing to examine then."""
        path = stored(tmp_path, Walk("one").turn("tonight"))
        path.write_bytes(path.read_bytes()[:-9_000])

        assert_one_sentence(typed("doctor"), "turnwise.db cannot be used now: it is damaged.")

    async def test_it_looks_while_an_engine_works(self, busy: Conversation, database: Path) -> None:
        """P42: and so do `replay` and `export`; what changes something waits for nobody, and is refused."""
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
            assert_one_sentence(done, "is already open in another engine; close that one first.")
