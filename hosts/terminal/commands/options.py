"""The options and arguments of the commands, each declared once.

An option that was not given is None, so that the settings know it from one that was given its default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AN_ID = "The id of a conversation, or the beginning of it, as `turnwise list` shows it."

Id = Annotated[str, typer.Argument(metavar="ID", help=AN_ID)]
MaybeId = Annotated[str | None, typer.Argument(metavar="ID", help=AN_ID, show_default=False)]

Db = Annotated[
    str | None,
    typer.Option("--db", metavar="DB", help="The database: a path, or sqlite:///path.", show_default="turnwise.db"),
]
DemoDb = Annotated[
    str | None,
    typer.Option("--db", metavar="DB", help="Keep the conversation here.", show_default="a file that is removed"),
]
Model = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="As in openai/gpt-4.1-mini or ollama/…. Repeat it to name more models to choose from.",
        show_default="rehearsal",
    ),
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
DemoModel = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="As in openai/gpt-4.1-mini or ollama/….", show_default="rehearsal"),
]
ExportTools = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="NAMES",
        help="Tools that --format openai describes, as package.module:function, with commas between them.",
        show_default=False,
    ),
]
DemoTools = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="NAMES",
        help="More tools, beside its own: built-in ones, or package.module:function, with commas between them.",
        show_default=False,
    ),
]
Preset = Annotated[
    str | None, typer.Option("--preset", metavar="NAME", help="A ready-made policy.", show_default="assistant")
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile", metavar="NAME", help="A profile of turnwise.toml, for all turns.", show_default="chosen each turn"
    ),
]
ChatOwner = Annotated[
    str | None,
    typer.Option(
        "--owner",
        metavar="NAME",
        help="Whose conversation it is; older ones of this owner can be recalled.",
        show_default="with recall, your login name",
    ),
]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System prompt.")]
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

Resume = Annotated[bool, typer.Option("--resume", help="Resume the conversation that changed last.")]
AsTree = Annotated[bool, typer.Option("--tree", help="Show agents below the conversations that they belong to.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Owner = Annotated[
    str | None,
    typer.Option("--owner", metavar="NAME", help="Only the conversations of this owner.", show_default=False),
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many, the newest.", show_default="all")
]
Events = Annotated[bool, typer.Option("--events", help="Show its events instead, step by step.")]
ReplayAll = Annotated[bool, typer.Option("--all", help="Replay every conversation.")]
Junit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Also write a JUnit report, for CI.", show_default=False)
]
Verdict = Annotated[
    str | None,
    typer.Argument(metavar="VERDICT", help="ran, did_not_run, or again.", show_default="list the calls in doubt"),
]
Call = Annotated[
    str | None,
    typer.Option("--call", metavar="CALL", help="The id of the call.", show_default="the one in doubt for longest"),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="SEQ", help="The number of a step, as in `turnwise show --events`.", show_default="the newest"
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", metavar="FORMAT", help="turnwise (the whole log) or openai (the messages)."),
]
ExportAll = Annotated[bool, typer.Option("--all", help="Export every conversation.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A file that was exported, or - for stdin.")]
Fix = Annotated[bool, typer.Option("--fix", help="Repair what follows from the logs.")]
Host = Annotated[
    str | None,
    typer.Option("--host", metavar="HOST", help="The address at which to listen.", show_default="127.0.0.1"),
]
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="PORT", help="The port; 0 stands for a free one.", show_default="8000"),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="What clients must present. Other users of this machine can see it here; TURNWISE_TOKEN hides it.",
        show_default="none",
    ),
]
AllowHosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="One more name of this server. Repeatable.", show_default=False),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        metavar="ORIGIN",
        help="Another site whose pages may call this server, as in https://example.org. Repeatable.",
        show_default=False,
    ),
]
Demo = Annotated[
    bool, typer.Option("--demo", help="Serve a few made-up conversations, in a database that is removed at the end.")
]
ServedOwner = Annotated[
    str | None,
    typer.Option("--owner", metavar="NAME", help="Serve the conversations of this owner only.", show_default="all"),
]
