"""What must hold of what is said to people."""

from __future__ import annotations

from collections.abc import Iterator

from ....states.effects import DeliverToUser
from .ending import Ending


def deliveries_arrive_in_order(ending: Ending) -> Iterator[str]:
    """Through each channel everything arrives in the end, the first time in the order in which it was said, and in that
    order again whenever a process delivers it. What has not arrived is still in the outbox."""
    said = [one.effect_id for row in ending.rows for one in row.effects if isinstance(one, DeliverToUser)]
    for channel in ending.channels:
        arrived = [delivered[2] for _, delivered in channel.arrived]
        left = [one[2] for one in ending.outbox if one[:2] == (ending.conversation_id, channel.name)]
        first = list(dict.fromkeys(arrived))
        if first != said[: len(first)]:
            yield f"{first} arrived through {channel.name}, and {said} was said"
        for process in dict.fromkeys(process for process, _ in channel.arrived):
            brought = [delivered[2] for by, delivered in channel.arrived if by == process]
            if brought != sorted(brought, key=said.index):
                yield f"{process} delivered {brought} through {channel.name}"
        if lost := [one for one in said if one not in first and one not in left]:
            yield f"{lost} never arrived through {channel.name}, and is no longer in the outbox"
        if left and not ending.is_cut_short:
            yield f"{left} is still to be delivered through {channel.name}"
