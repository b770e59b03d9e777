"""Speaks what is said to the user, by a voice of this machine.

Speaking takes longer than a delivery may take. So the channel takes each text over and speaks it outside of the event
loop, one text after the other. Texts that it has taken over and not yet spoken are lost with the process: after a
crash a listener minds silence less than hearing everything again.

Each text is spoken by a voice, which is a process of its own. So the event loop goes on meanwhile, speech can be
ended in the middle of a word, and a voice that crashes or hangs harms nothing else.

Nobody wants to hear asterisks, or a URL letter by letter. So the markup is removed from a text that is to be spoken:
Markdown with a little HTML, which models write even if they are asked not to.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import signal
import subprocess
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from inspect import iscoroutinefunction
from pathlib import Path
from shutil import which
from subprocess import Popen
from typing import ClassVar, Final, Literal
from urllib.parse import quote

from ...states.errors import ConfigurationError
from ...states.values.turn import TurnEnded
from ...states.values.value import shortened
from ..logs import performer_logger
from ..model.performers.rewording import Rewording
from ..printable import printable
from .port import Delivery, SpeechPiece, SpeechSettled
from .written_speech import RetractedSpeech, WrittenTurn, sentences_of

CODE = "There is code to read here."
"""What is said in place of a block of code, unless the application gives another text."""

logger: Final = performer_logger("turnwise.channels")
steps: Final = performer_logger("turnwise.voice")

Outcome = Literal["spoken", "stopped", "failed"]
"""What became of a text."""

_STOPPED = "it was stopped"
"""The reason why a voice does not speak a text that was stopped before it began."""

OnEnd = Callable[[Delivery, Outcome], object]

OnTurnSpoken = Callable[[Delivery], object]
"""Called when a whole turn was spoken, with its last delivery."""

OnRetracted = Callable[[RetractedSpeech], object]
"""Called with words that were spoken and are not said after all."""

Reword = Callable[[str], Awaitable[str]]
"""Rewords a text to be spoken. `Rewording` has a model do so."""

REWORDING_TIMEOUT = 10.0
"""Seconds that rewording a text may take. A listener would rather hear the original text than wait longer."""

_LOOP_GRACE = 1.0
"""Seconds that the speaking thread waits longer than `REWORDING_TIMEOUT`. The event loop ends the rewording in time,
unless it is closed."""


@dataclass(eq=False)
class _Utterance:
    """A text in the queue, and `rewording`, its text to be spoken. `report` is called with what became of it, which is
    its `outcome` once the event loop knows. `was_begun` says that some of it may have been heard, and `spoken` is the
    delivery that it belongs to, once there is one."""

    text: str
    file: Path | None = None
    rewording: Future[str] | None = None
    report: Callable[[Outcome], None] | None = None
    was_begun: bool = False
    is_stopped: bool = False
    is_over: bool = False
    outcome: Outcome | None = None
    spoken: _SpokenDelivery | None = None


@dataclass(eq=False)
class _SpokenDelivery:
    """A delivery and the utterances that speak it: one, or the sentences that were begun before it was delivered."""

    delivery: Delivery
    utterances: list[_Utterance] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome | None:
        """What became of it; None while it is not over."""
        outcomes = [one.outcome for one in self.utterances]
        order: tuple[Outcome | None, ...] = (None, "failed", "stopped")
        return next((one for one in order if one in outcomes), "spoken")


@dataclass(eq=False)
class _Written:
    """What is spoken of a turn while it is written. A response that was being spoken when the channel was stopped is
    not spoken on: that was stopped `stops` times when `request` began."""

    turn: WrittenTurn[_Utterance]
    request: int = 0
    stops: int = 0


class SpeechChannel:
    """Speaks each delivery, in order, without its markup; `code` is said in place of a block of code. With `reword` it
    is first reworded to be spoken. If that fails, takes more than ten seconds or gives nothing, the original text is
    spoken.

    With `into`, a folder, nothing is played: each delivery becomes a file in it, named after its key and in the voice's
    own format, which is WAV on Linux and Windows. The file appears when it is complete.

    `on_end`, a plain function, is called in the engine's event loop with each delivery and what became of it: spoken
    (also if there was nothing to say), stopped, or failed, which is logged. Without `voices` those of the machine are
    used. If one voice fails, the next speaks the text. Raises `ConfigurationError` if there is none, or if a callback
    is a coroutine function.

    `on_turn_spoken`, a plain function too, is called once for each turn, with its last delivery: when the turn has
    ended, and everything that was said in it has been spoken to its end. An assistant then opens the window in which it
    listens for a follow-up question. It is not called if a text was stopped or failed, if the turn was cancelled, or if
    nothing was said in it.

    With `streaming` the text that a tool says is spoken sentence by sentence while the model writes it, and not again
    when it is delivered. A text that is not delivered after all is stopped at once, and `on_retracted`, a plain
    function, is called with what was heard of it. Such a channel rewords nothing and writes no files, because it does
    not know the whole text: the constructor raises `ConfigurationError`.

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
        streaming: bool = False,
        on_retracted: OnRetracted | None = None,
        code: str = CODE,
        reword: Reword | None = None,
        voices: Sequence[Voice] | None = None,
    ) -> None:
        callbacks = {"on_end": on_end, "on_turn_spoken": on_turn_spoken, "on_retracted": on_retracted}
        for parameter, callback in callbacks.items():
            if iscoroutinefunction(callback):
                raise ConfigurationError(f"{parameter} must be a plain function, because its result is not awaited.")
        if streaming and (into is not None or reword is not None):
            raise ConfigurationError("A channel that speaks what is being written can neither reword it nor file it.")
        self.name = name
        self._into = None if into is None else Path(into)
        self._on_end = on_end
        self._on_turn_spoken = on_turn_spoken
        self._on_retracted = on_retracted
        self._streaming = streaming
        self._code = code
        self._reword = reword
        self._voices = find_voices() if voices is None else tuple(voices)
        self._lock = threading.Lock()
        self._queue: deque[_Utterance] = deque()  # the first is being spoken
        self._process: Popen[bytes] | None = None
        self._when_empty: list[Callable[[], None]] = []
        self._turns = SpokenTurns()
        self._written: OrderedDict[tuple[str, int], _Written] = OrderedDict()
        self._newest = OrderedDict[str, tuple[int, list[_Utterance]]]()
        """The newest turn of each conversation in which anything was said, and what was."""
        self._stops = 0

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
        rewording = None
        if self._reword is not None:  # while the deliveries before it are spoken
            reword = self._reword
            if isinstance(reword, Rewording):
                reword = partial(reword, conversation_id=delivery.conversation_id)
            rewording = asyncio.run_coroutine_threadsafe(
                self._try_to_reword(reword, delivery.text), asyncio.get_running_loop()
            )
        spoken, rest = self._begun(delivery)
        if rest or not spoken.utterances:
            is_stopped = any(one.is_stopped for one in spoken.utterances)
            texts = (sentences_of(rest) if self._streaming else None) or [rest]
            file = self.file_of(delivery)
            new = [_Utterance(text, file, rewording, is_stopped=is_stopped, spoken=spoken) for text in texts]
            spoken.utterances += new
            for utterance in new:
                self._note_newest(delivery.conversation_id, delivery.turn, utterance)
                self._enqueue(utterance)
        elif spoken.outcome is not None:
            self._end(delivery, spoken.outcome)
        if (written := self._written.get((delivery.conversation_id, delivery.turn))) is not None:
            self._retract(delivery.conversation_id, written.turn)

    def speech_written(self, piece: SpeechPiece) -> None:
        """Speak what this piece completes, if the channel is `streaming`. Called by the engine."""
        if not self._streaming:
            return
        written = self._written_in(piece.conversation_id, piece.turn)
        if written.request != piece.request:
            written.request, written.stops = piece.request, self._stops
        written.turn.write(piece, partial(self._begin, piece, written.stops))

    def speech_settled(self, settled: SpeechSettled) -> None:
        """Fall silent where nothing delivers what is spoken. Called by the engine."""
        if (written := self._written.get((settled.conversation_id, settled.turn))) is not None:
            written.turn.settle(settled)
            self._retract(settled.conversation_id, written.turn)

    def stop(self) -> bool:
        """Be silent at once, in the middle of a word, and drop the texts in the queue. Later deliveries are spoken.

        Returns whether there was anything to stop. May be called from any thread.
        """
        with self._lock:
            self._stops += 1
            was_speaking = any(not (utterance.is_stopped or utterance.is_over) for utterance in self._queue)
            for utterance in self._queue:
                utterance.is_stopped = True
                if utterance.rewording is not None:
                    utterance.rewording.cancel()
            if self._process is not None:
                terminate(self._process)
        return was_speaking

    def heard(self, conversation_id: str) -> str | None:
        """Return what was heard of the newest turn of a conversation in which anything was said: the texts that a voice
        has begun, the last one perhaps not to its end. None if this channel has said nothing in the conversation.

        A channel that is `streaming` speaks sentence by sentence, and knows it as exactly; another one knows whole
        deliveries. Whoever interrupts the voice hands it on: `send(text, when_busy="interrupt", heard=…)`, if `stop`
        has stopped anything.
        """
        with self._lock:
            _, utterances = self._newest.get(conversation_id, (0, None))
            if utterances is None:
                return None
            return " ".join(one.text.strip() for one in utterances if one.was_begun)

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

    def _written_in(self, conversation_id: str, turn: int) -> _Written:
        written = self._written.setdefault((conversation_id, turn), _Written(WrittenTurn(turn)))
        self._written.move_to_end((conversation_id, turn))
        if len(self._written) > KEPT:
            self._written.popitem(last=False)
        return written

    def _begun(self, delivery: Delivery) -> tuple[_SpokenDelivery, str]:
        """The delivery with what was begun of it while it was written, and what is left to be spoken."""
        if not self._streaming:
            return _SpokenDelivery(delivery), delivery.text
        begun, rest = self._written_in(delivery.conversation_id, delivery.turn).turn.deliver(delivery)
        spoken = _SpokenDelivery(delivery, begun)
        for utterance in begun:
            utterance.spoken = spoken
        return spoken, rest

    def _begin(self, piece: SpeechPiece, stops: int, sentence: str) -> _Utterance:
        """Speak a sentence that is not delivered yet. Raises RuntimeError if no thread can be started."""
        utterance = _Utterance(sentence, is_stopped=stops != self._stops)
        self._note_newest(piece.conversation_id, piece.turn, utterance)
        self._enqueue(utterance)
        return utterance

    def _note_newest(self, conversation_id: str, turn: int, utterance: _Utterance) -> None:
        with self._lock:
            number, utterances = self._newest.pop(conversation_id, (turn, []))
            utterances = utterances if number == turn else []
            utterances.append(utterance)
            self._newest[conversation_id] = turn, utterances
            if len(self._newest) > KEPT:
                self._newest.popitem(last=False)

    def _enqueue(self, utterance: _Utterance) -> None:
        utterance.report = partial(_call_in, asyncio.get_running_loop(), partial(self._note_outcome, utterance))
        with self._lock:
            self._queue.append(utterance)
            if len(self._queue) == 1:
                # The thread ends when the queue is empty. It is a daemon, so a program can end before all is spoken.
                try:
                    threading.Thread(target=self._speak_all, daemon=True, name="turnwise-speech").start()
                except RuntimeError:
                    self._queue.clear()  # otherwise later deliveries would wait behind this one for ever
                    raise

    def _note_outcome(self, utterance: _Utterance, outcome: Outcome) -> None:
        utterance.outcome = outcome
        if (spoken := utterance.spoken) is not None and spoken.outcome is not None:
            self._end(spoken.delivery, spoken.outcome)

    def _retract(self, conversation_id: str, turn: WrittenTurn[_Utterance]) -> None:
        for sentences, why in turn.unsaid():
            heard = self._silence(sentences)
            if heard and self._on_retracted is not None:
                retracted = RetractedSpeech(conversation_id, turn.number, heard, why)
                self._call("on_retracted", partial(self._on_retracted, retracted))

    def _silence(self, sentences: Sequence[_Utterance]) -> str:
        """Do not speak these. Returns what was begun of them."""
        with self._lock:
            for utterance in sentences:
                utterance.is_stopped = True
            if self._process is not None and self._queue[0] in sentences:
                terminate(self._process)
            return "".join(one.text for one in sentences if one.was_begun).strip()

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
            if utterance.report is not None:
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
                reworded = utterance.rewording.result(REWORDING_TIMEOUT + _LOOP_GRACE)
        return reworded or make_speakable(utterance.text, self._code)

    def _speak_with(self, voice: Voice, utterance: _Utterance, text: str) -> str | None:
        """Speak the text to its end. Returns None, or the reason why this voice did not."""
        partial_file = None if utterance.file is None else utterance.file.with_suffix(".part")
        try:
            with self._lock:
                if utterance.is_stopped:
                    return _STOPPED
                self._process = voice.start(partial_file)
                utterance.was_begun = True
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


KEPT = 256
"""How many turns are remembered, and how many conversations with what was said in their newest one. The oldest must be
forgotten: a turn that ended in another process is never told to have ended here."""


@dataclass
class _Turn:
    """The texts of a turn that are over, by their ordinals, whether each was spoken, and how the turn ended, if it
    has."""

    texts: dict[int, Delivery] = field(default_factory=dict)
    was_spoken: bool = True
    ended: TurnEnded | None = None

    @property
    def is_over(self) -> bool:
        """Whether the turn has ended, and each of its texts is over."""
        return self.ended is not None and len(self.texts) >= len(self.ended.deliveries)


class SpokenTurns:
    """The turns whose texts are being spoken.

    An assistant listens for a follow-up question when everything that was said in a turn has been spoken. It needs
    both: the end of the turn, after which nothing more is said, and the end of each of its texts. They come in any
    order, because a turn can end while its first text is still being spoken.
    """

    def __init__(self) -> None:
        self._turns: OrderedDict[tuple[str, int], _Turn] = OrderedDict()

    def note_text(self, delivery: Delivery, *, spoken: bool) -> Delivery | None:
        """Take note that a text was spoken, or was not spoken to its end.

        Returns the last delivery of its turn if now everything that was said in the turn has been spoken.
        """
        turn = self._turn(delivery.conversation_id, delivery.turn)
        turn.texts[delivery.ordinal] = delivery
        turn.was_spoken = turn.was_spoken and spoken
        return self._finish(delivery.conversation_id, delivery.turn)

    def note_end(self, conversation_id: str, ended: TurnEnded) -> Delivery | None:
        """Take note that a turn ended. Returns what `note_text` returns."""
        self._turn(conversation_id, ended.turn).ended = ended
        return self._finish(conversation_id, ended.turn)

    def _turn(self, conversation_id: str, number: int) -> _Turn:
        turn = self._turns.setdefault((conversation_id, number), _Turn())
        if len(self._turns) > KEPT:
            self._turns.popitem(last=False)
        return turn

    def _finish(self, conversation_id: str, number: int) -> Delivery | None:
        """Forget the turn if it is over. Returns its last delivery if all of it was spoken: there is nothing to listen
        for behind a silent turn, or one that the user cancelled."""
        turn = self._turns[conversation_id, number]
        if turn.ended is None or not turn.is_over:
            return None
        del self._turns[conversation_id, number]
        if not turn.texts or not turn.was_spoken or turn.ended.status == "cancelled":
            return None
        return turn.texts[max(turn.texts)]


def make_speakable(text: str, code: str = CODE) -> str:
    """The text as a person would read it to somebody; empty if there is nothing to say.

    Links become their words, URLs their host, and rows of tables are separated by commas. Headings and items end with a
    full stop, which makes a pause. `code` stands in place of each block of code.

    The markup is removed line by line, and what is not markup remains: `snake_case`, 2 * 3, a < b. No pattern spans
    lines, so the time is proportional to the length of the text. `Pure.`
    """
    lines = (_make_line_speakable(line) for line in _replace_code(printable(text).splitlines(), code))
    return "\n".join(line for line in lines if any(map(str.isprintable, line.strip()))).strip()


def _replace_code(lines: Iterable[str], code: str) -> Iterator[str]:
    """The lines, with `code` in place of each block of code. A block without an end goes on to the end of the text."""
    fence = ""
    for line in map(str.strip, lines):
        found = _FENCE.match(line)
        if fence:
            if found and found[0].startswith(fence) and found.end() == len(line):
                fence = ""
        elif found:
            fence = found[0]
            yield code
        else:
            yield line


def _make_line_speakable(line: str) -> str:
    """A stripped line outside of code without its markup."""
    line = _QUOTED.sub("", line, count=1) if line.startswith(">") else line
    if _RULE.fullmatch(line) or _DEFINITION.fullmatch(line):
        return ""
    marker = _MARKER.match(line)
    spoken = _remove_inline_markup(_CLOSING.sub("", line[marker.end() :]) if marker else line)
    is_block = bool(marker or _NUMBER.match(line))
    if spoken.startswith("|") or spoken.endswith("|"):
        spoken, is_block = ", ".join(cell.strip() for cell in spoken.split("|") if cell.strip()), True
    return f"{spoken}." if is_block and spoken and not spoken.endswith(_END_OF_SENTENCE) else spoken


def _remove_inline_markup(line: str) -> str:
    line = _IMAGE_OR_LINK.sub(r"\1", line)
    line = _ADDRESS.sub(_host, line)
    line = _TAG.sub("", line)
    line = _EMPHASIS.sub("", _STRUCK.sub("", line))
    return _ESCAPED.sub(r"\1", _ENTITY.sub(lambda entity: html.unescape(entity[0]), line))


def _host(address: re.Match[str]) -> str:
    """The host of a URL, with the punctuation that follows the URL."""
    host, path = address[1], address[2] or ""
    return f"{host}{path[-1]}" if path.endswith(_END_OF_SENTENCE) else host


# The patterns are applied to lines without leading and trailing blanks.
_FENCE = re.compile(r"`{3,}|~{3,}")
_RULE = re.compile(r"(?:[-*_=]\s*){3,}|\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?)?")
"""A horizontal rule, or the line under the heading of a table."""
_DEFINITION = re.compile(r"\[[^\]\n]{1,200}\]:\s+\S.*")
"""The URL of a link that is used elsewhere."""

_QUOTED = re.compile(r"(?:>\s?)+")
_MARKER = re.compile(r"(?:#{1,6}|[-*+•](?:\s+\[[ xX]\])?)\s+")
"""The mark in front of a heading or an item of a list, which is not spoken."""
_NUMBER = re.compile(r"\d{1,9}[.)]\s")
"""The number in front of an item, which is spoken."""
_CLOSING = re.compile(r"\s#+$")
"""The marks behind a heading."""

_IMAGE_OR_LINK = re.compile(
    r"!?\[([^\[\]\n]*)\](?:\([^()\s]*(?:\([^()\s]*\)[^()\s]*)?(?:\s+\"[^\"\n]*\")?\)|\[[^\[\]\n]*\])"
)
_ADDRESS = re.compile(r"<?\b(?:https?://|www\.)(?:www\.)?([^\s/?#<>()\"'`]+)([/?#][^\s<>()\"'`]*)?>?")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,500}>|<!--[^\n]{0,500}?-->")
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,31}|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
_EMPHASIS = re.compile(
    r"(?<![\w*\\])\*{1,3}(?=[^\s*])|(?<=[^\s*\\])\*{1,3}(?![\w*])"
    r"|(?<![\w\\])_{1,3}(?=[^\W_])|(?<=[^\W_])_{1,3}(?!\w)"
)
_STRUCK = re.compile(r"~~|`+")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_END_OF_SENTENCE = (".", "!", "?", ":", ";", ",", "…", "。", "\uff01", "\uff1f")

PYTTSX3, ESPEAK = "pyttsx3", "espeak-ng"
_SCRIPT = Path(__file__).with_name("speech_voice.py")

TIMEOUT, TIMEOUT_PER_CHARACTER = 30.0, 0.2
"""Seconds that a voice may take for a text before it counts as hung. Speech takes less than 0.1 s per character."""

_PHONEMES = re.compile(r"\[(?=\[)")
"""Two opening brackets, after which espeak-ng reads phonemes instead of words."""

_FAILED = re.compile(r"^error:", re.IGNORECASE)
"""How espeak-ng reports a failure to play; its exit code is 0 nevertheless."""

LONGEST_FAULT = 300
"""The most characters of a voice's error message that are reported."""


@dataclass(frozen=True)
class Voice:
    """A program that speaks the UTF-8 text on its stdin aloud, or into FILE if its command ends in `-w FILE`."""

    name: str
    command: tuple[str, ...]

    def start(self, file: Path | None) -> subprocess.Popen[bytes]:
        """Start it for one text. Raises OSError if that fails."""
        into = () if file is None else ("-w", str(file))
        return subprocess.Popen(
            [*self.command, *into],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that its child processes are terminated with it
        )


def speak(process: subprocess.Popen[bytes], text: str) -> str | None:
    """Send a voice its text, and wait for its end. Returns None if it has spoken, otherwise one line that says why not.
    A voice that hangs is terminated."""
    data = _PHONEMES.sub("[ ", text).encode()
    try:
        _, errors = process.communicate(data, timeout=TIMEOUT + TIMEOUT_PER_CHARACTER * len(data))
    except subprocess.TimeoutExpired:
        terminate(process)
        process.communicate()
        return "it did not finish in time and was terminated"
    lines = [line for line in printable(errors.decode(errors="replace")).splitlines() if line.strip()]
    failures = [line for line in lines if _FAILED.match(line)]
    if process.returncode == 0 and not failures:
        return None
    last = next(reversed(failures or lines), f"it ended with the exit code {process.returncode}")
    return shortened(last.strip(), LONGEST_FAULT)


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Kill a voice and its child processes, unless it has ended."""
    if process.poll() is None:
        with suppress(OSError):  # it may just have ended
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()


def find_voices() -> tuple[Voice, ...]:
    """The voices of this machine, in the order in which to try them: pyttsx3, which the extra `speech` installs, and
    the program espeak-ng. Raises `ConfigurationError` if there is none."""
    voices = [Voice(PYTTSX3, (sys.executable, "-P", str(_SCRIPT)))] if find_spec(PYTTSX3) else []
    program = which(ESPEAK)
    if program:
        voices.append(Voice(ESPEAK, (program, "--stdin", "-b", "1")))
    if not voices:
        raise ConfigurationError(f"No speech engine is installed: install {_what_to_install()}.")
    return tuple(voices)


def _what_to_install() -> str:
    """On Linux pyttsx3 needs espeak-ng too, and does not install it."""
    if sys.platform.startswith("linux"):
        return f"the program {ESPEAK}, or with pip {PYTTSX3} and espeakng-loader"
    return f"{PYTTSX3}, or the program {ESPEAK}"
