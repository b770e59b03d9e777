"""The commands of `turnwise` and their options.

Each command imports its module when it runs, so that help is shown at once: the machine, the store and the libraries
for the terminal take tenths of a second to import, a model library takes seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..output.log_handlers import configure_logging

if TYPE_CHECKING:
    from ..configuration.settings import Settings

app = typer.Typer(
    help="Conversations as explicit state machines: hold one, look at stored ones, replay them.",
    epilog="Options may also be set as TURNWISE_… in the environment, or in turnwise.toml in the working directory.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Db = Annotated[
    str | None,
    typer.Option("--db", metavar="DB", help="The database: a path, or sqlite:///path.", show_default="turnwise.db"),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="As in openai/gpt-4.1-mini or ollama/…", show_default="rehearsal"),
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="NAMES",
        help="Built-in tools, or package.module:function, with commas between them.",
        show_default="ask_user_question",
    ),
]
Preset = Annotated[
    str | None, typer.Option("--preset", metavar="NAME", help="A ready-made policy.", show_default="assistant")
]
Thoughts = Annotated[bool | None, typer.Option("--thoughts", "--verbose", help="Show what the model thinks.")]
Speak = Annotated[bool | None, typer.Option("--speak", help="Also speak what is said to you.")]
Debug = Annotated[bool | None, typer.Option("--debug", help="Write a log to stderr.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a conversation, as `turnwise list` shows it.")]
MaybeId = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="The id of a conversation, as `turnwise list` shows it.", show_default=False),
]


@app.command()
def chat(
    conversation_id: MaybeId = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the conversation that changed last.")] = False,
    db: Db = None,
    model: Model = None,
    tools: Tools = None,
    preset: Preset = None,
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System prompt.")] = None,
    thoughts: Thoughts = None,
    speak: Speak = None,
    debug: Debug = None,
) -> None:
    """Hold a conversation, or resume the one with this ID.

    Without a terminal on stdin each line is a message, or the answer to a question.
    """
    if (conversation_id or resume) and (system is not None or preset is not None):
        raise typer.BadParameter("--system and --preset are for a new conversation.")
    display = {"thoughts": thoughts, "speak": speak, "debug": debug}
    settings = _settings(db=db, model=model, tools=tools, preset=preset, system=system, **display)
    from ..chat.chat import chat

    _run(chat(settings, conversation_id, resume))


@app.command()
def demo(
    db: Annotated[
        str | None,
        typer.Option("--db", metavar="DB", help="Keep the conversation here.", show_default="a file that is removed"),
    ] = None,
    model: Model = None,
    tools: Tools = None,
    preset: Preset = None,
    thoughts: Thoughts = None,
    speak: Speak = None,
    debug: Debug = None,
) -> None:
    """Watch a short conversation with tools and a question; needs no key and no network."""
    display = {"thoughts": thoughts, "speak": speak, "debug": debug}
    settings = _settings(db=db, model=model, tools=tools, preset=preset, **display)
    from .demo import demo

    _run(demo(settings, keep=db is not None))


@app.command()
def show(
    conversation_id: Id,
    events: Annotated[bool, typer.Option("--events", help="Show its events instead, step by step.")] = False,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Show what was said in a conversation."""
    settings = _settings(db=db, debug=debug)
    from .show import show

    _run(show(settings, conversation_id, events))


@app.command("list")
def list_(db: Db = None, debug: Debug = None) -> None:
    """List the conversations, the one that changed last first."""
    settings = _settings(db=db, debug=debug)
    from .conversation_list import list_conversations

    _run(list_conversations(settings))


@app.command()
def replay(
    conversation_id: MaybeId = None,
    everything: Annotated[bool, typer.Option("--all", help="Replay every conversation.")] = False,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", help="Also write a JUnit report, for CI.", show_default=False),
    ] = None,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Replay the events of a conversation; exit 1 if a step differs from what was stored."""
    _check_one_or_all(conversation_id, everything)
    settings = _settings(db=db, debug=debug)
    from .replay import replay

    _run(replay(settings, conversation_id, junit))


@app.command()
def resolve(
    conversation_id: Id,
    verdict: Annotated[
        str | None,
        typer.Argument(metavar="VERDICT", help="ran, did_not_run, or again.", show_default="list the calls in doubt"),
    ] = None,
    call: Annotated[
        str | None,
        typer.Option("--call", metavar="CALL", help="The id of the call.", show_default="the one in doubt for longest"),
    ] = None,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Say whether an interrupted tool ran.

    When a program ends while a tool runs that must not run twice, its call stays in doubt until it is resolved.
    Without a VERDICT the calls in doubt are listed.
    """
    settings = _settings(db=db, debug=debug)
    from .resolve import VERDICTS, list_doubts, settle

    if verdict not in (None, *VERDICTS):
        raise typer.BadParameter(f"The verdict is one of {', '.join(VERDICTS)}.")
    _run(
        list_doubts(settings, conversation_id) if verdict is None else settle(settings, conversation_id, call, verdict)
    )


@app.command()
def fork(
    conversation_id: Id,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="SEQ",
            help="The number of a step, as in `turnwise show --events`.",
            show_default="the newest",
        ),
    ] = None,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Copy a conversation, and print the id of the copy.

    The copy ends with the last resting state at or before the step, and continues from there. The original does not
    change.
    """
    settings = _settings(db=db, debug=debug)
    from .fork import fork

    _run(fork(settings, conversation_id, at))


@app.command()
def export(
    conversation_id: MaybeId = None,
    everything: Annotated[bool, typer.Option("--all", help="Export every conversation.")] = False,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Write a conversation to stdout as JSON lines; exit 1 if a damaged one was left out."""
    _check_one_or_all(conversation_id, everything)
    settings = _settings(db=db, debug=debug)
    from .export import export

    _run(export(settings, conversation_id))


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `turnwise export` wrote, or - for stdin.")],
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Store the conversations of an export under the ids that they had: all of them, or none."""
    settings = _settings(db=db, debug=debug)
    from .imports import import_, read

    _run(import_(settings, read(file)))


@app.command()
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Repair what follows from the logs.")] = False,
    db: Db = None,
    debug: Debug = None,
) -> None:
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


def _check_one_or_all(conversation_id: str | None, everything: bool) -> None:
    if (conversation_id is None) != everything:
        raise typer.BadParameter("Give the ID of a conversation, or --all.")


def _settings(**options: object) -> Settings:
    from ..configuration.settings import read_settings

    settings = read_settings(**options)
    configure_logging(settings.debug)
    return settings


def _run(command: Coroutine[Any, Any, int]) -> None:
    raise typer.Exit(asyncio.run(command))
