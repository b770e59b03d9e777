"""The commands of `turnwise`.

Each command imports its module when it runs, so that help is shown at once: the machine, the store and the libraries
for the terminal take tenths of a second to import, a model library takes seconds. Help is plain text for the same
reason: rich takes as long to import as everything else that help needs.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ..output.error_messages import REFUSED
from . import options
from .chat_help import ChatHelp

if TYPE_CHECKING:
    from ..configuration.settings import Settings

app = typer.Typer(
    help="Conversations as explicit state machines: hold one, look at stored ones, replay them.",
    epilog="Options may also be set as TURNWISE_… in the environment, or in turnwise.toml in the working directory.",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(given: bool) -> None:
    if given:
        from ....effects.logs import __version__

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


@app.command(cls=ChatHelp)
def chat(
    conversation_id: options.MaybeId = None,
    resume: options.Resume = False,
    db: options.Db = None,
    model: options.Model = None,
    tools: options.Tools = None,
    preset: options.Preset = None,
    profile: options.Profile = None,
    owner: options.ChatOwner = None,
    system: options.System = None,
    thoughts: options.Thoughts = None,
    speak: options.Speak = None,
    plain: options.Plain = None,
    voice_debug: options.VoiceDebug = None,
    debug: options.Debug = None,
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
    db: options.DemoDb = None,
    model: options.DemoModel = None,
    tools: options.DemoTools = None,
    preset: options.Preset = None,
    profile: options.Profile = None,
    thoughts: options.Thoughts = None,
    speak: options.Speak = None,
    plain: options.Plain = None,
    voice_debug: options.VoiceDebug = None,
    debug: options.Debug = None,
) -> None:
    """Watch a short conversation with tools and a question.

    It needs no key and no network.
    """
    display = {"thoughts": thoughts, "speak": speak, "plain": plain, "voice_debug": voice_debug, "debug": debug}
    settings = _settings(db=db, model=model, tools=tools, preset=preset, profile=profile, **display)
    from .demo import demo

    _run(demo(settings, keep=db is not None))


@app.command()
def serve(
    host: options.Host = None,
    port: options.Port = None,
    token: options.Token = None,
    allow_host: options.AllowHosts = None,
    origin: options.Origins = None,
    db: options.Db = None,
    model: options.Model = None,
    tools: options.Tools = None,
    preset: options.Preset = None,
    owner: options.ServedOwner = None,
    demo: options.Demo = False,
    debug: options.Debug = None,
) -> None:
    """Serve the conversations over HTTP, with a page for browsers.

    Without a token only programs of this machine can use it. Ctrl-C stops it; turns under way go on at the next start.
    """
    chosen = {"tools": tools, "preset": preset, "owner": owner}
    address = {"host": host, "port": port, "token": token, "allow_hosts": allow_host, "origins": origin}
    settings = _settings(db=db, **_models(model), **chosen, **address, debug=debug)
    own = any(value is not None for value in (db, *chosen.values()))
    _refuse(
        "The demo has a database, tools and rules of its own: give --demo without --db, --tools, --preset and --owner.",
        demo and own,
    )
    from .http_extra import require_http

    require_http()
    from .serve import serve

    _run(serve(settings, demo=demo))


@app.command()
def show(
    conversation_id: options.Id,
    events: options.Events = False,
    as_json: options.AsJson = False,
    db: options.Db = None,
    debug: options.Debug = None,
) -> None:
    """Show what was said in a conversation."""
    settings = _settings(db=db, debug=debug)
    from .show import show

    _run(show(settings, conversation_id, events, as_json))


@app.command("list")
def list_(
    owner: options.Owner = None,
    limit: options.Limit = None,
    as_tree: options.AsTree = False,
    as_json: options.AsJson = False,
    db: options.Db = None,
    debug: options.Debug = None,
) -> None:
    """List the conversations, the one that changed last first."""
    settings = _settings(db=db, debug=debug)
    from .conversation_list import list_conversations

    _run(list_conversations(settings, owner, limit, as_json, as_tree))


@app.command()
def replay(
    conversation_id: options.MaybeId = None,
    everything: options.ReplayAll = False,
    junit: options.Junit = None,
    as_json: options.AsJson = False,
    db: options.Db = None,
    debug: options.Debug = None,
) -> None:
    """Replay the events of a conversation.

    Exit 1 if a step differs from what was stored.
    """
    settings = _settings(db=db, debug=debug)
    _check_one_or_all(conversation_id, everything)
    from .replay import replay

    _run(replay(settings, conversation_id, junit, as_json))


@app.command()
def resolve(
    conversation_id: options.Id,
    verdict: options.Verdict = None,
    call: options.Call = None,
    db: options.Db = None,
    debug: options.Debug = None,
) -> None:
    """Say whether an interrupted tool ran.

    When a program ends while a tool runs that must not run twice, its call stays in doubt until it is resolved.
    Without a VERDICT the calls in doubt are listed.
    """
    settings = _settings(db=db, debug=debug)
    from .resolve import VERDICTS, list_doubts, settle

    if verdict is None:
        _run(list_doubts(settings, conversation_id))
    _refuse(f"The verdict is one of {', '.join(VERDICTS)}.", verdict not in VERDICTS)
    _run(settle(settings, conversation_id, call, verdict))


@app.command()
def fork(
    conversation_id: options.Id, at: options.At = None, db: options.Db = None, debug: options.Debug = None
) -> None:
    """Copy a conversation, and print the id of the copy.

    The copy ends with the step, at a rest or at the end of a turn, and continues from there; within a turn it cannot
    end, and the nearest steps are named. Without a step it ends with the newest rest. The original does not change.
    """
    settings = _settings(db=db, debug=debug)
    from .fork import fork

    _run(fork(settings, conversation_id, at))


@app.command()
def export(
    conversation_id: options.MaybeId = None,
    everything: options.ExportAll = False,
    format_: options.Format = "turnwise",
    tools: options.ExportTools = None,
    db: options.Db = None,
    debug: options.Debug = None,
) -> None:
    """Write a conversation to stdout as JSON lines.

    Exit 1 if a damaged one was left out. With --format openai its messages are written as other programs read them: a
    JSON list, and with --all a line {"messages": […], "tools": […]} for each conversation that has an answer, as for
    fine-tuning.
    """
    settings = _settings(db=db, tools=tools, debug=debug)
    _check_one_or_all(conversation_id, everything)
    _check_format(format_)
    from .export import export, export_messages

    _run((export_messages if format_ == "openai" else export)(settings, conversation_id))


@app.command("import")
def import_(
    file: options.File,
    format_: options.Format = "turnwise",
    preset: options.Preset = None,
    db: options.Db = None,
    debug: options.Debug = None,
) -> None:
    """Store the conversations of an export.

    They keep their ids; all of them are stored, or none. Nothing of them goes on by itself: what was under way is
    closed. With --format openai each list of messages, as other programs
    write them, becomes a new conversation, and what was repaired in it is printed.
    """
    settings = _settings(db=db, debug=debug, preset=preset)
    _check_format(format_)
    from .imports import import_, import_messages, read, read_messages

    if format_ == "openai":
        _run(import_messages(settings, read_messages(file)))
    _run(import_(settings, read(file)))


@app.command()
def doctor(fix: options.Fix = False, db: options.Db = None, debug: options.Debug = None) -> None:
    """Examine a database; exit 1 if something is wrong.

    Checks every digest, every step, and the tables that are derived from them.
    """
    settings = _settings(db=db, debug=debug)
    from .doctor import doctor

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
    from ..configuration.settings import read_settings
    from ..output.log_handlers import configure_logging

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
