"""What the rules of a conversation count on and its program does not have is said, once, where the rules are chosen."""

from pathlib import Path

import pytest

from turnwise import Engine, Policy, Speech, presets, tool
from turnwise.testing import ScriptedLlm

SILENT = "Under this policy the user hears only what is said by a tool, and none of the tools speaks."
ENDLESS = "Under this policy a turn ends when a tool claims that the work is complete, and none of the tools does."
UNREDACTED = "The policy has secrets removed from messages, which is not supported yet."


@tool(acts=("speech",))
async def announce(text: str) -> Speech:
    """Say something, by a tool of the host's own."""
    return Speech(text=text, when="now")


@pytest.mark.parametrize(
    "policy, tools, said",
    [
        (presets.talk(), [], [SILENT]),
        (presets.talk(), ["mark_work_complete"], [SILENT]),
        (presets.talk(), ["talk"], []),
        (presets.talk(), [announce], []),
        (presets.explicit_response(), ["respond_to_user"], [ENDLESS]),
        (presets.explicit_response(), ["mark_work_complete"], []),
        (presets.assistant(), [], []),
        (Policy(redact=True), [], [UNREDACTED]),
    ],
)
async def test_it_is_said(
    policy: Policy, tools: list[object], said: list[str], database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B6, S10: else a model that was given no tool looks like one that has nothing to say, or never ends."""
    async with Engine.open(database, model=ScriptedLlm([]), tools=tools) as engine:
        await engine.create(policy=policy)
        created = [record.message for record in caplog.records]
        caplog.clear()
        conversation = await engine.create(policy=presets.assistant())
        assert caplog.records == []
        await conversation.set_policy(policy)

    assert created == said == [record.message for record in caplog.records]
