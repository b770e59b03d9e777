"""A round: the tool calls of one response, from the first start to the last result.

Calls start in the order in which the model asked for them, as many at once as the policy allows. An exclusive call
is a barrier: it starts alone, and nothing behind it starts before it ended. So is one that a person must allow.
"""

from __future__ import annotations

from .messages import ActKind, CrashContract, ToolCall
from .value import Value


class RoundCall(Value):
    """A call as the machine needs it: who it is and how it may run. Its arguments stay in the response at `seq`."""

    call_id: str
    name: str
    seq: int
    approval: bool = False
    exclusive: bool = False
    crash: CrashContract = "at_most_once"
    acts: tuple[ActKind, ...] = ()

    @property
    def runs_alone(self) -> bool:
        """Whether it is a barrier in its round."""
        return self.exclusive or self.approval

    @classmethod
    def of(cls, call: ToolCall, seq: int) -> RoundCall:
        """The call without the texts that the event at `seq` holds. `Pure.`"""
        return cls(
            call_id=call.call_id,
            name=call.name,
            seq=seq,
            approval=call.approval,
            exclusive=call.exclusive,
            crash=call.crash,
            acts=call.acts,
        )


class Running(Value):
    """A call that was started, and the effect that runs it."""

    effect_id: int
    call_id: str


class Round(Value):
    """The calls of a response. `allowed` are those that a person approved. `settled` are those that the round is done
    with: they have their result, or, for a question, it is now the answer's to give.
    """

    calls: tuple[RoundCall, ...]
    running: tuple[Running, ...] = ()
    settled: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()

    def call(self, effect_id: int) -> RoundCall:
        """The call that this effect runs. Raises KeyError if it runs none. `Pure.`"""
        for running in self.running:
            if running.effect_id == effect_id:
                return next(call for call in self.calls if call.call_id == running.call_id)
        raise KeyError(effect_id)

    @property
    def queued(self) -> tuple[RoundCall, ...]:
        """Calls that neither run nor have a result, in order."""
        begun = {running.call_id for running in self.running}.union(self.settled)
        return tuple(call for call in self.calls if call.call_id not in begun)

    def next_to_start(self, parallel: int) -> RoundCall | None:
        """The call that may start now, or None. `Pure.`"""
        waiting = self.queued
        if not waiting or len(self.running) >= parallel or self._needs_approval(waiting[0]):
            return None
        if self.running and (waiting[0].runs_alone or self._runs_exclusively):
            return None
        return waiting[0]

    @property
    def next_to_approve(self) -> RoundCall | None:
        """The call that a person must allow before anything goes on, or None."""
        waiting = self.queued
        return waiting[0] if waiting and not self.running and self._needs_approval(waiting[0]) else None

    def allow(self, call: RoundCall) -> Round:
        """This round with the call approved. `Pure.`"""
        return self.model_copy(update={"allowed": (*self.allowed, call.call_id)})

    def _needs_approval(self, call: RoundCall) -> bool:
        return call.approval and call.call_id not in self.allowed

    @property
    def _runs_exclusively(self) -> bool:
        return any(self.call(running.effect_id).runs_alone for running in self.running)

    def start(self, call: RoundCall, effect_id: int) -> Round:
        """This round with the call running. `Pure.`"""
        return self._with(running=(*self.running, Running(effect_id=effect_id, call_id=call.call_id)))

    def settle(self, *call_ids: str) -> Round:
        """This round, done with these calls. `Pure.`"""
        return self._with(
            running=tuple(running for running in self.running if running.call_id not in call_ids),
            settled=(*self.settled, *(call_id for call_id in call_ids if call_id not in self.settled)),
        )

    def _with(self, *, running: tuple[Running, ...], settled: tuple[str, ...] | None = None) -> Round:
        settled = self.settled if settled is None else settled
        return Round(calls=self.calls, running=running, settled=settled, allowed=self.allowed)
