"""`turnwise resolve`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ....support.terminal import InProcessRun, assert_one_sentence, database_with
from ....support.walks import Walk


class TestWithoutADoubt:
    """A conversation in which no call is in doubt."""

    def test_there_is_nothing_to_list(self, tmp_path: Path, in_process: InProcessRun) -> None:
        """Without a verdict the command lists the calls in doubt, here none."""
        database_with(tmp_path, Walk("walk").turn("tonight"))

        done = in_process("resolve", "walk")

        assert (done.returncode, done.stdout, done.stderr) == (0, "No call is in doubt.\n", "")

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ([], "No call of this conversation is in doubt."),
            (["--call", "call_1_0"], "This call is not in doubt."),
        ],
    )
    def test_a_verdict_is_refused(
        self, tmp_path: Path, in_process: InProcessRun, options: list[str], sentence: str
    ) -> None:
        """A verdict on a call that is not in doubt changes nothing, and one sentence says why."""
        database_with(tmp_path, Walk("walk").turn("tonight"))

        done = in_process("resolve", "walk", "ran", *options)

        assert_one_sentence(done, sentence)
        assert in_process("replay", "walk").stdout == "walk  5 events replayed, no divergence.\n"
