"""Keeps a conversation in a file, so that what went wrong once is tried again with every change.

The file is one JSON object, laid out over lines so that a change of it can be read: the version of the format, a note
for people, and the events, each with what became of it. Nothing else is kept, since everything follows from the
events. A test replays the file: the laws must hold, and each event must come to what it came to before.

    @pytest.mark.parametrize("path", sorted(Path("tests/fixtures").glob("*.json")), ids=str)
    def test_what_went_wrong_once(path): replay_trace(path)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from os import PathLike
from pathlib import Path
from traceback import extract_tb
from typing import Literal

from pydantic import Field, ValidationError

from ..states.errors import InvalidInput
from ..states.events import AnyEvent, Event
from ..states.values.value import MAX_QUOTED, Value, shortened
from .history import History, Trace
from .laws import Law, check_newest, is_replayed_by_its_log
from .program import Known, became, claim, event_of

AnyPath = str | PathLike[str]


class TraceDiverged(AssertionError):
    """An event of a saved trace comes to something else now than it did when the trace was saved."""


class Recorded(Value):
    """An event, and what became of it: the type of the state it led to, `ignored`, or `refused: ` and the code.

    Nothing is said of an event that may come to anything that the laws allow.
    """

    event: AnyEvent
    became: str = ""


class Fixture(Value):
    """What a file holds."""

    format: Literal[1]
    note: str = ""
    events: tuple[Recorded, ...] = Field(min_length=1)


def save_trace(trace: History | Iterable[Known], path: AnyPath, note: str = "") -> None:
    """Write a trace into a file, in place of what it held; folders that are missing are made.

    An event may stand in place of an observation: then it is not recorded what became of it. Raises OSError if the
    file cannot be written, and ValueError for a trace without events.
    """
    observed = trace.observations if isinstance(trace, History) else trace
    events = [{"event": event_of(each), "became": became(each)} for each in observed]
    fixture = Fixture.model_validate({"format": 1, "note": note, "events": events})
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    text = fixture.model_dump_json(exclude_defaults=True, indent=2)
    Path(path).write_text(text + "\n", encoding="utf-8", newline="\n")


def load_trace(path: AnyPath) -> tuple[Event, ...]:
    """The events of a trace that was saved, oldest first. Raises `InvalidInput` if the file cannot be read."""
    return tuple(recorded.event for recorded in _read(path).events)


def trace_of(events: Iterable[Event]) -> Trace:
    """What becomes of these events, one after the other. `Pure.`"""
    history = History()
    return tuple(history.take(event) for event in events)


def replay_trace(path: AnyPath, *laws: Law) -> Trace:
    """Let the events of a saved trace happen again, and hold each step to the laws given, or to all.

    Raises `LawBroken`, `TraceDiverged` if an event comes to something else than is recorded, and `InvalidInput` if
    the file cannot be read.
    """
    history = History()
    for recorded in _read(path).events:
        history.take(recorded.event)
        check_newest(history, *laws)
        _compare(history, recorded, path)
    if not laws:
        check_newest(history, is_replayed_by_its_log)
    return tuple(history.observations)


def rerecord_trace(path: AnyPath) -> Trace:
    """Record anew what the events of a saved trace come to: when a fault is mended, or the rules changed on purpose.

    What changed is to be read in the difference of the file. Raises `InvalidInput` if the file cannot be read.
    """
    fixture = _read(path)
    trace = trace_of(recorded.event for recorded in fixture.events)
    save_trace(trace, path, fixture.note)
    return trace


def file_name(law: Law, events: Iterable[Event]) -> str:
    """The name of the file for a trace that breaks a law: the law's, and a digest of the events. `Pure.`"""
    digest = sha256("\n".join(event.to_json() for event in events).encode()).hexdigest()
    return f"{law.__name__}-{digest[:8]}.json"


class Failures:
    """The traces that a test saves when it fails: of each failure the newest.

    Hypothesis runs a failing test many times, each time with something smaller, and the smallest once more at the end.
    So a trace replaces the one that this object saved before for the same failure: one that was raised at the same
    place of the program, which is how Hypothesis tells failures apart. What lay in the folder before stays as it is.
    """

    def __init__(self) -> None:
        self._saved: dict[tuple[str, int | None], Path] = {}

    def save(self, trace: Sequence[Known], law: Law, broken: Exception, folder: AnyPath) -> Path:
        """Save a trace whose last event breaks a law, and say where; what that event came to is not recorded.

        Raises OSError if it cannot be saved.
        """
        path = Path(folder, file_name(law, map(event_of, trace)))
        raised = extract_tb(broken.__traceback__)[-1]
        place = raised.filename, raised.lineno
        before = self._saved.pop(place, None)
        if before is not None:
            before.unlink(missing_ok=True)
        if not path.exists():
            save_trace((*trace[:-1], event_of(trace[-1])), path, f"Found by {law.__name__}. {claim(law)}".strip())
            self._saved[place] = path
        return path


def _compare(history: History, recorded: Recorded, path: AnyPath) -> None:
    now = became(history.newest)
    if recorded.became not in ("", now):
        place = f"{recorded.event.type} in {history.newest.before.type}, step {len(history.observations)}"
        raise TraceDiverged(f"{place}: {now}, and not {recorded.became} as {Path(path).name} has it")


def _read(path: AnyPath) -> Fixture:
    try:
        return Fixture.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        raise InvalidInput(f"The trace {path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        raise InvalidInput(f"The file {path} is not a trace that this turnwise can read: {_fault(error)}.") from None


def _fault(error: ValidationError) -> str:
    """The first fault of a file, and where it is."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    return shortened(f"{place}: {first['msg']}".removeprefix(": ").rstrip("."), MAX_QUOTED)
