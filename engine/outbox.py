"""The outbox of a conversation: what goes into it with a step, and what an earlier process left in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..effects.dispatcher import Performer, Sender
from ..persistence.records.outbox import Outgoing
from ..states.effects import OUTGOING, Effect, OutgoingEffect


class OutboxTargets:
    """Knows whom each outgoing effect must reach: the targets of its performer, if that is a `Sender`."""

    def __init__(self, performers: Mapping[type[Effect], Performer]) -> None:
        outgoing = ((kind, performers.get(kind)) for kind in OUTGOING)
        self._senders: dict[type[Effect], Sender] = {kind: one for kind, one in outgoing if isinstance(one, Sender)}

    def of(self, effects: Iterable[Effect]) -> tuple[Outgoing, ...]:
        """Return what is stored in the outbox with a step that has these effects."""
        return tuple(self._of(effects))

    def _of(self, effects: Iterable[Effect]) -> Iterator[Outgoing]:
        for effect in effects:
            sender = self._senders.get(type(effect))
            if sender is not None and isinstance(effect, OutgoingEffect):
                yield from (Outgoing(effect.effect_id, target) for target in sender.targets)
