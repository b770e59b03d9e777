"""Saves a conversation in a file, so that what failed once is tested with every change.

The file is one JSON object, formatted over several lines so that a difference can be read: the version of the format, a
note for people, and the events, each with its outcome. Nothing else is saved, since everything follows from the events.
A test replays the file: the laws must hold, and each event must have the same outcome as before.

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
from .shrinking import Known, became, claim, event_of

AnyPath = str | PathLike[str]


class TraceDiverged(AssertionError):
    """An event of a saved trace has another outcome now than when the trace was saved."""


class Recorded(Value):
    """An event and its outcome: the type of the state it led to, `ignored`, or `refused: ` and the code.

    The outcome is empty for an event that may have any outcome that the laws allow.
    """

    event: AnyEvent
    became: str = ""


class Fixture(Value):
    """The content of a file."""

    format: Literal[1]
    note: str = ""
    events: tuple[Recorded, ...] = Field(min_length=1)


def save_trace(trace: History | Iterable[Known], path: AnyPath, note: str = "") -> None:
    """Write a trace to a file, and replace what it held. Missing folders are made.

    An event may stand in the place of an observation: its outcome is not recorded then. Raises OSError if the file
    cannot be written, and ValueError for a trace without events.
    """
    observed = trace.observations if isinstance(trace, History) else trace
    events = [{"event": event_of(each), "became": became(each)} for each in observed]
    fixture = Fixture.model_validate({"format": 1, "note": note, "events": events})
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    text = fixture.model_dump_json(exclude_defaults=True, indent=2)
    Path(path).write_text(text + "\n", encoding="utf-8", newline="\n")


def load_trace(path: AnyPath) -> tuple[Event, ...]:
    """Return the events of a saved trace, oldest first. Raises `InvalidInput` if the file cannot be read."""
    return tuple(recorded.event for recorded in _read(path).events)


def trace_of(events: Iterable[Event]) -> Trace:
    """Return the observations of these events, one after the other. `Pure.`"""
    history = History()
    return tuple(history.take(event) for event in events)


def replay_trace(path: AnyPath, *laws: Law) -> Trace:
    """Put the events of a saved trace to the machine again, and check the laws given, or all, at each step.

    Raises `LawBroken`, `TraceDiverged` if an event has another outcome than is recorded, and `InvalidInput` if the file
    cannot be read.
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
    """Record the outcomes of a saved trace again, after a fault was mended or the rules were changed on purpose.

    Read the difference of the file to see what has changed. Raises `InvalidInput` if the file cannot be read.
    """
    fixture = _read(path)
    trace = trace_of(recorded.event for recorded in fixture.events)
    save_trace(trace, path, fixture.note)
    return trace


def file_name(law: Law, events: Iterable[Event]) -> str:
    """Return the name of the file for a trace that breaks a law: the law's name, and a digest of the events. `Pure.`"""
    digest = sha256("\n".join(event.to_json() for event in events).encode()).hexdigest()
    return f"{law.__name__}-{digest[:8]}.json"


class Failures:
    """Saves the traces of a failing test: of each failure the newest.

    Hypothesis runs a failing test many times, each time with a smaller example, and runs the smallest once more at the
    end. So a trace replaces the one that this object saved before for the same failure, that is, for one that was
    raised at the same line of the program, which is how Hypothesis tells failures apart. Files that were in the folder
    before are not changed.
    """

    def __init__(self) -> None:
        self._saved: dict[tuple[str, int | None], Path] = {}

    def save(self, trace: Sequence[Known], law: Law, broken: Exception, folder: AnyPath) -> Path:
        """Save a trace whose last event breaks a law. The outcome of that event is not recorded. Returns the path.

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
    """The first error in a file, and where it is."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    return shortened(f"{place}: {first['msg']}".removeprefix(": ").rstrip("."), MAX_QUOTED)
