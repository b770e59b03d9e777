"""A conversation in each state in which it can be busy, for tests of what holds in all of them."""

from __future__ import annotations

from collections.abc import Callable

from turnwise.states import ModelSpec, Profile, Questions, Usage, presets

from .conversation import Conversation, asking, call, completing, responding, spawning


def selecting() -> Conversation:
    """The router chooses a profile."""
    conversation = Conversation(profiles=(Profile(name="a"), Profile(name="b")), route=True)
    conversation.says()
    return conversation


def recalling() -> Conversation:
    """Older conversations are searched."""
    conversation = Conversation(recall=True)
    conversation.says()
    return conversation


def requesting() -> Conversation:
    """The model is asked, with a nudge."""
    conversation = Conversation(presets.explicit_response())
    conversation.says()
    conversation.model_says("Done.")
    return conversation


def backing_off() -> Conversation:
    """A failed request waits for its next attempt."""
    conversation = Conversation()
    conversation.says()
    conversation.model_fails()
    return conversation


def executing() -> Conversation:
    """Two tools run, and a third waits."""
    conversation = Conversation(parallel=2)
    conversation.says()
    conversation.model_calls("a", "b", "c")
    return conversation


def asked() -> Conversation:
    """A person was asked, with a deadline."""
    conversation = Conversation(questions=Questions(deadline=60))
    conversation.says()
    conversation.model_calls(asking(), "next")
    conversation.tool_asks()
    return conversation


def suspended() -> Conversation:
    """A call has asked a person in its middle, with a deadline, and waits."""
    conversation = Conversation(questions=Questions(deadline=60))
    conversation.says()
    conversation.model_calls(call("delete", exclusive=True), "next")
    conversation.tool_asks("delete", suspends=True)
    return conversation


def approving() -> Conversation:
    """A person must allow a call, in time."""
    conversation = Conversation(approval_deadline=60)
    conversation.says()
    conversation.model_calls(call("pay", approval=True))
    return conversation


def waiting_for_children() -> Conversation:
    """Of three sub-agents two work."""
    conversation = Conversation()
    conversation.says()
    conversation.model_calls(spawning())
    conversation.tool_spawns("spawn", "north", "south", "west")
    conversation.child_finishes("south")
    return conversation


def verifying() -> Conversation:
    """A claim is checked."""
    conversation = Conversation(presets.explicit_response(), summarize=True)
    conversation.says()
    conversation.model_calls(responding(), completing())
    conversation.tool_responds("respond", "A")
    conversation.tool_claims()
    return conversation


def summarizing() -> Conversation:
    """A turn that came to its end is summarized."""
    conversation = verifying()
    conversation.verifier_says(True)
    return conversation


def condensing() -> Conversation:
    """The history is condensed for a request."""
    conversation = Conversation(models=(ModelSpec(name="small", window=1_000),))
    conversation.says()
    conversation.model_calls("a", usage=Usage(input_tokens=900))
    return conversation


def condensing_at_rest() -> Conversation:
    """The history is condensed without a turn."""
    conversation = Conversation()
    conversation.says()
    conversation.model_says("Hello")
    conversation.wants_it_condensed()
    return conversation


def stopping() -> Conversation:
    """Two tools were told to stop, and a third was skipped."""
    conversation = executing()
    conversation.cancels()
    return conversation


def stopping_children() -> Conversation:
    """Two sub-agents were told to stop."""
    conversation = waiting_for_children()
    conversation.cancels()
    return conversation


def asking_a_tool() -> Conversation:
    """A tool is asked what became of a call that a crash interrupted."""
    conversation = Conversation()
    conversation.says()
    conversation.model_calls(call("save", crash="reconcile"), "next")
    conversation.tool_was_interrupted("save")
    return conversation


def doubting() -> Conversation:
    """Nobody knows whether a call ran; another one waits."""
    conversation = Conversation()
    conversation.says()
    conversation.model_calls("pay", "next")
    conversation.tool_was_interrupted("pay")
    return conversation


def doubting_while_another_runs() -> Conversation:
    """Nobody knows whether a call ran, and another one runs."""
    conversation = Conversation(parallel=2)
    conversation.says()
    conversation.model_calls("pay", "read", "next")
    conversation.tool_was_interrupted("pay")
    return conversation


Moment = Callable[[], Conversation]

IN_TURN: tuple[Moment, ...] = (
    selecting,
    recalling,
    requesting,
    backing_off,
    executing,
    asked,
    approving,
    waiting_for_children,
    verifying,
    summarizing,
    condensing,
    stopping,
    stopping_children,
    asking_a_tool,
    doubting,
    doubting_while_another_runs,
)
"""All that lie within a turn."""
