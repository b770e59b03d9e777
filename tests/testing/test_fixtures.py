"""A failure that was found once is printed as a short program, saved as a file, and replayed with every change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from turnwise.states import (
    CloseRequested,
    Event,
    InvalidInput,
    LlmResponse,
    MessageWithdrawn,
    Opened,
    Policy,
    Refused,
    ToolAborted,
    ToolApproval,
    ToolCall,
    TurnwiseError,
    UserMessage,
)
from turnwise.testing import (
    ConversationMachine,
    History,
    LawBroken,
    Observation,
    Trace,
    TraceDiverged,
    as_program,
    check_laws,
    load_trace,
    replay_trace,
    rerecord_trace,
    save_trace,
    shrink_trace,
    trace_of,
    traces,
)
from turnwise.testing.fixture import Failures
from turnwise.testing.laws import (
    is_taken_or_refused,
    pairs_calls_with_results,
    runs_no_more_than_allowed,
    stays_closed,
    takes_answers_by_their_effect,
)
from turnwise.testing.shrinking import MAX_SHOWN, tell
from turnwise.testing.strategies import NOON, events

from ..support.conversation import Conversation, call
from ..support.planted.machines import (
    Transition,
    crashes,
    forgets_a_result,
    plant,
    runs_one_too_many,
    takes_answers_by_their_type,
)

# --- A failure that was found once is saved as a file, and replayed with every change. Each file in `fixtures/` is a
# shrunk failure of a machine with a planted fault (support/planted/machines.py).


FOLDER = Path(__file__).parent.parent / "fixtures"
FIXTURES = sorted(FOLDER.glob("*.json"))

FOUND = {
    "is_taken_or_refused-7a4864ca": crashes,
    "pairs_calls_with_results-d1978d88": forgets_a_result,
    "runs_no_more_than_allowed-57930b10": runs_one_too_many,
    "takes_answers_by_their_effect-ea27bde3": takes_answers_by_their_type,
}
"""The fault by which each file was found."""


class TestOurOwn:
    """The files of this project."""

    @pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
    def test_what_went_wrong_once_goes_well(self, path: Path) -> None:
        """Every law holds, and each event has the recorded outcome."""
        assert replay_trace(path)

    @pytest.mark.parametrize(("name", "fault"), FOUND.items(), ids=FOUND)
    def test_each_finds_the_fault_that_it_came_from(
        self, name: str, fault: Transition, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On the faulty machine, each file still fails."""
        plant(monkeypatch, fault)

        with pytest.raises((LawBroken, KeyError)):
            replay_trace(FOLDER / f"{name}.json")


def conversation() -> Conversation:
    """A message, a cancel that stops the model, another cancel, a close, and one more message."""
    conversation = Conversation()
    conversation.says("寿司?\u2028")
    conversation.cancels()
    conversation.cancels()
    conversation.closes()
    conversation.history.take(UserMessage(event_id="late", at=conversation.now, text="Hello?"))
    return conversation


def saved(folder: Path) -> Path:
    """That conversation as a file."""
    save_trace(conversation().history, folder / "trace.json", note="Said after the end")
    return folder / "trace.json"


class TestTheFile:
    """`save_trace`, `load_trace`."""

    @pytest.mark.slow
    @given(traces(max_size=12))
    def test_events_are_read_as_they_were_written(self, tmp_path_factory: pytest.TempPathFactory, trace: Trace) -> None:
        """Any trace can be saved, loaded and replayed."""
        path = tmp_path_factory.getbasetemp() / "any.json"

        save_trace(trace, path)

        assert load_trace(path) == tuple(each.event for each in trace)
        replay_trace(path, stays_closed)

    def test_it_can_be_read_by_people(self, tmp_path: Path) -> None:
        """It has a version, a note and the events with one field to a line, the outcome of each in a word or two, and
        texts in any script unescaped."""
        text = saved(tmp_path).read_text(encoding="utf-8")

        assert text.startswith('{\n  "format": 1,\n  "note": "Said after the end",\n  "events": [\n')
        assert '        "text": "寿司?\u2028"\n' in text
        became = [recorded["became"] for recorded in json.loads(text)["events"]]
        assert became == ["idle", "llm_requesting", "cancelling", "idle", "ignored", "closed", "refused: closed"]

    def test_the_same_trace_is_the_same_file(self, tmp_path: Path) -> None:
        """Saving it again changes nothing."""
        path = saved(tmp_path)
        before = path.read_bytes()

        rerecord_trace(path)

        assert path.read_bytes() == before

    def test_folders_that_are_missing_are_made(self, tmp_path: Path) -> None:
        """So the first failure of a project needs no preparation."""
        save_trace(conversation().history, tmp_path / "tests" / "fixtures" / "trace.json")

        assert load_trace(tmp_path / "tests" / "fixtures" / "trace.json")

    def test_a_trace_without_events_is_none(self, tmp_path: Path) -> None:
        """It is refused, since it would pass every test."""
        with pytest.raises(ValueError, match="at least 1 item"):
            save_trace((), tmp_path / "trace.json")

    @pytest.mark.parametrize(
        ("content", "fault"),
        [
            ("", "Invalid JSON: EOF while parsing a value at line 1 column 0"),
            ('{"format": 1, "events": [', "Invalid JSON: EOF while parsing a list at line 1 column 25"),
            ("[]", "Input should be an object"),
            ('{"name": "somebody else"}', "format: Field required"),
            ('{"format": 2, "events": []}', "format: Input should be 1"),
            ('{"format": 1, "events": []}', "events: Tuple should have at least 1 item after validation, not 0"),
            ('{"format": 1, "events": [{"event": {"type": "retry_due", "at": 1}}]}', "effect_id: Field required"),
            ('{"format": 1, "events": [{"event": {"type": "from the future"}}]}', "Input tag 'from the future' found"),
        ],
    )
    def test_a_broken_or_foreign_file_is_told_in_a_sentence(self, content: str, fault: str, tmp_path: Path) -> None:
        """An error of turnwise says which file it is, and where in it."""
        path = tmp_path / "trace.json"
        path.write_text(content)

        with pytest.raises(InvalidInput) as refused:
            load_trace(path)

        assert f"{path} is not a trace that this turnwise can read: " in refused.value.sentence
        assert fault in refused.value.sentence
        assert "\n" not in refused.value.sentence

    @pytest.mark.parametrize("name", ["missing.json", "."])
    def test_a_file_that_is_not_there_is_told_too(self, name: str, tmp_path: Path) -> None:
        """So it is for other errors of the operating system."""
        with pytest.raises(TurnwiseError, match=r"^The trace .* cannot be read: [A-Z][\w ]+\.$"):
            replay_trace(tmp_path / name)


def rewritten(path: Path, old: str, new: str) -> Path:
    """The file with one replacement in its text."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


class TestReplay:
    """`replay_trace`, `rerecord_trace`."""

    @pytest.mark.parametrize(
        ("recorded", "other", "sentence"),
        [
            ("llm_requesting", "closed", "user_message in idle, step 2: llm_requesting, and not closed as "),
            ("ignored", "idle", "user_cancel in idle, step 5: ignored, and not idle as "),
            (
                "refused: closed",
                "refused: busy",
                "user_message in closed, step 7: refused: closed, and not refused: busy",
            ),
        ],
    )
    def test_what_comes_to_something_else_is_told(
        self, recorded: str, other: str, sentence: str, tmp_path: Path
    ) -> None:
        """The type of the state, the code of a refusal, and whether the event was ignored are compared."""
        path = rewritten(saved(tmp_path), f'"became": "{recorded}"', f'"became": "{other}"')

        with pytest.raises(TraceDiverged, match=sentence):
            replay_trace(path)

    def test_the_laws_are_checked(self, tmp_path: Path) -> None:
        """All of them, or those that are given, among them laws of a host."""

        def nobody_closes(history: History) -> None:
            assert not isinstance(history.newest.event, CloseRequested)

        with pytest.raises(AssertionError):
            replay_trace(saved(tmp_path), nobody_closes)

    def test_an_event_alone_may_come_to_anything(self, tmp_path: Path) -> None:
        """A failure is saved without the outcome of its last event, since that was wrong."""
        *before, last = conversation().history.observations
        save_trace((*before, last.event), tmp_path / "trace.json")

        trace = replay_trace(tmp_path / "trace.json")

        assert len(trace) == 7

    def test_it_is_recorded_anew_where_rules_change_on_purpose(self, tmp_path: Path) -> None:
        """The file then has the outcomes of today, and keeps its note."""
        path = rewritten(saved(tmp_path), '"became": "ignored"', '"became": "failed"')

        rerecord_trace(path)

        assert replay_trace(path)
        assert "Said after the end" in path.read_text(encoding="utf-8")


class ByType(ConversationMachine):
    """A conversation under the default policy that is checked against one law, so that little has to be shrunk."""

    policies = st.just(Policy())
    laws = (takes_answers_by_their_effect,)


def fail(machine: type[ConversationMachine], *phases: Phase) -> LawBroken:
    """The error of a test of this machine, where answers are accepted by their type."""
    found = settings(derandomize=True, database=None, max_examples=1_000, phases=[Phase.generate, *phases])
    with pytest.MonkeyPatch.context() as faulty:
        plant(faulty, takes_answers_by_their_type)
        with pytest.raises(LawBroken) as broken:
            run_state_machine_as_test(machine, settings=found)
    return broken.value


@pytest.mark.slow
class TestAFailureIsSaved:
    """`ConversationMachine` saves what broke a law."""

    def test_the_smallest_is_what_is_left(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Many failures are saved during the search; at the end the folder has the one that is printed, and it is
        short."""
        written: list[int] = []

        class Watched(ByType):
            fixtures = tmp_path

            def teardown(self) -> None:
                written.extend(len(load_trace(path)) for path in tmp_path.iterdir())

        broken = fail(Watched, Phase.shrink)

        (path,) = tmp_path.iterdir()
        trace = trace_of(load_trace(path))
        assert path.name.startswith("takes_answers_by_their_effect-")
        assert max(written) > written[-1] == len(trace) <= 5
        assert f"Saved as {path}; replay_trace() tries it again." in broken.__notes__
        with monkeypatch.context() as faulty:
            plant(faulty, takes_answers_by_their_type)
            program = as_program(trace_of(load_trace(path)), takes_answers_by_their_effect)
        assert any(program in note for note in broken.__notes__)

    def test_it_goes_well_once_the_fault_is_mended(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The environment may name the folder; from then on the file is a test."""
        monkeypatch.setenv("TURNWISE_FIXTURES", str(tmp_path / "new"))

        fail(ByType)

        (path,) = (tmp_path / "new").iterdir()
        assert replay_trace(path)[-1].step is None

    def test_a_folder_that_cannot_be_written_hides_no_failure(self, tmp_path: Path) -> None:
        """The broken law is reported, with the reason why there is no file."""
        (tmp_path / "taken").write_text("")

        class Nowhere(ByType):
            fixtures = tmp_path / "taken"

        broken = fail(Nowhere)

        assert any(note.startswith(f"It could not be saved in {tmp_path / 'taken'}: ") for note in broken.__notes__)

    def test_what_lay_there_stays(self, tmp_path: Path) -> None:
        """A failure that was saved before, perhaps with a note, is not overwritten."""
        failures, again = Failures(), Failures()
        trace = conversation().history.observations
        broken = raised()
        kept = failures.save(trace, stays_closed, broken, tmp_path)
        save_trace(trace, kept, note="Mind the cancel")

        smaller = again.save(trace[:2], stays_closed, broken, tmp_path)
        path = again.save(trace, stays_closed, broken, tmp_path)

        assert path == kept
        assert not smaller.exists()
        assert "Mind the cancel" in kept.read_text(encoding="utf-8")

    def test_two_faults_are_two_files(self, tmp_path: Path) -> None:
        """A failure at another place has a file of its own."""
        failures = Failures()
        trace = conversation().history.observations

        failures.save(trace, stays_closed, raised(), tmp_path)
        failures.save(trace[:2], stays_closed, raised_elsewhere(), tmp_path)

        assert len(list(tmp_path.iterdir())) == 2


def raised() -> LawBroken:
    """A law that is broken here."""
    try:
        raise LawBroken("one thing")
    except LawBroken as broken:
        return broken


def raised_elsewhere() -> LawBroken:
    """A law that is broken at another place."""
    try:
        raise LawBroken("another")
    except LawBroken as broken:
        return broken


@pytest.mark.slow
def test_events_that_were_saved_can_happen_to_a_host(tmp_path: Path) -> None:
    """`ConversationMachine.take`: a host's conversation can be checked with a saved failure too."""
    machine = ConversationMachine()

    for event in load_trace(saved(tmp_path)):
        machine.take(event)

    assert tuple(each.event for each in machine.history.observations) == load_trace(saved(tmp_path))


# --- A failure is printed as a short program that repeats what happened.


seen: list[Observation] = []


def remember(history: History) -> None:
    """A law of a host, which is never broken."""
    seen[:] = history.observations


def run(program: str) -> None:
    """Run a printed program as a test would."""
    names: dict[str, Any] = {"__name__": "pasted"}
    exec(compile(program, "pasted.py", "exec"), names)
    (test,) = (thing for name, thing in names.items() if name.startswith("test_"))
    test()


def told(trace: Trace) -> list[object]:
    """All that is known of a trace, in a form that can be compared."""
    outcomes = [vars(each.outcome) if isinstance(each.outcome, Refused) else each.outcome for each in trace]
    return [(each.before, each.event, each.context, outcome) for each, outcome in zip(trace, outcomes, strict=True)]


def two_tools(**rules: Any) -> Conversation:
    """A message, a cancel that stops the model, and another message; then the model calls two tools."""
    conversation = Conversation(**rules)
    conversation.says()
    conversation.cancels()
    conversation.says("Book a table")
    conversation.model_calls(call("find", arguments='{"party": 2}'), "book", content="Let me see")
    return conversation


class TestTheProgram:
    """`as_program`."""

    @pytest.mark.slow
    @given(traces())
    def test_it_does_again_what_happened(self, trace: Trace) -> None:
        """Whatever happened, the program leads to the same states, effects, refusals and endings."""
        run(as_program(trace, remember))

        assert told(tuple(seen)) == told(trace)

    @given(events())
    def test_it_says_exactly_what_an_event_said(self, event: Event) -> None:
        """For every event, with times at the ends of the calendar and texts that need escaping."""
        run(as_program((event,), remember))

        assert seen[0].event == event

    def test_it_is_one_line_an_event_and_says_only_what_is_unusual(self) -> None:
        """It omits defaults, writes times in seconds from the first event, and adds each outcome as a comment."""
        conversation = two_tools(parallel=2)
        conversation.history.take(UserMessage(event_id="more", at=conversation.now, text='He said "no"'))
        conversation.history.take(LlmResponse(effect_id=1, at=conversation.now, content="Too late"))

        program = as_program(conversation.history, runs_no_more_than_allowed)

        assert program == PROGRAM

    def test_a_moment_far_away_is_written_out(self) -> None:
        """In seconds it would be unreadable and lose digits."""
        opened = Opened(event_id="opened", at=NOON)
        message = UserMessage(event_id="late", at=NOON.replace(year=9999, microsecond=1), text="Hello")

        program = as_program((opened, message))

        assert "at=datetime(9999, 6, 1, 12, 0, 0, 1, tzinfo=UTC)" in program

    def test_without_a_law_it_checks_them_all(self) -> None:
        """A trace that breaks no law can be written as a program too."""
        program = as_program(two_tools().history.observations)

        run(program)
        assert program.endswith("    check_laws(history.observations)\n")

    def test_a_law_that_cannot_be_imported_must_be_brought_along(self) -> None:
        """The program names the law and imports only what it can."""

        def nothing_happens(history: History) -> None:
            raise AssertionError

        program = as_program(two_tools().history, nothing_happens)

        assert "import nothing_happens" not in program
        assert program.endswith("    check_newest(history, nothing_happens)\n")


PROGRAM = '''\
from datetime import UTC, datetime, timedelta

from turnwise.states import LlmResponse, LlmStopped, Opened, Policy, ToolCall, UserCancel, UserMessage
from turnwise.testing import History, check_newest
from turnwise.testing.laws import runs_no_more_than_allowed


def at(seconds: float) -> datetime:
    return datetime(2026, 6, 1, 12, 0, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def test_runs_no_more_than_allowed() -> None:
    """Law 6: one model request at a time, no more tools than the policy allows, an exclusive call alone, and no call \
that a person must allow and has not allowed."""
    history = History()
    history.take(Opened(at=at(0), event_id="request-0", policy=Policy(parallel=2)))  # idle
    history.take(UserMessage(at=at(1), event_id="request-1", text="Hello"))  # llm_requesting
    history.take(UserCancel(at=at(2), event_id="request-2"))  # cancelling
    history.take(LlmStopped(at=at(3), effect_id=1))  # idle
    history.take(UserMessage(at=at(4), event_id="request-4", text="Book a table"))  # llm_requesting
    history.take(LlmResponse(at=at(5), effect_id=3, content="Let me see", tool_calls=(ToolCall(call_id="find", \
name="find", raw_arguments='{"party": 2}'), ToolCall(call_id="book", name="book"))))  # tool_executing
    history.take(UserMessage(at=at(5), event_id="more", text='He said "no"'))  # refused: busy
    history.take(LlmResponse(at=at(5), effect_id=1, content="Too late"))  # ignored

    check_newest(history, runs_no_more_than_allowed)
'''


def program_in(broken: Exception) -> str:
    """The program that a failure shows."""
    (note,) = (note for note in broken.__notes__ if "written as a program" in note)
    return note.partition("\n\n")[2]


class TestAFailure:
    """A broken law raises an error that shows the program."""

    def test_it_shows_the_program(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The program fails as the conversation did, and succeeds when the fault is corrected."""
        events = [each.event for each in two_tools().history.observations]

        with monkeypatch.context() as faulty:
            plant(faulty, runs_one_too_many)
            with pytest.raises(LawBroken, match="more tools run than the policy allows") as broken:
                check_laws(trace_of(events))
            with pytest.raises(LawBroken, match="more tools run than the policy allows"):
                run(program_in(broken.value))

        run(program_in(broken.value))

    def test_what_a_law_of_your_own_raises_gets_it_too(self) -> None:
        """A host's law may use `assert`, or raise by accident."""

        def is_short(history: History) -> None:
            assert len(history.log) < 4

        with pytest.raises(AssertionError) as broken:
            check_laws(two_tools().history.observations, is_short)

        assert program_in(broken.value) == as_program(two_tools().history.observations[:4], is_short)

    def test_outside_of_hypothesis_it_is_told_as_it_happened(self) -> None:
        """Without shrinking, since somebody chose these events."""
        broken = LawBroken("")

        trace = tell(broken, two_tools().history.observations, remember)

        assert trace == tuple(two_tools().history.observations)

    def test_nothing_is_cut_short(self) -> None:
        """A program that is too long is omitted completely: a part of it would show another conversation."""
        conversation = two_tools()
        conversation.history.take(UserMessage(event_id="long", at=conversation.now, text="x" * MAX_SHOWN))
        broken = LawBroken("")

        tell(broken, conversation.history.observations, remember)

        assert broken.__notes__ == [
            "The 7 events that led there are too long to print; as_program() writes them down.",
        ]


def takes_nothing_back_and_allows_nothing(history: History) -> None:
    """A law that a withdrawal or an approval breaks."""
    assert not (history.withdrawn and history.allowed)


class TestMadeShorter:
    """`shrink_trace` removes from a trace what does not matter for its failure."""

    def test_what_does_not_matter_goes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A cancelled turn, texts, arguments and rules are removed; answers keep referring to their effects."""
        events = [each.event for each in two_tools(when_busy="queue").history.observations]
        plant(monkeypatch, runs_one_too_many)
        trace = trace_of(events)

        shortest = shrink_trace(trace, runs_no_more_than_allowed)

        assert [each.event for each in shortest] == [
            Opened(event_id="request-0", at=events[0].at),
            UserMessage(event_id="request-1", at=events[1].at, text="a"),
            LlmResponse(
                effect_id=1,
                at=events[2].at,
                tool_calls=(ToolCall(call_id="call-1", name="find"), ToolCall(call_id="call-2", name="book")),
            ),
        ]

    def test_an_answer_ends_what_waits_for_it_where_the_rest_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A retry's request is removed with the failure before it; its response then answers the first request."""
        conversation = Conversation()
        conversation.says()
        conversation.model_fails("internal")
        conversation.tries_again()
        conversation.model_calls("find", "book")
        events = [each.event for each in conversation.history.observations]
        plant(monkeypatch, runs_one_too_many)

        shortest = shrink_trace(trace_of(events), runs_no_more_than_allowed)

        assert [each.event.type for each in shortest] == ["opened", "user_message", "llm_response"]

    def test_ids_stay_those_of_what_they_name(self) -> None:
        """A withdrawal still names its message and an approval its call, when both ids are shortened."""
        conversation = Conversation(when_busy="queue")
        conversation.says()
        conversation.model_says("Hello")
        conversation.says()
        conversation.says("Hurry")
        conversation.happens(MessageWithdrawn, message_id=conversation.history.newest.event.event_id)
        conversation.model_calls(call("9d3e", approval=True))
        conversation.happens(ToolApproval, call_id="9d3e", allowed=True)

        shortest = shrink_trace(conversation.history.observations, takes_nothing_back_and_allows_nothing)

        events = [each.event for each in shortest]
        assert [type(event) for event in events] == [
            Opened,
            UserMessage,
            UserMessage,
            MessageWithdrawn,
            LlmResponse,
            ToolApproval,
        ]
        assert events[3].message_id == events[2].event_id == "request-2"
        assert events[5].call_id == events[4].tool_calls[0].call_id == "call-1"

    def test_an_event_that_cannot_happen_stays_the_last(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """If a handler raises, the same exception must remain."""
        plant(monkeypatch, crashes)
        conversation = two_tools()
        stopped = ToolAborted(effect_id=conversation.running("find"), at=conversation.now)

        shortest = shrink_trace((*conversation.history.observations, stopped), is_taken_or_refused)

        assert [type(each) for each in shortest] == [Observation, Observation, Observation, ToolAborted]
        assert shortest[-1].effect_id == 2

    def test_what_breaks_nothing_stays_as_it_is(self) -> None:
        """A trace that breaks no law is not changed."""
        trace = tuple(two_tools().history.observations)

        assert shrink_trace(trace, pairs_calls_with_results) == trace
