"""Thinking between tags in the text of an answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import Engine, Token, presets, tool
from turnwise.effects.model.openai.stream_assembler import StreamAssembler

from ....support.servers.model_server import OPENAI, ModelServer, answers, call, thinks


def read(*pieces: str) -> tuple[StreamAssembler, list[Token]]:
    """Return what is assembled from these pieces of text, and what is shown."""
    shown: list[Token] = []
    assembler = StreamAssembler(shown.append)
    for piece in pieces:
        assembler.add({"choices": [{"delta": {"content": piece}}]})
    assembler.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    assembler.close()
    return assembler, shown


def parts(*pieces: str) -> tuple[str, str]:
    """Return the thinking and the text of these pieces."""
    assembler, _ = read(*pieces)
    return assembler.thinking, assembler.text


ANSWERS = {
    "<think>Hm.</think>Hello": ("Hm.", "Hello"),
    "<think>\nHm.\n</think>\n\nHello": ("\nHm.\n", "Hello"),
    "\n<think>Hm.</think> Hello": ("Hm.", "\nHello"),
    "<think>A.</think><think>B.</think>Hello": ("A.B.", "Hello"),
    "Hello <think>hm</think> world": ("hm", "Hello world"),
    "Hm.\n</think>\n\nHello": ("Hm.\n", "Hello"),
    "<think>Cut o": ("Cut o", ""),
    "<think></think>Hello": ("", "Hello"),
    "<think>1 < 2 </thin </think>Yes": ("1 < 2 </thin ", "Yes"),
    "Hello <think> is never closed": ("", "Hello <think> is never closed"),
    "Write `<think>` before, `</think>` behind": ("", "Write `<think>` before, `</think>` behind"),
    'Say "<think>" here': ("", 'Say "<think>" here'),
    "a </think> b": ("", "a </think> b"),
    "1 < 2 <thin": ("", "1 < 2 <thin"),
    "  Hello": ("", "  Hello"),
    "<": ("", "<"),
}


@pytest.mark.parametrize("written", ANSWERS)
def test_what_stands_between_the_tags_is_thinking(written: str) -> None:
    """Everything else is text, as it was written."""
    assert parts(written) == ANSWERS[written]


@given(st.sampled_from(sorted(ANSWERS)), st.data())
def test_tags_may_come_in_pieces(written: str, data: st.DataObject) -> None:
    """Wherever the stream is cut, the answer is the same, and what is shown of it adds up to it."""
    places = sorted(data.draw(st.sets(st.integers(0, len(written)))))
    pieces = [written[begin:end] for begin, end in zip([0, *places], [*places, len(written)], strict=True)]

    assembler, shown = read(*pieces)

    assert (assembler.thinking, assembler.text) == ANSWERS[written]
    by_kind = {kind: "".join(token.text for token in shown if token.kind == kind) for kind in ("thinking", "text")}
    is_known_late = "</think>" in written and "<think>" not in written.replace("`", "")
    if not is_known_late and "never closed" not in written:
        assert (by_kind["thinking"], by_kind["text"]) == ANSWERS[written]


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "think>", "a", "\n", " ", "`", "</"]), max_size=12))
def test_nothing_is_lost(pieces: list[str]) -> None:
    """Every letter stands in the text or in the thinking, once, whatever was written."""
    thinking, text = parts(*pieces)

    assert "".join(pieces).count("a") == (thinking + text).count("a")


@tool(crash="pure")
def weather(city: str) -> str:
    """Tell the weather."""
    return "Rain."


async def asked(first: Any, policy: Any = None) -> tuple[Any, Any, list[Any]]:
    """Return the first and the last turn of a conversation that is answered so, and the bodies of the requests."""
    async with (
        ModelServer([first, answers("It rains."), answers("Bye.")], OPENAI) as server,
        Engine.open(
            "sqlite://", model=server.llm("openai/minimax-m2"), tools=[weather], policy=policy or presets.assistant()
        ) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("The weather?")
        await conversation.send("Thanks.")
        return turn, await conversation.transcript(), server.bodies


@pytest.mark.usefixtures("each_client")
async def test_it_goes_back_as_it_was_written() -> None:
    """Within the turn of a call, to the byte; some models refuse their own answer without its thinking."""
    written = "<think>\nI should look.\n</think>\n\nOne moment."
    turn, transcript, bodies = await asked(answers(written, call("weather", city="Oslo")))

    assert turn.reply == "It rains."
    assert (transcript[1].thinking, transcript[1].text) == ("\nI should look.\n", "One moment.")
    assert bodies[1]["messages"][1]["content"] == written


@pytest.mark.usefixtures("each_client")
async def test_it_is_not_said_again_in_the_next_turn() -> None:
    """The answer of a turn goes back without the thinking that led to it."""
    turn, _, bodies = await asked(answers("<think>Hm.</think>It rains."))

    assert turn.reply == "It rains."
    assert bodies[1]["messages"][1]["content"] == "It rains."


@pytest.mark.usefixtures("each_client")
async def test_thinking_of_its_own_field_stands_beside_it() -> None:
    """A server may know the one and not the other."""
    _, transcript, _ = await asked(answers(thinks("First. "), "<think>Then.</think>It rains."))

    assert (transcript[1].thinking, transcript[1].text) == ("First. Then.", "It rains.")
