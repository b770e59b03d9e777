"""An answer that nobody sees anything of is an empty one, so no turn ends with a reply that looks empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise import Engine
from turnwise.effects.printable import is_blank
from turnwise.states import Texts
from turnwise.testing import FunctionLlm, ScriptedLlm, call, reply

UNSEEN = ["\u200b", "\u2060\ufeff", "\u00ad \n", "\u3164", "\u034f\u2800", "\U000e0041", "\u200d\ufe0f"]


@pytest.mark.parametrize("text", UNSEEN)
async def test_a_reply_that_nobody_sees_is_no_reply(tmp_path: Path, text: str) -> None:
    """The user gets the sentence of the policy."""
    model = FunctionLlm(lambda request: text)
    async with Engine.open(tmp_path / "blank.db", model=model) as engine:
        turn = await (await engine.create()).send("Hello")

    assert turn.reply == Texts().ending


@pytest.mark.parametrize("text", UNSEEN)
async def test_a_speech_that_nobody_sees_is_refused(tmp_path: Path, text: str) -> None:
    """The model is told so, and may speak again."""
    model = ScriptedLlm([call("respond_to_user", text=text), call("respond_to_user", text="Here."), reply("")])
    async with Engine.open(tmp_path / "blank.db", model=model, tools=["respond_to_user"]) as engine:
        turn = await (await engine.create()).send("Hello")

    assert turn.deliveries == ("Here.",)


@pytest.mark.parametrize("text", ["\U0001fae8", "\u2764\ufe0f", "\u0928\u200d", ".", "\u3042", "\u0301a"])
def test_whatever_shows_something_is_not_blank(text: str) -> None:
    """Also a character that Python does not know yet."""
    assert not is_blank(text)
    assert not is_blank(f"\u200b{text}\u2060")
