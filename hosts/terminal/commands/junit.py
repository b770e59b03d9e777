"""Writes what came of a replay in the form in which continuous integration reads results of tests.

There is no standard but a habit, which tools share: suites of cases, and in a case a failure with a message and a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from .replay_results import Replayed

CLASS = "turnwise.replay"
"""What the cases are filed under."""

_NOT_IN_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that no XML document may hold, not even written as references: section 2.2 of XML 1.0."""


def report_on(replayed: Iterable[Replayed]) -> bytes:
    """The report as XML, a case for each conversation. `Pure.`"""
    cases = list(replayed)
    counts = {
        "name": "turnwise replay",
        "tests": str(len(cases)),
        "failures": str(sum(bool(one.fault) for one in cases)),
        "errors": "0",
        "skipped": "0",
        "time": _seconds(sum(one.seconds for one in cases)),
    }
    root = ElementTree.Element("testsuites", {name: counts[name] for name in ("name", "tests", "failures", "errors")})
    suite = ElementTree.SubElement(root, "testsuite", counts)
    for one in cases:
        told = {"classname": CLASS, "name": _allowed(one.conversation_id), "time": _seconds(one.seconds)}
        case = ElementTree.SubElement(suite, "testcase", told)
        if one.fault:
            failure = ElementTree.SubElement(case, "failure", {"message": _allowed(one.fault), "type": "divergence"})
            failure.text = _allowed(one.told)
    if not cases:
        ElementTree.SubElement(suite, "system-out").text = "There are no conversations to replay."
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _allowed(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"
