"""The examples run as they stand: real processes, without a key, a network or a loudspeaker."""

from __future__ import annotations

import asyncio
import runpy
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pexpect
import pytest

from turnwise import Delivery, Engine, presets
from turnwise.effects.model import rehearsal
from turnwise.testing import RecordingChannel, ScriptedLlm, call, reply

from ..support.forks.starting import python
from ..support.speech.speakers import fake_speaker, fake_speaker_environment
from ..support.speech.voices import any_voice_that_works, heard
from ..support.terminal import ENVIRONMENT, TIMEOUT

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

CARD = "4111 1111 1111 1111"


def ran(name: str, folder: Path, lines: Sequence[str] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    """Run an example to its end, with these lines on stdin."""
    command, said = [*python(), str(EXAMPLES / name)], "".join(f"{line}\n" for line in lines)
    given = {**ENVIRONMENT, **environment}
    return subprocess.run(command, cwd=folder, env=given, input=said, capture_output=True, text=True, timeout=TIMEOUT)


def run_example(name: str, folder: Path, **environment: str) -> str:
    """Return what an example prints, and check that it succeeds."""
    done = ran(name, folder, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_thinking_aloud(tmp_path: Path) -> None:
    """B1, B2: the user receives what is said by tool, in order; the last thought is for the program only."""
    printed = run_example("thinking_aloud.py", tmp_path)

    received, _, rest = printed.partition("\n\nThe user received 2 texts.")
    assert received.index("Let me use find_table.") < received.index("Table: Kikunoi, Japanese, 2 tonight at 6:30 PM")
    assert "The user was told." not in received
    assert rest.endswith("'The user was told.'\n")


def test_the_voice_assistant_speaks(tmp_path: Path) -> None:
    """S1, S20: the answer is printed as it is, and spoken once, into a file that is not silent."""
    any_voice_that_works(tmp_path)

    printed = run_example("voice_assistant.py", tmp_path)

    assert printed == (
        "Note: Buy **rice**, [miso](https://example.com/miso) and tea.\n"
        "(spoken: delivery 1 of turn 1)\n"
        "The turn is completed.\n"
    )
    (file,) = (tmp_path / "spoken").iterdir()
    seconds, loudness = heard(file)
    assert 1 < seconds < 10
    assert loudness > 500


def test_where_no_voice_works_the_voice_assistant_says_so(tmp_path: Path) -> None:
    """S20: the answer is printed anyway, a sentence says how to install a voice, and the log says what is wrong."""
    fake_speaker(tmp_path, ends="sys.exit('no such library')")

    done = ran("voice_assistant.py", tmp_path, **fake_speaker_environment(tmp_path))

    shown, told, ended = done.stdout.splitlines()
    assert shown.startswith("Note: Buy **rice**")
    assert told.startswith("No voice works here, so this is only printed: install ")
    assert (ended, done.returncode) == ("The turn is completed.", 0)
    assert done.stderr.endswith("espeak-ng: no such library\n")


def test_the_voice_assistant_speaks_without_markup(tmp_path: Path) -> None:
    """S20: the speech engine receives only the words."""
    spoken = fake_speaker(tmp_path, ends="open(sys.argv[-1], 'w').close()")

    run_example("voice_assistant.py", tmp_path, **fake_speaker_environment(tmp_path))

    assert spoken.read_text() == "Note: Buy rice, miso and tea.\n"


async def test_the_voice_assistant_does_not_wait_for_a_missing_channel(tmp_path: Path) -> None:
    """Deliveries for a channel of an earlier run stay in the outbox until that channel is back."""

    def hang_up(delivery: Delivery) -> None:
        raise OSError

    fake_speaker(tmp_path, ends="open(sys.argv[-1], 'w').close()")
    llm = ScriptedLlm([call("talk", message="Hello?"), reply("Hm.")])
    channel = RecordingChannel(hang_up, name="telephone")
    engine = Engine.open(tmp_path / "voice.db", model=llm, tools=["talk"], channels=[channel], policy=presets.talk())
    async with engine:
        await (await engine.create()).send("Hi")
        assert await engine.store.outbox(await engine.store.ids())

    done = await asyncio.to_thread(ran, "voice_assistant.py", tmp_path, **fake_speaker_environment(tmp_path))

    assert done.stdout.endswith("The turn is completed.\n")
    assert done.stderr.endswith(" still has a delivery for the channel telephone, which this engine does not have.\n")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)


def test_the_voice_loop(tmp_path: Path) -> None:
    """J14, J18: two spoken turns of the whole reply flow. An earlier conversation is recalled, the tool of an MCP
    server is used, a window opens behind each turn, each step is printed, and the secret is nowhere."""
    fake_speaker(tmp_path, ends="open(sys.argv[-1], 'w').close()")
    lines = ["Where does my sister live?", f"What will the weather be like in Turku? My card is {CARD}."]

    done = ran("voice_loop.py", tmp_path, lines, **fake_speaker_environment(tmp_path))

    assert (done.returncode, done.stderr) == (0, "")
    first, _, second = done.stdout.partition("guide: ")
    assert "You said earlier: “My sister Anna lives in Turku.”" in first
    assert "Turku: rain from 7 PM on, 14 °C." in second
    assert done.stdout.count("The follow-up window is open") == 2
    for step in ("profile", "memory", "planning", "voice"):
        assert f"  [turnwise.{step}] " in first
    assert done.stdout.endswith("Secrets that were removed: 1 of the kind CARD.\n")
    assert CARD not in done.stdout
    assert CARD.encode() not in b"".join(file.read_bytes() for file in tmp_path.glob("voice_loop.db*"))


def test_the_voice_loop_is_interrupted(tmp_path: Path) -> None:
    """Ctrl-C ends it while it waits for the user, without a traceback."""
    environment = {**ENVIRONMENT, **fake_speaker_environment(tmp_path)}
    command, *arguments = [*python(), str(EXAMPLES / "voice_loop.py")]
    loop = pexpect.spawn(command, arguments, cwd=tmp_path, env=environment, encoding="utf-8", timeout=TIMEOUT)
    loop.expect_exact("Ctrl-D ends the program.")
    loop.sendintr()
    loop.expect(pexpect.EOF)
    loop.close()

    assert loop.exitstatus == 0
    assert "Traceback" not in loop.before


def test_a_table_is_booked(tmp_path: Path) -> None:
    """The smallest host program books a table with the rehearsal model."""
    assert "Kikunoi, Japanese, 2 at 6:30 PM" in run_example("dinner.py", tmp_path)


def test_the_store_in_memory(tmp_path: Path) -> None:
    """An engine runs over a store that is written with public names only."""
    printed = run_example("memory_store.py", tmp_path)

    assert printed == "For two, at 6:30 PM.\nIn idle after 3 steps.\n"


def test_the_research_team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """D1, D7: what two background agents and their sub-agents find reaches the user's phone through the desk, once. In
    a later process the schedule is due once, for all missed mornings."""
    monkeypatch.setattr(rehearsal, "DELAY", 0.0)
    monkeypatch.chdir(tmp_path)

    runpy.run_path(str(EXAMPLES / "research_team.py"), run_name="__main__")
    printed = capsys.readouterr().out

    received = [text.partition("reports:")[2].split() for text in printed.split("The phone of ada says:")[2:]]
    reefs, news, later = (" ".join(words) for words in received)
    assert reefs == "Coral: Paper: Reefs that grow back, 14 pages Kelp: Paper: Forests under water, 9 pages"
    told = "Tides: Paper: The pull of the Moon, 12 pages Winds: Paper: Why sails are curved, 8 pages"
    assert (news.startswith(told), later) == (True, told)
    assert printed.count("This is a rehearsal") == 1
    assert printed.partition("Desk")[2].partition("Three days later:")[0] == (
        " (foreground, idle)\n"
        "    Reader (background, idle)\n"
        "        Look for a paper on: Coral (sub_agent, closed)\n"
        "        Look for a paper on: Kelp (sub_agent, closed)\n"
        "    Scout (background, idle)\n"
        "        Look for a paper on: Tides (sub_agent, closed)\n"
        "        Look for a paper on: Winds (sub_agent, closed)\n"
    )
