"""Files over a real socket, in each provider's own form: what the server receives is what was sent, byte for byte; and
what would not reach a model is refused before the step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwise import Engine, File, InvalidInput, ModelRequest, Retry, presets, tool
from turnwise.effects.model.litellm.file_parts import NEVER_TAKEN
from turnwise.states.values.files import FileKind

from ....support.pictures import MP4, PDF, PNG, WAV, base64, data_url
from ....support.servers.model_server import (
    ANTHROPIC,
    GEMINI,
    OLLAMA,
    OPENAI,
    PARTS,
    RESPONSES,
    Json,
    ModelServer,
    answers,
    call,
)

pytestmark = pytest.mark.slow

QUICK = presets.assistant().replace(retry=Retry(attempts=2, base=0.0))
REPORT, VOICE, CLIP, PHOTO = File(PDF, "report.pdf"), File(WAV), File(MP4, "clip.mp4"), File(PNG)
PDF_URL, MP4_URL = data_url("application/pdf", PDF), data_url("video/mp4", MP4)


def content_of(body: Json) -> list[Json]:
    """The parts of the last message of a request, in any of the protocols, without its text."""
    message = (body.get("messages") or body.get("input") or body.get("contents"))[-1]
    parts = message.get("content") or message["parts"]
    return [part for part in parts if part.get("type") not in ("text", "input_text") and "text" not in part]


SHAPES = [
    (OPENAI, None, REPORT, {"type": "file", "file": {"filename": "report.pdf", "file_data": PDF_URL}}),
    (OPENAI, None, VOICE, {"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}}),
    (RESPONSES, None, REPORT, {"type": "input_file", "filename": "report.pdf", "file_data": PDF_URL}),
    (
        ANTHROPIC,
        None,
        REPORT,
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": base64(PDF)}},
    ),
    (GEMINI, None, REPORT, {"inline_data": {"data": base64(PDF), "mime_type": "application/pdf"}}),
    (GEMINI, None, VOICE, {"inline_data": {"data": base64(WAV), "mime_type": "audio/wav"}}),
    (GEMINI, None, CLIP, {"inline_data": {"data": base64(MP4), "mime_type": "video/mp4"}}),
    (OPENAI, "hosted_vllm/qwen", CLIP, {"type": "video_url", "video_url": {"url": MP4_URL}}),
    (
        OPENAI,
        "hosted_vllm/qwen",
        VOICE,
        {"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}},
    ),
    (
        PARTS,
        "mistral/m",
        REPORT,
        {"type": "document_url", "document_url": PDF_URL, "document_name": "report.pdf"},
    ),
    (PARTS, "mistral/m", VOICE, {"type": "input_audio", "input_audio": base64(WAV)}),
    (
        OPENAI,
        "openrouter/x",
        REPORT,
        {"type": "file", "file": {"filename": "report.pdf", "file_data": PDF_URL}},
    ),
]
"""A protocol, a model, a file, and the part by which the provider has it."""


@pytest.mark.parametrize(
    ("dialect", "model", "file", "part"),
    SHAPES,
    ids=[f"{model or dialect.model}-{file.name or 'voice'}" for dialect, model, file, _ in SHAPES],
)
async def test_what_arrives_is_what_was_sent(dialect: Any, model: str | None, file: File, part: Json) -> None:
    """In the request of its turn, and in the one after that."""
    async with (
        ModelServer([answers("I see.")], dialect) as server,
        Engine.open("sqlite://", model=server.llm(model), policy=QUICK) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("What is this?", files=[file])
        await conversation.send("And now?", files=[file])

    assert turn.reply == "I see."
    first, second = server.bodies
    assert content_of(first) == content_of(second) == [part]
    assert json.dumps(second).count(base64(bytes(file.source))) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dialect", "model"), [(OPENAI, None), (GEMINI, None), (ANTHROPIC, None), (PARTS, "mistral/m")]
)
async def test_a_file_that_a_tool_returns_arrives(dialect: Any, model: str | None) -> None:
    """Behind its result."""

    @tool(crash="pure")
    async def read() -> object:
        """Read the report."""
        return ["Here it is.", REPORT]

    async with (
        ModelServer([answers(call("read")), answers("Read.")], dialect) as server,
        Engine.open("sqlite://", model=server.llm(model), tools=[read], policy=QUICK) as engine,
    ):
        turn = await (await engine.create()).send("Read it")

    assert turn.reply == "Read."
    assert base64(PDF) in json.dumps(server.bodies[1])
    assert "Here it is." in json.dumps(server.bodies[1])


@pytest.mark.parametrize(
    ("dialect", "model", "file", "noun"),
    [
        (ANTHROPIC, None, VOICE, "recordings"),
        (ANTHROPIC, None, CLIP, "videos (clip.mp4)"),
        (OLLAMA, None, REPORT, "documents (report.pdf)"),
        (OPENAI, "deepseek/deepseek-chat", PHOTO, "images"),
        (OPENAI, "deepseek/deepseek-chat", REPORT, "documents (report.pdf)"),
        (PARTS, "mistral/m", CLIP, "videos (clip.mp4)"),
        (RESPONSES, None, VOICE, "recordings"),
    ],
)
async def test_what_would_not_arrive_is_refused_before_the_step(
    dialect: Any, model: str | None, file: File, noun: str
) -> None:
    """In one sentence; nothing is stored, and the provider is not asked."""
    async with (
        ModelServer([answers("Hello.")], dialect) as server,
        Engine.open("sqlite://", model=server.llm(model), policy=QUICK) as engine,
    ):
        conversation = await engine.create()
        with pytest.raises(InvalidInput) as refused:
            await conversation.send("What is this?", files=[file])
        transcript = await conversation.transcript()

    assert refused.value.sentence == f"The model {model or dialect.model} takes no {noun}."
    assert (server.bodies, list(transcript)) == ([], [])


PARTS_OF: dict[FileKind, tuple[bytes, Json]] = {
    "image": (PNG, {"type": "image_url", "image_url": {"url": data_url("image/png", PNG)}}),
    "document": (PDF, {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}}),
    "audio": (WAV, {"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}}),
    "video": (MP4, {"type": "file", "file": {"filename": "a.mp4", "file_data": MP4_URL}}),
}
HAVE_NO_VIDEOS = ("anthropic", "mistral", "codestral")
"""These refuse a video themselves, as litellm sends it in a form that they do not have."""

LEFT_OUT = [
    (name, kind)
    for name, kinds in NEVER_TAKEN.items()
    for kind in sorted(kinds)
    if name != "ollama" and (kind != "video" or name not in HAVE_NO_VIDEOS)  # the server has no /api/generate
]


@pytest.mark.parametrize(("name", "kind"), LEFT_OUT)
async def test_what_counts_as_left_out_is_left_out(name: str, kind: FileKind) -> None:
    """By the version of litellm that is installed: one that sends it makes the entry wrong."""
    data, part = PARTS_OF[kind]
    dialect = {"anthropic": ANTHROPIC, "ollama": OLLAMA, "ollama_chat": OLLAMA}.get(name, OPENAI)
    request = ModelRequest("m", ({"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]},))

    async with ModelServer([answers("Nothing.")], dialect) as server:
        await server.llm(f"{name}/x", takes={kind: True}).complete(request, lambda token: None)

    assert base64(data) not in json.dumps(server.bodies[0])
