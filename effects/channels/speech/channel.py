"""Speaks what is said to the user.

Speaking takes longer than a delivery may take. So the channel takes each text over and speaks it outside of the event
loop, one text after the other. Texts that it has taken over and not yet spoken are lost with the process: after a crash
a listener minds silence less than hearing everything again.
"""

from __future__ import annotations

import asyncio
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
from typing import ClassVar, Literal
from urllib.parse import quote

from ....states.errors import ConfigurationError
from ....states.values.turn import TurnEnded
from ...logs import performer_logger
from ...model.rewording import Rewording
from ..port import Delivery
from .spoken_text import CODE, make_speakable
from .spoken_turns import SpokenTurns
from .voices import Voice, find_voices, speak, terminate

logger = performer_logger("turnwise.channels")
steps = performer_logger("turnwise.voice")

Outcome = Literal["spoken", "stopped", "failed"]
"""What became of a text."""

STOPPED = "it was stopped"
"""The reason why a voice does not speak a text that was stopped before it began."""

OnEnd = Callable[[Delivery, Outcome], object]

OnTurnSpoken = Callable[[Delivery], object]
"""Called when a whole turn was spoken, with its last delivery."""

Reword = Callable[[str], Awaitable[str]]
"""Rewords a text to be spoken. `Rewording` has a model do so."""

REWORDING_TIMEOUT = 10.0
"""Seconds that rewording a text may take. A listener would rather hear the original text than wait longer."""

LOOP_GRACE = 1.0
"""Seconds that the speaking thread waits longer than `REWORDING_TIMEOUT`. The event loop ends the rewording in time,
unless it is closed."""


@dataclass(eq=False)
class _Utterance:
    """A text in the queue. `report` is called with what became of it, and `rewording` is its text to be spoken."""

    delivery: Delivery
    file: Path | None
    report: Callable[[Outcome], None]
    rewording: Future[str] | None
    is_stopped: bool = False
    is_over: bool = False


class SpeechChannel:
    """Speaks each delivery, in order, without its markup; `code` is said in place of a block of code. With `reword` it
    is first reworded to be spoken. If that fails, takes more than ten seconds or gives nothing, the original text is
    spoken.

    With `into`, a folder, nothing is heard: each delivery becomes a file in it, named after its key and in the voice's
    own format, which is WAV on Linux and Windows. The file appears when it is complete.

    `on_end`, a plain function, is called in the engine's event loop with each delivery and what became of it: spoken
    (also if there was nothing to say), stopped, or failed, which is logged. Without `voices` those of the machine are
    used; each text is tried with one after the other. Raises `ConfigurationError` if there is none, or if a callback is
    a coroutine function.

    `on_turn_spoken`, a plain function too, is called once for each turn, with its last delivery: when the turn has
    ended, and everything that was said in it has been spoken to its end. An assistant then opens the window in which it
    listens for a follow-up question. It is not called if a text was stopped or failed, if the turn was cancelled, or if
    nothing was said in it.

    To display what is spoken, give the engine another channel, such as a `TerminalChannel`.
    """

    is_speech: ClassVar[bool] = True

    def __init__(
        self,
        *,
        name: str = "speech",
        into: str | Path | None = None,
        on_end: OnEnd | None = None,
        on_turn_spoken: OnTurnSpoken | None = None,
        code: str = CODE,
        reword: Reword | None = None,
        voices: Sequence[Voice] | None = None,
    ) -> None:
        for parameter, callback in (("on_end", on_end), ("on_turn_spoken", on_turn_spoken)):
            if iscoroutinefunction(callback):
                raise ConfigurationError(f"{parameter} must be a plain function, because its result is not awaited.")
        self.name = name
        self._into = None if into is None else Path(into)
        self._on_end = on_end
        self._on_turn_spoken = on_turn_spoken
        self._code = code
        self._reword = reword
        self._voices = find_voices() if voices is None else tuple(voices)
        self._lock = threading.Lock()
        self._queue: deque[_Utterance] = deque()  # the first is being spoken
        self._process: Popen[bytes] | None = None
        self._when_empty: list[Callable[[], None]] = []
        self._turns = SpokenTurns()

    def file_of(self, delivery: Delivery) -> Path | None:
        """The file for this delivery; None if it is spoken aloud. `Pure.`"""
        return None if self._into is None else self._into / f"{quote(delivery.key, safe='').replace('%2F', '-')}.wav"

    async def deliver(self, delivery: Delivery) -> None:
        """Take it over, to be spoken after the deliveries before it.

        Raises OSError if the folder cannot be made, and RuntimeError if no thread can be started; then it is not taken
        over.
        """
        if self._into is not None:
            self._into.mkdir(parents=True, exist_ok=True)
        loop, rewording = asyncio.get_running_loop(), None
        if self._reword is not None:  # while the deliveries before it are spoken
            reword = self._reword
            if isinstance(reword, Rewording):
                reword = partial(reword, conversation_id=delivery.conversation_id)
            rewording = asyncio.run_coroutine_threadsafe(self._try_to_reword(reword, delivery.text), loop)
        report = partial(_call_in, loop, partial(self._end, delivery))
        utterance = _Utterance(delivery, self.file_of(delivery), report, rewording)
        with self._lock:
            self._queue.append(utterance)
            if len(self._queue) == 1:
                # The thread ends when the queue is empty. It is a daemon, so a program can end before all is spoken.
                try:
                    threading.Thread(target=self._speak_all, daemon=True, name="turnwise-speech").start()
                except RuntimeError:
                    self._queue.clear()  # otherwise later deliveries would wait behind this one for ever
                    raise

    def stop(self) -> bool:
        """Be silent at once, in the middle of a word, and drop the texts in the queue. Later deliveries are spoken.

        Returns whether there was anything to stop. May be called from any thread.
        """
        with self._lock:
            was_speaking = any(not (utterance.is_stopped or utterance.is_over) for utterance in self._queue)
            for utterance in self._queue:
                utterance.is_stopped = True
                if utterance.rewording is not None:
                    utterance.rewording.cancel()
            if self._process is not None:
                terminate(self._process)
        return was_speaking

    async def drain(self) -> None:
        """Return when everything that was delivered is spoken or stopped.

        If the program ends earlier, the text that is being spoken is heard to its end, and the others are not.
        """
        emptied = asyncio.Event()
        with self._lock:
            if not self._queue:
                return
            self._when_empty.append(partial(_call_in, asyncio.get_running_loop(), emptied.set))
        await emptied.wait()

    def turn_ended(self, conversation_id: str, ended: TurnEnded) -> None:
        """Take note that nothing more will be said in this turn. Called by the engine."""
        self._open_follow_up(self._turns.note_end(conversation_id, ended))

    def _end(self, delivery: Delivery, outcome: Outcome) -> None:
        steps.info("Delivery %d of turn %d: %s.", delivery.ordinal, delivery.turn, outcome)
        last = self._turns.note_text(delivery, spoken=outcome == "spoken")
        if self._on_end is not None:
            self._call("on_end", partial(self._on_end, delivery, outcome))
        self._open_follow_up(last)

    def _open_follow_up(self, last: Delivery | None) -> None:
        if last is not None:
            steps.info("Turn %d was spoken.", last.turn)
            if self._on_turn_spoken is not None:
                self._call("on_turn_spoken", partial(self._on_turn_spoken, last))

    def _call(self, name: str, callback: Callable[[], object]) -> None:
        """Call the application. An error is logged here, since the event loop would log the delivery with its text."""
        try:
            callback()
        except Exception:
            logger.exception("The callback %s of the channel %s failed.", name, self.name)

    async def _try_to_reword(self, reword: Reword, text: str) -> str:
        """The reworded text without markup; empty if there is none in time."""
        try:
            async with asyncio.timeout(REWORDING_TIMEOUT):
                return make_speakable(await reword(text), self._code)
        except Exception:
            logger.warning("The channel %s speaks a delivery as it was written.", self.name, exc_info=True)
            return ""

    # --- in the thread that speaks

    def _speak_all(self) -> None:
        has_more = True
        while has_more:
            utterance = self._queue[0]
            outcome = self._speak(utterance)
            with self._lock:
                utterance.is_over = True
            utterance.report(outcome)
            with self._lock:
                self._queue.popleft()
                has_more = bool(self._queue)
                callbacks, self._when_empty = ([], self._when_empty) if has_more else (self._when_empty, [])
            for callback in callbacks:
                callback()

    def _speak(self, utterance: _Utterance) -> Outcome:
        text = self._text_of(utterance)
        if not text and not utterance.is_stopped:
            return "spoken"
        faults: list[str] = []
        for voice in self._voices:
            fault = self._speak_with(voice, utterance, text)
            if fault is None:
                if faults:
                    logger.debug("The channel %s speaks with %s. %s", self.name, voice.name, "; ".join(faults))
                return "spoken"
            if utterance.is_stopped:
                return "stopped"
            faults.append(f"{voice.name}: {fault}")
        logger.warning("The channel %s could not speak a delivery. %s", self.name, "; ".join(faults))
        return "failed"

    def _text_of(self, utterance: _Utterance) -> str:
        """The text to be spoken. The event loop in which it is reworded may be closed."""
        reworded = ""
        if utterance.rewording is not None:
            with suppress(BaseException):  # a function of the application may raise anything; this thread goes on
                reworded = utterance.rewording.result(REWORDING_TIMEOUT + LOOP_GRACE)
        return reworded or make_speakable(utterance.delivery.text, self._code)

    def _speak_with(self, voice: Voice, utterance: _Utterance, text: str) -> str | None:
        """Speak the text to its end. Returns None, or the reason why this voice did not."""
        partial_file = None if utterance.file is None else utterance.file.with_suffix(".part")
        try:
            with self._lock:
                if utterance.is_stopped:
                    return STOPPED
                self._process = voice.start(partial_file)
            fault = speak(self._process, text)
            if fault is None and partial_file is not None and utterance.file is not None:
                if not partial_file.exists():
                    return "it wrote nothing"
                partial_file.replace(utterance.file)
        except Exception as error:  # a voice of the application may raise anything; this thread must go on
            logger.warning("The voice %s cannot be used.", voice.name, exc_info=error)
            return getattr(error, "strerror", None) or type(error).__name__
        finally:
            with self._lock:
                self._process = None
            if partial_file is not None:
                partial_file.unlink(missing_ok=True)
        return fault


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Call a function in an event loop. If the loop is closed, nothing happens."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)
