"""What a model is sent by a conversation that goes back: the branch under way, valid for every provider."""

from __future__ import annotations

from hypothesis import given

from turnwise.effects.model.request import CachedPrompt, OfferedTools, assemble_context
from turnwise.states import LogEntry, RequestLlm
from turnwise.states.effects import SwitchBranch
from turnwise.states.transcript import Transcript
from turnwise.testing import Trace, traces

from ...support.servers.openai_server import violations
from .test_request import MISTRAL, MODEL, body_of

NO_TOOLS = OfferedTools(())


@given(traces())
def test_no_provider_refuses_it(trace: Trace) -> None:
    """P35: whatever happened and wherever the conversation went, each request is complete, and the one of a cached
    prompt, which takes back what is hidden, is the one that is written anew."""
    said, hidden = Transcript(), set[tuple[int, int]]()
    cached = {model: CachedPrompt() for model in (MODEL, MISTRAL)}
    for each in trace:
        if each.step is None:
            continue
        before = {(message.turn, message.seq) for message in said.messages}
        said.add(LogEntry.of(each.event, each.step))
        if any(isinstance(effect, SwitchBranch) for effect in each.effects):
            hidden = (hidden | before) - {(message.turn, message.seq) for message in said.messages}
        for effect in (one for one in each.effects if isinstance(one, RequestLlm)):
            for model, prompt in cached.items():
                asked, turn = effect.replace(model=model), each.after.book.turn
                content = assemble_context(asked, each.context.after(each.event), said, turn)
                given_ = {"closing": content.closing, "wording": content.wording, "first_turn": said.first_try(turn)}
                sent, digest = prompt.request(asked, content.system, content.history, NO_TOOLS, turn, **given_)
                anew = CachedPrompt().request(asked, content.system, content.history, NO_TOOLS, turn, **given_)
                assert (sent, digest) == anew
                assert violations(body_of(sent)) == []
                assert hidden.isdisjoint({(message.turn, message.seq) for message in content.history if message.seq})
