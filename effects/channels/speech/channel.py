"""Speaks what is said to the user.

To speak takes longer than a delivery may, so the channel takes the text over and speaks it beside the event loop, one
text after the other. What it has taken over and not spoken yet is lost with its process: of two bad things, to fall
silent or to say everything again after a crash, this is the one that a listener minds less.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from subprocess import Popen
from typing import Literal
from urllib.parse import quote

from ....states.errors import ConfigurationError
from ..port import Delivery
from .spoken_text import CODE, speakable
from .voices import Voice, cut_off, speak, voices_here

logger = logging.getLogger("turnwise.channels")

Outcome = Literal["spoken", "stopped", "failed"]
"""What became of a text."""

STOPPED = "it was stopped"
"""Why a voice does not speak a text that was taken back before it began."""

OnEnd = Callable[[Delivery, Outcome], object]

Reword = Callable[[str], Awaitable[str]]
"""Puts a text in words to be spoken; `Rewording` has a model do so."""

REWORDING = 10.0
"""Seconds that a text may take to be reworded. Ours: a listener waits no longer for a better wording."""

LOOP_GRACE = 1.0
"""Seconds on top, after which the event loop that was to keep that time is taken to be over. Ours."""


@dataclass(eq=False)
class _Utterance:
    delivery: Delivery
    file: Path | None
    tell: Callable[[Outcome], None]
    wording: Future[str] | None
    stopped: bool = False
    over: bool = False


class SpeechChannel:
    """Speaks each delivery, in order, without its markup; `code` is said in place of a block of code. With `reword` it
    is first put in words for the ear; where that fails, takes ten seconds or gives nothing, the text is spoken as it
    was written, without its markup (case S20).

    With `into`, a folder, nothing is heard: each delivery becomes a file in it, named after its key and in the voice's
    own format, which is WAV on Linux and Windows. It is there, whole, when it is spoken.

    `on_end`, a plain function, is called in the engine's event loop with each delivery and what became of it: spoken
    (also if there was nothing to say), stopped, or failed, which is logged. Without `voices` those of the machine are
    taken; each text is tried with one after the other. Raises `ConfigurationError` if there is none, or for an `on_end`
    that wants to be awaited.

    To display what is spoken (case S20), give the engine a `TerminalChannel` or the like beside this one.
    """

    def __init__(
        self,
        *,
        name: str = "speech",
        into: str | Path | None = None,
        on_end: OnEnd | None = None,
        code: str = CODE,
        reword: Reword | None = None,
        voices: Sequence[Voice] | None = None,
    ) -> None:
        if iscoroutinefunction(on_end):
            raise ConfigurationError("What is called as on_end must be a plain function: nobody awaits it.")
        self.name = name
        self._into = None if into is None else Path(into)
        self._on_end = on_end
        self._code = code
        self._reword = reword
        self._voices = voices_here() if voices is None else tuple(voices)
        self._lock = threading.Lock()
        self._line: deque[_Utterance] = deque()  # the first is being spoken
        self._process: Popen[bytes] | None = None
        self._waiting: list[Callable[[], None]] = []

    def file_of(self, delivery: Delivery) -> Path | None:
        """Where the delivery is spoken into; None if it is spoken aloud. `Pure.`"""
        return None if self._into is None else self._into / f"{quote(delivery.key, safe='').replace('%2F', '-')}.wav"

    async def deliver(self, delivery: Delivery) -> None:
        """Take it over; it is spoken when what came before has been. Raises OSError if its folder cannot be made, and
        RuntimeError if there is no thread to be had; then it is not taken over."""
        if self._into is not None:
            self._into.mkdir(parents=True, exist_ok=True)
        loop, wording = asyncio.get_running_loop(), None
        if self._reword is not None:  # while what came before is spoken
            wording = asyncio.run_coroutine_threadsafe(self._reworded(self._reword, delivery.text), loop)
        tell = partial(_call_in, loop, partial(self._end, delivery))
        utterance = _Utterance(delivery, self.file_of(delivery), tell, wording)
        with self._lock:
            self._line.append(utterance)
            if len(self._line) == 1:
                # It ends when the line does; a daemon, for a program that ends does not wait for all to be spoken.
                try:
                    threading.Thread(target=self._speak_all, daemon=True, name="turnwise-speech").start()
                except RuntimeError:
                    self._line.clear()  # or the next one would wait behind what nobody speaks
                    raise

    def stop(self) -> bool:
        """Fall silent at once, in the middle of a word, and drop what waits; what is delivered from now on is spoken.
        Returns whether there was anything to stop. May be called in any thread."""
        with self._lock:
            spoke = any(not (utterance.stopped or utterance.over) for utterance in self._line)
            for utterance in self._line:
                utterance.stopped = True
                if utterance.wording is not None:
                    utterance.wording.cancel()
            if self._process is not None:
                cut_off(self._process)
        return spoke

    async def drain(self) -> None:
        """Return when all that was delivered is spoken, or was stopped. Of a program that ends before, what is being
        spoken is heard to its end and the rest is not."""
        over = asyncio.Event()
        with self._lock:
            if not self._line:
                return
            self._waiting.append(partial(_call_in, asyncio.get_running_loop(), over.set))
        await over.wait()

    def _end(self, delivery: Delivery, outcome: Outcome) -> None:
        if self._on_end is not None:
            self._on_end(delivery, outcome)

    async def _reworded(self, reword: Reword, text: str) -> str:
        """The text in other words, as they are spoken; empty if there are none in time."""
        try:
            async with asyncio.timeout(REWORDING):
                return speakable(await reword(text), self._code)
        except Exception:
            logger.warning("The channel %s speaks a delivery as it was written.", self.name, exc_info=True)
            return ""

    # --- in the thread that speaks

    def _speak_all(self) -> None:
        more = True
        while more:
            utterance = self._line[0]
            outcome = self._speak(utterance)
            with self._lock:
                utterance.over = True
            utterance.tell(outcome)
            with self._lock:
                self._line.popleft()
                more = bool(self._line)
                waiting, self._waiting = ([], self._waiting) if more else (self._waiting, [])
            for wake in waiting:
                wake()

    def _speak(self, utterance: _Utterance) -> Outcome:
        text = self._words(utterance)
        if not text and not utterance.stopped:
            return "spoken"
        faults: list[str] = []
        for voice in self._voices:
            fault = self._speak_with(voice, utterance, text)
            if fault is None:
                if faults:
                    logger.debug("The channel %s speaks with %s. %s", self.name, voice.name, "; ".join(faults))
                return "spoken"
            if utterance.stopped:
                return "stopped"
            faults.append(f"{voice.name}: {fault}")
        logger.warning("The channel %s could not speak a delivery. %s", self.name, "; ".join(faults))
        return "failed"

    def _words(self, utterance: _Utterance) -> str:
        """What is to be heard of it. The event loop that was to put it in other words may be over."""
        other = ""
        if utterance.wording is not None:
            with suppress(BaseException):  # a host's own, which may end in any way; this thread goes on
                other = utterance.wording.result(REWORDING + LOOP_GRACE)
        return other or speakable(utterance.delivery.text, self._code)

    def _speak_with(self, voice: Voice, utterance: _Utterance, text: str) -> str | None:
        """Speak the text to its end. Returns None, or why this voice did not."""
        unfinished = None if utterance.file is None else utterance.file.with_suffix(".part")
        try:
            with self._lock:
                if utterance.stopped:
                    return STOPPED
                self._process = voice.start(unfinished)
            fault = speak(self._process, text)
            if fault is None and unfinished is not None and utterance.file is not None:
                if not unfinished.exists():
                    return "it wrote nothing"
                unfinished.replace(utterance.file)
        except Exception as error:  # a voice may be a host's own; nobody else speaks what waits in the line
            logger.warning("The voice %s cannot be used.", voice.name, exc_info=error)
            return getattr(error, "strerror", None) or type(error).__name__
        finally:
            with self._lock:
                self._process = None
            if unfinished is not None:
                unfinished.unlink(missing_ok=True)
        return fault


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Call a function in an event loop, unless the loop is closed: then nobody is there to be told."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)
