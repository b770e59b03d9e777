"""An MCP server that keeps to the protocol only roughly, as servers in the field do: each of its tools misbehaves in a
way of its own. It speaks on standard input and output, or over HTTP (`answer` says what it sends)."""

from __future__ import annotations

import json
import sys
from typing import Any

OK = {"type": "text", "text": "ok"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

RESULTS: dict[str, Any] = {
    "hologram": {"content": [{"type": "hologram", "data": 1}, OK]},
    "untyped": {"content": [{"text": "ok"}]},
    "bare_text": {"content": ["ok"]},
    "number": {"content": [7, OK]},
    "null_part": {"content": [None, OK]},
    "text_without_text": {"content": [{"type": "text"}, OK]},
    "text_is_a_number": {"content": [{"type": "text", "text": 7}, OK]},
    "bad_annotations": {"content": [{**OK, "annotations": {"priority": 7}}]},
    "image_without_data": {"content": [{"type": "image", "mimeType": "image/png"}, OK]},
    "image": {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}, OK]},
    "audio": {"content": [{"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"}, OK]},
    "link": {"content": [{"type": "resource_link", "uri": "file:///x", "name": "x"}, OK]},
    "link_without_name": {"content": [{"type": "resource_link", "uri": "file:///x"}, OK]},
    "blob": {"content": [{"type": "resource", "resource": {"uri": "file:///y", "blob": "aGVsbG8="}}, OK]},
    "resource": {"content": [{"type": "resource", "resource": {"uri": "file:///y", "text": "inside"}}, OK]},
    "empty_resource": {"content": [{"type": "resource", "resource": {}}, OK]},
    "nothing": {},
    "null_content": {"content": None},
    "empty": {"content": []},
    "no_words": {"content": [], "isError": True},
    "error_without_content": {"isError": True},
    "error_as_number": {"content": [OK], "isError": 1},
    "error_is_null": {"content": [OK], "isError": None},
    "structured": {"structuredContent": {"a": 9007199254740993}},
    "structured_list": {"content": [], "structuredContent": [1, 2]},
    "structured_null": {"content": [OK], "structuredContent": None},
    "meta_is_a_text": {"content": [OK], "_meta": "x"},
    "extra": {"content": [OK], "isError": False, "debug": {"a": [1]}},
    "content_is_an_object": {"content": {"a": 1}},
    "content_is_a_number": {"content": 7},
    "result_is_null": None,
    "result_is_a_text": "ok",
    "result_is_a_list": [OK],
}
"""What each of these tools returns as its result."""

LINES = {
    "surrogate": b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"a\\ud83d b"}]}}',
    "surrogate_in_a_name": b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}],"\\udead":1}}',
    "pair": b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"\\ud83d\\ude00"}]}}',
    "broken_bytes": b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"a\xff\xfeb"}]}}',
    "byte_order_mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}',
    "no_version": b'{"id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}',
    "null_error": b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]},"error":null}',
    "error_is_a_text": b'{"jsonrpc":"2.0","id":%s,"error":"not today"}',
    "error_without_code": b'{"jsonrpc":"2.0","id":%s,"error":{"message":"not today"}}',
    "id_as_text": b'{"jsonrpc":"2.0","id":"%s","result":{"content":[{"type":"text","text":"ok"}]}}',
    "batch": b'[{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}]',
    "not_a_number": b'{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"a":NaN}}}',
    "pinged": b'{"jsonrpc":"2.0","id":"p","method":"ping"}\n'
    b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}',
    "asked": b'{"jsonrpc":"2.0","id":"r","method":"roots/list"}\n{"jsonrpc":"2.0","id":"q","method":"who/knows"}\n'
    b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}',
    "noisy": b'Working\xe2\x80\xa6\n\n{not json\n[]\n42\nnull\n"text"\n{}\n{"id":1}\n\xff\n'
    b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}',
    "storm": b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n' * 200
    + b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}',
    "unheard_of": b'{"jsonrpc":"2.0","method":"notifications/unheard_of","params":{"a":[1]}}\n'
    b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}',
    "other_ids": b'{"jsonrpc":"2.0","id":987654,"result":{}}\n'
    b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}\n'
    b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}',
    "carriage_return": b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}\r',
}
"""The bytes that each of these tools answers, with a place for the id of the call."""

TOOLS = [*({"name": name, "inputSchema": {"type": "object"}} for name in (*RESULTS, *LINES))]
UNFIT: list[Any] = [
    {"name": "no_schema"},
    {"name": "schema_is_a_text", "inputSchema": "object"},
    {"name": "schema_is_null", "inputSchema": None},
    {"name": "schema_of_an_array", "inputSchema": {"type": "array"}},
    {"name": 7, "inputSchema": {"type": "object"}},
    {"inputSchema": {"type": "object"}},
    "tool",
    None,
    {"name": "hologram", "description": "The other one.", "inputSchema": {"type": "object"}},
]
"""What it lists besides."""


def answer(message: dict[str, Any]) -> bytes:
    """The lines with which a request is answered; none for what is no request."""
    if "id" not in message or "method" not in message:
        return b""
    result: Any
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            capabilities = {"tools": {"listChanged": True}}
            result = {
                "protocolVersion": version,
                "capabilities": capabilities,
                "serverInfo": {"name": "s", "version": ""},
            }
        case "tools/list":  # in circles, with a cursor that is repeated
            result = {"tools": [*TOOLS, *UNFIT], "nextCursor": "again"}
        case "tools/call":
            name = message["params"]["name"]
            if name in LINES:
                return LINES[name].replace(b"%s", json.dumps(message["id"]).encode()) + b"\n"
            result = RESULTS[name]
        case _:
            return _line(message, error={"code": -32601, "message": "no"})
    return _line(message, result=result)


def _line(message: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **more}).encode() + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(b'Ready\xe2\x80\xa6\n{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n')
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.buffer.write(answer(json.loads(line)))
        sys.stdout.flush()
