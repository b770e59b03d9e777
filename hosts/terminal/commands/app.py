"""The commands of `turnwise`, with their options and their help.

Each command imports its module when it runs, so that help is shown at once: the machine, the store and the libraries
for the terminal take tenths of a second to import, a model library takes seconds. Help is plain text for the same
reason: rich takes as long to import as everything else that help needs.

The options and arguments are declared once each, since several commands have the same. An option that was not given is
None, so that the settings know it from one that was given its default.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand
from typing_extensions import override

from ..output.lines import REFUSED

if TYPE_CHECKING:
    from ..configuration import Settings

_AN_ID = "The id of a conversation, or the beginning of it, as `turnwise list` shows it."

Id = Annotated[str, typer.Argument(metavar="ID", help=_AN_ID)]
MaybeId = Annotated[str | None, typer.Argument(metavar="ID", help=_AN_ID, show_default=False)]
Verdict = Annotated[
    str | None,
    typer.Argument(metavar="VERDICT", help="ran, did_not_run, or again.", show_default="list the calls in doubt"),
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A file that was exported, or - for stdin.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The database to copy, as for --db.")]
Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="The database to copy into; a file is made if it is missing.")
]


def _option(name: str, metavar: str, help: str, default: str | bool = False) -> Any:
    """An option with a value; `default` says in words what holds without it."""
    return typer.Option(name, metavar=metavar, help=help, show_default=default)


# what a command works with
_DATABASE = "The database: a path, or a URL: sqlite:///path, postgresql://user@host/name."
_A_MODEL = "As in openai/gpt-4.1-mini or ollama/…."
_TOOLS = "package.module:function, with commas between them."

Db = Annotated[str | None, _option("--db", "DB", _DATABASE, "turnwise.db")]
DemoDb = Annotated[str | None, _option("--db", "DB", "Keep the conversation here.", "a file that is removed")]
Model = Annotated[
    list[str] | None,
    _option("--model", "NAME", f"{_A_MODEL} Repeat it to name more models to choose from.", "rehearsal"),
]
DemoModel = Annotated[str | None, _option("--model", "NAME", _A_MODEL, "rehearsal")]
Tools = Annotated[list[str] | None, _option("--tools", "NAMES", f"Built-in tools, or {_TOOLS}", "ask_user_question")]
DemoTools = Annotated[
    list[str] | None, _option("--tools", "NAMES", f"More tools, beside its own: built-in ones, or {_TOOLS}")
]
Channels = Annotated[
    list[str] | None, _option("--channels", "NAMES", "Channels, as package.module:name, with commas between them.")
]
ExportTools = Annotated[
    list[str] | None, _option("--tools", "NAMES", f"Tools that --format openai describes, as {_TOOLS}")
]
Preset = Annotated[str | None, _option("--preset", "NAME", "A ready-made policy.", "assistant")]
Profile = Annotated[
    str | None, _option("--profile", "NAME", "A profile of turnwise.toml, for all turns.", "chosen each turn")
]
ChatOwner = Annotated[
    str | None,
    _option(
        "--owner",
        "NAME",
        "Whose conversation it is; older ones of this owner can be recalled.",
        "with recall, your login name",
    ),
]
System = Annotated[str | None, _option("--system", "TEXT", "System prompt.", default=True)]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the conversation that changed last.")]

# what is shown
Thoughts = Annotated[
    bool | None,
    typer.Option("--thoughts", "--verbose", help="Show what the model thinks, and what a turn goes on without."),
]
Speak = Annotated[bool | None, typer.Option("--speak", help="Also speak what is said to you.")]
Plain = Annotated[bool | None, typer.Option("--plain", help="Show answers as the model wrote them, without Markdown.")]
VoiceDebug = Annotated[
    bool | None, typer.Option("--voice-debug", help="Write the steps of each turn to stderr, with their labels.")
]
Debug = Annotated[bool | None, typer.Option("--debug", help="Write a log to stderr.")]
AsTree = Annotated[bool, typer.Option("--tree", help="Show agents below the conversations that they belong to.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Events = Annotated[bool, typer.Option("--events", help="Show its events instead, step by step.")]

# which of what is stored
Owner = Annotated[str | None, _option("--owner", "NAME", "Only the conversations of this owner.")]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many, the newest.", show_default="all")
]
ReplayAll = Annotated[bool, typer.Option("--all", help="Replay every conversation.")]
ExportAll = Annotated[bool, typer.Option("--all", help="Export every conversation.")]
Junit = Annotated[Path | None, _option("--junit", "FILE", "Also write a JUnit report, for CI.")]
Call = Annotated[str | None, _option("--call", "CALL", "The id of the call.", "the one in doubt for longest")]
At = Annotated[
    str | None, _option("--at", "SEQ", "The number of a step, as in `turnwise show --events`.", "the newest")
]
Format = Annotated[str, _option("--format", "FORMAT", "turnwise (the whole log) or openai (the messages).", True)]
Ahead = Annotated[
    bool, typer.Option("--ahead", help="Copy what rests, while a program still uses the source; the rest comes later.")
]
Fix = Annotated[bool, typer.Option("--fix", help="Repair what follows from the logs.")]

# where a server listens, and whom it serves
Host = Annotated[str | None, _option("--host", "HOST", "The address at which to listen.", "127.0.0.1")]
Port = Annotated[int | None, _option("--port", "PORT", "The port; 0 stands for a free one.", "8000")]
Token = Annotated[
    str | None,
    _option(
        "--token",
        "TOKEN",
        "What clients must present. Other users of this machine can see it here; TURNWISE_TOKEN hides it.",
        "none",
    ),
]
AllowHosts = Annotated[list[str] | None, _option("--allow-host", "NAME", "One more name of this server. Repeatable.")]
Origins = Annotated[
    list[str] | None,
    _option(
        "--origin",
        "ORIGIN",
        "Another site whose pages may call this server, as in https://example.org. Repeatable.",
    ),
]
Demo = Annotated[
    bool, typer.Option("--demo", help="Serve a few made-up conversations, in a database that is removed at the end.")
]
ServedOwner = Annotated[str | None, _option("--owner", "NAME", "Serve the conversations of this owner only.", "all")]

Worker = Annotated[
    bool | None,
    typer.Option(
        "--worker/--no-worker",
        help="Look after conversations, too, where processes share the database; --no-worker leaves that to others.",
        show_default="--worker",
    ),
]

# how a worker works
Slots = Annotated[int | None, _option("--slots", "N", "How many conversations it looks after at once.", "100")]
Lease = Annotated[
    float | None, _option("--lease", "SECONDS", "After so long without a sign of life others take over.", "15")
]
Drain = Annotated[
    float | None, _option("--drain", "SECONDS", "Told to stop, how long it lets conversations come to rest.", "20")
]
Health = Annotated[
    float | None, _option("--health", "SECONDS", "How often it says how it fares, if that changed; 0: never.", "60")
]
HealthAsJson = Annotated[bool, typer.Option("--json", help="Say it as JSON.")]

_HTTP_LIBRARIES = ("ag_ui", "fastapi", "markdown_it", "sse_starlette", "uvicorn")
"""What the extra `http` installs."""


class _ChatHelp(TyperCommand):
    """A command whose help ends with the presets and the built-in tools that its options may name.

    They are looked up only when the help is shown: importing them takes longer than the rest of the help.
    """

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        from ....effects.tools.catalogue import BUILT_IN
        from ..configuration import known_presets

        self.epilog = f"Presets: {', '.join(known_presets())}.\n\nBuilt-in tools: {', '.join(BUILT_IN)}."
        super().format_help(ctx, formatter)


app: Final = typer.Typer(
    help="Conversations as explicit state machines: hold one, look at stored ones, replay them.",
    epilog="Options may also be set as TURNWISE_… in the environment, or in turnwise.toml in the working directory.",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(given: bool) -> None:
    if given:
        from ....effects.version import __version__

        print(f"turnwise {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that belong to no command. Without a command the help is shown, and nothing was done."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(REFUSED)


@app.command(cls=_ChatHelp)
def chat(
    conversation_id: MaybeId = None,
    resume: Resume = False,
    db: Db = None,
    model: Model = None,
    tools: Tools = None,
    preset: Preset = None,
    profile: Profile = None,
    owner: ChatOwner = None,
    system: System = None,
    thoughts: Thoughts = None,
    speak: Speak = None,
    plain: Plain = None,
    voice_debug: VoiceDebug = None,
    debug: Debug = None,
) -> None:
    """Hold a conversation, or resume the one with this ID.

    Without a terminal on stdin each line is a message, or the answer to a question.
    """
    display = {"thoughts": thoughts, "speak": speak, "plain": plain, "voice_debug": voice_debug, "debug": debug}
    beginning = {"preset": preset, "owner": owner, "system": system}
    settings = _settings(db=db, **_models(model), tools=tools, profile=profile, **beginning, **display)
    if conversation_id is not None or resume:
        begins = any(value is not None for value in beginning.values())
        _refuse("--system, --preset and --owner are for a new conversation.", begins)
    from ..chat.chat import chat

    _run(chat(settings, conversation_id, resume, model_given=bool(model)))


@app.command()
def demo(
    db: DemoDb = None,
    model: DemoModel = None,
    tools: DemoTools = None,
    preset: Preset = None,
    profile: Profile = None,
    thoughts: Thoughts = None,
    speak: Speak = None,
    plain: Plain = None,
    voice_debug: VoiceDebug = None,
    debug: Debug = None,
) -> None:
    """Watch a short conversation with tools and a question.

    It needs no key and no network.
    """
    display = {"thoughts": thoughts, "speak": speak, "plain": plain, "voice_debug": voice_debug, "debug": debug}
    settings = _settings(db=db, model=model, tools=tools, preset=preset, profile=profile, **display)
    from ..demo import demo

    _run(demo(settings, keep=db is not None))


@app.command()
def serve(
    host: Host = None,
    port: Port = None,
    token: Token = None,
    allow_host: AllowHosts = None,
    origin: Origins = None,
    db: Db = None,
    model: Model = None,
    tools: Tools = None,
    channels: Channels = None,
    preset: Preset = None,
    owner: ServedOwner = None,
    worker: Worker = None,
    drain: Drain = None,
    demo: Demo = False,
    debug: Debug = None,
) -> None:
    """Serve the conversations over HTTP, with a page for browsers.

    Without a token only programs of this machine can use it. Ctrl-C stops it; turns under way go on at the next start.
    Over a database that processes share it lets them come to rest first, as `turnwise worker` does.
    """
    chosen = {"tools": tools, "channels": channels, "preset": preset, "owner": owner, "worker": worker}
    address = {"host": host, "port": port, "token": token, "allow_hosts": allow_host, "origins": origin}
    settings = _settings(db=db, **_models(model), **chosen, **address, drain=drain, debug=debug)
    own = any(value is not None for value in (db, *chosen.values()))
    _refuse(
        "The demo has a database, tools and rules of its own: give --demo without --db, --tools, --channels, --preset, "
        "--owner and --no-worker.",
        demo and own,
    )
    _refuse(
        'turnwise serve needs its extra `http`: pip install "turnwise[http]".',
        any(find_spec(name) is None for name in _HTTP_LIBRARIES),
    )
    from .serve import serve

    _run(serve(settings, demo=demo))


@app.command()
def worker(
    db: Db = None,
    slots: Slots = None,
    lease: Lease = None,
    drain: Drain = None,
    health: Health = None,
    as_json: HealthAsJson = False,
    model: Model = None,
    tools: Tools = None,
    channels: Channels = None,
    preset: Preset = None,
    profile: Profile = None,
    debug: Debug = None,
) -> None:
    """Look after conversations that other processes take requests for.

    It needs a database that processes share: --db postgresql://…. Start as many workers as you need, with the same
    models, tools and channels as `turnwise serve`. SIGTERM or Ctrl-C stops it: it lets the conversations at hand come
    to rest, and exits with 0; with 1 if some had not when the time was over, or at a second signal. Other workers go on
    with these. A third signal ends it at once.
    """
    chosen = {"tools": tools, "channels": channels, "preset": preset, "profile": profile}
    work = {"worker_slots": slots, "lease": lease, "drain": drain, "health": health}
    settings = _settings(db=db, **_models(model), **chosen, **work, debug=debug)
    from .worker import worker as work_for

    _run(work_for(settings, as_json=as_json))


@app.command()
def show(
    conversation_id: Id,
    events: Events = False,
    as_json: AsJson = False,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Show what was said in a conversation."""
    settings = _settings(db=db, debug=debug)
    from .database import show

    _run(show(settings, conversation_id, events, as_json))


@app.command("list")
def list_(
    owner: Owner = None,
    limit: Limit = None,
    as_tree: AsTree = False,
    as_json: AsJson = False,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """List the conversations, the one that changed last first."""
    settings = _settings(db=db, debug=debug)
    from .database import list_conversations

    _run(list_conversations(settings, owner, limit, as_json, as_tree))


@app.command()
def replay(
    conversation_id: MaybeId = None,
    everything: ReplayAll = False,
    junit: Junit = None,
    as_json: AsJson = False,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Replay the events of a conversation.

    Exit 1 if a step differs from what was stored.
    """
    settings = _settings(db=db, debug=debug)
    _check_one_or_all(conversation_id, everything)
    from .database import replay

    _run(replay(settings, conversation_id, junit, as_json))


@app.command()
def resolve(
    conversation_id: Id,
    verdict: Verdict = None,
    call: Call = None,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Say whether an interrupted tool ran.

    When a program ends while a tool runs that must not run twice, its call stays in doubt until it is resolved.
    Without a VERDICT the calls in doubt are listed.
    """
    settings = _settings(db=db, debug=debug)
    from .database import VERDICTS, list_doubts, settle

    if verdict is None:
        _run(list_doubts(settings, conversation_id))
    _refuse(f"The verdict is one of {', '.join(VERDICTS)}.", verdict not in VERDICTS)
    _run(settle(settings, conversation_id, call, verdict))


@app.command()
def fork(conversation_id: Id, at: At = None, db: Db = None, debug: Debug = None) -> None:
    """Copy a conversation, and print the id of the copy.

    The copy ends with the step, at a rest or at the end of a turn, and continues from there; within a turn it cannot
    end, and the nearest steps are named. Without a step it ends with the newest rest. The original does not change.
    """
    settings = _settings(db=db, debug=debug)
    from .transfer import fork

    _run(fork(settings, conversation_id, at))


@app.command()
def export(
    conversation_id: MaybeId = None,
    everything: ExportAll = False,
    format_: Format = "turnwise",
    tools: ExportTools = None,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Write a conversation to stdout as JSON lines.

    Exit 1 if a damaged one was left out. With --format openai its messages are written as other programs read them: a
    JSON list, and with --all a line {"messages": […], "tools": […]} for each conversation that has an answer, as for
    fine-tuning. A typed answer, and a call by which the model speaks, such as talk, are answers.
    """
    settings = _settings(db=db, tools=tools, debug=debug)
    _check_one_or_all(conversation_id, everything)
    _check_format(format_)
    from .transfer import export, export_messages

    _run((export_messages if format_ == "openai" else export)(settings, conversation_id))


@app.command("import")
def import_(
    file: File,
    format_: Format = "turnwise",
    preset: Preset = None,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Store the conversations of an export.

    They keep their ids; all of them are stored, or none. Nothing of them goes on by itself: what was under way is
    closed. With --format openai each list of messages, as other programs write them, becomes a new conversation, and
    what was repaired in it is printed.
    """
    settings = _settings(db=db, debug=debug, preset=preset)
    _check_format(format_)
    from ....effects.given_files import TakenFiles
    from ....persistence.maintenance.files import ImportedFiles
    from .transfer import import_, import_messages, read, read_messages

    if format_ == "openai":
        taken = TakenFiles()
        histories = read_messages(file, taken)
        _run(import_messages(settings, histories, taken.files))
    with ImportedFiles() as files:
        _run(import_(settings, read(file, files), files))


@app.command()
def copy(source: Source, target: Target, ahead: Ahead = False, debug: Debug = None) -> None:
    """Copy the conversations of a database into another one.

    From a file to a server, or back: to move. The copy goes on where the original stood, with its questions, timers and
    deliveries, so nobody may open the source afterwards. Each conversation is read back and compared. A copy that was
    interrupted goes on when the command is run again: what is there and equal is passed over, and what has gone on in
    the source since takes the place of its earlier copy. The source is only read. The index of what was said and the
    vectors of texts are not copied: they are made again where they are needed. Exit 1 if something was left out.
    """
    settings = _settings(debug=debug)
    from .copy import copy as copy_database

    _run(copy_database(settings, source, target, ahead=ahead))


@app.command()
def doctor(fix: Fix = False, db: Db = None, debug: Debug = None) -> None:
    """Examine a database; exit 1 if something is wrong.

    Checks every digest, every step, and the tables that are derived from them.
    """
    settings = _settings(db=db, debug=debug)
    from .database import doctor

    _run(doctor(settings, fix))


@app.command()
def diagram() -> None:
    """Print the state machine as a Mermaid diagram."""
    from ...diagrams.mermaid import mermaid

    print(mermaid(), end="")


def _models(given: Sequence[str] | None) -> dict[str, object]:
    """Return the settings that the names of models mean: the first is the model, the others can be chosen, too."""
    return {"model": given[0], "models": given[1:]} if given else {}


def _check_format(given: str) -> None:
    _refuse("The format is turnwise or openai.", given not in ("turnwise", "openai"))


def _check_one_or_all(conversation_id: str | None, everything: bool) -> None:
    _refuse("Give the ID of a conversation, or --all.", (conversation_id is None) != everything)


def _refuse(sentence: str, condition: bool) -> None:
    if condition:
        from ....states.errors import ConfigurationError

        raise ConfigurationError(sentence)


def _settings(**given: object) -> Settings:
    from ..configuration import read_settings
    from ..output.lines import configure_logging

    settings = read_settings(**given)
    configure_logging(settings.debug, settings.voice_debug)
    return settings


def _run(command: Coroutine[Any, Any, int]) -> NoReturn:
    import asyncio
    import gc

    if not gc.isenabled():  # this is a process of the command, which has imported what stays until its end
        gc.freeze()
        gc.enable()
    raise typer.Exit(asyncio.run(command))
