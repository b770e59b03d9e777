"""How a simulation has ended: what is stored, and what everybody saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ....states.states import State
from ....states.transcript import Transcript
from ..storage.disk import LogKey, Row
from ..storage.storage import Delivered, Process
from ..users.call_recorder import CallRecorder
from ..users.watch_record import WatchRecord
from ..world.channels import SimulatedChannel
from ..world.performed_effects import PerformedEffects


@dataclass(frozen=True)
class Ending:
    """How a simulation has ended.

    `last` are the newest processes of each host; `is_cut_short` says that they were closed before the conversation came
    to rest. `outbox` is what was still to be delivered then, through one of the `channels`.
    """

    key: LogKey
    rows: Sequence[Row]
    recorder: CallRecorder
    performed: PerformedEffects
    watches: Sequence[WatchRecord]
    last: Sequence[Process]
    is_cut_short: bool
    channels: Sequence[SimulatedChannel]
    outbox: Sequence[Delivered]

    @property
    def conversation_id(self) -> str:
        """The id of the conversation."""
        return self.key[0]

    @property
    def state(self) -> State:
        """The state that the conversation rests in, as stored."""
        return self.rows[-1].state

    def transcript(self, seq: int | None = None) -> Transcript:
        """What was said up to the step `seq`, or to the end, as stored."""
        transcript = Transcript()
        for row in self.rows[:seq]:
            transcript.add(row.entry)
        return transcript


Check: TypeAlias = Callable[[Ending], Iterator[str]]
"""Yields a sentence for each place where an invariant does not hold."""
