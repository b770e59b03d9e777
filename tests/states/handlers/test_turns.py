"""A conversation's tools, title and metadata are changed by events that change nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from turnwise.states import Context, DetailsChanged, Opened, PolicyChanged, Refused, ToolsChanged
from turnwise.states.events import AnyEvent
from turnwise.states.policy import Policy
from turnwise.states.values.value import CURRENT_REVISION, FIRST_REVISION
from turnwise.testing.strategies import NOON

from ...support.busy_states import IN_TURN
from ...support.cases import holds_for
from ...support.conversation import Conversation

SENT = {"event_id": "1", "at": NOON}


def closed() -> Conversation:
    """A conversation that has ended."""
    conversation = Conversation()
    conversation.closes()
    return conversation


def failed() -> Conversation:
    """A conversation whose turn has failed."""
    conversation = Conversation()
    conversation.says()
    conversation.model_fails("authentication")
    return conversation


IN_EVERY_STATE = holds_for("play", [*IN_TURN, failed, Conversation])


class TestInEveryState:
    """Settings change in every state but `Closed`."""

    @IN_EVERY_STATE
    def test_the_tools_of_the_next_turn_change(self, play: Callable[[], Conversation]) -> None:
        """The newest turn keeps the tools that it has, and nothing else happens."""
        conversation = play()
        newest = conversation.state.book.turn

        step = conversation.happens(ToolsChanged, tools=("look",), from_turn=newest + 1)

        context = conversation.history.context
        assert (context.tools_in(newest), context.tools_in(newest + 1)) == (None, ("look",))
        assert (step.effects, step.ended) == ((), None)

    @IN_EVERY_STATE
    @holds_for("from_turn", [0, 2])
    def test_a_change_for_another_turn_is_refused(self, play: Callable[[], Conversation], from_turn: int) -> None:
        """The sender did not know how far the conversation has come, or means a turn that is far away."""
        conversation = play()
        newest = conversation.state.book.turn

        with pytest.raises(Refused) as refused:
            conversation.happens(ToolsChanged, tools=(), from_turn=max(newest + from_turn, 1) + (not newest))

        assert refused.value.code == "wrong_state"

    @IN_EVERY_STATE
    def test_a_change_that_narrows_brings_no_tool(self, play: Callable[[], Conversation]) -> None:
        """Whatever the conversation has when the change arrives: it may lose tools, also of a server, and win none."""
        conversation = play()
        following = conversation.state.book.turn + 1
        narrowing: dict[str, Any] = {"from_turn": following, "narrows": True}

        conversation.happens(ToolsChanged, tools=("look", "files:*"), **narrowing)
        for tools in (None, ("look", "pay"), ("*",), ("other:*",), ("files",)):
            with pytest.raises(Refused) as refused:
                conversation.happens(ToolsChanged, tools=tools, **narrowing)
            assert refused.value.code == "wrong_state"
        conversation.happens(ToolsChanged, tools=("files:read",), **narrowing)

        assert conversation.history.context.tools_in(following) == ("files:read",)

    @IN_EVERY_STATE
    def test_title_and_metadata_change_on_their_own(self, play: Callable[[], Conversation]) -> None:
        """What is not given stays as it was."""
        conversation = play()

        conversation.happens(DetailsChanged, title="Dinner")
        step = conversation.happens(DetailsChanged, metadata={"user": 7})

        context = conversation.history.context
        assert (context.title, context.metadata) == ("Dinner", {"user": 7})
        assert (step.effects, step.ended) == ((), None)


@pytest.mark.parametrize(("kind", "fields"), [(ToolsChanged, {"tools": None, "from_turn": 1}), (DetailsChanged, {})])
def test_nothing_changes_once_the_conversation_is_closed(kind: Any, fields: dict[str, Any]) -> None:
    """The request is refused."""
    with pytest.raises(Refused) as refused:
        closed().happens(kind, **fields)

    assert refused.value.code == "closed"


class TestToolsOfATurn:
    """`Context.tools_in`."""

    def test_the_newest_change_of_a_turn_counts(self) -> None:
        """Several changes within one turn replace each other; the turn under way keeps what an earlier turn chose."""
        context = Context(tools=("first",))
        for tools, from_turn in [(("second",), 3), (("third",), 5), (("fourth",), 5), (None, 5)]:
            context = context.after(ToolsChanged(**SENT, tools=tools, from_turn=from_turn))

        assert [context.tools_in(turn) for turn in (4, 5, 6)] == [("second",), None, None]

    def test_two_changes_are_enough_to_know_the_tools(self) -> None:
        """The newest change, and the newest one before it that belongs to an earlier turn, give the same context as all
        of them."""
        changes = [ToolsChanged(**SENT, tools=(str(n),), from_turn=turn) for n, turn in enumerate((1, 2, 2, 4, 7, 7))]
        everything = few = Context()
        for change in changes:
            everything = everything.after(change)
        for change in (changes[3], changes[5]):
            few = few.after(change)

        assert everything == few


class TestTheFirstEvent:
    """`Opened` says what the application chose, and under which revision of the machine the log began."""

    def test_what_it_says_holds_for_the_conversation(self) -> None:
        """Everything but the messages is part of the context."""
        chosen: dict[str, Any] = {"owner": "Ada", "title": "Dinner", "metadata": {"a": [1]}, "chose_models": True}
        opened = Opened(**SENT, tools=("look",), **chosen)

        context = Context().after(opened)

        assert context == Context(tools=("look",), **chosen)
        assert (context.tools_in(1), context.revision) == (("look",), CURRENT_REVISION)

    def test_a_change_of_the_policy_says_who_chose_its_models(self) -> None:
        """The application, or the engine."""
        context = Context(chose_models=True)

        assert not context.after(PolicyChanged(**SENT, policy=Policy())).chose_models
        assert context.after(PolicyChanged(**SENT, policy=Policy(), chose_models=True)).chose_models

    def test_the_profiles_are_chosen_apart_from_the_models(self) -> None:
        """The first event and each change say who chose the profiles."""
        chosen = Context().after(Opened(**SENT, chose_profiles=True))

        assert (chosen.chose_profiles, chosen.chose_models) == (True, False)
        assert not chosen.after(PolicyChanged(**SENT, policy=Policy())).chose_profiles
        assert Context().after(PolicyChanged(**SENT, policy=Policy(), chose_profiles=True)).chose_profiles

    def test_a_new_one_is_written_with_its_revision(self) -> None:
        """Apart from it and the policy, nothing is written that has its default."""
        written = Opened(**SENT).model_dump(mode="json", exclude_defaults=True)

        assert set(written) == {"type", "at", "event_id", "policy", "revision"}
        assert written["revision"] == CURRENT_REVISION

    def test_an_old_one_is_of_the_first_revision(self) -> None:
        """It was stored without a revision, and is written again without one."""
        new = Opened(**SENT, system="Be kind.").to_json()
        stored = new.replace(f',"revision":{CURRENT_REVISION}', "")

        read: Any = TypeAdapter(AnyEvent).validate_json(stored)

        assert stored != new
        assert read.revision == FIRST_REVISION
        assert read.to_json() == stored

    def test_a_revision_that_this_version_does_not_know_is_refused(self) -> None:
        """A newer version wrote it."""
        with pytest.raises(ValidationError, match="revision"):
            Opened(**SENT, revision=CURRENT_REVISION + 1)


class TestWhatIsTooLong:
    """Title and metadata are read whenever a conversation is listed, so they are bounded."""

    @pytest.mark.parametrize(
        ("metadata", "fits"),
        [
            ({str(n): n for n in range(100)}, True),
            ({str(n): n for n in range(101)}, False),
            ({"a": "x" * 19_990}, True),
            ({"a": "x" * 20_000}, False),
            ({"a": float("nan")}, False),
        ],
        ids=["100 entries", "101 entries", "just short enough", "too long", "not JSON"],
    )
    def test_metadata(self, metadata: dict[str, Any], fits: bool) -> None:
        """At most 100 entries, and 20,000 characters of JSON."""
        for make in (lambda: Opened(**SENT, metadata=metadata), lambda: DetailsChanged(**SENT, metadata=metadata)):
            if fits:
                assert make().metadata == metadata
            else:
                with pytest.raises(ValidationError, match="metadata"):
                    make()

    def test_a_title(self) -> None:
        """At most 1,000 characters."""
        assert Opened(**SENT, title="x" * 1_000).title == "x" * 1_000
        with pytest.raises(ValidationError, match="title"):
            DetailsChanged(**SENT, title="x" * 1_001)

    def test_an_owner_is_bounded(self) -> None:
        """It stands in an index."""
        assert Opened(**SENT, owner="x" * 1_000).owner == "x" * 1_000
        with pytest.raises(ValidationError):
            Opened(**SENT, owner="x" * 1_001)
