"""What a model may have refused is withheld part by part, what came in last first."""

from __future__ import annotations

from typing import Any

from turnwise.states import Failed, Limits, LlmRequesting, RetryWaiting, Usage
from turnwise.states.effects import WithholdContent
from turnwise.states.events import LlmFailed
from turnwise.states.guards import ORDER, first_suspect
from turnwise.states.values.turn import TurnRecord
from turnwise.states.values.value import REFUSED_CONTENT, UNEXPLAINED
from turnwise.testing.strategies import NOON

from ..support.conversation import Conversation

COST = Usage(input_tokens=9, output_tokens=1)


def refused(kind: str, *held: str) -> LlmFailed:
    """The failure of a request that held these suspects."""
    return LlmFailed(effect_id=1, at=NOON, kind=kind, sentence="Refused.", held=held)


def after_a_result(**rules: Any) -> Conversation:
    """A conversation that asks the model what follows from a result."""
    conversation = Conversation(**rules)
    conversation.says()
    conversation.model_calls("look")
    conversation.tool_ends("look", "Nasty.")
    return conversation


def is_refused(conversation: Conversation, kind: str, *held: str, usage: Usage | None = None) -> list[str]:
    """Let the model refuse, and return what is withheld."""
    spent = {} if usage is None else {"usage": usage}
    effect_id = conversation.rests_in(LlmRequesting).effect_id
    step = conversation.happens(LlmFailed, effect_id=effect_id, kind=kind, sentence="Refused.", held=held, **spent)
    return [effect.suspect for effect in step.effects if isinstance(effect, WithholdContent)]


class TestTheFirstSuspect:
    """`first_suspect`."""

    def test_is_what_came_in_without_a_person(self) -> None:
        """Its loss costs least."""
        event = refused("content_filter", "additions", "answers", "words")

        assert first_suspect(TurnRecord(number=1, since=NOON), event) == "additions"

    def test_is_nothing_that_was_withheld_before(self) -> None:
        """Withheld once, it is not what the next request was refused for."""
        event = refused("content_filter", "additions", "words")

        assert first_suspect(TurnRecord(number=1, since=NOON, withheld=("additions",)), event) == "words"

    def test_is_nobody_where_the_request_held_nothing(self) -> None:
        """Steps of older logs say nothing of what their requests held."""
        assert first_suspect(TurnRecord(number=1, since=NOON), refused("content_filter")) is None

    def test_is_nobody_for_a_failure_of_another_kind(self) -> None:
        """A network that breaks off refuses nothing."""
        assert first_suspect(TurnRecord(number=1, since=NOON), refused("network", "words")) is None

    def test_every_kind_of_refusal_has_an_order(self) -> None:
        """And so have the kinds that may be one."""
        assert ORDER.keys() == REFUSED_CONTENT | UNEXPLAINED


class TestAskingWithoutIt:
    """`may_ask_without_suspect` and `refuses_words`."""

    def test_each_refusal_withholds_one_more(self) -> None:
        """Until only what people said is left, and the turn fails."""
        conversation = after_a_result()

        withheld = [is_refused(conversation, "content_filter", "additions", "answers", "words") for _ in range(3)]

        assert withheld == [["additions"], ["answers"], ["words"]]
        conversation.rests_in(Failed)

    def test_not_once_the_budget_is_used_up(self) -> None:
        """An answer that a filter cut off was paid for, and with it the last of the turn's tokens. The end names the
        limit."""
        conversation = after_a_result(limits=Limits(tokens=10))

        withheld = is_refused(conversation, "content_filter", "additions", "words", usage=COST)

        assert (withheld, conversation.ended.status, conversation.ended.limit) == ([], "failed", "tokens")

    def test_while_tokens_are_left(self) -> None:
        """An answer that was paid for does not end a turn by itself."""
        conversation = after_a_result(limits=Limits(tokens=11))

        assert is_refused(conversation, "content_filter", "additions", "words", usage=COST) == ["additions"]

    def test_a_server_that_broke_is_asked_again_first(self) -> None:
        """What can pass by itself is waited for."""
        conversation = after_a_result()

        assert is_refused(conversation, "server_error", "new_images") == []
        conversation.rests_in(RetryWaiting)
