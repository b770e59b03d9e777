"""The JUnit report of a replay."""

from __future__ import annotations

from xml.etree import ElementTree

from turnwise.hosts.terminal.commands.replay import ReplayResult, junit_report


def test_the_report_is_xml_whatever_was_said() -> None:
    """Characters that XML cannot contain are replaced, and its markup characters are escaped."""
    text = "".join(map(chr, range(0x20))) + "<&>\"']]>\x7f\ud800\uffff\U0001f363"

    root = ElementTree.fromstring(junit_report([ReplayResult(text, 0.5, unreadable=text)]))

    (suite,) = root
    ((failure,),) = suite
    assert failure.text is not None
    assert failure.text.endswith("<&>\"']]>\x7f\ufffd\ufffd\U0001f363")
    assert failure.get("message", "").endswith("<&>\"']]>\x7f\ufffd\ufffd\U0001f363")
