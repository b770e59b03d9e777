"""One law over many cases is one test: it tries all of them, and its failure shows each case that fails.

`pytest.mark.parametrize` makes a test of each case. That is right for a few, and where each needs fixtures of its own.
But a test costs milliseconds in each process, however little it checks, so a law about each row of a table reads:

    @holds_for(("state", "event"), PAIRS)
    def test_every_pair_has_its_answer(state: type[State], event: type[Event]) -> None:

The cases share the fixtures of the test.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

FAILED = (Exception, pytest.fail.Exception, BaseExceptionGroup)
"""What a case may raise: `BaseExceptionGroup` where two laws of this kind stand above a test."""

PARAMETERS = type(pytest.param())

Test = Callable[..., Any]
Case = dict[str, Any]


def holds_for(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Let a test try all these cases. It is written as with `pytest.mark.parametrize`: the names of parameters, and for
    each case the value, or one value for each name."""
    cases = [case_of(listed(names), value) for value in values]
    assert cases, "a law without a case holds for nothing"

    def decorate(test: Test) -> Test:
        tries: Any = trying_async(test, cases) if inspect.iscoroutinefunction(test) else trying(test, cases)
        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in cases[0]]
        tries.__signature__ = signature.replace(parameters=left)
        return tries

    return decorate


def listed(names: str | Sequence[str]) -> list[str]:
    """Return the names of parameters one by one."""
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]


def case_of(names: Sequence[str], value: Any) -> Case:
    """Return the arguments of one case."""
    if isinstance(value, PARAMETERS):
        assert not value.marks, "a case cannot be marked alone"
        return dict(zip(names, value.values, strict=True))
    return dict(zip(names, value if len(names) > 1 else [value], strict=True))


def named(case: Case) -> str:
    """Return how a failure names a case."""
    return ", ".join(
        f"{name}={getattr(value, '__name__', None) or reprlib.repr(value)}" for name, value in case.items()
    )


class Failures:
    """What was raised in the cases that failed."""

    def __init__(self) -> None:
        self.raised: dict[str, BaseException] = {}

    @contextmanager
    def kept(self, case: Case) -> Iterator[None]:
        """Keep what is raised inside, with a note on the case."""
        try:
            yield
        except FAILED as error:
            error.add_note(f"The case: {named(case)}")
            self.raised[f"{len(self.raised) + 1}. {named(case)}"] = error

    def report(self, cases: list[Case]) -> None:
        """Fail if any case has failed, with the name of each that has, since Python shows 15 errors of a group at
        most."""
        if self.raised:
            names = "\n".join(self.raised)
            raise BaseExceptionGroup(
                f"{len(self.raised)} of {len(cases)} cases fail:\n{names}\n", [*self.raised.values()]
            )


def trying(test: Test, cases: list[Case]) -> Test:
    """Return a function that calls a test with each case."""

    @wraps(test)
    def tries(*args: Any, **fixtures: Any) -> None:
        failures = Failures()
        for case in cases:
            with failures.kept(case):
                test(*args, **fixtures, **case)
        failures.report(cases)

    return tries


def trying_async(test: Test, cases: list[Case]) -> Test:
    """Return a coroutine function that awaits a test with each case."""

    @wraps(test)
    async def tries(*args: Any, **fixtures: Any) -> None:
        failures = Failures()
        for case in cases:
            with failures.kept(case):
                await test(*args, **fixtures, **case)
        failures.report(cases)

    return tries
