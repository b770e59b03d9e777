"""A failing test of generated conversations ends within seconds, and shows the conversation, wherever it fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from turnwise.states import Event, Opened, ToolComplete
from turnwise.testing import ConversationMachine, History, conversation_settings

from ..conftest import PROFILE


def completed(history: History) -> int:
    """How many tools have completed."""
    return sum(isinstance(seen.event, ToolComplete) and seen.step is not None for seen in history.observations)


def few_tools_complete(history: History) -> None:
    """No two tools complete."""
    assert completed(history) < 2


class ByLaw(ConversationMachine):
    """Breaks a law."""

    laws = (few_tools_complete,)


class ByTeardown(ConversationMachine):
    """Fails when it is torn down."""

    generated = 0

    def take(self, event: Event) -> None:
        """Count the conversations that are generated."""
        ByTeardown.generated += isinstance(event, Opened)
        super().take(event)

    def teardown(self) -> None:
        """No two tools have completed."""
        super().teardown()
        few_tools_complete(self.history)


class BelowTeardown(ByTeardown):
    """Inherits a teardown that fails, and calls it from its own."""

    def teardown(self) -> None:
        """The same."""
        super().teardown()


@pytest.fixture
def default_profile() -> Iterator[None]:
    """The profile of Hypothesis for programs that choose none."""
    settings.load_profile("default")
    yield
    settings.load_profile(PROFILE)


@pytest.mark.usefixtures("default_profile")
class TestAFailure:
    """In an application that has no profile of its own."""

    @pytest.mark.slow
    @pytest.mark.parametrize("machine", [ByLaw, ByTeardown, BelowTeardown])
    def test_it_is_shown_as_a_short_program(self, machine: type[ConversationMachine]) -> None:
        """Once, from the first event to the last one that it takes; also that of a teardown."""
        with pytest.raises(AssertionError) as failed:
            run_state_machine_as_test(
                machine, settings=conversation_settings(database=None, derandomize=True, max_examples=500)
            )

        (note,) = [note for note in failed.value.__notes__ if note.startswith("The same, written as a program")]
        assert note.count("history.take(ToolComplete") == 2
        assert note.count("history.take(") <= 8

    @pytest.mark.slow
    def test_few_conversations_are_tried_after_it(self) -> None:
        """Hypothesis would try thousands of smaller ones, and trace each line of them to explain the failure."""
        ByTeardown.generated = 0
        with pytest.raises(AssertionError):
            run_state_machine_as_test(
                ByTeardown, settings=conversation_settings(database=None, derandomize=True, max_examples=500)
            )

        assert ByTeardown.generated < 1_000

    def test_the_settings_are_those_of_a_test_case(self) -> None:
        """So nobody has to ask for them."""

        class Assistant(ConversationMachine):
            """A machine of an application."""

        chosen = Assistant.TestCase.settings
        assert not {Phase.shrink, Phase.explain} & {*chosen.phases}
        assert chosen.deadline is None


def test_a_profile_that_chooses_phases_keeps_them() -> None:
    """Whoever wants Hypothesis to shrink says so."""
    settings.register_profile("thorough", phases=[Phase.generate, Phase.shrink])
    settings.load_profile("thorough")
    try:
        assert set(conversation_settings().phases) == {Phase.generate, Phase.shrink}
    finally:
        settings.load_profile(PROFILE)
