"""Settings of an engine: where they come from, and what is said of wrong ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from turnwise import (
    ConfigurationError,
    Engine,
    McpServer,
    ModelAnswer,
    ModelRequest,
    Profile,
    Retry,
    Settings,
    Turn,
    presets,
    tool,
)
from turnwise.effects.tools.tool import MAX_STORED
from turnwise.testing import FunctionLlm, call, reply


class Written(NamedTuple):
    """A setting as a variable of the environment and as a line of the file hold it, its value, and its default."""

    variable: str
    line: str
    value: Any
    default: Any


CHEF = Profile(name="chef", prompt="Cook.", tools=["pantry"])
SERVER = McpServer(command="serve", args=["--fast"])

SETTINGS = {
    "agentic_max_turns": Written("3", "= 3", 3, 8),
    "llm_profile_select_timeout_sec": Written("0.5", "= 0.5", 0.5, 10.0),
    "llm_tools_timeout_sec": Written("0.5", "= 0.5", 0.5, 10.0),
    "llm_embed_timeout_sec": Written("0.5", "= 0.5", 0.5, 10.0),
    "llm_chat_timeout_sec": Written("0.5", "= 0.5", 0.5, 120.0),
    "llm_chat_whole_timeout_sec": Written("60", "= 60", 60.0, 1800.0),
    "llm_profile_select_model": Written("small", '= "small"', "small", None),
    "llm_tools_model": Written("small", '= "small"', "small", None),
    "memory_enrichment_max_results": Written("3", "= 3", 3, 10),
    "dialogue_window_sec": Written("60", "= 60", 60.0, 300.0),
    "profiles": Written(
        '{"chef": {"prompt": "Cook.", "tools": ["pantry"]}}',
        '= {chef = {prompt = "Cook.", tools = ["pantry"]}}',
        {"chef": CHEF},
        {},
    ),
    "profile_allowed_tools": Written('{"chef": ["pantry"]}', '= {chef = ["pantry"]}', {"chef": ("pantry",)}, {}),
    "mcps": Written(
        '{"git": {"command": "serve", "args": ["--fast"]}}',
        '= {git = {command = "serve", args = ["--fast"]}}',
        {"git": SERVER},
        {},
    ),
    "location_enabled": Written("true", "= true", True, False),
    "location_ip_address": Written("192.0.2.1", '= "192.0.2.1"', "192.0.2.1", None),
    "location_auto_detect": Written("1", "= true", True, False),
    "voice_debug": Written("yes", "= true", True, False),
    "tts_enabled": Written("0", "= false", False, True),
    "tool_marker": Written("CALL", '= "CALL"', "CALL", "TOOL"),
    "kept_updates": Written("7", "= 7", 7, 1024),
    "max_stored_result": Written("500", "= 500", 500, MAX_STORED),
    "db": Written("dinner.db", '= "dinner.db"', "dinner.db", None),
    "files_folder": Written("files", '= "files"', "files", None),
    "database_connections": Written("4", "= 4", 4, 10),
    "worker_slots": Written("7", "= 7", 7, 100),
    "lease": Written("2.5", "= 2.5", 2.5, 15.0),
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without a file of settings."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(directory: Path, text: str) -> None:
    """Write the file of settings."""
    (directory / "turnwise.toml").write_text(text, encoding="utf-8")


class TestWhereTheyComeFrom:
    """J19: arguments, then the environment, then turnwise.toml, then the defaults."""

    def test_every_setting_is_tested_here(self) -> None:
        """No name is added without its line above."""
        assert list(SETTINGS) == list(Settings.model_fields)

    @pytest.mark.parametrize("name", SETTINGS)
    def test_each_has_its_default(self, name: str, directory: Path) -> None:
        """J19: without a file and a variable."""
        assert getattr(Settings(), name) == SETTINGS[name].default

    @pytest.mark.parametrize("name", SETTINGS)
    def test_each_is_read_from_the_environment(
        self, name: str, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """J19: under its name in capitals; the file is not asked then."""
        monkeypatch.setenv(f"TURNWISE_{name.upper()}", SETTINGS[name].variable)
        write(directory, f"{name} = 'not this one'")

        assert getattr(Settings(), name) == SETTINGS[name].value

    @pytest.mark.parametrize("name", SETTINGS)
    def test_each_is_read_from_the_file(self, name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """J19: an empty variable counts as none."""
        monkeypatch.setenv(f"TURNWISE_{name.upper()}", "")
        write(directory, f"{name} {SETTINGS[name].line}")

        assert getattr(Settings(), name) == SETTINGS[name].value

    @pytest.mark.parametrize("name", SETTINGS)
    def test_each_is_taken_from_an_argument_first(
        self, name: str, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """J19: whatever the environment and the file say."""
        monkeypatch.setenv(f"TURNWISE_{name.upper()}", SETTINGS[name].variable)
        write(directory, f"{name} {SETTINGS[name].line}")

        assert getattr(Settings(**{name: SETTINGS[name].default}), name) == SETTINGS[name].default

    def test_dicts_of_several_sources_are_not_merged(self, directory: Path) -> None:
        """An application that passes its profiles has these alone."""
        write(directory, '[profiles.chef]\nprompt = "Cook."')

        assert list(Settings(profiles={"guide": Profile(name="guide")}).profiles) == ["guide"]

    def test_what_is_no_setting_is_passed_over(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The terminal keeps settings of its own in the file, and so may other programs."""
        monkeypatch.setenv("TURNWISE_DATABASE", "x")
        write(directory, 'page = "mine.html"\n[web]\nport = 8000')

        assert Settings().agentic_max_turns == 8

    def test_an_engine_reads_them_when_it_is_made_without_settings(self, directory: Path) -> None:
        """A wrong one is refused before anything is opened."""
        write(directory, "kept_updates = 0")

        with pytest.raises(ConfigurationError) as caught:
            Engine.open("sqlite://")

        assert (
            caught.value.sentence
            == "The setting kept_updates (in turnwise.toml) is not valid: Input should be greater than or equal to 1."
        )


class TestWrongSettings:
    """J19: one sentence, which names the setting."""

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            (
                {"llm_chat_timeout_sec": 0},
                "The setting llm_chat_timeout_sec is not valid: Input should be greater than 0.",
            ),
            ({"llm_embed_timeout_sec": "inf"}, "The setting llm_embed_timeout_sec is not valid"),
            ({"agentic_max_turns": "many"}, "The setting agentic_max_turns is not valid"),
            ({"memory_enrichment_max_results": 0}, "The setting memory_enrichment_max_results is not valid"),
            ({"tool_marker": ""}, "The setting tool_marker is not valid"),
            ({"location_ip_address": "home"}, "The setting location_ip_address is not valid: 'home' does not appear"),
            ({"profiles": ["chef"]}, "The setting profiles is not valid: Input should be a table of names and values."),
            ({"profiles": {"chef": 3}}, "The setting profiles.chef is not valid: Input should be a table of names and"),
            ({"profiles": {"chef": {"tool": []}}}, "There is no setting called profiles.chef.tool."),
            ({"profiles": {"chef": {"name": "cook"}}}, "The setting profiles is not valid: the profile chef cannot"),
            ({"profiles": {"": {}}}, "The setting profiles..name is not valid"),
            (
                {"profile_allowed_tools": {"chef": "pantry"}},
                "The setting profile_allowed_tools.chef is not valid: Input should be a list.",
            ),
            ({"lease": 0.5}, "The setting lease is not valid: Input should be greater than or equal to 1."),
            ({"worker_slots": 0}, "The setting worker_slots is not valid"),
            ({"database_connections": 1}, "The setting database_connections is not valid"),
            ({"db": ""}, "The setting db is not valid"),
            ({"mcps": {"git": {"comand": "x"}}}, "There is no setting called mcps.git.comand."),
            ({"agentic_max_turn": 3}, "There is no setting called agentic_max_turn. Did you mean agentic_max_turns?"),
            ({"rounds": 3}, "There is no setting called rounds. Known: agentic_max_turns, llm_"),
        ],
    )
    def test_in_arguments(self, given: dict[str, Any], sentence: str, directory: Path) -> None:
        """Also within the profiles and the servers."""
        with pytest.raises(ConfigurationError) as caught:
            Settings(**given)

        assert caught.value.sentence.startswith(sentence)

    def test_in_a_variable(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The sentence names the variable, which hides what the file says."""
        monkeypatch.setenv("TURNWISE_AGENTIC_MAX_TURNS", "0")
        write(directory, "agentic_max_turns = 12")

        with pytest.raises(ConfigurationError) as caught:
            Settings()

        assert caught.value.sentence == (
            "The setting agentic_max_turns (variable TURNWISE_AGENTIC_MAX_TURNS) is not valid: "
            "Input should be greater than or equal to 1."
        )

    @pytest.mark.parametrize("value", ["{", "chef", "\udc80", "[" * 100_000])
    def test_a_variable_that_is_no_json(self, value: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its value is not repeated: it may hold a key."""
        monkeypatch.setenv("TURNWISE_MCPS", value)

        with pytest.raises(ConfigurationError) as caught:
            Settings()

        assert caught.value.sentence == "The environment variable TURNWISE_MCPS does not hold valid JSON."

    def test_a_secret_of_a_server_is_not_repeated(self, directory: Path) -> None:
        """Headers hold keys, so the sentence has the name of the setting only."""
        write(directory, 'mcps = {git = {url = "ftp://x", headers = {Authorization = "Bearer abc123"}}}')

        with pytest.raises(ConfigurationError) as caught:
            Settings()

        assert "mcps.git" in caught.value.sentence
        assert "abc123" not in f"{caught.value}{caught.value.__cause__}"

    @pytest.mark.parametrize("text", ["profiles = ", "[profiles", "a = " + "[" * 100_000, 'a = "\ud800"'])
    def test_a_file_that_is_no_toml(self, text: str, directory: Path) -> None:
        """It is named."""
        (directory / "turnwise.toml").write_bytes(text.encode(errors="surrogatepass"))

        with pytest.raises(ConfigurationError) as caught:
            Settings()

        assert caught.value.sentence.startswith("turnwise.toml cannot be read: ")


def asks_for_ever(request: ModelRequest) -> Any:
    """Answer every request with another call."""
    return call("look", place=str(len(request.messages)))


@tool
async def look(place: str) -> str:
    """Look at a place."""
    return f"Nothing in {place}."


async def sent_under_reply_flow(model: Any, **options: Any) -> Turn:
    """Return a turn under the rules of a reply flow, with the settings of the environment and the file."""
    settings = Settings()
    policy = settings.reply_flow()
    async with Engine.open("sqlite://", model=model, policy=policy, settings=settings, **options) as engine:
        return await (await engine.create()).send("Look everywhere")


class TestWhatTheyChange:
    """J19: each changes what it names; the tests of deadlines, recall, location and speech stand beside these."""

    def test_its_policy_is_that_of_the_preset(self, directory: Path) -> None:
        """J8, J19: a call is remembered for as many requests as a turn may have, whatever that number is."""
        settings = Settings(agentic_max_turns=12, dialogue_window_sec=60, tool_marker="CALL")

        assert settings.reply_flow() == presets.reply_flow(12, 60, "CALL")

    async def test_db(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An engine that is given neither a URL nor a store opens this database; another one opens what it is given."""
        monkeypatch.setenv("TURNWISE_DB", "from_variable.db")
        async with Engine.open() as engine:
            await engine.create()
        async with Engine.open("given.db") as engine:
            assert await engine.list() == ()

        assert sorted(path.name for path in directory.glob("*.db")) == ["from_variable.db", "given.db"]

    def test_a_password_in_the_database_is_not_shown(self, directory: Path) -> None:
        """Neither by the settings, nor by what is wrong with them."""
        assert "secret" not in repr(Settings(db="postgresql://me:secret@host/name", lease=3))

    @pytest.mark.parametrize("requests", [1, 3])
    async def test_agentic_max_turns(self, requests: int, directory: Path) -> None:
        """J12, J19: that many requests, and the last one is like the others."""
        write(directory, f"agentic_max_turns = {requests}")
        seen: list[ModelRequest] = []

        def note(request: ModelRequest) -> Any:
            if request.purpose == "converse":
                seen.append(request)
            return asks_for_ever(request)

        turn = await sent_under_reply_flow(FunctionLlm(note), tools=[look])

        assert len(seen) == requests
        assert all(request.tools for request in seen)
        assert (turn.status, turn.limit) == ("incomplete", "requests")

    async def test_tool_marker(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """J13, J19: lines that begin with it are removed, and those that begin with the default stay."""
        monkeypatch.setenv("TURNWISE_TOOL_MARKER", "CALL")
        text = "CALL look\nTOOL is a word.\nWe CALL it so."

        turn = await sent_under_reply_flow(FunctionLlm(lambda request: reply(text)))

        assert turn.reply == "TOOL is a word.\nWe CALL it so."

    async def test_llm_chat_timeout_sec(self, directory: Path) -> None:
        """J16, J19: a model that hangs is given up, and the user gets a reply that says so."""
        write(directory, "llm_chat_timeout_sec = 0.01\nllm_tools_timeout_sec = 0.01")

        async def hang(request: ModelRequest) -> ModelAnswer:
            await asyncio.Event().wait()
            raise AssertionError

        policy = Settings().reply_flow().replace(retry=Retry(attempts=2, base=0.0))
        async with Engine.open("sqlite://", model=FunctionLlm(hang, name="it"), policy=policy) as engine:
            turn = await (await engine.create()).send("Hi")

        assert turn.status == "failed"
        assert turn.reply == "I could not answer: Failed after 2 attempts: The model took too long to answer."

    async def test_max_stored_result(self, directory: Path) -> None:
        """J19: a longer result of a tool is cut before it is stored."""
        write(directory, "max_stored_result = 200")
        results: list[str] = []

        @tool
        async def read() -> str:
            """Read a book."""
            return "word " * 1_000

        def note(request: ModelRequest) -> Any:
            results.extend(one["content"] for one in request.messages if one["role"] == "tool")
            return reply("Read.") if results else call("read")

        async with Engine.open("sqlite://", model=FunctionLlm(note), tools=[read]) as engine:
            await (await engine.create()).send("Read it")

        assert [len(result) <= 200 for result in results] == [True]


class TestProfilesAndServers:
    """Those of the settings stand beside those given to `Engine.open`."""

    @pytest.mark.parametrize(
        ("allowed", "sentence"),
        [
            ({"cook": ["pantry"]}, "The setting profile_allowed_tools names the profile cook, which is not known."),
        ],
    )
    def test_unknown_profiles_cannot_be_narrowed(self, allowed: Any, sentence: str, directory: Path) -> None:
        """A misspelt name would leave a profile with more tools than was meant."""
        with pytest.raises(ConfigurationError) as caught:
            Engine.open("sqlite://", profiles=[CHEF], settings=Settings(profile_allowed_tools=allowed))

        assert caught.value.sentence == sentence
