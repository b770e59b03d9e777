"""The examples run, and the store in memory is complete."""

from __future__ import annotations

import ast
import asyncio
import runpy
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pexpect
import pytest

from turnwise import Delivery, Engine, persistence, presets
from turnwise.effects.model import rehearsal
from turnwise.persistence import Store
from turnwise.testing import RecordingChannel, ScriptedLlm, call, reply
from turnwise.testing.store_contract import StoreContract

from ..support.forks.starting import python
from ..support.scenarios.examples import EXAMPLES as MEMORY_STORE_EXAMPLES
from ..support.scenarios.examples import example
from ..support.speech.speakers import fake_speaker, fake_speaker_environment
from ..support.speech.voices import any_voice_that_works, heard
from ..support.terminal import ENVIRONMENT, TIMEOUT

# --- The examples run as they stand: real processes, without a key, a network or a loudspeaker.


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


@pytest.mark.slow
def test_thinking_aloud(tmp_path: Path) -> None:
    """B1, B2: the user receives what is said by tool, in order; the last thought is for the program only."""
    printed = run_example("thinking_aloud.py", tmp_path)

    received, _, rest = printed.partition("\n\nThe user received 2 texts.")
    assert received.index("Let me use find_table.") < received.index("Table: Kikunoi, Japanese, 2 tonight at 6:30 PM")
    assert "The user was told." not in received
    assert rest.endswith("'The user was told.'\n")


@pytest.mark.slow
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


@pytest.mark.slow
def test_where_no_voice_works_the_voice_assistant_says_so(tmp_path: Path) -> None:
    """S20: the answer is printed anyway, a sentence says how to install a voice, and the log says what is wrong."""
    fake_speaker(tmp_path, ends="sys.exit('no such library')")

    done = ran("voice_assistant.py", tmp_path, **fake_speaker_environment(tmp_path))

    shown, told, ended = done.stdout.splitlines()
    assert shown.startswith("Note: Buy **rice**")
    assert told.startswith("No voice works here, so this is only printed: install ")
    assert (ended, done.returncode) == ("The turn is completed.", 0)
    assert done.stderr.endswith("espeak-ng: no such library\n")


@pytest.mark.slow
def test_the_voice_assistant_speaks_without_markup(tmp_path: Path) -> None:
    """S20: the speech engine receives only the words."""
    spoken = fake_speaker(tmp_path, ends="open(sys.argv[-1], 'w').close()")

    run_example("voice_assistant.py", tmp_path, **fake_speaker_environment(tmp_path))

    assert spoken.read_text() == "Note: Buy rice, miso and tea.\n"


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_table_is_booked(tmp_path: Path) -> None:
    """The smallest host program books a table with the rehearsal model."""
    assert "Kikunoi, Japanese, 2 at 6:30 PM" in run_example("dinner.py", tmp_path)


@pytest.mark.slow
def test_the_store_in_memory(tmp_path: Path) -> None:
    """An engine runs over a store that is written with public names only."""
    printed = run_example("memory_store.py", tmp_path)

    assert printed == "For two, at 6:30 PM.\nIn idle after 3 steps.\n"


@pytest.mark.slow
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


# --- The store in memory is an example of a store that somebody else has written: with public names, and complete.


MemoryStore = example("memory_store").MemoryStore


@pytest.mark.slow
class TestTheStore(StoreContract):
    """It does what every store must do."""

    lasting = False

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[Store]:
        """It needs no place."""
        store = MemoryStore()
        try:
            yield store
        finally:
            await store.close()


def refuse(delivery: Delivery) -> None:
    """A screen that takes nothing."""
    raise ConnectionError("the screen is dark")


class TestAnEngine:
    """An engine runs over the store, as over any other."""

    async def test_goes_on_where_another_engine_left_off(self) -> None:
        """The store outlives the engines that were opened over it."""
        store = MemoryStore()
        async with Engine.open(store=store, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create(system="You book tables.")
            await conversation.send("Hi", message_id="m1")

        async with Engine.open(store=store, model=ScriptedLlm([reply("Again.")])) as engine:
            again = await engine.get(conversation.id)
            assert (await again.send("Hi", message_id="m1")).reply == "Hello."
            assert (await again.send("And now?")).reply == "Again."
            assert [message.text for message in await again.transcript()] == ["Hi", "Hello.", "And now?", "Again."]
            assert (await again.replay()).divergence is None

    async def test_takes_over_what_another_engine_did_not_finish(self) -> None:
        """A turn under way goes on, and what was not delivered is delivered."""
        store = MemoryStore()
        dark = RecordingChannel(refuse, name="screen")
        async with Engine.open(store=store, model=ScriptedLlm([reply("Hello.")]), channels=[dark]) as engine:
            await (await engine.create()).send("Hi")
        screen = RecordingChannel(name="screen")

        async with Engine.open(store=store, model=ScriptedLlm([]), channels=[screen]) as engine:
            while await engine.store.outbox(await engine.store.ids()):
                await asyncio.sleep(0.01)

        assert (len(dark.failed) >= 1, screen.texts) == (True, ["Hello."])

    async def test_forks_and_deletes(self) -> None:
        """A copy goes on by itself."""
        async with Engine.open(store=MemoryStore(), model=ScriptedLlm([reply("One."), reply("Two.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            copy = await conversation.fork()
            assert (await copy.send("And?")).reply == "Two."
            await engine.delete(conversation.id)

            assert [summary.id for summary in await engine.list()] == [copy.id]


def test_it_uses_public_names_only() -> None:
    """What it imports is exported by `turnwise.persistence` and `turnwise.states`."""
    tree = ast.parse((MEMORY_STORE_EXAMPLES / "memory_store.py").read_text(encoding="utf-8"))
    imported = {
        (node.module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("turnwise")
        for name in node.names
    }

    public = {"turnwise", "turnwise.persistence", "turnwise.states", "turnwise.states.dialogue", "turnwise.testing"}
    assert {module for module, _ in imported} <= public
    assert {name for module, name in imported if module == "turnwise.persistence"} <= set(persistence.__all__)
