"""The commands that look into a database, and those that repair it: `list`, `show`, `replay`, `doctor` and `resolve`.

`turnwise list` prints a line for each conversation, also as a tree of agents, and `turnwise show` what was said in one.
`turnwise replay` replays conversations, and reports the outcome to users as text, to programs as JSON, and to
continuous integration as test results in a JUnit report: a format without a standard, but with a form that the tools
share. These commands open the database read-only and without its lock, so they work while a program has it open, and
after one that crashed.

`turnwise doctor` examines a database, and repairs what can be repaired. `turnwise resolve` says whether a tool ran that
was interrupted when its program ended. To repair and to resolve, no other program may have the database open.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shutil import get_terminal_size
from time import perf_counter
from typing import Any, NamedTuple, get_args
from xml.etree import ElementTree

from ....effects.printable import printable
from ....engine.json_forms import message_data
from ....engine.recovery import calls_in_doubt, resolve
from ....persistence.errors import StorageFailed
from ....persistence.maintenance.doctor import Examination, Finding, examine, repair
from ....persistence.maintenance.fork import origin_of
from ....persistence.maintenance.replay import Divergence, StepOutcome, replay_conversation
from ....persistence.opening import address_of
from ....persistence.ports import Store, find_all
from ....persistence.records import Origin
from ....persistence.summaries import ConversationFilter, Summary, details_of, details_of_rows, summary_of
from ....states.errors import ConfigurationError, InvalidInput, Refused, StoreError, UnknownConversation
from ....states.events import Resolution
from ....states.step import LogEntry
from ....states.transcript import transcript
from ....states.values.messages import Message
from ..configuration import (
    Settings,
    command_line,
    open_for_reading,
    open_for_writing,
    options_for,
    resolve_id,
    short_ids,
)
from ..output.event_lines import event_lines
from ..output.lines import counted, one_line, print_json, print_notice, with_files

_WIDEST_HEAD = 48
"""Up to how many characters ids are padded, with the lines of a tree in front of them: enough for the id of a
sub-agent, in full, on the third level."""

_INCOMPLETE = 1
"""The exit code of a list from which conversations are left out that cannot be read."""

_ROLES = {"foreground": "", "background": " (background)", "sub_agent": " (sub-agent)"}


async def list_conversations(
    settings: Settings, owner: str | None, limit: int | None, as_json: bool, as_tree: bool = False
) -> int:
    """Print for each conversation its id, its state, when it last changed, its title, and where it was forked from:
    of all, or of those of this owner, the newest `limit`. A tree has agents below the conversations that they belong
    to, with their roles and their next wake-ups.

    A terminal shows short ids, and cuts lines at its width; a program reads ids and lines in full.
    """
    wanted = ConversationFilter(owner=owner, limit=limit)
    async with open_for_reading(settings) as store:
        faults: Sequence[str] = ()
        try:
            summaries = await store.list(wanted)
            ids = await store.ids()
        except StoreError:
            summaries, faults = await _readable(store, wanted)
            ids = tuple(summary.id for summary in summaries)
    for fault in faults:
        print_notice(one_line(fault))
    abandoned = any(summary.busy for summary in summaries) and not await address_of(settings.db).is_in_use()
    if as_json:
        branches = arranged(summaries) if as_tree else tuple(map(Branch, summaries))
        depths = ({"depth": branch.depth} if as_tree else {} for branch in branches)
        listed = [_described(branch.summary, abandoned) | depth for branch, depth in zip(branches, depths, strict=True)]
        print_json({"conversations": listed})
        return _INCOMPLETE if faults else 0
    if not summaries:
        print_notice(
            "There are no conversations yet." if owner is None else "There are no conversations of this owner."
        )
    on_a_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = get_terminal_size().columns if on_a_terminal else None
    shown_ids = short_ids(ids) if on_a_terminal else {}
    lines = tree_lines(summaries, abandoned, shown_ids, width) if as_tree else _lines(summaries, abandoned, shown_ids)
    for line in lines:
        print(_cut(line, width))
    return _INCOMPLETE if faults else 0


async def _readable(store: Store, wanted: ConversationFilter) -> tuple[tuple[Summary, ...], Sequence[str]]:
    """Return what the list of a damaged file can still show, read conversation by conversation from its steps, and a
    sentence for each that it cannot."""
    ids, hidden = await find_all(store)
    found, faults = list[Summary](), [fault.sentence for fault in hidden]
    for each in ids:
        try:
            record = await store.read_record(each)
            found.append(summary_of(record, details_of_rows(record.steps)))
        except UnknownConversation:  # deleted meanwhile
            continue
        except (StoreError, LookupError, TypeError, ValueError, OverflowError):
            faults.append(f"{each} is left out: it cannot be read, because the database is damaged.")
    return wanted.page_of(sorted(found, key=lambda summary: summary.updated_at, reverse=True)), faults


def _described(summary: Summary, abandoned: bool = False) -> dict[str, Any]:
    """Return a conversation as JSON shows it; `abandoned` says that no program has its database open. `Pure.`"""
    shown = summary.model_dump(mode="json", exclude={"busy", "origin", "seq"})
    interrupted = summary.busy and abandoned
    return {**shown, "interrupted": interrupted, "forked_from": _described_origin(summary.origin)}


def _described_origin(origin: Origin | None) -> dict[str, Any] | None:
    """Return the conversation and the step that a conversation was forked from, as JSON shows them. `Pure.`"""
    return None if origin is None else {"id": origin.conversation_id, "seq": origin.seq}


def _origin_line(origin: Origin) -> str:
    """The conversation and the step that a conversation was forked from, in words. `Pure.`"""
    return f"forked from {one_line(origin.conversation_id)} at step {origin.seq}"


def _lines(summaries: Sequence[Summary], abandoned: bool, ids: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each conversation; `ids` are the short ids to show in place of the whole ones."""
    shown_ids = [one_line(ids.get(summary.id, summary.id)) for summary in summaries]
    widest_id = min(_WIDEST_HEAD, max(map(len, shown_ids), default=0))
    widest_state = max((len(_state(summary, abandoned)) for summary in summaries), default=0)
    for summary, shown in zip(summaries, shown_ids, strict=True):
        yield f"{shown:<{widest_id}}  {_state(summary, abandoned):<{widest_state}}  {_details(summary)}".rstrip()


def tree_lines(
    summaries: Sequence[Summary], abandoned: bool, ids: Mapping[str, str], width: int | None
) -> Iterator[str]:
    """Yield a line for each conversation, below the one that it belongs to, for a terminal of this `width`; None for
    lines of any length. `Pure.`"""
    branches = arranged(summaries)
    levels = MAX_LEVELS if width is None else min(MAX_LEVELS, max(1, width // 12))
    heads = [branch.lines(levels) + one_line(ids.get(branch.summary.id, branch.summary.id)) for branch in branches]
    states = [_state(branch.summary, abandoned) + _ROLES[branch.summary.role] for branch in branches]
    room = _WIDEST_HEAD if width is None else min(_WIDEST_HEAD, width // 3)
    widest_head = min(room, max(map(len, heads), default=0))
    widest_state = max(map(len, states), default=0)
    for branch, head, state in zip(branches, heads, states, strict=True):
        summary, belongs = branch.summary, ""
        if branch.upper_id is not None:
            upper = one_line(ids.get(branch.upper_id, branch.upper_id))
            belongs = f"  {'works for' if summary.parent is None else 'started by'} {upper}"
        wakes = "" if summary.wakes_at is None else f"  wakes {_local_time(summary.wakes_at)}"
        yield f"{head:<{widest_head}}  {state:<{widest_state}}  {_details(summary, wakes)}{belongs}".rstrip()


def _details(summary: Summary, wakes: str = "") -> str:
    copied = "" if summary.origin is None else f"  {_origin_line(summary.origin)}"
    return f"{_local_time(summary.updated_at)}{wakes}  {one_line(summary.title)}{copied}"


def _cut(line: str, width: int | None) -> str:
    """Return the line cut at so many cells; with None as it is."""
    if width is None:
        return line
    from rich.cells import cell_len, set_cell_size

    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


def _state(summary: Summary, abandoned: bool) -> str:
    return "interrupted" if summary.busy and abandoned else summary.state


def _local_time(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


MAX_LEVELS = 6
"""How many levels are drawn in front of a conversation at most. Deeper ones begin with an ellipsis."""


class Branch(NamedTuple):
    """A conversation in the tree, `depth` levels below its root. `is_last` says for the innermost of these levels
    whether no other conversation follows on it."""

    summary: Summary
    depth: int = 0
    is_last: tuple[bool, ...] = ()

    @property
    def upper_id(self) -> str | None:
        """The id of the conversation that it belongs to, if it is not shown below that one."""
        return _belongs_to(self.summary) if self.depth == 0 else None

    def below(self, summary: Summary, *, is_last: bool) -> Branch:
        """Return the place of a conversation below this one. `Pure.`"""
        return Branch(summary, self.depth + 1, (*self.is_last, is_last)[-MAX_LEVELS:])

    def lines(self, levels: int = MAX_LEVELS) -> str:
        """Return the lines that connect the conversation to its root, on the innermost `levels`, at least 1. `Pure.`"""
        if self.depth == 0:
            return ""
        *outer, last = self.is_last[-levels:]
        drawn = "".join("   " if each else "│  " for each in outer)
        return f"{'…  ' if self.depth > levels else ''}{drawn}{'└─ ' if last else '├─ '}"


def arranged(summaries: Sequence[Summary]) -> tuple[Branch, ...]:
    """Return each of these conversations once, in the order in which a tree shows them. Those that stand side by side
    keep their order.

    Sub-agents and background agents stand below the conversations that they belong to. What a database says of agents
    may be incomplete or wrong: a parent may have been deleted or belong to somebody else, and an import may name
    conversations in a circle. Every conversation is shown once all the same. `Pure.`
    """
    known = {summary.id for summary in summaries}
    lower: dict[str | None, list[Summary]] = {}
    for summary in summaries:
        upper = _belongs_to(summary)
        lower.setdefault(upper if upper in known else None, []).append(summary)
    found: dict[str, Branch] = {}
    for root in (*lower.get(None, ()), *summaries):  # conversations in a circle are below no root
        waiting = [Branch(root)]
        while waiting:
            branch = waiting.pop()
            if branch.summary.id not in found:
                found[branch.summary.id] = branch
                next_ones = [each for each in lower.get(branch.summary.id, ()) if each.id not in found]
                waiting += [branch.below(each, is_last=each is next_ones[-1]) for each in reversed(next_ones)]
    return tuple(found.values())


def _belongs_to(summary: Summary) -> str | None:
    """Return the id of the conversation that started this sub-agent, or that this background agent works for; None if
    it names none. `Pure.`"""
    return summary.parent or summary.works_for


_MAX_CALL = 200
"""The most characters that are shown of a call, and of its result."""


async def show(settings: Settings, given_id: str, events: bool, as_json: bool) -> int:
    """Print the transcript of a conversation, or with `events` a line for each of its events."""
    async with open_for_reading(settings) as store:
        conversation_id = await resolve_id(store, given_id)
        entries = await store.entries(conversation_id)
        origin = await origin_of(store, conversation_id)
    if as_json:
        content = _events(entries) if events else _messages(transcript(entries))
        details = details_of(entries)
        about = {"title": details.shown_title, "owner": details.owner, "metadata": dict(details.metadata)}
        print_json({"id": conversation_id, **about, "forked_from": _described_origin(origin), **content})
        return 0
    if origin is not None:
        print(f"({_origin_line(origin)})")
    for line in event_lines(entries) if events else transcript_lines(transcript(entries)):
        print(line)
    return 0


def _events(entries: Iterable[LogEntry]) -> dict[str, Any]:
    return {"events": [{"seq": entry.seq, "event": json.loads(entry.event.to_json())} for entry in entries]}


def _messages(messages: Iterable[Message]) -> dict[str, Any]:
    return {"messages": [message_data(message) for message in messages]}


def transcript_lines(messages: tuple[Message, ...]) -> Iterator[str]:
    """The lines of a transcript: each message under its role. `Pure.`"""
    names = {call.call_id: call.name for message in messages for call in message.tool_calls}
    for index, message in enumerate(messages):
        if index and message.role == "user":
            yield ""
        if message.role == "tool":
            yield _result_line(message, names[message.tool_call_id or ""])
            continue
        yield _heading(message)
        if (text := with_files(message.text, message.files)).strip():
            yield printable(text)
        for call in message.tool_calls:
            yield one_line(f"{call.name}({call.raw_arguments})", _MAX_CALL)


def _heading(message: Message) -> str:
    """Who says it; of the message of another agent also for whom it is."""
    match message.audience:
        case None:
            return f"{message.role}:"
        case "user":
            return f"{one_line(message.origin)}, for the user:"
        case "agent":
            return f"{one_line(message.origin)}, for this agent:"


def _result_line(message: Message, tool: str) -> str:
    outcome = message.stopped or ("failed" if message.error else "returned")
    text = one_line(with_files(message.text, message.files), _MAX_CALL)
    return f"  {tool} {outcome}: {text}"


_DIVERGED = 1
"""The exit code when a conversation diverged from its log, or could not be read."""


async def replay(settings: Settings, given_id: str | None, junit: Path | None, as_json: bool) -> int:
    """Replay one conversation, or with None all of them, and print each outcome; also write it to the file `junit`."""
    results: list[ReplayResult] = []
    async with open_for_reading(settings) as store:
        async for result in _results(store, given_id):
            results.append(result)
            if not as_json:
                print("  ".join(filter(None, (result.conversation_id, result.report))))
    if as_json:
        print_json({"conversations": [_described_result(result) for result in results]})
    elif not results:
        print("There are no conversations to replay.")
    if junit is not None:
        _write(junit, results)
    return _DIVERGED if any(result.failure for result in results) else 0


async def _results(store: Store, given_id: str | None) -> AsyncIterator[ReplayResult]:
    """Replay one conversation, or all of them, the one that moved last first. A conversation that a damaged file hides
    has a result without an id. Raises `UnknownConversation` if there is none of the given id."""
    if given_id is not None:
        yield await _replay(store, await resolve_id(store, given_id))
        return
    ids, faults = await find_all(store)
    for fault in faults:
        yield ReplayResult("", 0.0, unreadable=one_line(fault.sentence))
    for each in await _newest_first(store, ids):
        with suppress(UnknownConversation):  # it was deleted after it was found
            yield await _replay(store, each)


async def _newest_first(store: Store, ids: Sequence[str]) -> Sequence[str]:
    """Return these ids, that of the conversation that moved last first; as they are if a damaged file does not say."""
    try:
        places = {summary.id: place for place, summary in enumerate(await store.list())}
        return sorted(ids, key=places.__getitem__)
    except (StoreError, KeyError):
        return ids


def _write(file: Path, results: Iterable[ReplayResult]) -> None:
    try:
        file.write_bytes(junit_report(results))
    except OSError as error:
        raise ConfigurationError(f"The report cannot be written to {file}: {error.strerror}.") from error


async def _replay(store: Store, conversation_id: str) -> ReplayResult:
    begun = perf_counter()
    try:
        report = await replay_conversation(store, conversation_id)
    except StorageFailed as failure:
        return ReplayResult(conversation_id, perf_counter() - begun, unreadable=failure.sentence)
    return ReplayResult(conversation_id, perf_counter() - begun, report.events, report.divergence)


@dataclass(frozen=True)
class ReplayResult:
    """The outcome of replaying one conversation, and how many seconds it took.

    `events` is how many came out as they were stored. `unreadable` says why the log could not be read, if so.
    """

    conversation_id: str
    seconds: float
    events: int = 0
    divergence: Divergence | None = None
    unreadable: str = ""

    @property
    def report(self) -> str:
        """The text for users."""
        return self.unreadable or replay_report(self.events, self.divergence)

    @property
    def failure(self) -> str:
        """Why the conversation diverged from its log or could not be read; empty if neither happened."""
        return self.unreadable or (self.divergence.reason if self.divergence else "")


def _described_result(result: ReplayResult) -> dict[str, Any]:
    """Return a result as JSON shows it. `Pure.`"""
    divergence = result.divergence
    return {
        "id": result.conversation_id,
        "events": result.events,
        "unreadable": result.unreadable or None,
        "divergence": None
        if divergence is None
        else {
            "seq": divergence.seq,
            "reason": divergence.reason,
            "event": divergence.event and json.loads(divergence.event.to_json()),
            "expected": _described_outcome(divergence.expected),
            "actual": _described_outcome(divergence.actual),
        },
    }


def _described_outcome(outcome: StepOutcome) -> dict[str, Any] | None:
    """Return the effects, the end of a turn and the state of an outcome, or None if there was none."""
    if outcome.digest is None:
        return None
    return {
        "effects": [json.loads(effect.to_json()) for effect in outcome.effects],
        "turn_ended": outcome.ended and json.loads(outcome.ended.to_json()),
        "state": outcome.state and json.loads(outcome.state.to_json()),
        "digest": outcome.digest.hex(),
    }


def replay_report(events: int, divergence: Divergence | None) -> str:
    """Return the report on a replay: one sentence, and below it the details of a divergence. `Pure.`"""
    if divergence is None:
        return f"{counted(events, 'event')} replayed, no divergence."
    event = divergence.event.to_json() if divergence.event else "missing, or cannot be read"
    return "\n".join(
        (
            f"{counted(events, 'event')} replayed, then a divergence at seq {divergence.seq}.",
            f"  reason    {divergence.reason}",
            f"  event     {printable(event)}",
            *_block("expected", divergence.expected),
            *_block("actual", divergence.actual),
        )
    )


def _block(name: str, outcome: StepOutcome) -> Iterator[str]:
    """Yield the lines of an outcome, with its name before the first."""
    for index, (part, text) in enumerate(_parts(outcome)):
        yield f"  {name if index == 0 else '':<8}  {part:<8}{printable(text)}"


def _parts(outcome: StepOutcome) -> Iterator[tuple[str, str]]:
    """Yield each effect, the end of a turn, and the state, or its digest if only that is known."""
    if outcome.digest is None:
        yield "nothing", ""
        return
    for effect in outcome.effects:
        yield "effect", effect.to_json()
    if outcome.ended is not None:
        yield "ended", outcome.ended.to_json()
    yield "state", json.dumps({"digest": outcome.digest.hex()}) if outcome.state is None else outcome.state.to_json()


_CLASS = "turnwise.replay"
"""The class name of each case."""

_NOT_IN_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that an XML document may not contain, even as references: section 2.2 of XML 1.0."""


def junit_report(results: Iterable[ReplayResult]) -> bytes:
    """Return the report as XML, with a case for each conversation. `Pure.`"""
    results = list(results)
    counts = {
        "name": "turnwise replay",
        "tests": str(len(results)),
        "failures": str(sum(bool(result.failure) for result in results)),
        "errors": "0",
        "skipped": "0",
        "time": _seconds(sum(result.seconds for result in results)),
    }
    root = ElementTree.Element("testsuites", {name: counts[name] for name in ("name", "tests", "failures", "errors")})
    suite = ElementTree.SubElement(root, "testsuite", counts)
    for result in results:
        _add_case(suite, result)
    if not results:
        ElementTree.SubElement(suite, "system-out").text = "There are no conversations to replay."
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _add_case(suite: ElementTree.Element, result: ReplayResult) -> None:
    attributes = {"classname": _CLASS, "name": _clean(result.conversation_id), "time": _seconds(result.seconds)}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    if result.failure:
        failure = ElementTree.SubElement(case, "failure", {"message": _clean(result.failure), "type": "divergence"})
        failure.text = _clean(result.report)


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


WRONG = 1
"""The exit code when something is wrong, or could not be repaired."""


async def doctor(settings: Settings, fix: bool) -> int:
    """Print what is wrong with the database; with `fix` repair what follows from its logs."""
    address = address_of(settings.db)
    lacking = address.missing_marks()
    for sentence in lacking:
        print(f"{sentence}{'  Repaired.' if fix else ''}")
    if fix:
        if address.is_shared and await address.is_in_use():
            raise ConfigurationError(f"{address.name} is in use: end the processes that use it before it is repaired.")
        if lacking:
            address.set_marks()
        return await _repair(settings)
    if lacking:
        command = command_line("doctor", "--fix", *options_for(settings, "db"))
        print_notice(
            f"This sets what is missing, and then examines the file: {command}",
            copyable=True,
        )
        return WRONG
    async with open_for_reading(settings) as store:
        examination = await examine(store)
    _report(examination)
    repairable = sum(finding.repair is not None for finding in examination.findings)
    if repairable:
        command = command_line("doctor", "--fix", *options_for(settings, "db"))
        print_notice(f"{repairable} of these can be repaired without guessing: {command}", copyable=True)
    return WRONG if examination.findings else 0


async def _repair(settings: Settings) -> int:
    async with open_for_writing(settings) as store:
        before = await examine(store)
        repaired = await repair(store, before.findings)
        after = await examine(store)
    for finding in repaired:
        print(f"{_line(finding)}  Repaired.")
    _report(after, repaired=bool(repaired))
    return WRONG if after.findings else 0


def _report(examination: Examination, repaired: bool = False) -> None:
    for finding in examination.findings:
        print(f"{_line(finding)}{'  Not repaired.' if repaired else ''}")
    if not examination.findings:
        conversations, steps = counted(examination.conversations, "conversation"), counted(examination.steps, "step")
        print(f"All is well: {conversations}, {steps}.")


def _line(finding: Finding) -> str:
    where = [] if finding.conversation_id is None else [finding.conversation_id]
    where += [] if finding.seq is None else [f"step {finding.seq}"]
    return one_line("  ".join([*where, finding.sentence]))


VERDICTS: Mapping[str, Resolution] = {verdict: verdict for verdict in get_args(Resolution)}
"""What can be said about an interrupted call, by the word on the command line."""


async def list_doubts(settings: Settings, given_id: str) -> int:
    """Print the interrupted calls of a conversation."""
    async with open_for_reading(settings) as store:
        conversation_id = await resolve_id(store, given_id)
        calls = await calls_in_doubt(store, conversation_id, datetime.now(UTC))
    for call in calls:
        print(f"{call.call_id}  {one_line(f'{call.name}({call.raw_arguments})', _MAX_CALL)}")
    if not calls:
        print("No call is in doubt.")
    return 0


async def settle(settings: Settings, given_id: str, call_id: str | None, verdict: str) -> int:
    """Store what became of a call, one of `VERDICTS`. No other program may have the database open. Raises
    `InvalidInput` if the call is not in doubt."""
    async with open_for_writing(settings) as store:
        conversation_id = await resolve_id(store, given_id)
        try:
            state = await resolve(store, conversation_id, call_id, VERDICTS[verdict], datetime.now(UTC))
        except Refused as refused:
            if refused.code != "wrong_state":
                raise
            call = "No call of this conversation is" if call_id is None else "This call is not"
            raise InvalidInput(f"{call} in doubt.") from refused
    next_step = "; it continues in its program or in turnwise chat" if state.works else ""
    print(f"Resolved; the conversation is in {state.type}{next_step}.")
    return 0
