"""A round: the tool calls of one response, from the first start to the last result.

Calls start in the order in which the model made them, as many at once as the policy allows. An exclusive call is a
barrier: it starts alone, and nothing behind it starts before it ended. The same holds for a call that a person must
allow.

A call may start sub-agents, each by an effect of its own. After a crash the same effect is asked for again, so a state
keeps everything that the effect says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from .acts import ActKind
from .messages import CONTRACTS, Approver, CrashContract, Heard, Made, ToolCall
from .questions import QuestionSet
from .value import Instant, Record, sooner


@dataclass(frozen=True, kw_only=True)
class Share(Record):
    """What a sub-agent may use up: its share of what its parent had left. None means no limit."""

    requests: int
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Child(Record):
    """A sub-agent that the call `call_id` started, with its status and outcome once it has ended.

    `profile`, `tools`, `share`, `due` and `seconds` say how it works: see `SpawnSubAgent`.
    """

    effect_id: int
    call_id: str
    task: Heard
    status: str = ""
    outcome: Heard | Made | None = None
    profile: str = ""
    tools: tuple[str, ...] | None = None
    share: Share | None = None
    due: Instant | None = None
    seconds: float | None = None
    is_json: bool = False
    """Whether the outcome is a typed answer."""

    def set_right(self, at: datetime) -> Child:
        """This sub-agent as of the moment `at`: it is due no later than agreed, counted from there. `Pure.`"""
        return self if self.due is None else self.replace(due=sooner(self.due, at, self.seconds))


@dataclass(frozen=True, kw_only=True)
class ChildQuestion(Record):
    """What the sub-agent `effect_id` asks the user of its parent, by its call `call_id`, since the moment `since`.

    `seq` is the step that took the report of it. A question that has its answer, or was declined, is `settled`; it is
    kept until the sub-agent asks something else, asks nothing or ends, because it may be reported again.
    """

    effect_id: int
    call_id: str
    questions: QuestionSet
    seq: int
    since: Instant | None = None
    settled: bool = False

    @property
    def shown_call_id(self) -> str:
        """The id under which a person answers. The ids of the calls of two sub-agents may be the same, this one
        differs. `Pure.`"""
        return f"{self.effect_id}.{self.call_id}"


@dataclass(frozen=True, kw_only=True)
class RoundCall(Record):
    """A call as the machine needs it: its id, its tool, and how it may run. Its arguments stay in the response at the
    step `seq`."""

    call_id: str
    name: str
    seq: int
    approval: bool = False
    approval_by: Approver = "user"
    exclusive: bool = False
    crash: CrashContract = "at_most_once"
    acts: tuple[ActKind, ...] = ()

    @property
    def runs_alone(self) -> bool:
        """Whether the call is a barrier in its round."""
        return self.exclusive or self.approval

    def restricted(self, crash: CrashContract, *, approval: bool, approval_by: Approver) -> RoundCall:
        """The call under the stricter of its own declarations and these. `Pure.`"""
        stricter = max(self.crash, crash, key=CONTRACTS.index)
        by: Approver = "operator" if "operator" in (self.approval_by, approval_by) else "user"
        return self.replace(crash=stricter, approval=self.approval or approval, approval_by=by)

    @classmethod
    def of(cls, call: ToolCall, seq: int) -> RoundCall:
        """The call without the texts that the event at the step `seq` holds. `Pure.`"""
        return cls(
            call_id=call.call_id,
            name=call.name,
            seq=seq,
            approval=call.approval,
            approval_by=call.approval_by,
            exclusive=call.exclusive,
            crash=call.crash,
            acts=call.acts,
        )


@dataclass(frozen=True, kw_only=True)
class Running(Record):
    """A call that was started as the effect `effect_id`. After a crash its tool may be asked, by the effect
    `reconciling`, whether the call ran; then only that effect is in flight.

    A call that has `asked` a person waits or goes on. Its first effect, `started_as`, is answered then, and `effect_id`
    is the newest effect by which it was started or resumed.
    """

    effect_id: int
    call_id: str
    reconciling: int | None = None
    started_as: int | None = None
    asked: bool = False

    @property
    def first_id(self) -> int:
        """The effect as which the call was first started."""
        return self.effect_id if self.started_as is None else self.started_as

    @property
    def awaited(self) -> int:
        """The id of the effect in flight."""
        return self.effect_id if self.reconciling is None else self.reconciling


@dataclass(frozen=True, kw_only=True)
class Round(Record):
    """The calls of a response, and how far each of them is.

    `allowed` names the calls that a person approved. `settled` names those that the round is done with: they have their
    result, or, for a question, the answer will be the result. `doubtful` names those of which it is unknown whether
    they ran. `failed` says that a call failed, so that a claim beside it does not count.
    """

    calls: tuple[RoundCall, ...]
    running: tuple[Running, ...] = ()
    settled: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    children: tuple[Child, ...] = ()
    claim: Heard | None = None
    failed: bool = False

    # --- reading it

    def call(self, effect_id: int) -> RoundCall:
        """The call that this effect runs or asks about. Raises KeyError if there is none. `Pure.`"""
        return self.named(self.started(effect_id).call_id)

    def started(self, effect_id: int) -> Running:
        """The running call that this effect runs or asks about. Raises KeyError if there is none. `Pure.`"""
        for running in self.running:
            if running.effect_id == effect_id or running.reconciling == effect_id:
                return running
        raise KeyError(effect_id)

    def running_call(self, call_id: str) -> Running:
        """How the running call with this id was started. Raises KeyError if it does not run. `Pure.`"""
        for running in self.running:
            if running.call_id == call_id:
                return running
        raise KeyError(call_id)

    def named(self, call_id: str) -> RoundCall:
        """The call with this id. Raises KeyError if there is none. `Pure.`"""
        for call in self.calls:
            if call.call_id == call_id:
                return call
        raise KeyError(call_id)

    def place(self, call_id: str) -> int:
        """The place of this call among the calls of the response, counted from 0. `Pure.`"""
        return [call.call_id for call in self.calls].index(call_id)

    @property
    def queued(self) -> tuple[RoundCall, ...]:
        """The calls that do not run, have no result and are not in doubt, in order."""
        calls, running, settled, doubtful = self.calls, self.running, self.settled, self.doubtful
        begun = len(running) + len(settled) + len(doubtful)  # a call is at most one of the three
        if begun == 0 or begun == len(calls):
            return () if begun else calls
        begun_calls = {one.call_id for one in running}.union(settled, doubtful)
        return tuple(call for call in calls if call.call_id not in begun_calls)

    @property
    def unfinished(self) -> tuple[Child, ...]:
        """The sub-agents that still work."""
        return tuple(child for child in self.children if child.outcome is None)

    @property
    def effect_ids(self) -> frozenset[int]:
        """The ids of the effects in flight: calls that run, calls that are asked about, sub-agents that work."""
        calls = (running.awaited for running in self.running)
        return frozenset((*calls, *(child.effect_id for child in self.unfinished)))

    def next_to_start(self, parallel: int) -> RoundCall | None:
        """The call that may start now, or None. `Pure.`"""
        running = self.running
        if len(running) >= parallel or not (waiting := self.queued):
            return None
        first = waiting[0]
        if self.needs_approval(first) or (running and (first.runs_alone or self._runs_exclusively)):
            return None
        return first

    @property
    def next_to_approve(self) -> RoundCall | None:
        """The call that a person must allow before anything else starts, or None."""
        if self.running or not (waiting := self.queued):
            return None
        return waiting[0] if self.needs_approval(waiting[0]) else None

    def needs_approval(self, call: RoundCall) -> bool:
        """Whether the call runs only if a person allows it, and nobody did yet. `Pure.`"""
        return call.approval and call.call_id not in self.allowed

    def must_not_run_twice(self, call: RoundCall) -> bool:
        """Whether nothing but a person may start the call again, which may have run. An idempotent call that nobody
        approved is one of these: a person who then denied it would be told that it did not run. `Pure.`"""
        return call.crash == "at_most_once" or (call.crash == "idempotent" and self.needs_approval(call))

    def restrict(self, call_id: str, crash: CrashContract, *, approval: bool, approval_by: Approver) -> Round | None:
        """This round, with the call under these declarations where they are stricter than its own; None if they are
        not, or if the round is done with the call. Who was allowed to approve it may not be any more. `Pure.`"""
        before = next((call for call in self.calls if call.call_id == call_id and call_id not in self.settled), None)
        if before is None:
            return None
        after = before.restricted(crash, approval=approval, approval_by=approval_by)
        if after == before:
            return None
        calls = tuple(after if call is before else call for call in self.calls)
        is_allowed = after.approval_by == before.approval_by
        allowed = self.allowed if is_allowed else tuple(one for one in self.allowed if one != call_id)
        return self.replace(calls=calls, allowed=allowed)

    @property
    def _runs_exclusively(self) -> bool:
        return any(self.named(running.call_id).runs_alone for running in self.running)

    # --- going on with it; each of these is `Pure.`

    def allow(self, call: RoundCall) -> Round:
        """This round, with the call approved."""
        return self.replace(allowed=(*self.allowed, call.call_id))

    def put_back(self, call_id: str) -> Round:
        """This round, with the running call waiting to be started again."""
        return self.replace(running=self._without(call_id))

    def start(self, call: RoundCall, effect_id: int) -> Round:
        """This round, with the call running."""
        running = Running(effect_id=effect_id, call_id=call.call_id)
        return self.replace(running=(*self.running, running))

    def suspend(self, call_id: str) -> Round:
        """This round, with the running call waiting for the answer of a person."""
        return self._change(call_id, asked=True)

    def resume(self, call_id: str, effect_id: int) -> Round:
        """This round, with the call that has asked a person going on as this effect."""
        started_as = self.running_call(call_id).first_id
        return self._change(call_id, effect_id=effect_id, started_as=started_as)

    def restart(self, call_id: str, effect_id: int) -> Round:
        """This round, with the interrupted call started again as this effect."""
        before = self.running_call(call_id)
        started_as = before.started_as if before.effect_id == effect_id else before.first_id
        return self._change(call_id, effect_id=effect_id, started_as=started_as, reconciling=None, asked=False)

    def ask_about(self, call_id: str, effect_id: int) -> Round:
        """This round, with the tool of the running call asked by this effect whether the call ran."""
        return self._change(call_id, reconciling=effect_id)

    def mark_doubtful(self, call_id: str) -> Round:
        """This round, with the running call in doubt."""
        return self.replace(running=self._without(call_id), doubtful=(*self.doubtful, call_id))

    def clear_doubt(self, call_id: str) -> Round:
        """This round, with the call no longer in doubt: it waits to be started again."""
        doubtful = tuple(one for one in self.doubtful if one != call_id)
        return self.replace(doubtful=doubtful)

    def settle(self, call_id: str, *, failed: bool = False) -> Round:
        """This round, done with the call."""
        settled, doubtful = self.settled, self.doubtful
        changes: dict[str, object] = {"running": self._without(call_id)}
        if call_id not in settled:
            changes["settled"] = (*settled, call_id)
        if call_id in doubtful:
            changes["doubtful"] = tuple(one for one in doubtful if one != call_id)
        if failed:
            changes["failed"] = True
        return self.replace(**changes)

    def with_claim(self, claim: Heard) -> Round:
        """This round, with the claim that the work is complete."""
        return self.replace(claim=claim)

    def spawn(self, call_id: str, children: tuple[Child, ...]) -> Round:
        """This round, with the call ended and its sub-agents working; their outcomes become the result of the call."""
        return self.settle(call_id).replace(children=children)

    def finish(self, effect_id: int, status: str, outcome: Heard | Made, *, is_json: bool = False) -> Round:
        """This round, with the outcome of this sub-agent."""
        ended: dict[str, object] = {"status": status, "outcome": outcome, "is_json": is_json}
        children = tuple(one.replace(**ended) if one.effect_id == effect_id else one for one in self.children)
        return self.replace(children=children)

    def _change(self, call_id: str, **changes: object) -> Round:
        running = tuple(one.replace(**changes) if one.call_id == call_id else one for one in self.running)
        return self.replace(running=running)

    def _without(self, call_id: str) -> tuple[Running, ...]:
        return tuple(running for running in self.running if running.call_id != call_id)


def fingerprint(call: ToolCall) -> str:
    """A text that is equal for calls of the same tool with the same arguments. Arguments that are not JSON are compared
    as text.

    A model that repeats a call learns nothing new from it. The turn keeps fingerprints of the calls of its last
    requests, so a repeated call is recognised without searching the history. `Pure.`
    """
    try:
        arguments = json.dumps(json.loads(call.raw_arguments), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.raw_arguments
    return blake2b(f"{call.name}\0{arguments}".encode(), digest_size=16).hexdigest()


def is_repeated(call: ToolCall, seen: Sequence[str]) -> bool:
    """Whether this call was made before. Calls that act are never repeated calls: what is said twice is meant twice.
    `Pure.`"""
    return not call.acts and fingerprint(call) in seen


def remember(earlier: tuple[tuple[str, ...], ...], made: Sequence[str], window: int) -> tuple[tuple[str, ...], ...]:
    """The fingerprints of the last `window` requests, the newest last, with those of a further request added.
    `Pure.`"""
    return (*earlier, tuple(made))[-window:]
