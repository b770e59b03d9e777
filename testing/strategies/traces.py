"""A strategy for traces: generated conversations from their first event on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...states.events import Opened, Request
from ...states.policy import Policy
from ..generation.events import event_in
from ..generation.extremes import EXTREME, ROLES
from ..generation.values import NOON, changed
from ..history import History, Observation
from .drawn import Drawn
from .policies import policies


@st.composite
def traces(
    draw: st.DrawFn, rules: SearchStrategy[Policy] | None = None, *, max_size: int = 30
) -> tuple[Observation, ...]:
    """Conversations from their first event on, under the policies given or under any, up to `max_size` events long."""
    chance, history, now = Drawn(draw), History(), NOON
    policy = draw(policies() if rules is None else rules)
    history.take(Opened(event_id="opened", at=now, role=chance.pick(ROLES), policy=policy))
    sizes = (*range(max_size), *[max_size - 1] * max_size)
    for number in range(chance.pick(sizes)):
        now += timedelta(seconds=chance.pick((1.0, 0.0, 30.0, -1.0)))
        event = event_in(chance, EXTREME, history.state)
        changes: dict[str, Any] = {"at": now}
        if isinstance(event, Request):
            changes["event_id"] = f"request-{number}"
        history.take(changed(event, **changes))
    return tuple(history.observations)
