"""Writes the results of a replay as a JUnit report, which continuous integration reads as test results.

The format has no standard, only a form that the tools share: suites of cases, and in a case a failure with a message
and a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree

from .replay_results import ReplayResult

CLASS = "turnwise.replay"
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
    attributes = {"classname": CLASS, "name": _clean(result.conversation_id), "time": _seconds(result.seconds)}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    if result.failure:
        failure = ElementTree.SubElement(case, "failure", {"message": _clean(result.failure), "type": "divergence"})
        failure.text = _clean(result.report)


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"
