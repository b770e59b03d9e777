"""The commands of `turnwise`, and their options.

Each command imports what it works with when it is run, so that help and lists come at once: a model, a store and a
way to draw cost from a tenth of a second to seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..output.log_handlers import set_up

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
        help="Built-in ones, or package.module:function; commas between.",
        show_default="ask_user_question",
    ),
]
Preset = Annotated[
    str | None, typer.Option("--preset", metavar="NAME", help="A ready set of rules.", show_default="assistant")
]
Thoughts = Annotated[bool | None, typer.Option("--thoughts", "--verbose", help="Show what the model thinks.")]
Speak = Annotated[bool | None, typer.Option("--speak", help="Also speak what is said to you.")]
Debug = Annotated[bool | None, typer.Option("--debug", help="Write a log to stderr.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a conversation, as in the list.")]
MaybeId = Annotated[
    str | None, typer.Argument(metavar="ID", help="The id of a conversation, as in the list.", show_default=False)
]


@app.command()
def chat(
    conversation_id: MaybeId = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the conversation that moved last.")] = False,
    db: Db = None,
    model: Model = None,
    tools: Tools = None,
    preset: Preset = None,
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System prompt.")] = None,
    thoughts: Thoughts = None,
    speak: Speak = None,
    debug: Debug = None,
) -> None:
    """Hold a conversation, or go on with the one that has this ID.

    Without a terminal on stdin each line is a message, or the answer to a question.
    """
    if (conversation_id or resume) and (system is not None or preset is not None):
        raise typer.BadParameter("--system and --preset are for a new conversation.")
    shown = {"thoughts": thoughts, "speak": speak, "debug": debug}
    settings = _settings(db=db, model=model, tools=tools, preset=preset, system=system, **shown)
    from ..chat.chat import chat

    _run(chat(settings, conversation_id, resume))


@app.command()
def demo(
    db: Annotated[
        str | None, typer.Option("--db", metavar="DB", help="Keep it here.", show_default="a file that is removed")
    ] = None,
    model: Model = None,
    tools: Tools = None,
    preset: Preset = None,
    thoughts: Thoughts = None,
    speak: Speak = None,
    debug: Debug = None,
) -> None:
    """Watch a short conversation with tools and a question; needs no key and no network."""
    shown = {"thoughts": thoughts, "speak": speak, "debug": debug}
    settings = _settings(db=db, model=model, tools=tools, preset=preset, **shown)
    from .demo import demo

    _run(demo(settings, keep=db is not None))


@app.command()
def show(
    conversation_id: Id,
    events: Annotated[bool, typer.Option("--events", help="Show what happened, step by step.")] = False,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Show what was said in a conversation."""
    settings = _settings(db=db, debug=debug)
    from .show import show

    _run(show(settings, conversation_id, events))


@app.command("list")
def list_(db: Db = None, debug: Debug = None) -> None:
    """List the conversations, the one that moved last first."""
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
    """Take a conversation through its steps again; exit 1 if one does not come out as it was stored."""
    _check_one_or_all(conversation_id, everything)
    settings = _settings(db=db, debug=debug)
    from .replay import replay

    _run(replay(settings, conversation_id, junit))


@app.command()
def resolve(
    conversation_id: Id,
    verdict: Annotated[
        str | None,
        typer.Argument(metavar="VERDICT", help="ran, did_not_run, or again.", show_default="list them"),
    ] = None,
    call: Annotated[
        str | None,
        typer.Option("--call", metavar="CALL", help="Which call.", show_default="the one in doubt for longest"),
    ] = None,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Say what became of a tool that was running when its program died, and that must not run twice."""
    from .resolve import VERDICTS, list_doubts, settle

    if verdict not in (None, *VERDICTS):
        raise typer.BadParameter(f"The verdict is one of {', '.join(VERDICTS)}.")
    settings = _settings(db=db, debug=debug)
    _run(
        list_doubts(settings, conversation_id) if verdict is None else settle(settings, conversation_id, call, verdict)
    )


@app.command()
def fork(
    conversation_id: Id,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="SEQ", help="A step, as show --events counts them.", show_default="the newest"),
    ] = None,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Copy a conversation up to its last rest at or before a step, to go on from there in another way.

    Prints the id of the copy, and the step on which it landed. The original is not touched.
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
    """Write a conversation to stdout as JSON, a line for each step; exit 1 if one is damaged and was left out."""
    _check_one_or_all(conversation_id, everything)
    settings = _settings(db=db, debug=debug)
    from .export import export

    _run(export(settings, conversation_id))


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What export wrote; - is stdin.")],
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Take the conversations of an export in, under the ids that they had: all of them, or none."""
    settings = _settings(db=db, debug=debug)
    from .imports import import_, read

    _run(import_(settings, read(file)))


@app.command()
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended without guessing.")] = False,
    db: Db = None,
    debug: Debug = None,
) -> None:
    """Examine a database: every digest, every step, and all that must agree; exit 1 if something is wrong."""
    settings = _settings(db=db, debug=debug)
    from .doctor import doctor

    _run(doctor(settings, fix))


@app.command()
def diagram() -> None:
    """Draw the state machine in Mermaid's language."""
    from ...diagrams.mermaid import mermaid

    print(mermaid(), end="")


def _check_one_or_all(conversation_id: str | None, everything: bool) -> None:
    if (conversation_id is None) != everything:
        raise typer.BadParameter("Give the ID of a conversation, or --all.")


def _settings(**options: object) -> Settings:
    from ..configuration.settings import settings_of

    settings = settings_of(**options)
    set_up(settings.debug)
    return settings


def _run(command: Coroutine[Any, Any, int]) -> None:
    raise typer.Exit(asyncio.run(command))
