"""A request built on the previous one equals the request that is built from all messages."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.model import written_messages
from turnwise.effects.model.port import ModelRequest
from turnwise.effects.model.request import CachedPrompt, OfferedTools, PromptCache, build_request
from turnwise.effects.model.system_message import Wording
from turnwise.effects.model.written_messages import request_digest
from turnwise.states.effects import RequestLlm
from turnwise.states.openai_writing import pair_results
from turnwise.states.values.messages import Message, ProviderFields

from ...support.effect_contexts import effect_context
from .test_request import MESSAGES, MISTRAL, MODEL, SEAL, assistant, call, offer, result, user

WORDING = Wording("The user did not hear this.")
TOOLS = ((), (offer("x:find_table"),))
TURNS = st.lists(
    st.tuples(
        MESSAGES,
        st.booleans(),  # whether a person speaks first, as in nearly every turn
        st.booleans(),  # whether the model speaks last
        st.sampled_from([MODEL, MODEL, MODEL, MISTRAL]),
        st.sampled_from(["", "", "", "Be kind."]),
    ),
    max_size=5,
)


def effect_for(model: str = MODEL) -> RequestLlm:
    """The effect that asks for a request."""
    return RequestLlm(effect_id=1, model=model, at=datetime(2026, 1, 1, tzinfo=UTC))


def in_turn(message: Message, turn: int) -> Message:
    """The message in this turn. Its call ids are the turn's own: the machine makes the ids of calls unique, so a result
    never belongs to a call of an earlier turn. Within a turn ids may repeat, and results may lack a call."""
    calls = tuple(one.replace(call_id=f"{one.call_id}{turn}") for one in message.tool_calls)
    call_id = None if message.tool_call_id is None else f"{message.tool_call_id}{turn}"
    return message.replace(turn=turn, tool_calls=calls, tool_call_id=call_id)


def ask(
    prompt: CachedPrompt, messages: list[Message], turn: int, model: str = MODEL, system: str = "", **options: Any
) -> tuple[ModelRequest, str]:
    """The request of the cached prompt, and its digest."""
    return prompt.request(effect_for(model), system, messages, OfferedTools(TOOLS[turn % 2]), turn, **options)


def test_a_turn_that_tries_another_one_again_continues_it_whatever_was_said_first() -> None:
    """A message of another agent may enter before the model is asked again. The sealed thinking of the first try goes
    back all the same."""
    sealed = assistant("", call("a"), opaque=(SEAL,), provider=ProviderFields())
    history = [in_turn(one, 1) for one in (user(), sealed, result("a"))]
    again, anew = CachedPrompt(), CachedPrompt()

    continued, _ = ask(again, [*history, in_turn(user("Also this."), 2)], 2, first_turn=1)
    begun, _ = ask(anew, [*history, in_turn(user("Also this."), 2)], 2)

    assert [any("thinking_blocks" in sent for sent in one.messages) for one in (continued, begun)] == [True, False]


def assert_same(
    prompt: CachedPrompt,
    messages: list[Message],
    turn: int,
    model: str = MODEL,
    system: str = "",
    closing: tuple[Message, ...] = (),
    wording: Wording | None = None,
) -> None:
    """The cached prompt and `build_request` give the same request with the same digest."""
    read = [message if wording is None else wording.read(message) for message in messages]

    request, digest = ask(prompt, messages, turn, model, system, closing=closing, wording=wording)

    assert request == build_request(effect_for(model), system, (*read, *closing), TOOLS[turn % 2], turn)
    assert digest == request_digest(request)


COMPARED: list[str] = []


class ComparedMessage(Message):
    """A message that notes when it is compared."""

    def __eq__(self, other: object) -> bool:
        COMPARED.append(self.text)
        return super().__eq__(other)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages were written, each time that some were."""
    counts: list[int] = []

    def record(messages: Sequence[Message]) -> Any:
        counts.append(len(messages))
        return pair_results(messages)

    monkeypatch.setattr(written_messages, "pair_results", record)
    return counts


@dataclass
class Asked:
    """What the next request is about."""

    said: list[Message]
    turn: int = 1
    model: str = MODEL
    system: str = ""
    wording: Wording | None = None

    def replace(self, place: int, **changes: Any) -> None:
        """Replace one of the messages."""
        at = place % len(self.said)
        self.said[at] = self.said[at].replace(**changes)


Change = Callable[[Asked, list[Message], int], None]


def a_round(asked: Asked, messages: list[Message], place: int) -> None:
    """The model calls tools, which return."""
    made = [call(f"{len(asked.said)}.{number}") for number in range(place % 3 + 1)]
    opaque = (SEAL,) if place > 20 else ()
    asked.said += [
        assistant("", *made, opaque=opaque, turn=asked.turn),
        *(in_turn(result(one.call_id), asked.turn).replace(tool_call_id=one.call_id) for one in made),
    ]


def any_messages(asked: Asked, messages: list[Message], place: int) -> None:
    """Anything is said."""
    asked.said += [message.replace(turn=asked.turn) for message in messages]


def a_turn(asked: Asked, messages: list[Message], place: int) -> None:
    """Another turn begins."""
    asked.turn += 1
    asked.said.append(user(turn=asked.turn))


def a_delivery(asked: Asked, messages: list[Message], place: int) -> None:
    """A text is delivered."""
    asked.replace(place, deliveries=("Hm.",))


def a_lost_speech(asked: Asked, messages: list[Message], place: int) -> None:
    """A speech turns out not to be delivered, so that the model reads other words."""
    asked.wording = WORDING
    asked.replace(place, undelivered=True, seq=place + 1)


def a_withdrawal(asked: Asked, messages: list[Message], place: int) -> None:
    """A message disappears."""
    if len(asked.said) > 1:
        del asked.said[place % len(asked.said)]


def a_summary(asked: Asked, messages: list[Message], place: int) -> None:
    """A summary stands in place of the older messages."""
    asked.said = [user("They talked.", 0), *asked.said[place % len(asked.said) :]]


def a_choice(asked: Asked, messages: list[Message], place: int) -> None:
    """Another model is asked, or has other instructions."""
    asked.model, asked.system = MISTRAL if place % 2 else MODEL, "Be kind." if place > 20 else "Be quick." * (place % 3)


CHANGES: tuple[Change, ...] = (
    *[a_round] * 4,
    *[any_messages] * 2,
    a_turn,
    a_delivery,
    a_lost_speech,
    a_withdrawal,
    a_summary,
    a_choice,
)


@pytest.mark.slow
class TestOneConversation:
    """The requests of one conversation, one after the other."""

    @given(TURNS)
    def test_each_request_is_complete(self, turns: list[tuple[list[Message], bool, bool, str, str]]) -> None:
        """P35: after turns without a reply, results without a call, repeated ids, a change of model or system
        prompt."""
        prompt, said = CachedPrompt(), []
        for turn, (messages, speaks, replies, model, system) in enumerate(turns, start=1):
            said += [user()] if speaks else []
            for message in (*messages, *([assistant("Done.")] if replies else [])):
                said.append(in_turn(message, turn))
                assert_same(prompt, said, turn, model, system)

    @given(TURNS, st.sampled_from(["turn", "conversation", 1, 2, 3]))
    def test_thinking_is_kept_for_so_long_whatever_was_written_before(
        self, turns: list[tuple[list[Message], bool, bool, str, str]], keep: str | int
    ) -> None:
        """Each request is the one that is written from the beginning, and its stable messages are its first ones."""
        prompt, said = CachedPrompt(), [user()]
        for turn, (messages, *_) in enumerate(turns, start=1):
            said += [user(), *(in_turn(message, turn) for message in messages)]
            request, digest = ask(prompt, said, turn, keep_thinking=keep, closing=(user("Go on."),))
            whole, fresh = ask(CachedPrompt(), said, turn, keep_thinking=keep, closing=(user("Go on."),))
            assert (request, digest, request.stable) == (whole, fresh, whole.stable)
            assert request.stable < len(request.messages)

    @given(st.lists(st.tuples(st.sampled_from([*CHANGES]), MESSAGES, st.integers(0, 40)), max_size=25))
    def test_each_request_of_a_long_turn_is_complete(self, changes: list[tuple[Change, list[Message], int]]) -> None:
        """Whatever happens in between: messages are steered in and withdrawn, results come late, a text is delivered or
        is not, the model is reminded, the system prompt, the model or the words change, or the history is condensed."""
        prompt, asked = CachedPrompt(), Asked([user()])
        for change, messages, place in changes:
            change(asked, messages, place)
            closing = (user("Speak to the user.", 0),) if place % 4 == 0 else ()
            assert_same(prompt, asked.said, asked.turn, asked.model, asked.system, closing, asked.wording)

    @given(MESSAGES, st.integers(1, 3), st.data())
    def test_a_given_history_may_end_anywhere(
        self, given_messages: list[Message], turns: int, data: st.DataObject
    ) -> None:
        """With a question that waits for its answer, or with results: the requests are complete all the same."""
        prompt, said = CachedPrompt(), [in_turn(message, 0) for message in given_messages]
        for turn in range(1, turns + 1):
            for message in (user(), *data.draw(MESSAGES), assistant("Done.")):
                said.append(in_turn(message, turn))
                assert_same(prompt, said, turn)

    @given(st.lists(MESSAGES, min_size=2, max_size=4), st.data())
    def test_a_changed_history_is_written_anew(self, turns: list[list[Message]], data: st.DataObject) -> None:
        """When a message is replaced or left out, nothing of it remains."""
        prompt, said = CachedPrompt(), []
        for turn, messages in enumerate(turns, start=1):
            said += [in_turn(m, turn) for m in (user(), *messages, assistant("Done."))]
            assert_same(prompt, said, turn + 1)
        index = data.draw(st.integers(0, len(said) - 1))

        other = data.draw(st.sampled_from([(), (said[index].replace(text="Something else."),)]))

        assert_same(prompt, [*said[:index], *other, *said[index + 1 :], user("Well?", len(turns) + 1)], len(turns) + 1)

    def test_sealed_thinking_is_sent_in_its_own_turn_only(self) -> None:
        """Requests of later turns do not hold it."""
        thought = assistant("", call("a"), opaque=(SEAL,), thinking="Hm")
        prompt, first = CachedPrompt(), [user(), thought, result("a")]
        assert_same(prompt, first, 1)

        assert_same(prompt, [*first, assistant("Sakura."), user("Thanks", 2)], 2)

    def test_every_message_is_written_once(self, written: list[int]) -> None:
        """A turn costs the same however long the conversation is, because only its own messages are written."""
        prompt, said = CachedPrompt(), []
        for turn in range(1, 30):
            said += [user(f"Message {turn}", turn)]
            ask(prompt, said, turn)
            said += [assistant("Done.", turn=turn)]

        assert sum(written) == len(said) - 1

    def test_every_message_of_a_long_turn_is_written_once(self, written: list[int]) -> None:
        """A round costs the same however many rounds of the turn came before it, also if the model thinks, is reminded,
        says something besides, and if a text is delivered only later."""
        prompt, said = CachedPrompt(), [user("Go on.")]
        for number in range(100):
            ask(prompt, said, 1, closing=(user("Speak to the user.", 0),))
            ask(prompt, said, 1)
            made = (call(f"a{number}"), call(f"b{number}"))
            said += [assistant("Hm.", *made, opaque=(SEAL,)), *(result(one.call_id) for one in made)]
            said[-1], said[-2] = (one.replace(deliveries=("Hm.",)) for one in (said[-1], said[-2]))
        reminders = 100

        assert sum(written) == len(said) - 3 + reminders

    @pytest.mark.parametrize("ends", [[user("Well?", 0)], [], [user("Well?", 0), user("Hm?", 0)]])
    def test_a_given_history_is_written_once(self, written: list[int], ends: list[Message]) -> None:
        """Also one of which no turn has ended, whose model only called tools, or that ends with a question."""
        said = [user("Find it.", 0)]
        for number in range(100):
            said += [in_turn(assistant("", call(f"c{number}-")), 0), in_turn(result(f"c{number}-"), 0)]
        said += ends
        prompt = CachedPrompt()
        for number in range(5):
            said += [user("Go on.")] if not number else [in_turn(assistant("", call("x")), 1), in_turn(result("x"), 1)]
            ask(prompt, said, 1)

        assert sum(written) == len(said)

    def test_messages_that_were_read_again_are_compared_once(self) -> None:
        """A conversation may drop its transcript and read it again from the log. The messages are equal then, and from
        the next request on the same objects."""
        prompt, said = CachedPrompt(), [ComparedMessage(role="user", text=str(n), turn=1) for n in range(100)]
        ask(prompt, [*said], 1)
        read_again = [message.replace() for message in said]
        COMPARED.clear()

        ask(prompt, read_again, 1)
        compared = len(COMPARED)
        ask(prompt, [*read_again, user("Well?")], 1)

        assert compared == len(COMPARED) == 100

    @pytest.mark.parametrize("is_lost", [False, True])
    def test_what_a_turn_has_changed_is_written_again(self, written: list[int], is_lost: bool) -> None:
        """When a turn ends, its sealed thinking goes, and notes are added to its results. That costs what the turn
        costs, not what the conversation costs."""
        prompt, said = CachedPrompt(), [user("Find it.", 0), *(assistant("So.", turn=0) for _ in range(100))]
        said += [user(), assistant("", call("a"), opaque=() if is_lost else (SEAL,)), result("a").replace(seq=104)]
        ask(prompt, said, 1, wording=WORDING)
        written.clear()

        said[-1] = said[-1].replace(undelivered=is_lost)
        request, _ = ask(prompt, [*said, assistant("Done."), user("Thanks", 2)], 2, wording=WORDING)

        assert sum(written) == len(["Hello", "a", "Sakura", "Done.", "Thanks"])
        assert (WORDING.undelivered in str(request.messages)) is is_lost


class TestManyConversations:
    """The cached prompts of an engine."""

    def test_each_has_a_prompt_while_it_is_in_memory(self) -> None:
        """The prompt is dropped together with the history of its conversation."""
        cache = PromptCache()

        first, second = effect_context("first"), effect_context("second")
        assert cache.prompt_of(first) is cache.prompt_of(first) is not cache.prompt_of(second)
        del first
        gc.collect()

        assert len(cache) == 1

    def test_those_that_asked_a_model_last_have_one(self) -> None:
        """Another one begins anew; nothing is left of it when its history goes."""
        cache = PromptCache(capacity=2)
        contexts = [effect_context(name) for name in ("first", "second", "third")]
        first, second = (cache.prompt_of(context) for context in contexts[:2])
        assert cache.prompt_of(contexts[0]) is first

        cache.prompt_of(contexts[2])

        assert len(cache) == 2
        assert cache.prompt_of(contexts[0]) is first
        assert cache.prompt_of(contexts[1]) is not second
        contexts.clear()
        gc.collect()
        assert len(cache) == 0
