"""`turnwise replay`.

The JUnit report of a replay.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from turnwise import Engine, ModelRequest, Profile, presets
from turnwise.hosts.terminal.commands.database import ReplayResult, junit_report
from turnwise.states import MemoryRecalled, ProfileSelected
from turnwise.testing import FunctionLlm, ManualClock, call, reply

from ....support.terminal import ENVIRONMENT, InProcessRun, database_with, diverging_walk, run
from ....support.walks import Walk


class TestReplay:
    """The report for users and the file for continuous integration."""

    def test_each_divergence_is_a_block(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """The reason, the event, and the expected and actual outcome, with a line for each effect and the state. At the
        newest step the stored state is shown in full; of earlier states only the digest is stored."""
        database_with(tmp_path, Walk("sound").turn("tonight"), diverging_walk("early", 2), diverging_walk("late", 5))

        done = in_process("replay", "--all")

        assert (done.returncode, done.stderr) == (1, "")
        early, late = (done.stdout.split(f"\n{name}  ")[-1].split("\nsound  ")[0] for name in ("early", "late"))
        assert "sound  5 events replayed, no divergence.\n" in done.stdout
        assert "1 event replayed, then a divergence at seq 2.\n  reason    Step 2 has other effects now.\n" in early
        assert '\n            effect  {"type":"abort","effect_id":7}\n            state   {"digest": "' in early
        assert re.findall(r"^ {12}state   (\{.{9})", late, re.MULTILINE)[:2] == ['{"type":"i', '{"type":"i']
        assert '\n  expected  effect  {"type":"persist_message"' in late

    @pytest.mark.slow
    def test_a_report_for_ci(self, tmp_path: Path) -> None:
        """A case for each conversation; one that diverged has a failure with the reason and the report."""
        database_with(tmp_path, Walk("sound").turn("tonight"), diverging_walk("other", 2))

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

    def test_a_report_on_one(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """Without a divergence there is no failure, and the exit code is 0."""
        database_with(tmp_path, Walk("sound").turn("tonight"), diverging_walk("other", 2))

        done = in_process("replay", "sound", "--junit", "report.xml")

        (suite,) = ElementTree.parse(tmp_path / "report.xml").getroot()
        assert done.returncode == 0
        assert (suite.get("tests"), suite.get("failures")) == ("1", "0")

    def test_a_database_without_conversations_says_so(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """On stdout and in the file."""
        database_with(tmp_path)

        done = in_process("replay", "--all", "--junit", "report.xml")

        (suite,) = ElementTree.parse(tmp_path / "report.xml").getroot()
        assert (done.returncode, done.stdout) == (0, "There are no conversations to replay.\n")
        assert (suite.get("tests"), suite.findtext("system-out")) == ("0", "There are no conversations to replay.")

    def test_a_report_that_cannot_be_written_is_one_sentence(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """P33: the outcome of the replay is printed anyway."""
        database_with(tmp_path, Walk("sound").turn("tonight"))

        done = in_process("replay", "--all", "--junit", "nowhere/report.xml")

        assert done.returncode == 2
        assert done.stdout == "sound  5 events replayed, no divergence.\n"
        assert done.stderr == "The report cannot be written to nowhere/report.xml: No such file or directory.\n"

    @pytest.mark.slow
    async def test_a_divergence_exits_with_1(self, database: Path) -> None:
        """The other conversations are replayed too."""
        async with Engine.open(database, model=FunctionLlm(lambda _: reply("Yes."))) as engine:
            sound, changed = await engine.create(), await engine.create()
            await sound.send("Hello")
            await changed.send("Hello")
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("UPDATE events SET payload = replace(payload, 'Hello', 'Hullo') WHERE conversation = 2")

        done = run("replay", "--all", "--db", database, cwd=database.parent)

        assert (done.returncode, done.stderr) == (1, "")
        assert f"{sound.id}  3 events replayed, no divergence.\n" in done.stdout
        assert f"{changed.id}  1 event replayed, then a divergence at seq 2.\n" in done.stdout
        assert '"text":"Hullo"' in done.stdout
        assert re.findall(r"^  (reason|expected|actual) ", done.stdout, re.MULTILINE) == [
            "reason",
            "expected",
            "actual",
        ]


ASKS_NOBODY = """
import sys
from turnwise.hosts.terminal import main
from turnwise.persistence.sqlite.store import SqliteStore

def refuse(*arguments, **options):
    raise AssertionError("the index was asked")

for name in ("search", "recent", "without_vectors", "keep_vectors", "nearest"):
    setattr(SqliteStore, name, refuse)

def watch(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen"):
        raise AssertionError(event)

sys.addaudithook(watch)
sys.argv[1:] = ["replay", "--all"]
main()
"""
"""The command in a process that opens no connection, starts no other process, and has a store that cannot search."""


@pytest.mark.slow
class TestReplayOfReplyFlows:
    """What was routed, recalled and found once stands in the log."""

    async def record(self, database: Path) -> int:
        """Have two conversations with routing, recall, documents and vectors. Return how many requests they took."""

        def answer(request: ModelRequest) -> Any:
            match request.purpose:
                case "route":
                    return json.dumps({"profile": "vet"})
                case "enrich":
                    return json.dumps({"keywords": ["cat"]})
            needs_tool = "again" in str(request.messages) and all(one["role"] != "tool" for one in request.messages)
            return call("recall_conversation", keywords=["cat"]) if needs_tool else "Yes."

        async def embed(texts: Sequence[str]) -> list[list[float]]:
            return [[1.0, float(len(text))] for text in texts]

        policy = presets.reply_flow()
        model, clock = FunctionLlm(answer), ManualClock()
        profiles = [Profile(name="friend", description="Talks."), Profile(name="vet", description="Knows cats.")]
        async with Engine.open(
            database,
            model=model,
            clock=clock,
            profiles=profiles,
            tools=["recall_conversation"],
            documents=lambda query: ["Cats purr."],
            embed=embed,
        ) as engine:
            for text in ("My cat is called Miuku.", "What is my cat called?"):
                await clock.advance(3_600)
                conversation = await engine.create(owner="anna", policy=policy)
                await conversation.send(text)
                await conversation.send(f"{text} Tell me again.")
            events = [entry.event for entry in await conversation.events()]
        recalled = [event for event in events if isinstance(event, MemoryRecalled)]
        assert all(event.documents and event.block for event in recalled) and recalled[-1].recent
        assert any(isinstance(event, ProfileSelected) for event in events)
        return len(model.requests)

    async def test_no_model_server_or_index_is_asked_again(self, tmp_path: Path) -> None:
        """J2, J3, J4, J22: `replay --all` needs the log alone."""
        assert await self.record(tmp_path / "turnwise.db") > 8

        done = subprocess.run(
            [sys.executable, "-c", ASKS_NOBODY],
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=200,
        )

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("no divergence") == 2


def test_the_report_is_xml_whatever_was_said() -> None:
    """Characters that XML cannot contain are replaced, and its markup characters are escaped."""
    text = "".join(map(chr, range(0x20))) + "<&>\"']]>\x7f\ud800\uffff\U0001f363"

    root = ElementTree.fromstring(junit_report([ReplayResult(text, 0.5, unreadable=text)]))

    (suite,) = root
    ((failure,),) = suite
    assert failure.text is not None
    assert failure.text.endswith("<&>\"']]>\x7f\ufffd\ufffd\U0001f363")
    assert failure.get("message", "").endswith("<&>\"']]>\x7f\ufffd\ufffd\U0001f363")
