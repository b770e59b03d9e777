"""A replay of stored rows compares texts and decodes only what differs; it finds what a comparison of values finds."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

import pytest
from hypothesis import given

from turnwise.persistence.codec import GENESIS, content_of, decode, encode, link
from turnwise.persistence.maintenance import replay as replays
from turnwise.persistence.maintenance.replay import PAGE, Divergence, Fold, ReplayReport, replay, replay_record
from turnwise.persistence.records import ConversationRecord, EventRow, HeadRow, StoredEntry
from turnwise.states import Context, DeliverToUser, Event, ModelSpec, Policy, State, Step, Transcript, transition
from turnwise.states.replies import text_of_reply
from turnwise.states.step import LogEntry
from turnwise.testing import strategies
from turnwise.testing.history import Trace

from ...support.cases import holds_for
from ...support.walks import Walk

Change = Callable[[EventRow], EventRow]


def rows_of(steps: Iterable[tuple[Event, Step]]) -> tuple[list[EventRow], HeadRow]:
    """The rows that a store keeps of these steps, and the head row of the last one."""
    rows, chain = [], GENESIS
    for event, step in steps:
        row, head = encode(event, step, chain)
        rows.append(row)
        chain = row.chain
    return rows, head


def linked(rows: Iterable[EventRow]) -> list[EventRow]:
    """These rows with the links that they would have if they had been stored like this."""
    chain, relinked = GENESIS, []
    for row in rows:
        chain = link(chain, content_of(row))
        relinked.append(row._replace(chain=chain))
    return relinked


def record_of(rows: Sequence[EventRow], head: HeadRow) -> ConversationRecord:
    """A stored conversation with these rows."""
    return ConversationRecord("walk", 0, head._replace(seq=rows[-1].seq, chain=rows[-1].chain), tuple(rows))


def changed(walk: Walk, seq: int, change: Change) -> ConversationRecord:
    """A conversation whose step `seq` was stored in another way. Nothing in it is damaged."""
    rows, head = rows_of(walk.steps)
    rows[seq - 1] = change(rows[seq - 1])
    return record_of(linked(rows), head)


def by_values(record: ConversationRecord) -> ReplayReport:
    """The report of a replay that decodes every step before it compares."""
    return replay(map(decode, record.steps))


def turns(count: int) -> Walk:
    """A conversation of so many turns, each with a call of a tool."""
    walk = Walk()
    for _ in range(count):
        walk.turn()
    return walk


DEFAULTS = {
    "request_llm": {"memory": None, "plain": False},
    "execute_tool": {"started_as": None},
    "deliver_to_user": {"relayed": False},
}


def spelled_out(row: EventRow) -> EventRow:
    """A row that says the same with some of its defaults written, and with other white space."""
    effects = [{**effect, **DEFAULTS.get(effect["type"], {})} for effect in json.loads(row.effects or "[]")]
    ended = None if row.ended is None else {**json.loads(row.ended), "silent": False, "failure": None}
    return row._replace(
        effects=json.dumps(effects, indent=1) if effects else None,
        ended=None if ended is None else json.dumps(ended, indent=1),
    )


def test_defaults_that_are_written_are_no_divergence() -> None:
    """A log may spell equal values in another way, as one of another version may."""
    rows, head = rows_of(turns(2).steps)
    others = linked(map(spelled_out, rows))

    report = replay_record(record_of(others, head))

    assert sum(other.effects != row.effects for other, row in zip(others, rows, strict=True)) == 8
    assert (report.events, report.divergence) == (len(rows), None)


def _reversed(row: EventRow) -> EventRow:
    return row._replace(effects=json.dumps(json.loads(row.effects or "")[::-1], separators=(",", ":")))


def _without_the_last(row: EventRow) -> EventRow:
    return row._replace(effects=json.dumps(json.loads(row.effects or "")[:-1]))


CHANGES: dict[str, tuple[Change, str]] = {
    "effects in another order": (_reversed, "has other effects now."),
    "an effect less": (_without_the_last, "has other effects now."),
    "no effects": (lambda row: row._replace(effects=None), "has other effects now."),
    "no end of a turn": (lambda row: row._replace(ended=None), "ends the turn in another way now."),
    "a state of which only the digest is known": (
        lambda row: row._replace(state=b"another digest.."),
        "leads to another state now.",
    ),
}


class TestDivergences:
    """What differs is found at its step, and reported in full."""

    @holds_for("name", CHANGES)
    @holds_for("seq", [5, 9])
    def test_are_found_at_their_step(self, name: str, seq: int) -> None:
        """In the middle and at the end of a log: the event, what was stored, and what it leads to now."""
        change, reason = CHANGES[name]
        walk = turns(2)
        event, step = walk.steps[seq - 1]
        record = changed(walk, seq, change)

        report = replay_record(record)

        found = _found(report)
        assert (report.events, found.seq, found.reason) == (seq - 1, seq, f"Step {seq} {reason}")
        assert found.event == event
        assert (found.actual.effects, found.actual.ended, found.actual.state) == (step.effects, step.ended, step.state)
        stored = decode(record.steps[seq - 1])
        assert (found.expected.effects, found.expected.ended) == (stored.effects, stored.ended)
        assert found.expected.digest == stored.digest
        assert found.expected.state == (step.state if seq == 9 and stored.digest == found.actual.digest else None)

    @pytest.mark.parametrize("name", CHANGES)
    def test_are_those_of_a_comparison_of_values(self, name: str) -> None:
        """Whether texts or values are compared, the report is the same."""
        record = changed(turns(2), 5, CHANGES[name][0])

        assert replay_record(record) == by_values(record)

    def test_of_a_changed_event_are_found_by_what_it_led_to(self) -> None:
        """The chain fits, so it is not damage: the moment of the event decides when the turn began."""
        walk = turns(2)
        record = changed(walk, 2, lambda row: row._replace(at=row.at + 1))

        report = replay_record(record)

        assert (report.events, _found(report).reason) == (1, "Step 2 has other effects now.")
        assert _found(report).event == walk.steps[1][0].replace(at=walk.steps[1][0].at + timedelta(microseconds=1))
        assert report == by_values(record)

    @pytest.mark.parametrize("seq", [1, 4])
    def test_of_a_link_are_found_though_all_else_fits(self, seq: int) -> None:
        """Every column of the step says what comes of it, and only its link is another one."""
        rows, head = rows_of(turns(2).steps)
        rows[seq - 1] = rows[seq - 1]._replace(chain=bytes(16))
        record = record_of(rows, head)

        report = replay_record(record)

        damage = f"Step {seq} is not what was stored: the file is damaged."
        assert (report.events, _found(report).seq, _found(report).reason) == (seq - 1, seq, damage)
        assert report.divergence == by_values(record).divergence


LONG = turns(20)
AROUND_PAGES = (1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1, len(LONG.steps) - 1)
"""Steps at the ends of pages, and next to them."""


@pytest.mark.parametrize("seq", AROUND_PAGES)
class TestPages:
    """Rows are taken page by page; where a page begins and ends makes no difference."""

    def test_a_divergence_is_found_at_its_step(self, seq: int) -> None:
        """The steps before it in its page are taken."""
        record = changed(LONG, seq, lambda row: row._replace(state=b"another digest.."))

        report = replay_record(record)

        assert (report.events, _found(report).reason) == (seq - 1, f"Step {seq} leads to another state now.")
        assert _found(report).actual.state == LONG.steps[seq - 1][1].state
        assert report == by_values(record)

    @pytest.mark.slow
    @pytest.mark.parametrize("change", [{"at": 0}, {"type": "no such thing"}, {"payload": "not JSON"}, {"turn": 9}])
    def test_damage_is_found_at_its_step(self, seq: int, change: dict[str, object]) -> None:
        """A row that was changed, also into one that cannot be read."""
        rows, head = rows_of(LONG.steps)
        rows[seq - 1] = rows[seq - 1]._replace(**change)
        record = record_of(rows, head)

        report = replay_record(record)

        assert (report.events, _found(report).seq) == (seq - 1, seq)
        assert report == by_values(record)

    def test_a_missing_step_is_found(self, seq: int) -> None:
        """The page is one row longer than the log has."""
        rows, head = rows_of(LONG.steps)
        del rows[seq - 1]

        report = replay_record(record_of(rows, head))

        assert (report.events, _found(report).reason) == (seq - 1, f"Step {seq} is missing: the file is damaged.")


def _found(report: ReplayReport) -> Divergence:
    assert report.divergence is not None
    return report.divergence


def test_a_fault_behind_a_divergence_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that differ at step 2 may fail at step 3, whose event belongs to another state: step 2 is reported."""
    rows, head = rows_of(turns(2).steps)

    def changed_rules(state: State, event: Event, context: Context) -> Step:
        if state.book.seq > 1:
            raise LookupError(event.type)
        return transition(state, event, context.replace(policy=Policy(models=(ModelSpec(name="another"),))))

    monkeypatch.setattr(replays, "transition", changed_rules)
    report = replay_record(record_of(rows, head))

    assert (report.events, _found(report).seq, _found(report).reason) == (1, 2, "Step 2 has other effects now.")


@pytest.mark.slow
class TestCost:
    """What a step that comes out as it was stored does not cost."""

    def test_only_events_are_decoded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Effects, ends and states are compared as texts."""
        rows, head = rows_of(turns(3).question().steps)

        def refuse(row: EventRow) -> StoredEntry:
            raise AssertionError(f"step {row.seq} is decoded")

        monkeypatch.setattr(replays, "decode", refuse)

        assert replay_record(record_of(rows, head)).divergence is None

    def test_decoded_events_are_dropped_at_rest(self) -> None:
        """In a log of many turns no more events are in memory than those of one turn."""
        walk = turns(40)
        rows, _ = rows_of(walk.steps)
        gc.collect()
        before, most, fold = _events_in_memory(), 0, Fold()

        for row in rows:
            assert fold.take_rows((row,)) is None
            if row.seq % 20 == 0:
                most = max(most, _events_in_memory() - before)

        assert most <= 5


def _events_in_memory() -> int:
    return sum(isinstance(each, Event) for each in gc.get_objects())


@pytest.mark.slow
@given(trace=strategies.traces())
def test_rows_replay_whatever_happened(trace: Trace) -> None:
    """Under any rules, and what was delivered is what the transcript says."""
    steps = [(seen.event, seen.step) for seen in trace if seen.step is not None]
    rows, head = rows_of(steps)

    report = replay_record(record_of(rows, head))

    assert (report.events, report.divergence) == (len(steps), None)
    assert report.deliveries == tuple(_delivered(steps))


def _delivered(steps: Iterable[tuple[Event, Step]]) -> Iterator[str]:
    """The texts of the deliveries, each under the rules that held then."""
    transcript, context = Transcript(), Context()
    for event, step in steps:
        transcript.add(LogEntry.of(event, step))
        context = context.after(event)
        for effect in step.effects:
            if isinstance(effect, DeliverToUser):
                yield text_of_reply(transcript.words(effect.said), context.policy)
