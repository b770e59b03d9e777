"""What a request costs follows what it sends, not what is stored. The work is counted, not timed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from turnwise.effects.model.request import CachedPrompt, OfferedTools, assemble_context
from turnwise.states import (
    CompactionRequested,
    Context,
    HistoryCompacted,
    LogEntry,
    Message,
    Policy,
    Recent,
    RequestLlm,
    ToolCall,
)
from turnwise.states.effects import CompactHistory
from turnwise.states.transcript import Transcript
from turnwise.testing.strategies import NOON

WORK = {"reads": 0, "looks": 0}
"""How often an attribute of a message was read, and how many entries of the list of messages were taken from it."""


class CountedMessage(Message):
    """A message that counts how often one of its attributes is read."""

    def __getattribute__(self, name: str) -> Any:
        if name in {"role", "text", "turn", "seq", "tool_calls", "audience", "opaque", "images", "tool_call_id"}:
            WORK["reads"] += 1
        return super().__getattribute__(name)


class CountedList(list[Message]):
    """A list that counts what is taken out of it."""

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        WORK["looks"] += len(found) if isinstance(place, slice) else 1
        return found

    def __iter__(self) -> Iterator[Message]:
        WORK["looks"] += len(self)
        return super().__iter__()


def turn_of(number: int) -> list[Message]:
    """A turn with a call, as it is stored."""
    call = ToolCall(call_id=f"call_{number}_0", name="search")
    return [
        CountedMessage(role="user", text=f"Question {number}", turn=number, seq=4 * number),
        CountedMessage(role="assistant", tool_calls=(call,), turn=number, seq=4 * number + 1),
        CountedMessage(role="tool", tool_call_id=call.call_id, text="18 degrees", turn=number, seq=4 * number + 2),
        CountedMessage(role="assistant", text=f"Answer {number}", turn=number, seq=4 * number + 3),
    ]


class Asked:
    """A conversation with so many finished turns, whose next turns each ask the model once."""

    def __init__(self, turns: int, policy: Policy) -> None:
        self.policy = policy
        self.transcript = Transcript(messages=CountedList(one for turn in range(1, turns + 1) for one in turn_of(turn)))
        self.turns = turns
        self.prompt = CachedPrompt()

    def request(self, system: str = "You are kind.") -> tuple[int, dict[str, int]]:
        """Begin a turn and build its request. Returns how many messages it sends, and the work that it took."""
        self.turns += 1
        turn = turn_of(self.turns)
        self.transcript.messages.append(turn[0])
        WORK.update(reads=0, looks=0)
        effect = RequestLlm(effect_id=1, model="m", at=NOON)
        context = Context(system=system, policy=self.policy)
        assembled = assemble_context(effect, context, self.transcript, self.turns)
        request, _ = self.prompt.request(effect, assembled.system, assembled.messages, OfferedTools(()), self.turns)
        work = dict(WORK)
        self.transcript.messages.extend(turn[1:])
        return len(request.messages), work

    def is_condensed(self) -> None:
        """Everything that was said is replaced by a summary."""
        seq = 4 * self.turns + 4
        condense = CompactHistory(effect_id=1, up_to=seq - 1)
        condensed = HistoryCompacted(effect_id=1, at=NOON, summary="They talked.")
        self.transcript.add(LogEntry(seq, CompactionRequested(event_id="c", at=NOON), (condense,), turn=self.turns))
        self.transcript.add(LogEntry(seq + 1, condensed, turn=self.turns))


@pytest.mark.parametrize("turns", [5, 1000])
def test_the_last_minutes_cost_the_same_in_a_long_conversation(turns: int) -> None:
    """Under `Recent` the stored messages of earlier turns are not even looked at."""
    asked = Asked(turns, Policy(dialogue=Recent()))

    works = [asked.request(f"Found for turn {n}.") for n in range(3)]

    assert {sent for sent, _ in works} == {2}
    assert max(work["looks"] for _, work in works) <= 5
    assert [work for _, work in works] == [Asked(1, asked.policy).request()[1]] * 3


@pytest.mark.parametrize("turns", [5, 1000])
def test_a_changing_system_message_leaves_written_messages_alone(turns: int) -> None:
    """Where the whole dialogue is sent, the messages of finished turns are written once, although the system message
    holds something else in each turn."""
    asked = Asked(turns, Policy())
    asked.request("Found for the first turn.")

    works = [asked.request(f"Found for turn {n}.") for n in range(3)]

    assert works[0][0] == 2 + 4 * (turns + 1)
    assert max(work["reads"] for _, work in works) <= 200
    assert [work["reads"] for _, work in works] == [works[0][1]["reads"]] * 3


@pytest.mark.parametrize("turns", [5, 1000])
def test_a_condensed_history_costs_what_is_left_of_it(turns: int) -> None:
    """What the summary replaces is not looked at again."""
    asked = Asked(turns, Policy())
    asked.is_condensed()

    works = [asked.request() for _ in range(3)]

    assert [sent for sent, _ in works] == [2, 6, 10]
    assert max(work["looks"] for _, work in works) <= 10
    assert max(work["reads"] for _, work in works) <= 200
