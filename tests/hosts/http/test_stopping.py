"""Over HTTP, too, a user who interrupts a voice tells what they have heard."""

from __future__ import annotations

from turnwise import Engine
from turnwise.testing import ScriptedLlm

from ...support.http.documented_client import serving_here
from .test_branches import said, texts_in


async def test_what_was_not_heard_is_cut() -> None:
    """By a cancel, and by a message that interrupts, which at rest begins a turn."""
    model = ScriptedLlm(["It is **sunny**. Tomorrow it rains.", "It rains. Take a coat."])
    async with serving_here(Engine.open("sqlite://", model=model)) as api:
        created = await api.result("createConversation", {})
        await said(api, created["id"], "Weather?")
        body = {"text": "Tomorrow?", "when_busy": "interrupt", "heard": "it is sunny"}
        await api.result("sendMessage", body, conversation_id=created["id"])
        await texts_in(api, created["id"])

        cancelled = await api.result("cancelTurn", {"heard": "It rains"}, conversation_id=created["id"])

        assert not cancelled["no_op"]
        assert await texts_in(api, created["id"]) == ["Weather?", "It is **sunny**.", "Tomorrow?", "It rains."]
