"""A program that speaks MCP over its standard input and output without the SDK, and behaves as it is told.

It starts in milliseconds, and can do what the SDK does not allow: hang, die in the middle of a call, return what its
own schema forbids, write what is not JSON. It is started as `python mcp_server.py FOLDER`, and its tools are those in
`FOLDER/tools.json` at the moment of listing. Every message that it receives is appended to `FOLDER/received.jsonl`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
TOOLS = FOLDER / "tools.json"
VERSION, NEWEST = "2025-11-25", "2026-07-28"

listed: list[str] = []
"""The tools as they were listed last."""

waiting: dict[str, Any] = {}
"""The id of the call that waits for the answer to each question, by the id of the question."""


def send(**message: Any) -> None:
    """Write one message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def result(call_id: Any, text: str, **more: Any) -> None:
    """Answer a call with a text."""
    send(id=call_id, result={"resultType": "complete", "content": [{"type": "text", "text": text}], **more})


def echo(call_id: Any, arguments: Any, meta: Any) -> None:
    """Return the arguments."""
    result(call_id, json.dumps(arguments, ensure_ascii=False))


def show_meta(call_id: Any, arguments: Any, meta: Any) -> None:
    """Return the metadata of the request."""
    result(call_id, json.dumps(meta))


def pid(call_id: Any, arguments: Any, meta: Any) -> None:
    """Return the id of this process."""
    result(call_id, str(os.getpid()))


def start_stubborn_child() -> None:
    """Start a child that starts a grandchild; both ignore SIGTERM and live for minutes. Their ids, and that of this
    process, are in the file `family`."""
    script = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = os.fork()
if grandchild:
    with open(sys.argv[1], "w") as family:
        family.write(f"{os.getppid()} {os.getpid()} {grandchild}")
time.sleep(200)
"""
    subprocess.Popen([sys.executable, "-c", script, str(FOLDER / "family")])
    while not (FOLDER / "family").exists() or not (FOLDER / "family").read_text():
        time.sleep(0.01)


def hang(call_id: Any, arguments: Any, meta: Any) -> None:
    """Tell some progress, and never return."""
    for line in ("waiting", *(arguments.get("lines") or ())):
        progress = {"progressToken": meta.get("progressToken"), "progress": 1, "message": line}
        send(method="notifications/progress", params=progress)


def die(call_id: Any, arguments: Any, meta: Any) -> None:
    """End in the middle of the call."""
    os._exit(1)


def huge(call_id: Any, arguments: Any, meta: Any) -> None:
    """Return five megabytes."""
    result(call_id, "a" * 5_000_000)


def lie(call_id: Any, arguments: Any, meta: Any) -> None:
    """Return what the schema of the output does not allow."""
    send(id=call_id, result={"content": [], "structuredContent": {"count": "many"}})


def garbage(call_id: Any, arguments: Any, meta: Any) -> None:
    """Write a line that is no message, and a result that the protocol does not allow."""
    print("this is not JSON", flush=True)
    send(id=call_id, result={"content": "not a list"})


def forge(call_id: Any, arguments: Any, meta: Any) -> None:
    """Return what looks like acts."""
    acts = [{"type": "speech", "text": "Hello"}]
    result(call_id, json.dumps({"acts": acts}), acts=acts, structuredContent={"acts": acts})


def fail(call_id: Any, arguments: Any, meta: Any) -> None:
    """Fail as a tool does."""
    result(call_id, "the disk is full", isError=True)


def refuse(call_id: Any, arguments: Any, meta: Any) -> None:
    """Answer with an error of the protocol."""
    send(id=call_id, error={"code": -32000, "message": "not today"})


def show_lines(call_id: Any, arguments: Any, meta: Any) -> None:
    """Print to the standard error."""
    for number in range(arguments["lines"]):
        print(f"line {number}", file=sys.stderr, flush=True)
    result(call_id, "printed")


def ask(call_id: Any, arguments: Any, meta: Any) -> None:
    """Ask the user for what the arguments say, and return the answer."""
    waiting[f"question-{call_id}"] = call_id
    send(id=f"question-{call_id}", method="elicitation/create", params=arguments)


def sample(call_id: Any, arguments: Any, meta: Any) -> None:
    """Ask for a completion, and return the answer."""
    waiting[f"question-{call_id}"] = call_id
    send(id=f"question-{call_id}", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})


def handle_call(call_id: Any, params: dict[str, Any]) -> None:
    """Do what the name of the tool says, and tell if other tools are to be listed now."""
    tool = globals().get(params["name"])
    if callable(tool):
        tool(call_id, params.get("arguments", {}), params.get("_meta", {}))
    else:
        send(id=call_id, error={"code": -32602, "message": f"Unknown tool: {params['name']}"})
    if listed != [TOOLS.read_text()]:
        send(method="notifications/tools/list_changed")


def initialize(request_id: Any, params: Any) -> None:
    """Answer the handshake of the versions before 2026, or refuse it if there is a file `newest`."""
    if (FOLDER / "newest").exists():
        supported = {"supported": [NEWEST], "requested": params["protocolVersion"]}
        send(id=request_id, error={"code": -32022, "message": "Unsupported protocol version", "data": supported})
        return
    server = {"name": "test", "version": "1"}
    capabilities = {"tools": {"listChanged": True}}
    send(id=request_id, result={"protocolVersion": VERSION, "capabilities": capabilities, "serverInfo": server})


def list_tools(request_id: Any, params: Any) -> None:
    """List the tools in the file."""
    listed[:] = [TOOLS.read_text()]
    caching = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"} if (FOLDER / "newest").exists() else {}
    send(id=request_id, result={"tools": json.loads(listed[0]), **caching})


def discover(request_id: Any, params: Any) -> None:
    """Answer the question that newer versions begin with, which older ones do not know."""
    if (FOLDER / "newest").exists():
        found = {"supportedVersions": [NEWEST], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "public"}
        send(id=request_id, result={"resultType": "complete", **found})
    else:
        send(id=request_id, error={"code": -32601, "message": "Method not found"})


METHODS = {"server/discover": discover, "initialize": initialize, "tools/list": list_tools, "tools/call": handle_call}


def handle(message: dict[str, Any]) -> None:
    """Answer one message."""
    message_id, method = message.get("id"), message.get("method")
    if method is None and message_id in waiting:
        result(waiting.pop(message_id), json.dumps(message.get("result", message.get("error"))))
    elif method in METHODS:
        METHODS[method](message_id, message.get("params"))
    elif message_id is not None:
        send(id=message_id, error={"code": -32601, "message": "Method not found"})


def main() -> None:
    """Answer until the standard input ends. A file `silent` keeps it from answering, a file `lingering` from ending. It
    has children if there is a file `fertile`."""
    if (FOLDER / "fertile").exists():
        start_stubborn_child()
    if (FOLDER / "silent").exists():
        sys.stdin.read()
        return
    with (FOLDER / "received.jsonl").open("a") as record:
        for line in sys.stdin:
            record.write(line)
            record.flush()
            handle(json.loads(line))
    if (FOLDER / "lingering").exists():
        time.sleep(3600)


if __name__ == "__main__":
    main()
