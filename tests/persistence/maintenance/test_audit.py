"""A log that was kept as it should be is found sound; whatever no machine may ever have done is found and told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from turnwise.persistence.maintenance.doctor import Fault, audit
from turnwise.states import (
    Abort,
    DeliverToUser,
    DoubtResolved,
    ExecuteTool,
    Idle,
    LogEntry,
    PersistToolResults,
    RequestLlm,
    ToolComplete,
    ToolInterrupted,
    UserCancel,
    begin,
    transition,
)
from turnwise.testing import strategies
from turnwise.testing.history import Trace

from ...support.cases import holds_for
from ...support.walks import NOON, Walk
from ...walking import RecordedChoices, opening_of, read_walks, walk

WALKS = Path(__file__).parent.parent.parent / "fixtures" / "walks.txt"

Log = list[LogEntry]


def log_of(walk: Walk) -> Log:
    """The log of a walk."""
    return [LogEntry.of(event, step) for event, step in walk.steps]


def sentences(log: Log, walk: Walk) -> list[str]:
    """What is wrong with the log, if it rests where the walk does."""
    return [fault.sentence for fault in audit(log, walk.state)]


class TestASoundLog:
    """Whatever the machine does is sound."""

    @given(trace=strategies.traces())
    def test_has_no_fault(self, trace: Trace) -> None:
        """Each conversation that the machine can have, under any rules, wherever it stops."""
        log = [LogEntry.of(seen.event, seen.step) for seen in trace if seen.step is not None]

        assert list(audit(log, trace[-1].after)) == []

    @pytest.mark.slow
    def test_has_no_fault_along_the_kept_walks(self) -> None:
        """In which every row of the table is taken behind every other one that can be: a tenth of them."""
        for seed, choices in read_walks(WALKS)[::10]:
            opened = opening_of(seed)
            log, state = [LogEntry.of(opened, begin(opened))], begin(opened).state
            for taken in walk(seed, RecordedChoices(choices)):
                step = transition(taken.state, taken.event, taken.context)
                log += [] if step.ignored else [LogEntry.of(taken.event, step)]
                state = step.state

            assert list(audit(log, state)) == []

    def test_may_be_in_the_middle_of_something(self) -> None:
        """What was wanted and has no answer yet is what the state waits for."""
        walk = Walk().turn("tonight").say("And tomorrow?")

        assert sentences(log_of(walk), walk) == []

    def test_may_have_been_cancelled(self) -> None:
        """P6: what was stopped is no longer waited for."""
        walk = Walk().say("hello").request(UserCancel)

        assert sentences(log_of(walk), walk) == []


def answered_twice(log: Log) -> None:
    """The tool's result comes a second time, in place of the model's last answer."""
    log[4] = replace(log[4], event=log[3].event)


def never_wanted(log: Log) -> None:
    """A result names an effect that there never was."""
    log[3] = replace(log[3], event=ToolComplete.model_validate({**dict(log[3].event), "effect_id": 99}))


def taken_twice(log: Log) -> None:
    """The message has the id of the opening."""
    log[1] = replace(log[1], event=log[1].event.model_copy(update={"event_id": "walk-1"}))


def wanted_again(log: Log) -> None:
    """The model is asked again under the id of the request that it answered."""
    request = next(effect for effect in log[1].effects if isinstance(effect, RequestLlm))
    log[3] = replace(log[3], effects=(*log[3].effects, request))


def one_id_for_two(log: Log) -> None:
    """What is said to the user has the id of the request before it."""
    effects = (e.replace(effect_id=1) if isinstance(e, DeliverToUser) else e for e in log[4].effects)
    log[4] = replace(log[4], effects=tuple(effects))


def stopped_before(log: Log) -> None:
    """The model's last request was stopped, and its answer was taken all the same."""
    log[3] = replace(log[3], effects=(*log[3].effects, Abort(effect_id=3)))


def without_result(log: Log) -> None:
    """The result of the tool never enters the transcript."""
    log[3] = replace(log[3], effects=tuple(e for e in log[3].effects if not isinstance(e, PersistToolResults)))


def runs_twice(log: Log) -> None:
    """The tool is started once more, and nobody said that it might."""
    call = next(effect for effect in log[2].effects if isinstance(effect, ExecuteTool))
    log[3] = replace(log[3], effects=(*log[3].effects, call.replace(effect_id=77)))


class TestWhatMayNotBe:
    """Each thing is told with the step and in a sentence."""

    @holds_for(
        ("spoil", "seq", "sentence"),
        [
            (answered_twice, 5, "The effect 2 is answered a second time."),
            (never_wanted, 4, "The effect 99 is answered, and no step asked for it."),
            (taken_twice, 2, "The request was taken before."),
            (wanted_again, 4, "The effect 1 is asked for again, and was answered before."),
            (one_id_for_two, 5, "Two effects have the id 1."),
            (stopped_before, 5, "The effect 3 is answered, and was no longer awaited."),
            (without_result, 5, "The call walk-call-2 has no result."),
            (runs_twice, 4, "The call walk-call-2 runs again, and must not run twice."),
        ],
    )
    def test_is_told(self, spoil: Callable[[Log], None], seq: int, sentence: str) -> None:
        """One answer for each effect, one result for each call, one run of what may run once."""
        walk = Walk().turn("tonight")
        log = log_of(walk)
        spoil(log)

        assert Fault(seq, sentence) in audit(log, walk.state)

    def test_a_turn_may_not_end_with_something_open(self) -> None:
        """Nothing is in flight at rest."""
        walk = Walk().turn("tonight")
        log = log_of(walk)
        log[3] = replace(log[3], event=walk.steps[0][0])

        assert "The turn 1 ended while the effect 2 was open." in sentences(log, walk)

    def test_a_state_may_not_wait_for_what_nobody_wanted(self) -> None:
        """Nor may it rest while something was wanted and has no answer."""
        walk = Walk().say("hello")
        log = log_of(walk)

        rests = audit(log, Idle(book=walk.state.book))
        waits = audit(log[:1], walk.state)

        assert list(rests) == [
            Fault(2, "The conversation waits for nothing, and what was not answered is the effect 1.")
        ]
        assert list(waits) == [
            Fault(2, "The conversation waits for the effect 1, and what was not answered is nothing.")
        ]

    def test_what_a_person_allowed_may_run_again(self) -> None:
        """P27: a call that was in doubt, and that somebody wants to run once more."""
        walk = Walk().turn("tonight")
        log = log_of(walk)[:3]
        call = next(effect for effect in log[2].effects if isinstance(effect, ExecuteTool))
        log.append(LogEntry(4, ToolInterrupted(at=NOON, call_id=call.call.call_id)))
        again = DoubtResolved(event_id="again", at=NOON, call_id=call.call.call_id, verdict="again")
        log.append(LogEntry(5, again, (call.replace(effect_id=3),)))

        state = walk.steps[2][1].state
        told = [fault.sentence for fault in audit(log, state)]

        assert not any("must not run twice" in sentence for sentence in told)
