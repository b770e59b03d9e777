"""A request built on the previous one equals the request that is built from all messages."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.model.request import prompt_cache
from turnwise.effects.model.request.prompt_cache import CachedPrompt, PromptCache
from turnwise.effects.model.request.request_builder import OfferedTools, build_request
from turnwise.effects.model.request.request_digest import request_digest
from turnwise.states.effects import RequestLlm
from turnwise.states.values.messages import Message

from ....support.effect_contexts import effect_context
from .test_request_builder import MESSAGES, MISTRAL, MODEL, SEAL, assistant, call, offer, result, user

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


def assert_same(prompt: CachedPrompt, messages: list[Message], turn: int, model: str = MODEL, system: str = "") -> None:
    """The cached prompt and `build_request` give the same request with the same digest."""
    effect, history = effect_for(model), tuple(messages)

    request, digest = prompt.request(effect, system, history, OfferedTools(TOOLS[turn % 2]), turn)

    assert request == build_request(effect, system, history, TOOLS[turn % 2], turn)
    assert digest == request_digest(request)


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

    def test_finished_turns_are_not_written_again(self, monkeypatch: Any) -> None:
        """A turn costs the same however long the conversation is, because only its own messages are written."""
        written: list[int] = []

        def record(messages: Any, *rest: Any, **options: Any) -> Any:
            written.append(len(messages))
            return write(messages, *rest, **options)

        write = prompt_cache.write_segment
        monkeypatch.setattr(prompt_cache, "write_segment", record)
        prompt, said = CachedPrompt(), []
        for turn in range(1, 30):
            said += [user(f"Message {turn}", turn)]
            assert_same(prompt, said, turn)
            said += [assistant("Done.", turn=turn)]

        assert max(written) == 2

    @pytest.mark.parametrize("ends", [[user("Well?", 0)], [], [user("Well?", 0), user("Hm?", 0)]])
    def test_a_given_history_is_written_once(self, monkeypatch: Any, ends: list[Message]) -> None:
        """Also one of which no turn has ended, whose model only called tools, or that ends with a question."""
        written: list[int] = []
        write = prompt_cache.write_segment

        def record(messages: Any, *rest: Any, **options: Any) -> Any:
            written.append(len(messages))
            return write(messages, *rest, **options)

        monkeypatch.setattr(prompt_cache, "write_segment", record)
        said = [user("Find it.", 0)]
        for number in range(100):
            said += [in_turn(assistant("", call(f"c{number}-")), 0), in_turn(result(f"c{number}-"), 0)]
        said += ends
        prompt = CachedPrompt()
        for number in range(5):
            said += [user("Go on.")] if not number else [in_turn(assistant("", call("x")), 1), in_turn(result("x"), 1)]
            assert_same(prompt, said, 1)

        assert sorted(written)[-1] == 199  # all but the last round
        assert sorted(written)[-2] < 20


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
