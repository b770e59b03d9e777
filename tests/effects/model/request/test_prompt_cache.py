"""A request that goes on from the one before is the request that would be written from the first message."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.model.request import prompt_cache as module
from turnwise.effects.model.request.prompt_cache import CachedPrompt, PromptCache
from turnwise.effects.model.request.request_builder import Offer, build_request
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
    """What a request is asked for by."""
    return RequestLlm(effect_id=1, model=model, at=datetime(2026, 1, 1, tzinfo=UTC))


def agree(prefix: CachedPrompt, messages: list[Message], turn: int, model: str = MODEL, system: str = "") -> None:
    """The prefix and `build_request` write the same, down to the fingerprint."""
    effect, history = effect_for(model), tuple(messages)

    request, digest = prefix.request(effect, system, history, Offer(TOOLS[turn % 2]), turn)

    assert request == build_request(effect, system, history, TOOLS[turn % 2], turn)
    assert digest == request_digest(request)


class TestOneAfterTheOther:
    """The requests of one conversation."""

    @given(TURNS)
    def test_whatever_was_said(self, turns: list[tuple[list[Message], bool, bool, str, str]]) -> None:
        """P35: each request holds what it would hold if it was the first: also behind turns without a reply, results
        without a call, ids that come again, another model, another system prompt."""
        prefix, said = CachedPrompt(), []
        for turn, (messages, speaks, replies, model, system) in enumerate(turns, start=1):
            said += [user()] if speaks else []
            for message in (*messages, *([assistant("Done.")] if replies else [])):
                said.append(message.replace(turn=turn))
                agree(prefix, said, turn, model, system)

    @given(st.lists(MESSAGES, min_size=2, max_size=4), st.data())
    def test_a_history_that_changes(self, turns: list[list[Message]], data: st.DataObject) -> None:
        """Where messages are replaced, or a summary stands for them, nothing of the old ones stays."""
        prefix, said = CachedPrompt(), []
        for turn, messages in enumerate(turns, start=1):
            said += [m.replace(turn=turn) for m in (user(), *messages, assistant("Done."))]
            agree(prefix, said, turn + 1)
        place = data.draw(st.integers(0, len(said) - 1))

        other = data.draw(st.sampled_from([(), (said[place].replace(text="Something else."),)]))

        agree(prefix, [*said[:place], *other, *said[place + 1 :], user("Well?", len(turns) + 1)], len(turns) + 1)

    def test_sealed_thinking_goes_back_only_in_its_own_turn(self) -> None:
        """It is in the requests of the turn in which it was thought, and in none of a later turn."""
        thought = assistant("", call("a"), opaque=(SEAL,), thinking="Hm")
        prefix, first = CachedPrompt(), [user(), thought, result("a")]
        agree(prefix, first, 1)

        agree(prefix, [*first, assistant("Sakura."), user("Thanks", 2)], 2)

    def test_what_was_written_is_not_written_again(self, monkeypatch: Any) -> None:
        """A turn costs the same however long the conversation is: only its own messages are written."""
        written: list[int] = []

        def noted(messages: Any, *rest: Any) -> Any:
            written.append(len(messages))
            return write(messages, *rest)

        write = module.write_passage
        monkeypatch.setattr(module, "write_passage", noted)
        prefix, said = CachedPrompt(), []
        for turn in range(1, 30):
            said += [user(f"Message {turn}", turn)]
            agree(prefix, said, turn)
            said += [assistant("Done.", turn=turn)]

        assert max(written) == 2


class TestManyConversations:
    """The prefixs of an engine."""

    def test_each_has_its_own_for_as_long_as_it_is_in_memory(self) -> None:
        """Nothing of a conversation stays behind when it is forgotten."""
        kept = PromptCache()

        first, second = effect_context("first"), effect_context("second")
        assert kept.of(first) is kept.of(first) is not kept.of(second)
        del first
        gc.collect()

        assert len(kept) == 1
