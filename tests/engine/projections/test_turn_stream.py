"""Which updates belong to a turn, and where it stops."""

from collections.abc import AsyncGenerator

from turnwise.engine.updates import MessageUpdate, StateChangeUpdate, StateView, Update
from turnwise.engine.watching import updates_of_turn
from turnwise.states import QuestionOption, UserQuestion

QUESTION = UserQuestion(
    question="When?",
    header="Time",
    options=(QuestionOption(label="6:30 PM", description="early"), QuestionOption(label="8:15 PM", description="late")),
)


async def test_it_stops_where_a_sub_agent_asks_although_it_no_longer_asks() -> None:
    """A reader that comes late sees what one sees that comes in time."""
    message = MessageUpdate(position=(1, 1), role="user", text="Go on.", turn=1, message_id="m")
    asking = StateView(type="awaiting_sub_agents", turn=1, questions=(QUESTION,), call_id="3.call_1")
    stored: list[Update] = [
        message,
        StateChangeUpdate(position=(2, 1), state=asking),
        StateChangeUpdate(position=(3, 1), state=StateView(type="awaiting_sub_agents", turn=1)),
        StateChangeUpdate(position=(4, 1), state=StateView(type="idle", turn=1)),
    ]

    async def updates() -> AsyncGenerator[Update, None]:
        for update in stored:
            yield update

    async def never() -> None:
        raise AssertionError("the turn stops before its updates end")

    shown = [update async for update in updates_of_turn(updates(), "m", never)]

    assert shown == stored[:2]
