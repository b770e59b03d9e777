"""Writes the tables of docs/development/benchmarks.md and the figures in README.md, from the JSON beside that page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .benchmark_aims import AIMS
from .benchmark_results import BYTES, FLOOR, GROWTH, MEASURES, OURS, RATE, Measure, Results

PROFILE = "turn_profile"
"""The program whose figures say where the time goes."""

SCALE = "scale"
"""The program whose figures are about many processes; docs/guides/scale.md has them."""


def growth_of_storage(results: Results) -> str:
    """Return the table that says what each system stores for a turn, and how a conversation slows down as it grows."""
    rows = [
        "| system | database, bytes/turn | processor time of a late turn, beside an early one |",
        "| --- | --- | --- |",
    ]
    for name in results.systems:
        cells = ((measure, results.best(measure, name)) for measure in (BYTES, GROWTH))
        texts = [results.missing(each.part, name) if value is None else each.text(value) for each, value in cells]
        rows.append(f"| {'SQLite alone' if name == FLOOR else name} | {' | '.join(texts)} |")
    return _lines(rows)


def aims(results: Results) -> str:
    """Return the table of the aims, each with what was measured."""
    head = ["| aim | measured | bound | |", "| --- | --- | --- | --- |"]
    return _lines([*head, *(aim.row(results) for aim in AIMS)])


def verdict(results: Results) -> str:
    """Return the sentences that say which aims were missed, and which were not measured."""
    missed, unknown = ([aim.what for aim in AIMS if aim.is_met(results) is given] for given in (False, None))
    sentences = [f"**{len(AIMS) - len(missed) - len(unknown)} of {len(AIMS)} aims are met.**"]
    if missed:
        sentences.append(f"**Missed:** {'; '.join(missed)}.")
    if unknown:
        sentences.append(f"**Not measured:** {'; '.join(unknown)}.")
    return _lines([" ".join(sentences)])


def ratios(results: Results) -> str:
    """Return the table that says how many times better turnwise is than each of the others."""

    def cell(measure: Measure, system: str) -> str:
        ratio = results.advantage(measure, system)
        return results.missing(measure.part, system) if ratio is None else f"{_ratio(ratio)} ×"

    return _lines(_table(results, [*results.peers, *_floor(results)], cell))


def values(results: Results) -> str:
    """Return the table of the best rounds, with the median of the rounds where it differs."""

    def cell(measure: Measure, system: str) -> str:
        best, typical = results.best(measure, system), results.typical(measure, system)
        if best is None or typical is None:
            return results.missing(measure.part, system)
        texts = list(dict.fromkeys((measure.text(best), measure.text(typical))))
        return texts[0] if len(texts) == 1 else f"{texts[0]} ({texts[1]})"

    return _lines(_table(results, results.systems, cell, with_units=True))


def stored(results: Results) -> str:
    """Return the table of versions, and of what each system stores when."""
    rows = ["| system | what is on the disk when | journal | versions |", "| --- | --- | --- | --- |"]
    for name, about in results.data["systems"].items():
        if "not measured" in about:
            rows.append(f"| {name} | not measured: {about['not measured']} | | |")
            continue
        versions = ", ".join(f"{package} {version}" for package, version in about.get("versions", {}).items())
        journal = next((each["journal"] for each in results.rounds("long", name)), "")
        rows.append(f"| {name} | {about.get('stores', '')} | {journal} | {versions} |")
    return _lines(rows)


def alone(results: Results) -> str:
    """Return the table of what is measured of turnwise alone."""
    programs = results.data["figures"].items()
    return _with_aims(figure for program, each in programs if program not in (PROFILE, SCALE) for figure in each)


def scale(results: Results) -> str:
    """Return the table of what many processes cost, and how quick they are."""
    return _with_aims(results.data["figures"].get(SCALE) or [{"what": "all of it", "not measured": ""}])


def _with_aims(figures: Iterable[dict[str, Any]]) -> str:
    rows = ["| figure | measured | aim |", "| --- | --- | --- |"]
    for figure in figures:
        if "not measured" in figure:
            rows.append(f"| {figure['what']} | not measured | |")
        else:
            verdict = ", met" if figure["met"] else ", **missed**"
            aim = f"{figure['aim']}{verdict}" if figure["aim"] else ""
            rows.append(f"| {_title(figure['what'])} | {figure['value']} | {aim} |")
    return _lines(rows)


def profile(results: Results) -> str:
    """Return the table that says where the time of a turn goes."""
    rows = ["| | share of the time, and calls of functions a turn |", "| --- | --- |"]
    for figure in results.data["figures"].get(PROFILE, ()):
        if "not measured" in figure:
            rows.append("| the profile | not measured |")
        else:
            rows.append(f"| {_title(figure['what'])} | {figure['value']} |")
    return _lines(rows)


def circumstances(results: Results) -> str:
    """Return the paragraph that says when and where the figures were taken."""
    data = results.data
    machine = data["machine"]
    rounds = ", ".join(f"{name} {len(results.rounds('long', name))}" for name in results.systems)
    held = ", ".join(
        f"{name} {max(each['turns'] for each in results.rounds('growth', name)):,}"
        for name in results.systems
        if results.rounds("growth", name)
    )
    return _lines(
        [
            f"**On what.** {machine['cores']} cores, {machine['processor']}, {machine['system']}, the databases on "
            f"{machine['files'] or 'an unknown file system'}, Python {machine['python']}, SQLite {machine['sqlite']}; "
            f"{data['date']}, in {data['minutes']:g} minutes. "
            f"Rounds of the conversation of {data['sizes']['turns']} turns: {rounds}. Growth is measured over as many "
            f"of {data['sizes']['long_turns']:,} turns as were held in {data['sizes']['seconds']:g} seconds: "
            f"{held or 'not measured'}."
        ]
    )


def summary(results: Results) -> str:
    """Return the sentences of README.md."""
    sentences = []
    rate, peer_rate, floor = results.best(RATE, OURS), results.best_peer(RATE), results.best(RATE, FLOOR)
    if rate and peer_rate and floor:
        sentences.append(
            f"Turns with a tool call, stored step by step: {rate:,.0f} a second in one conversation, "
            f"{_ratio(rate / peer_rate)} times the fastest of {', '.join(results.peers)}, and {rate / floor:.2f} of "
            "what SQLite alone does with the same commits."
        )
    missed = sum(aim.is_met(results) is False for aim in AIMS)
    sentences.append(
        f"{missed or 'None'} of our {len(AIMS)} aims {'is' if missed < 2 else 'are'} missed: "
        "[Benchmarks](docs/development/benchmarks.md) says which and why, with every figure."
    )
    return " ".join(sentences) + "\n"


def _title(what: str) -> str:
    """A figure that belongs to the one before it is indented where it is printed, and has a dash in a table."""
    return f"– {what.strip()}" if what.startswith(" ") else what


def _floor(results: Results) -> list[str]:
    return [name for name in results.systems if name == FLOOR]


def _table(
    results: Results, systems: list[str], cell: Callable[[Measure, str], str], with_units: bool = False
) -> Iterator[str]:
    names = [f"the {name}" if name == FLOOR else name for name in systems]
    yield f"| | {' | '.join(names)} |"
    yield f"| --- |{' --- |' * len(systems)}"
    for measure in MEASURES:
        if measure.part in results.data["results"]:
            title = f"{measure.title}, {measure.unit}" if with_units else measure.title
            yield f"| {title} | {' | '.join(cell(measure, name) for name in systems)} |"


def _ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 2 else f"{value:.2g}"


def _lines(lines: list[str] | Iterator[str]) -> str:
    return "\n".join(lines) + "\n"
