"""Room in the window of the model: what is cleared before anything is summarized, and what never is lost by it."""

from __future__ import annotations

from ...states.effects import ClearResults, CompactHistory, RequestLlm, SwitchBranch
from ...states.events import CompactionRequested, EffectFailed, LlmFailed, LlmResponse
from ...states.policy import models_of
from ...states.states import Compacting, LlmRequesting
from ...states.transcript import SHORTEST_CLEARED
from ...states.values.messages import Message
from ..history import History, require


def clears_before_it_compacts(history: History) -> None:
    """A compaction never begins in a turn while the window would have room without old results of tools. They are
    cleared only for a request that is sent in the same step, as the rules say, and once for each."""
    newest = history.newest
    if newest.step is None:
        return
    cleared = [effect for effect in newest.effects if isinstance(effect, ClearResults)]
    begins = any(isinstance(effect, CompactHistory) for effect in newest.effects)
    if begins and not isinstance(newest.before, Compacting) and not isinstance(newest.event, CompactionRequested):
        require(not _would_make_room(history), "a compaction begins although clearing would be enough", history)
    if cleared:
        rules = newest.context.policy.clear_results
        asks = any(isinstance(effect, RequestLlm) for effect in newest.effects)
        require(rules is not None and cleared == [ClearResults(rounds=rules.rounds)], "not by the rules", history)
        require(asks, "results are cleared although no request follows", history)


def _would_make_room(history: History) -> bool:
    """Whether it is known in this step that the next request fits without old results."""
    newest, policy = history.newest, history.newest.context.policy
    event, before, state = newest.event, newest.before, newest.after
    if policy.clear_results is None or not isinstance(state, Compacting) or state.turn is None:
        return False
    if isinstance(before, LlmRequesting) and not _ends_turn(history) and isinstance(event, LlmFailed | EffectFailed):
        return isinstance(event, LlmFailed) and bool(event.clearable) and not before.turn.cleared
    used, clearable = before.book.window_used, before.book.clearable
    if isinstance(event, LlmResponse):
        used, clearable = event.usage.tokens, event.clearable
    for switch in (effect for effect in newest.effects if isinstance(effect, SwitchBranch)):
        used, clearable = switch.to.window_used, switch.to.clearable
    profile = state.book.profile or state.turn.profile
    place = state.turn.model if profile == state.turn.profile else 0
    window = models_of(policy, profile)[place].window
    return window is not None and bool(clearable) and used - clearable < policy.window * window


def _ends_turn(history: History) -> bool:
    """Whether the newest step ends a turn, so that the next request is one of another turn."""
    return history.newest.step is not None and history.newest.step.ended is not None


def clears_old_results(history: History) -> None:
    """A clearing takes the long results of all rounds but the newest, so that none is left for the next request."""
    newest = history.newest
    cleared = [effect for effect in newest.effects if isinstance(effect, ClearResults)]
    if newest.step is None or not cleared:
        return
    rounds = cleared[0].rounds
    for message, newer in _with_newer_rounds(history.transcript):
        if message.role == "tool":
            is_long = len(message.text) > SHORTEST_CLEARED or bool(message.files)
            require(
                message.cleared or newer < rounds or not is_long,
                "an old result is still shown",
                history,
            )
            require(newer >= rounds or not message.cleared, "a new result is not shown any more", history)


def _with_newer_rounds(messages: tuple[Message, ...]) -> list[tuple[Message, int]]:
    """Each message with the number of rounds of calls behind it, its own not among them."""
    newer, found = 0, []
    for message in reversed(messages):
        if message.tool_calls:
            newer += 1
        found.append((message, newer))
    return found
